//! What the gateway knows of its backends: metrics, refusals, addresses, providers' limits, priorities.

#![cfg(test)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairlane::addresses::Resolver;
use fairlane::config::Source;
use fairlane::serve::{Origin, Overrides, start_with};
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::{
    Backend, KEY, Reply, Step, TestGateway, chat_answer, chat_body, delta, gateway, json_answer, limited,
    pool, send, until,
};
use crate::support::{STREAM_HEAD, chat_stream_end};

#[tokio::test]
async fn the_size_of_the_kv_cache_is_read_from_the_engine_and_bounds_what_runs_at_once() {
    let page = "vllm:num_requests_waiting{engine=\"0\"} 0\nvllm:kv_cache_usage_perc{engine=\"0\"} 0\n\
                vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"10\"} 1\n";
    let backend = Backend::for_all(move |got| {
        if got.head.starts_with("GET /metrics") {
            return vec![Step::Write(text_answer(page))];
        }
        if got.head.starts_with("GET ") {
            return vec![Step::Write(json_answer(404, &Value::Null))];
        }
        vec![Step::Wait, Step::Write(chat_answer(50, 60))]
    })
    .await;
    let gateway = gateway(&limited(backend.address, "tokens: 2000/day burst 1d", "")).await;
    let view = || gateway.running.gateway.driver.pools()[0].clone();
    until("the size is known", || view().backends[0].kv_tokens.is_some()).await;
    let body = chat_body(50, 60);
    let watch = async {
        until("one runs and one waits", || view().backends[0].in_flight == 1 && view().classes[0].1 == 1)
            .await;
        let state = gateway.admin("/api/v1/state").await;
        let shown = &state["backends"][0];
        assert_eq!((&shown["kv_capacity"], &shown["kv_tokens"]), (&json!(160), &json!(50)));
        let metrics = send(gateway.running.admin.unwrap(), "GET", "/metrics", &[], "".into()).await.text();
        let line = format!("fairlane_backend_kv_tokens{{pool=\"main\",backend=\"{}\"}} 50", backend.address);
        assert!(metrics.contains(&line), "{metrics}");
        backend.go_on();
        backend.go_on();
    };
    let (first, second, ()) = tokio::join!(gateway.chat(&body), gateway.chat(&body), watch);
    assert_eq!((first.status, second.status), (200, 200));
    gateway.idle().await;
    assert_eq!(view().backends[0].occupied.0, 0);
}

#[tokio::test]
async fn an_engine_that_answers_503_is_trusted_with_less_and_the_request_goes_back_uncharged() {
    let backend = Backend::start({
        let refusals = Mutex::new(2);
        move |_| {
            let mut left = refusals.lock().unwrap();
            if *left > 0 {
                *left -= 1;
                return vec![Step::Write(json_answer(503, &json!({"error": {"message": "full"}})))];
            }
            vec![Step::Write(chat_answer(10, 10))]
        }
    })
    .await;
    let gateway = gateway(&limited(backend.address, "tokens: 2000/day burst 1d", "")).await;
    assert_eq!(gateway.chat(&chat_body(10, 10)).await.status, 200);
    gateway.idle().await;
    assert_eq!(backend.got().len(), 3);
    assert_eq!(gateway.level("t", "tenant/t/tokens").await, 1_980, "charged once");
    let state = gateway.admin("/api/v1/state").await;
    assert_eq!(state["backends"][0]["kv_factor"], 0.9, "two refusals at the same time are one");
}

#[tokio::test]
async fn the_addresses_of_a_name_come_and_go_and_what_runs_on_one_that_is_gone_ends_well() {
    let (first, second) = beside_each_other().await;
    let names = Names::new(&[first.address.ip()]);
    let gateway = names.gateway(&by_name(&first)).await;
    assert_eq!(gateway.chat(&chat_body(5, 10)).await.status, 200);
    assert_eq!((first.got().len(), second.got().len()), (1, 0));
    let mut running = gateway.stream(&chat_body(5, 10), 1).await;
    assert_eq!(running.status, 200);
    names.set(&[second.address.ip()]);
    let alive = || {
        let pool = gateway.running.gateway.driver.pools()[0].clone();
        let alive = pool.backends.iter().filter(|backend| backend.is_alive);
        alive.map(|backend| backend.backend.index).collect::<Vec<_>>()
    };
    until("the other address is taken on", || alive() == [1]).await;
    assert_eq!(gateway.chat(&chat_body(5, 10)).await.status, 200);
    assert_eq!((first.got().len(), second.got().len()), (2, 1));
    let shown = shown_backends(&gateway).await;
    assert_eq!(shown, ["engines.test:0#1", "engines.test:0#2"], "the one that is gone has a stream yet");
    first.go_on();
    while running.more().await {}
    assert!(String::from_utf8_lossy(&running.body).contains("[DONE]"), "it ended in order");
    gateway.idle().await;
    assert_eq!(shown_backends(&gateway).await, ["engines.test:0#2"]);
    names.set(&[first.address.ip(), second.address.ip()]);
    until("both are there", || alive() == [0, 1]).await;
    names.fail();
    let asked = names.asked();
    until("the name was looked up again", || names.asked() > asked + 1).await;
    assert_eq!(alive(), [0, 1], "an answer that does not come takes nothing away");
}

#[tokio::test]
async fn a_reload_keeps_the_addresses_of_a_name() {
    let (first, _second) = beside_each_other().await;
    let names = Names::new(&[first.address.ip()]);
    let gateway = names.gateway(&by_name(&first)).await;
    names.fail();
    gateway.running.reread();
    until("it was read again", || {
        let page = gateway.running.gateway.metrics.text(&gateway.running.gateway);
        page.contains("fairlane_config_reloads_total{result=\"ok\"} 1")
    })
    .await;
    assert_eq!(gateway.chat(&chat_body(5, 10)).await.status, 200);
}

/// A pool whose only backend is a name, at this backend's port.
fn by_name(backend: &Backend) -> String {
    let url = format!("\"http://{}\"", backend.address);
    let dns = format!("{{dns: \"engines.test:{}\"}}", backend.address.port());
    let pool = pool(&[backend.address], "").replace(&url, &dns);
    format!("{pool}tenants: [{{name: t, keys: [\"{KEY}\"]}}]\n")
}

#[tokio::test]
async fn c07_the_class_is_told_in_the_engines_own_direction_and_what_the_client_sends_is_not() {
    for (engine, path, interactive, batch) in [
        ("vllm", "/v1/chat/completions", Value::Null, json!(1)),
        ("vllm", "/v1/completions", Value::Null, json!(1)),
        ("sglang", "/v1/chat/completions", json!(0), json!(-1)),
        ("openai", "/v1/chat/completions", Value::Null, Value::Null),
    ] {
        let backend = Backend::always(chat_answer(10, 10)).await;
        let yaml = limited(backend.address, "concurrent_requests: 4", "");
        let gateway = gateway(&classes(&yaml).replace("engine: vllm", &format!("engine: {engine}"))).await;
        let mut body = chat_body(10, 10);
        body["priority"] = json!(-5);
        body["prompt"] = json!("w w");
        for class in ["interactive", "batch"] {
            let reply = gateway.post_with(path, &[("x-fairlane-class", class)], &body).await;
            assert_eq!(reply.status, 200, "{}", reply.text());
        }
        let told: Vec<Value> = backend.got().iter().map(|got| got.json()["priority"].clone()).collect();
        assert_eq!(told, [interactive, batch], "{engine} {path}");
    }
}

#[tokio::test]
async fn c07_messages_tell_vllm_their_class_in_a_header_and_strip_tells_nothing() {
    for (more, told) in [("", Some("1")), ("    priority: strip\n", None)] {
        let backend = Backend::always(chat_answer(10, 10)).await;
        let yaml = format!("{}tenants: [{{name: t, keys: [\"{KEY}\"]}}]\n", pool(&[backend.address], more));
        let gateway = gateway(&classes(&yaml)).await;
        let headers = [("x-fairlane-class", "batch"), ("x-vllm-priority", "-9")];
        gateway.post_with("/v1/messages", &headers, &chat_body(10, 10)).await;
        gateway.post_with("/v1/chat/completions", &headers, &chat_body(10, 10)).await;
        let got = backend.got();
        assert_eq!(got[0].header("x-vllm-priority").as_deref(), told);
        assert_eq!(got[1].header("x-vllm-priority"), None);
        assert_eq!(got[1].json()["priority"], told.map_or(Value::Null, |_| json!(1)));
    }
}

#[tokio::test]
async fn what_a_provider_says_is_left_of_its_limit_holds_the_next_request_back() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-ratelimit-limit-tokens: 1000\r\n\
                x-ratelimit-remaining-tokens: 0\r\nx-ratelimit-reset-tokens: 1m0s\r\n";
    let backend = Backend::always(with_head(head, &chat_answer(10, 10))).await;
    let yaml =
        limited(backend.address, "concurrent_requests: 4", "").replace("engine: vllm", "engine: openai");
    let gateway = gateway(&yaml).await;
    let body = chat_body(10, 10);
    let free = gateway.chat(&body).await;
    assert!(free.status == 200 && free.number("x-fairlane-queue-ms") < 1_000);
    // Twenty of a thousand that refill in a minute.
    let held: Reply = gateway.chat(&body).await;
    assert_eq!(held.status, 200);
    assert!(held.number("x-fairlane-queue-ms") >= 1_190, "{:?}", held.headers);
    assert_eq!(held.header("x-ratelimit-remaining-tokens"), "", "the provider's budget is not the client's");
}

#[tokio::test]
async fn a_wait_that_a_provider_tells_in_fractions_of_a_second_is_kept() {
    let refused = Mutex::new(false);
    let backend = Backend::start(move |_| {
        if !std::mem::replace(&mut *refused.lock().unwrap(), true) {
            let busy = json_answer(429, &json!({"error": {"message": "slow down"}}));
            return vec![Step::Write(with_head("HTTP/1.1 429 Busy\r\nretry-after: 0.7\r\n", &busy))];
        }
        vec![Step::Write(chat_answer(10, 10))]
    })
    .await;
    let gateway = gateway(&limited(backend.address, "tokens: 2000/day burst 1d", "")).await;
    let reply = gateway.chat(&chat_body(10, 10)).await;
    assert_eq!((reply.status, backend.got().len()), (200, 2));
    let record = &gateway.ended(1).await[0];
    assert!(record.total_ms >= 700 && record.attempts == 2, "{record:?}");
}

/// Names that the test answers for.
struct Names {
    answer: Arc<Mutex<(Option<Vec<IpAddr>>, usize)>>,
}

impl Names {
    fn new(addresses: &[IpAddr]) -> Self {
        Self { answer: Arc::new(Mutex::new((Some(addresses.to_vec()), 0))) }
    }

    fn set(&self, addresses: &[IpAddr]) {
        self.answer.lock().unwrap().0 = Some(addresses.to_vec());
    }

    fn fail(&self) {
        self.answer.lock().unwrap().0 = None;
    }

    fn asked(&self) -> usize {
        self.answer.lock().unwrap().1
    }

    async fn gateway(&self, yaml: &str) -> TestGateway {
        let text = format!("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n{yaml}");
        let source = Source::from_text("test.yaml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let answer = Arc::clone(&self.answer);
        let resolve = move |host: String, _| {
            assert_eq!(host, "engines.test");
            let mut answer = answer.lock().unwrap();
            answer.1 += 1;
            let found = answer.0.clone().ok_or_else(|| io::Error::other("no answer"));
            async move { found }.boxed()
        };
        let resolver = Resolver { resolve: Arc::new(resolve), interval: Duration::from_millis(20) };
        let origin = Origin::Fixed(Box::new(source));
        let running = start_with(origin, Overrides::default(), resolver).await;
        TestGateway { running: running.unwrap_or_else(|error| panic!("{error}\n{text}")) }
    }
}

/// Two backends on the same port of two loopback addresses. Streams of the first one wait in their middle.
async fn beside_each_other() -> (Backend, Backend) {
    for _ in 0..100 {
        let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = first.local_addr().unwrap().port();
        let address = SocketAddr::new(Ipv4Addr::new(127, 0, 0, 2).into(), port);
        let Ok(second) = TcpListener::bind(address).await else { continue };
        let first = Backend::listening(first, |got| {
            if got.json()["stream"] == true {
                let mut begin = STREAM_HEAD.to_vec();
                begin.extend(delta("w "));
                return vec![Step::Write(begin), Step::Wait, Step::Write(chat_stream_end(Some((5, 1))))];
            }
            vec![Step::Write(chat_answer(5, 7))]
        });
        return (first, Backend::listening(second, |_| vec![Step::Write(chat_answer(5, 7))]));
    }
    panic!("no port is free on both addresses");
}

/// Names of the backends in the admin state, in order, without their port.
async fn shown_backends(gateway: &TestGateway) -> Vec<String> {
    let state = gateway.admin("/api/v1/state").await;
    let names = state["backends"].as_array().unwrap().iter().map(|shown| shown["name"].as_str().unwrap());
    names
        .map(|name| {
            let (host, rest) = name.split_once(':').unwrap();
            format!("{host}:0#{}", rest.split_once('#').unwrap().1)
        })
        .collect()
}

fn classes(yaml: &str) -> String {
    format!("classes: [{{name: interactive}}, {{name: batch}}]\n{yaml}")
}

fn text_answer(text: &str) -> Vec<u8> {
    let length = text.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n\r\n{text}")
        .into_bytes()
}

/// An answer with its status line and first headers replaced; its content type and length stay.
fn with_head(head: &str, answer: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(answer.to_vec()).unwrap();
    let (_, rest) = text.split_once("\r\n").unwrap();
    let rest = if head.contains("content-type") { rest.split_once("\r\n").unwrap().1 } else { rest };
    format!("{head}{rest}").into_bytes()
}
