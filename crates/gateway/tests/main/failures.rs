//! What becomes of a request whose backend fails, in both dialects.

#![cfg(test)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fairlane::clock::monotonic;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::cases_a::answer_of;
use crate::support::{
    Backend, KEY, STREAM_HEAD, Step, chat_answer, chat_body, chunk, delta, gateway, json_answer, pool, send,
    streaming, until,
};

mod headers;
mod shutdown;

const PATHS: [&str; 2] = ["/v1/chat/completions", "/v1/messages"];
const TENANT: &str = "tenants:
  - name: t
    keys: [\"key-of-tenant-t-0001\"]
    limits: {tokens: 2000/day burst 1d, requests: 10/day burst 1d}
";

/// These backends behind the fixture's tenant; `more` goes under the pool, indented by four.
fn behind(backends: &[&Backend], more: &str) -> String {
    let addresses: Vec<_> = backends.iter().map(|backend| backend.address).collect();
    format!("{}{TENANT}", pool(&addresses, more))
}

#[tokio::test]
async fn a_busy_backend_gets_the_request_again_and_it_is_charged_once() {
    for (path, status) in [(PATHS[0], 429), (PATHS[0], 503), (PATHS[1], 529)] {
        let tries = Arc::new(AtomicUsize::new(0));
        let backend = Backend::start(move |got| {
            let is_busy = tries.fetch_add(1, Ordering::Relaxed) < 2;
            let busy = json_answer(status, &json!({"error": {"message": "busy"}}));
            vec![Step::Write(if is_busy { busy } else { json_answer(200, &answer_of(got)) })]
        })
        .await;
        let gateway = gateway(&behind(&[&backend], "")).await;
        let reply = gateway.post(path, &chat_body(5, 100)).await;
        assert_eq!(reply.status, 200, "{path} after {status}");
        gateway.idle().await;
        let record = &gateway.ended(1).await[0];
        assert_eq!((record.attempts, record.charged), (3, 12));
        assert_eq!(gateway.level("t", "tenant/t/tokens").await, 1_988);
        assert_eq!(gateway.level("t", "tenant/t/requests").await, 9);
    }
}

#[tokio::test]
async fn a_backend_that_stays_busy_has_its_own_words_passed_on_when_the_wait_is_over() {
    for path in PATHS {
        for status in [429, 503] {
            let body = json!({"error": {"message": "come back later", "type": "own"}}).to_string();
            let answer = format!(
                "HTTP/1.1 {status} Busy\r\ncontent-type: application/json\r\nretry-after: 7\r\n\
                 x-ratelimit-remaining-tokens: 77\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            let backend = Backend::always(answer.into_bytes()).await;
            let gateway = gateway(&behind(&[&backend], "")).await;
            let patience = [("x-fairlane-max-wait-ms", "300")];
            let reply = gateway.post_with(path, &patience, &chat_body(5, 100)).await;
            assert_eq!((reply.status, reply.text()), (status, body));
            assert_eq!(reply.header("retry-after"), "7");
            assert_ne!(
                reply.header("x-ratelimit-remaining-tokens"),
                "77",
                "a backend's budget is not the client's"
            );
            gateway.idle().await;
            assert_eq!(gateway.ended(1).await[0].charged, 0);
            assert_eq!(gateway.level("t", "tenant/t/tokens").await, 2_000);
            assert_eq!(gateway.level("t", "tenant/t/requests").await, 10);
        }
    }
}

#[tokio::test]
async fn a_failure_is_tried_once_elsewhere_and_then_passed_on_as_it_came() {
    for path in PATHS {
        let fails = async |name: &'static str| {
            Backend::always(json_answer(500, &json!({"error": {"message": name}}))).await
        };
        let backends = [fails("first").await, fails("second").await, fails("third").await];
        let gateway = gateway(&behind(&[&backends[0], &backends[1], &backends[2]], "")).await;
        let reply = gateway.post(path, &chat_body(5, 100)).await;
        assert_eq!((reply.status, reply.json()), (500, json!({"error": {"message": "second"}})));
        gateway.idle().await;
        let record = &gateway.ended(1).await[0];
        assert_eq!((record.attempts, record.charged, record.outcome), (2, 0, "upstream_error"));
        assert_eq!(backends.each_ref().map(|backend| backend.got().len()), [1, 1, 0]);
    }
}

#[tokio::test]
async fn a_backend_that_cannot_be_reached_is_502_and_another_one_serves() {
    for path in PATHS {
        // Dropped at once: nobody listens there any more.
        let gone = Backend::always(Vec::new()).await;
        let works = Backend::start(|got| vec![Step::Write(json_answer(200, &answer_of(got)))]).await;
        let alone = behind(&[&gone], "");
        let both = behind(&[&gone, &works], "");
        drop(gone);
        let gateway_alone = gateway(&alone).await;
        until("nobody listens", || gateway_alone.running.gateway.driver.live() == 0).await;
        let reply = gateway_alone.post(path, &chat_body(5, 100)).await;
        let kind = if path == PATHS[0] { "server_error" } else { "api_error" };
        assert_eq!((reply.status, reply.json()["error"]["type"].as_str()), (502, Some(kind)));
        gateway_alone.idle().await;
        assert_eq!(gateway_alone.level("t", "tenant/t/tokens").await, 2_000);
        let gateway = gateway(&both).await;
        assert_eq!(gateway.post(path, &chat_body(5, 100)).await.status, 200);
        assert_eq!(gateway.ended(1).await[0].attempts, 2);
    }
}

#[tokio::test]
async fn an_answer_that_is_not_http_or_breaks_before_its_head_is_502() {
    let answers: [Vec<Step>; 3] = [
        vec![Step::Write(b"this is not HTTP\r\n\r\n".to_vec()), Step::Close],
        vec![Step::Close],
        vec![Step::Write(b"HTTP/1.1 200 OK\r\ncontent-ty".to_vec()), Step::Close],
    ];
    for answer in answers {
        for path in PATHS {
            let answer = answer.clone();
            let backend = Backend::start(move |_| answer.clone()).await;
            let gateway = gateway(&behind(&[&backend], "")).await;
            let reply = gateway.post(path, &chat_body(5, 100)).await;
            assert_eq!(reply.status, 502, "{}", reply.text());
            assert!(reply.json()["error"]["message"].is_string());
            gateway.idle().await;
            assert_eq!(gateway.level("t", "tenant/t/tokens").await, 2_000);
        }
    }
}

#[tokio::test]
async fn a_backend_without_a_first_byte_in_time_is_504() {
    let silent_stream = vec![Step::Write(STREAM_HEAD.to_vec()), Step::AwaitClose];
    for answer in [vec![Step::AwaitClose], silent_stream] {
        for path in PATHS {
            let answer = answer.clone();
            let backend = Backend::start(move |_| answer.clone()).await;
            let yaml = format!("timeouts: {{first_byte: 200ms}}\n{}", behind(&[&backend], ""));
            let gateway = gateway(&yaml).await;
            let reply = gateway.post(path, &streaming(&chat_body(5, 100))).await;
            let kind = if path == PATHS[0] { "server_error" } else { "timeout_error" };
            assert_eq!((reply.status, reply.json()["error"]["type"].as_str()), (504, Some(kind)));
            backend.is_left(1).await;
            gateway.idle().await;
            let record = &gateway.ended(1).await[0];
            assert_eq!((record.outcome, record.status), ("upstream_timeout", 504));
        }
    }
}

#[tokio::test]
async fn a_stream_that_falls_silent_breaks_and_is_a_timeout() {
    let backend = Backend::start(|_| {
        vec![Step::Write(STREAM_HEAD.to_vec()), Step::Write(delta("w")), Step::AwaitClose]
    })
    .await;
    let gateway = gateway(&format!("timeouts: {{stream_idle: 200ms}}\n{}", behind(&[&backend], ""))).await;
    let reply = gateway.chat(&streaming(&chat_body(5, 100))).await;
    assert!(reply.broken);
    gateway.idle().await;
    let record = &gateway.ended(1).await[0];
    assert_eq!((record.outcome, record.charged), ("upstream_timeout", 6));
}

#[tokio::test]
async fn an_error_as_the_first_event_becomes_an_answer_with_its_own_code() {
    let events = [
        (json!({"error": {"message": "too long for me", "type": "BadRequestError", "code": 400}}), 400),
        (json!({"error": {"message": "out of memory", "type": "x", "code": 500}}), 500),
        (json!({"error": {"message": "something", "type": "unheard_of", "code": "E77"}}), 502),
        (json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}), 529),
        (json!({"error": {"message": "full", "type": "x", "code": 503}}), 503),
    ];
    for (event, status) in events {
        for path in PATHS {
            let mut answer = STREAM_HEAD.to_vec();
            answer.extend(chunk(format!("event: error\ndata: {event}\n\n").as_bytes()));
            answer.extend_from_slice(crate::support::LAST_CHUNK);
            let backend = Backend::always(answer).await;
            let gateway = gateway(&behind(&[&backend], "")).await;
            let patience = [("x-fairlane-max-wait-ms", "250")];
            let reply = gateway.post_with(path, &patience, &streaming(&chat_body(5, 100))).await;
            assert_eq!(reply.status, status, "{event}");
            assert_eq!(reply.header("content-type"), "application/json");
            assert!(reply.text().contains(event["error"]["message"].as_str().unwrap()), "{}", reply.text());
            assert_eq!(reply.json()["type"] == "error", path == PATHS[1], "in the client's dialect");
            gateway.idle().await;
            assert_eq!(gateway.level("t", "tenant/t/tokens").await, 2_000);
        }
    }
}

#[tokio::test]
async fn a_stream_that_breaks_after_its_first_byte_breaks_for_the_client_too() {
    let chunked = vec![
        Step::Write(STREAM_HEAD.to_vec()),
        Step::Write(delta("w")),
        Step::Write(delta("w")),
        Step::Write(delta("w")),
        Step::Close,
    ];
    let with_length = vec![
        Step::Write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9000\r\n\r\n".to_vec(),
        ),
        Step::Write(b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"w\"}}]}\n\n".to_vec()),
        Step::Close,
    ];
    for steps in [chunked, with_length] {
        let backend = Backend::start(move |_| steps.clone()).await;
        let gateway = gateway(&behind(&[&backend], "")).await;
        let reply = gateway.chat(&streaming(&chat_body(5, 100))).await;
        assert_eq!((reply.status, reply.broken), (200, true));
        assert!(reply.text().contains("\"w\"") && !reply.text().contains("[DONE]"));
        gateway.idle().await;
        let record = &gateway.ended(1).await[0];
        assert_eq!((record.outcome, record.attempts), ("interrupted", 1));
        assert!(record.charged > 5 && record.charged < 20, "{record:?}");
    }
}

#[tokio::test]
async fn a_whole_answer_that_breaks_off_breaks_for_the_client_too() {
    let backend = Backend::start(|_| {
        let whole = chat_answer(5, 7);
        vec![Step::Write(whole[..whole.len() - 20].to_vec()), Step::Close]
    })
    .await;
    let gateway = gateway(&behind(&[&backend], "")).await;
    let reply = gateway.chat(&chat_body(5, 100)).await;
    assert!(reply.broken);
    gateway.idle().await;
    assert_eq!(gateway.ended(1).await[0].outcome, "interrupted");
}

#[tokio::test]
async fn a_refusal_of_the_backend_passes_untouched_and_no_token_is_charged() {
    for path in PATHS {
        for status in [400, 404, 413, 422] {
            let body = json!({"error": {"message": "not like this", "param": "temperature"}});
            let backend = Backend::always(json_answer(status, &body)).await;
            let gateway = gateway(&behind(&[&backend], "")).await;
            let reply = gateway.post(path, &chat_body(5, 100)).await;
            assert_eq!((reply.status, reply.json()), (status, body));
            gateway.idle().await;
            let record = &gateway.ended(1).await[0];
            assert_eq!((record.charged, record.attempts, record.status), (0, 1, status));
            assert_eq!(gateway.level("t", "tenant/t/tokens").await, 2_000);
            // The backend has answered: the request counts.
            assert_eq!(gateway.level("t", "tenant/t/requests").await, 9);
        }
    }
}

#[tokio::test]
async fn health_checks_take_a_backend_out_and_back_in() {
    let is_ill = Arc::new(AtomicBool::new(false));
    let ill = Arc::clone(&is_ill);
    let first = Backend::for_all(move |got| {
        if got.head.starts_with("GET /health") {
            let status = if ill.load(Ordering::Relaxed) { 500 } else { 200 };
            return vec![Step::Write(json_answer(status, &Value::Null))];
        }
        vec![Step::Write(chat_answer(5, 7))]
    })
    .await;
    let second = Backend::always(chat_answer(5, 7)).await;
    let health = "health: {interval: 100ms, unhealthy_after: 2, healthy_after: 2}";
    let gateway = gateway(&behind(&[&first, &second], "    slots: 1\n").replace("health: off", health)).await;
    let alive = || gateway.running.gateway.driver.pools()[0].backends[0].is_alive;
    let posts = || first.got().iter().filter(|got| got.head.starts_with("POST")).count();
    assert_eq!(gateway.chat(&chat_body(5, 10)).await.status, 200);
    assert_eq!(posts(), 1);
    is_ill.store(true, Ordering::Relaxed);
    until("the first backend is out", || !alive()).await;
    assert_eq!(gateway.chat(&chat_body(5, 10)).await.status, 200);
    assert_eq!((posts(), second.got().len()), (1, 1));
    assert_eq!(gateway.admin("/api/v1/state").await["backends"][0]["alive"], false);
    is_ill.store(false, Ordering::Relaxed);
    until("the first backend is back", alive).await;
    assert_eq!(gateway.chat(&chat_body(5, 10)).await.status, 200);
    assert_eq!(posts(), 2);
}

#[tokio::test]
async fn a_backend_gets_its_own_credential_and_never_the_clients() {
    for (engine, path, header, value) in [
        ("openai", PATHS[0], "authorization", "Bearer key-of-the-provider"),
        ("anthropic", PATHS[1], "x-api-key", "key-of-the-provider"),
    ] {
        let backend = Backend::start(|got| vec![Step::Write(json_answer(200, &answer_of(got)))]).await;
        let entry = format!("{{url: \"http://{}\", api_key: key-of-the-provider}}", backend.address);
        let yaml = behind(&[&backend], "")
            .replace(&format!("\"http://{}\"", backend.address), &entry)
            .replace("engine: vllm", &format!("engine: {engine}"));
        let gateway = gateway(&yaml).await;
        let bearer = format!("Bearer {KEY}");
        let clients = [
            vec![("authorization", bearer.as_str())],
            vec![("x-api-key", KEY)],
            vec![("authorization", bearer.as_str()), ("x-api-key", KEY), ("api-key", KEY), ("cookie", KEY)],
        ];
        for headers in clients {
            let body = chat_body(5, 10).to_string();
            let reply = send(gateway.address(), "POST", path, &headers, body.into()).await;
            assert_eq!(reply.status, 200);
            let got = backend.got().pop().unwrap();
            assert_eq!(got.header(header).as_deref(), Some(value));
            assert!(!got.head.contains(KEY), "{}", got.head);
        }
    }
}

#[tokio::test]
async fn the_limits_of_a_backend_and_of_a_pool_make_requests_wait() {
    for scope in ["backend", "pool"] {
        let backend = Backend::always(chat_answer(5, 7)).await;
        // One request in 200 ms.
        let limits = "limits: {requests: 5/s burst 200ms}";
        let yaml = if scope == "pool" {
            behind(&[&backend], &format!("    {limits}\n"))
        } else {
            let entry = format!("{{url: \"http://{}\", {limits}}}", backend.address);
            behind(&[&backend], "").replace(&format!("\"http://{}\"", backend.address), &entry)
        };
        let gateway = gateway(&yaml).await;
        let began = monotonic();
        let body = chat_body(5, 10);
        for reply in join_all((0..4).map(|_| gateway.chat(&body))).await {
            assert_eq!(reply.status, 200);
        }
        assert!(began.elapsed() >= Duration::from_millis(600), "{scope}: {:?}", began.elapsed());
        gateway.idle().await;
        let longest = gateway.ended(4).await.iter().map(|record| record.queue_ms).max();
        assert!(longest >= Some(500), "{scope}: {longest:?}");
    }
}
