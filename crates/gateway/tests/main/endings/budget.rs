//! A budget that ends in the middle of a stream.

use serde_json::{Value, json};

use super::waiting_after;
use crate::support::{
    Backend, KEY, Reply, STREAM_HEAD, Step, TestGateway, chat_body, chat_stream, chunk, delta, event,
    gateway, pool, streaming,
};

const PATHS: [&str; 3] = ["/v1/chat/completions", "/v1/messages", "/v1/responses"];

async fn cutting(backend: &Backend, limits: &str, tenant: &str) -> TestGateway {
    let pool = pool(&[backend.address], "");
    gateway(&format!(
        "{pool}tenants:\n  - name: t\n    keys: [\"{KEY}\"]\n    limits: {{{limits}}}\n    on_budget_end: stop\n    {tenant}\n"
    ))
    .await
}

/// The events of a body, each with its data read.
fn events(reply: &Reply) -> Vec<(String, Value)> {
    let text = reply.text();
    let parts = text.split("\n\n").filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let line = |name: &str| part.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            (line("event: ").to_owned(), serde_json::from_str(line("data: ")).unwrap_or_default())
        })
        .collect()
}

/// Each dialect's stream of many pieces of one word.
fn endless(path: &str) -> Vec<Step> {
    let piece = match path {
        "/v1/messages" => {
            let data = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "w "}});
            chunk(format!("event: content_block_delta\ndata: {data}\n\n").as_bytes())
        }
        "/v1/responses" => {
            let data = json!({"type": "response.output_text.delta", "sequence_number": 1, "delta": "w "});
            chunk(format!("event: response.output_text.delta\ndata: {data}\n\n").as_bytes())
        }
        _ => delta("w "),
    };
    let mut steps = vec![Step::Write(STREAM_HEAD.to_vec())];
    steps.extend((0..60).map(|_| Step::Write(piece.clone())));
    steps.push(Step::AwaitClose);
    steps
}

fn asked(path: &str) -> Value {
    let text = ["w"; 10].join(" ");
    match path {
        "/v1/responses" => json!({"model": "m", "input": text, "max_output_tokens": 100, "stream": true}),
        _ => {
            json!({"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 100, "stream": true})
        }
    }
}

#[tokio::test]
async fn a29_a_hard_cut_ends_with_an_error_event_of_the_dialect_and_without_an_end_mark() {
    for path in PATHS {
        let backend = Backend::start(move |_| endless(path)).await;
        let gateway = cutting(&backend, "tokens: 40/day burst 1d", "charging: postpay").await;
        let reply = gateway.post(path, &asked(path)).await;
        assert!(!reply.broken, "the body ends as its framing says");
        assert!(!reply.text().contains("[DONE]"));
        let events = events(&reply);
        let (name, last) = events.last().unwrap();
        let error = &last["error"];
        let (kind, code) = if path == "/v1/messages" {
            ("rate_limit_error", Value::Null)
        } else {
            ("tokens", json!("rate_limit_exceeded"))
        };
        assert_eq!((&error["type"], &error["code"]), (&json!(kind), &code), "{last}");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.starts_with("the answer was cut: ") && message.contains("tenant/t/tokens"),
            "{message}"
        );
        assert_eq!(name == "error", path != "/v1/chat/completions");
        if path != "/v1/chat/completions" {
            assert_eq!(last["type"], "error");
        }
        if path == "/v1/responses" {
            assert_eq!(last["sequence_number"], events.len() - 1);
        }
        // Thirty tokens were left after the input; what came with the one too many has passed as well.
        assert!(events.len() > 31, "{}", events.len());
        backend.is_left(1).await;
        gateway.idle().await;
        let record = &gateway.records()[0];
        assert_eq!(record.outcome, "budget_end");
        assert_eq!(record.charged, 10 + events.len() as u64 - 1, "every piece that passed");
        assert_eq!(gateway.post(path, &asked(path)).await.status, 429);
    }
}

#[tokio::test]
async fn a_stream_within_its_budget_passes_to_its_end_unchanged() {
    let backend = Backend::always(chat_stream(20, Some((10, 20)))).await;
    for charging in ["reserve", "quantile", "postpay"] {
        let gateway = cutting(&backend, "tokens: 30/day burst 1d", &format!("charging: {charging}")).await;
        let reply = gateway.chat(&streaming(&chat_body(10, 20))).await;
        assert_eq!(reply.status, 200, "{charging}");
        assert!(reply.text().ends_with("data: [DONE]\n\n"), "{charging}: {}", reply.text());
        gateway.idle().await;
        assert_eq!((gateway.records()[0].outcome, gateway.records()[0].charged), ("completed", 30));
    }
}

#[tokio::test]
async fn a_run_budget_that_ends_in_a_stream_says_not_to_come_back() {
    let backend = Backend::start(|_| waiting_after(60)).await;
    let tenant = "charging: postpay\n    runs: {token_budget: 40}";
    let gateway = cutting(&backend, "tokens: 20000/day burst 1d", tenant).await;
    let reply = gateway.chat(&streaming(&chat_body(10, 100))).await;
    let events = events(&reply);
    let error = &events.last().unwrap().1["error"];
    assert_eq!(
        (&error["type"], &error["code"]),
        (&json!("insufficient_quota"), &json!("run_budget_exceeded"))
    );
    gateway.idle().await;
    assert_eq!(gateway.records()[0].outcome, "budget_end");
}

#[tokio::test]
async fn a_cut_waits_for_the_end_of_the_event_that_is_under_way() {
    let backend = Backend::start(|_| {
        let whole = json!({"choices": [{"index": 0, "delta": {"content": "w "}}]}).to_string();
        let mut steps = vec![Step::Write(STREAM_HEAD.to_vec())];
        steps.extend((0..4).map(|_| Step::Write(event(&whole))));
        steps.push(Step::Wait);
        // The fifth is one too many; its blank line comes with half of a sixth.
        steps.push(Step::Write(chunk(format!("data: {whole}\n").as_bytes())));
        steps.push(Step::Wait);
        steps.push(Step::Write(chunk(b"\ndata: {\"choices\"")));
        steps.push(Step::AwaitClose);
        steps
    })
    .await;
    let gateway = cutting(&backend, "tokens: 14/day burst 1d", "charging: postpay").await;
    let mut stream = gateway.stream(&chat_body(10, 100), 4).await;
    backend.go_on();
    assert!(stream.more().await);
    backend.go_on();
    while stream.more().await {}
    let text = String::from_utf8(stream.body).unwrap();
    assert_eq!(text.matches("data: ").count(), 6, "{text}");
    assert_eq!(text.matches("the answer was cut").count(), 1, "{text}");
    gateway.idle().await;
    assert_eq!(gateway.records()[0].charged, 15);
}

#[tokio::test]
async fn a_backend_that_ignores_its_bound_is_cut_when_nothing_is_left() {
    let backend = Backend::start(|_| waiting_after(60)).await;
    let gateway = cutting(&backend, "tokens: 40/day burst 1d", "charging: reserve").await;
    let reply = gateway.chat(&streaming(&chat_body(10, 30))).await;
    assert!(reply.text().contains("the answer was cut"), "{}", reply.text());
    gateway.idle().await;
    let record = &gateway.records()[0];
    // A third above the bound before the count is believed.
    assert!(record.outcome == "budget_end" && record.output > 40, "{record:?}");
}

#[tokio::test]
async fn an_answer_in_a_coding_is_broken_off_instead() {
    let plain: Vec<u8> = (0..60)
        .flat_map(|_| {
            let piece = json!({"choices": [{"index": 0, "delta": {"content": "w "}}]});
            format!("data: {piece}\n\n").into_bytes()
        })
        .collect();
    // Stored blocks of deflate need no compressor.
    let backend = Backend::start(move |_| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n\
                    transfer-encoding: chunked\r\n\r\n";
        let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
        for part in plain.chunks(60_000) {
            let length = part.len() as u16;
            gzip.push(0);
            gzip.extend(length.to_le_bytes());
            gzip.extend((!length).to_le_bytes());
            gzip.extend(part);
        }
        vec![Step::Write(head.into()), Step::Write(chunk(&gzip)), Step::AwaitClose]
    })
    .await;
    let gateway = cutting(&backend, "tokens: 40/day burst 1d", "charging: postpay").await;
    let reply = gateway.chat(&streaming(&chat_body(10, 100))).await;
    gateway.idle().await;
    let record = &gateway.records()[0];
    assert!(reply.broken, "no event of ours can be put into it: {record:?}");
    assert_eq!(record.outcome, "budget_end");
}
