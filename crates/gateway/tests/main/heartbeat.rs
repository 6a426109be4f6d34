//! Comments for streams that wait, and late refusals as the last event.

#![cfg(test)]

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    Backend, KEY, LAST_CHUNK, Reply, STREAM_HEAD, Step, TestGateway, chat_answer, chat_body, chat_stream,
    chat_stream_end, chunk, delta, gateway, json_answer, pool, read, streaming,
};

mod nginx;

const COMMENT: &str = ": waiting\n\n";
const PATHS: [&str; 3] = ["/v1/chat/completions", "/v1/messages", "/v1/responses"];

/// One slot, a comment every 100 ms; `top` are lines of the whole configuration.
async fn beating(backend: SocketAddr, top: &str) -> TestGateway {
    let pool = pool(&[backend], "    slots: 1\n");
    gateway(&format!(
        "queue_heartbeat: 100ms\n{top}\n{pool}tenants:\n  - name: t\n    keys: [\"{KEY}\"]\n    \
         limits: {{tokens: 20000/day burst 1d, requests: 100/day burst 1d}}\n"
    ))
    .await
}

fn asked(path: &str) -> Value {
    match path {
        "/v1/responses" => json!({"model": "m", "input": "w w w", "max_output_tokens": 20, "stream": true}),
        _ => streaming(&chat_body(3, 20)),
    }
}

/// The data of the last event, and its name.
fn last_event(reply: &Reply) -> (String, Value) {
    let text = reply.text();
    let event = text.trim_end().rsplit("\n\n").next().unwrap();
    let line = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    (line("event: ").to_owned(), serde_json::from_str(line("data: ")).unwrap())
}

#[tokio::test]
async fn a_stream_that_waits_in_the_queue_gets_comments_and_then_its_whole_answer() {
    let whole = chat_stream(3, Some((3, 3)));
    let backend = Backend::start(move |_| vec![Step::Wait, Step::Write(whole.clone())]).await;
    let gateway = beating(backend.address, "").await;
    let body = asked(PATHS[0]);
    let plain = chat_body(3, 20);
    let running = gateway.chat(&plain);
    let waiting = async {
        backend.has_got(1).await;
        // Its head comes although nothing is decided.
        let mut stream = gateway.stream(&body, 3).await;
        assert_eq!(stream.status, 200);
        assert_eq!(String::from_utf8_lossy(&stream.body), COMMENT.repeat(3));
        backend.go_on();
        backend.go_on();
        while stream.more().await {}
        stream
    };
    let (_, stream) = tokio::join!(running, waiting);
    let text = String::from_utf8(stream.body).unwrap();
    assert!(text.starts_with(COMMENT) && text.ends_with("data: [DONE]\n\n"), "{text}");
    assert_eq!(text.matches("\"content\":\"w \"").count(), 3, "{text}");
    gateway.idle().await;
    let record = &gateway.records()[0];
    assert_eq!((record.outcome, record.charged, record.status), ("completed", 6, 200));
}

#[tokio::test]
async fn the_early_head_names_the_request_and_its_budgets_but_not_what_comes_later() {
    let backend = Backend::start(|_| vec![Step::Wait, Step::Write(chat_stream(1, Some((3, 1))))]).await;
    let gateway = beating(backend.address, "").await;
    let response = gateway.begin(PATHS[0], &[], &asked(PATHS[0])).await;
    let headers = response.headers().clone();
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("x-accel-buffering", "no"),
        ("cache-control", "no-store"),
        ("x-fairlane-class", "interactive"),
        ("x-ratelimit-limit-tokens", "20000"),
        ("x-ratelimit-remaining-tokens", "19977"),
    ] {
        assert_eq!(
            headers.get(name).map(|value| value.to_str().unwrap()),
            Some(value),
            "{name}: {headers:?}"
        );
    }
    assert!(headers.contains_key("x-fairlane-request-id"));
    assert!(!headers.contains_key("x-fairlane-queue-ms") && !headers.contains_key("content-length"));
    backend.go_on();
    assert!(read(response).await.text().ends_with("data: [DONE]\n\n"));
}

#[tokio::test]
async fn a_late_refusal_is_the_last_event_of_its_dialect_and_the_body_ends_well() {
    for path in PATHS {
        let backend = Backend::start(|_| vec![Step::Wait, Step::Write(chat_answer(3, 3))]).await;
        let gateway = beating(backend.address, "classes: [{name: interactive, max_wait: 250ms}]").await;
        let plain = chat_body(3, 20);
        let running = gateway.chat(&plain);
        let late = async {
            backend.has_got(1).await;
            let reply = gateway.post(path, &asked(path)).await;
            backend.go_on();
            reply
        };
        let (_, reply) = tokio::join!(running, late);
        assert_eq!((reply.status, reply.broken), (200, false), "{path}");
        let text = reply.text();
        assert!(text.starts_with(COMMENT) && !text.contains("[DONE]"), "{text}");
        let (name, data) = last_event(&reply);
        let expected = if path == "/v1/messages" { "overloaded_error" } else { "overloaded" };
        assert_eq!(data["error"]["type"], expected, "{data}");
        assert!(data["error"]["message"].as_str().unwrap().contains("try again in"), "{data}");
        assert_eq!(name, if path == "/v1/chat/completions" { "" } else { "error" });
        gateway.idle().await;
        let records = gateway.records();
        let refused = records.iter().find(|record| record.outcome == "refused").unwrap();
        assert_eq!((refused.charged, refused.refusal.as_deref()), (0, Some("wait_too_long")));
    }
}

#[tokio::test]
async fn a_late_failure_of_the_backend_is_told_in_its_own_words() {
    let own = json!({"error": {"message": "the prompt is too odd", "type": "own_type", "code": 422}});
    let table = [
        (json_answer(422, &own), "the prompt is too odd", 0),
        (json_answer(500, &json!({"detail": "lost"})), "lost", 0),
        (
            b"HTTP/1.1 500 No\r\ncontent-length: 4\r\n\r\n<ht>".to_vec(),
            "the backend answered with status 500",
            0,
        ),
        (chat_answer(3, 3), "the backend did not answer with a plain event stream", 6),
    ];
    for (answer, words, charged) in table {
        let backend = Backend::start(move |_| vec![Step::Wait, Step::Write(answer.clone())]).await;
        let gateway = beating(backend.address, "").await;
        let response = gateway.begin(PATHS[0], &[], &asked(PATHS[0])).await;
        backend.go_on();
        let reply = read(response).await;
        assert_eq!((reply.status, reply.broken), (200, false), "{words}");
        let (_, data) = last_event(&reply);
        assert_eq!(data["error"]["message"], words);
        gateway.idle().await;
        assert_eq!(gateway.records()[0].charged, charged, "{words}");
    }
}

#[tokio::test]
async fn comments_fill_a_silence_between_events_and_never_one_inside_an_event() {
    let event = format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": "w"}}]}));
    let (first, second) = event.split_at(20);
    let sent = [event.as_bytes(), first.as_bytes(), second.as_bytes(), b"data: [DONE]\n\n"];
    let pieces: Vec<Vec<u8>> = sent.iter().map(|bytes| chunk(bytes)).collect();
    let backend = Backend::start(move |_| {
        let pause = Step::Pause(Duration::from_millis(350));
        vec![
            Step::Write(STREAM_HEAD.to_vec()),
            Step::Write(pieces[0].clone()),
            pause.clone(),
            Step::Write(pieces[1].clone()),
            pause.clone(),
            Step::Write(pieces[2].clone()),
            pause,
            Step::Write(pieces[3].clone()),
            Step::Write(LAST_CHUNK.to_vec()),
        ]
    })
    .await;
    let gateway = beating(backend.address, "").await;
    let reply = gateway.post_with(PATHS[0], &[], &asked(PATHS[0])).await;
    let text = reply.text();
    assert_eq!(text.replace(COMMENT, ""), String::from_utf8(sent.concat()).unwrap(), "{text}");
    let (before, after) = text.split_once(&event).unwrap();
    assert_eq!(before, "", "{text}");
    assert!(after.starts_with(COMMENT), "{text}");
    let (between, last) = after.split_once(&event).unwrap();
    assert!(between.matches(COMMENT).count() >= 2, "{text}");
    assert!(last.starts_with(COMMENT), "{text}");
}

#[tokio::test]
async fn comments_do_not_lengthen_the_silence_that_a_backend_may_keep() {
    let backend = Backend::start(|_| {
        vec![Step::Write(STREAM_HEAD.to_vec()), Step::Write(delta("w")), Step::AwaitClose]
    })
    .await;
    let gateway = beating(backend.address, "timeouts: {stream_idle: 450ms}").await;
    let reply = gateway.chat(&asked(PATHS[0])).await;
    assert!(reply.broken && reply.text().matches(COMMENT).count() >= 3, "{}", reply.text());
    gateway.idle().await;
    assert_eq!(gateway.records()[0].outcome, "upstream_timeout");
}

#[tokio::test]
async fn what_is_decided_before_the_first_comment_is_as_without_it() {
    let backend = Backend::always(chat_stream(1, Some((3, 1)))).await;
    let gateway = beating(backend.address, "").await;
    let too_large = gateway.chat(&streaming(&chat_body(3, 30_000))).await;
    assert_eq!((too_large.status, too_large.header("x-should-retry")), (400, "false"));
    let quick = gateway.chat(&asked(PATHS[0])).await;
    assert_eq!(quick.status, 200);
    assert!(quick.number("x-fairlane-queue-ms") >= 0 && !quick.text().contains(COMMENT));
    assert_eq!(quick.header("x-accel-buffering"), "no");
}

#[tokio::test]
async fn an_answer_that_does_not_stream_waits_without_comments() {
    let backend = Backend::start(|_| {
        vec![
            Step::Pause(Duration::from_millis(350)),
            Step::Write(json_answer(500, &json!({"error": "lost"}))),
        ]
    })
    .await;
    let gateway = beating(backend.address, "").await;
    let reply = gateway.chat(&chat_body(3, 20)).await;
    assert_eq!((reply.status, reply.json()["error"].as_str()), (500, Some("lost")));
}

#[tokio::test]
async fn a_client_that_leaves_while_it_gets_comments_frees_its_place() {
    let backend = Backend::start(|_| vec![Step::Wait, Step::Write(chat_answer(3, 3))]).await;
    let gateway = beating(backend.address, "").await;
    let plain = chat_body(3, 20);
    let running = gateway.chat(&plain);
    let leaving = async {
        backend.has_got(1).await;
        drop(gateway.stream(&asked(PATHS[0]), 2).await);
        crate::support::until("it is out of the queue", || gateway.running.gateway.driver.live() == 1).await;
        backend.go_on();
    };
    tokio::join!(running, leaving);
    gateway.idle().await;
    let records = gateway.records();
    assert!(
        records.iter().any(|record| (record.outcome, record.charged) == ("client_gone", 0)),
        "{records:?}"
    );
    assert_eq!(backend.got().len(), 1);
}

#[tokio::test]
async fn an_answer_read_on_without_its_client_may_have_had_comments() {
    let backend = Backend::start(|_| {
        let mut end = chat_stream_end(Some((3, 9)));
        let mut steps = vec![Step::Wait, Step::Write(STREAM_HEAD.to_vec()), Step::Write(delta("w"))];
        steps.push(Step::Write(std::mem::take(&mut end)));
        steps
    })
    .await;
    let pool = pool(&[backend.address], "");
    let gateway = gateway(&format!(
        "queue_heartbeat: 100ms\n{pool}tenants:\n  - name: t\n    keys: [\"{KEY}\"]\n    on_client_gone: drain\n"
    ))
    .await;
    drop(gateway.stream(&asked(PATHS[0]), 2).await);
    backend.go_on();
    gateway.idle().await;
    let record = &gateway.records()[0];
    assert_eq!((record.outcome, record.charged), ("client_gone", 12));
}
