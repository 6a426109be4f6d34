//! Fifty requests of every kind at the same time, against the simulated engine.

use bytes::Bytes;
use fairlane::engine::{EngineOptions, Pace, Record, spawn};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{KEY, Reply, gateway, in_time, send};

const REQUESTS: usize = 50;

#[tokio::test]
async fn fifty_mixed_requests_at_once_are_charged_in_every_limit_what_the_engine_made() {
    let options = EngineOptions { pace: Pace::Scaled(20.0), prefix_cache: true, ..EngineOptions::default() };
    let engine = spawn(options).await.unwrap();
    let gateway = gateway(&configuration(&engine.urls()[0])).await;
    let address = gateway.address();
    let mut replies: JoinSet<Reply> = (0..REQUESTS)
        .map(|place| async move {
            let Request { path, body, fault } = request(place);
            let headers = [("x-api-key", KEY), ("x-fairlane-run", "run-1"), ("x-sim-fault", fault)];
            send(address, "POST", path, &headers, Bytes::from(body.to_string())).await
        })
        .collect();
    let made = in_time("the engine's records", engine.recorded(0, REQUESTS as u64)).await;
    let mut answered = Vec::new();
    while let Some(reply) = in_time("an answer", replies.join_next()).await {
        answered.push(reply.unwrap());
    }
    gateway.idle().await;
    let records = gateway.ended(REQUESTS).await;
    for reply in &answered {
        assert_eq!((reply.status, reply.broken), (200, false), "{}", reply.text());
        let record = records
            .iter()
            .find(|record| record.id.to_string() == reply.header("x-fairlane-request-id"))
            .unwrap();
        let id = reply.number("x-sim-request").unsigned_abs();
        let made = made.iter().find(|made| made.id == id).unwrap();
        assert_eq!((record.input, record.output), (made.prompt, made.produced), "{record:?} {made:?}");
        assert_eq!(record.charged, made.prompt + made.produced, "{record:?} {made:?}");
        let tells_cached = made.endpoint != "/v1/embeddings" && made.fault == "none";
        assert_eq!(record.cached, if tells_cached { made.cached } else { 0 }, "{record:?} {made:?}");
    }
    assert!(records.iter().any(|record| record.cached > 0));
    let sum = |of: fn(&Record) -> u64| made.iter().map(of).sum::<u64>();
    let (input, output) = (sum(|made| made.prompt), sum(|made| made.produced));
    let totals = gateway.running.gateway.driver.totals();
    println!("{input} input and {output} output tokens: {totals:?}");
    assert_eq!(totals.settled, input + output, "{totals:?}");
    assert_eq!(totals.overrun, 0, "{totals:?}");

    let left = |used: u64| BUCKET - i64::try_from(used).unwrap();
    assert_eq!(gateway.level("t", "tenant/t/tokens").await, left(input + output));
    assert_eq!(gateway.level("t", "tenant/t/input_tokens").await, left(input));
    assert_eq!(gateway.level("t", "tenant/t/output_tokens").await, left(output));
    assert_eq!(gateway.level("t", "tenant/t/requests").await, left(REQUESTS as u64));
    assert_eq!(gateway.level("t", "key/t/key-1/tokens").await, left(input + output));
    assert_eq!(gateway.level("t", "team/all/tokens").await, left(input + output));
    assert_eq!(gateway.level("t", "service/tokens").await, left(input + output));
    let run = &gateway.admin("/api/v1/tenants/t").await["runs"][0]["limits"];
    let budget = run.as_array().unwrap().iter().find(|limit| limit["dimension"] == "token_budget").unwrap();
    assert_eq!(budget["level"], left(input + output));
}

struct Request {
    path: &'static str,
    body: Value,
    fault: &'static str,
}

/// A request of each kind in turn; the texts differ, and with them the engine's lengths.
fn request(place: usize) -> Request {
    let text = format!("{}request {place} {}", "the same beginning ".repeat(40), "word ".repeat(place * 7));
    let messages = json!([{"role": "user", "content": text}]);
    let (path, body) = match place % 8 {
        0 => (CHAT, json!({"messages": messages, "max_tokens": 300})),
        1 => (CHAT, json!({"messages": messages, "max_tokens": 40, "stream": true})),
        2 => {
            let usage = json!({"include_usage": true});
            (CHAT, json!({"messages": messages, "n": 2, "stream": true, "stream_options": usage}))
        }
        3 => ("/v1/responses", json!({"input": text, "max_output_tokens": 200, "stream": true})),
        4 => ("/v1/messages", json!({"messages": messages, "max_tokens": 100, "stream": true})),
        5 => ("/v1/messages", json!({"messages": messages, "max_tokens": 300})),
        6 => ("/v1/embeddings", json!({"input": [text, "and more"]})),
        _ => ("/v1/completions", json!({"prompt": text, "max_tokens": 60, "n": 2, "best_of": 3})),
    };
    // Words that nobody reports are counted exactly as they pass.
    let fault = if place == 1 { "no-usage" } else { "none" };
    let mut body = body;
    body["model"] = json!("sim");
    Request { path, body, fault }
}

fn configuration(engine: &str) -> String {
    let bucket = "{rate: 1000/day, burst: 300d}";
    format!(
        "service: {{tokens: {bucket}}}
pools:
  - name: main
    models: [sim]
    engine: vllm
    backends: [{{url: \"{engine}\"}}]
    tokenizer: {{vocabulary: words, mode: exact}}
    health: off
teams:
  - {{name: all, limits: {{tokens: {bucket}}}}}
tenants:
  - name: t
    team: all
    keys: [{{key: \"{KEY}\", limits: {{tokens: {bucket}}}}}]
    limits: {{tokens: {bucket}, input_tokens: {bucket}, output_tokens: {bucket}, requests: {bucket}}}
    runs: {{token_budget: {BUCKET}}}"
    )
}

const CHAT: &str = "/v1/chat/completions";
/// What every limit holds at first; the refill during the test is less than one.
const BUCKET: i64 = 300_000;
