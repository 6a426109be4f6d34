//! Real time: absolute step deadlines, priorities, bounds, clients that leave, and HTTP/2.

use fairlane::engine::{EngineOptions, Pace, Running, spawn};
use fairlane_lab::Shape;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use super::client::{PATIENCE, ask, client, get, open, post, until};

const CHAT: &str = "/v1/chat/completions";

/// A prompt and an output of these sizes.
fn body(prompt: u64, output: u64) -> Value {
    json!({"messages": [], "stream": true, "sim": {"prompt_tokens": prompt, "output_tokens": output}})
}

async fn engine(scale: f64, slots: usize) -> Running {
    let shape = Shape { slots, ..Shape::REFERENCE };
    spawn(EngineOptions { pace: Pace::Scaled(scale), shape, ..EngineOptions::default() }).await.unwrap()
}

fn url(engine: &Running) -> String {
    format!("{}{CHAT}", engine.urls()[0])
}

async fn metric(engine: &Running, name: &str) -> f64 {
    let page = get(engine, "/metrics").await.body;
    let page = String::from_utf8_lossy(&page);
    let line = page.lines().find(|line| line.starts_with(&format!("vllm:{name}{{"))).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_request_takes_the_models_time_to_the_microsecond_however_late_the_wake_ups() {
    let engine = engine(20.0, 48).await;
    let asked = fairlane::clock::monotonic();
    ask(&engine, CHAT, &body(2_000, 101)).await;
    let elapsed = asked.elapsed().as_secs_f64();
    // Two steps read the prompt, the second makes the first token, 100 more steps make the rest.
    let prefill = (2.0 * 8_000.0 + 54.0 * 2_000.0) / 1e6;
    let decoding = 100.0 * 8_080.0 / 1e6;
    let close = |got: f64, expected: f64| assert!((got - expected).abs() < 1e-6, "{got} for {expected}");
    close(metric(&engine, "time_to_first_token_seconds_sum").await, prefill);
    close(metric(&engine, "inter_token_latency_seconds_sum").await, decoding);
    close(metric(&engine, "e2e_request_latency_seconds_sum").await, prefill + decoding);
    assert!(elapsed >= (prefill + decoding) / 20.0, "{elapsed}");
}

#[tokio::test]
async fn a16_a_client_that_leaves_a_stream_frees_the_slot_and_stops_the_work() {
    let engine = engine(1.0, 1).await;
    let mut response = open(post(&url(&engine), &body(10, 100_000), &[])).await;
    while response.frame().await.unwrap().unwrap().into_data().unwrap().is_empty() {}
    assert_eq!(engine.counters(0).running, 1);
    drop(response);
    let records = tokio::time::timeout(PATIENCE, engine.recorded(0, 1)).await.unwrap();
    let left = &records[0];
    assert!(left.cancelled && left.produced >= 1 && left.produced < 1_000, "{left:?}");
    assert!(left.sent <= left.produced);
    let counters = engine.counters(0);
    assert_eq!((counters.running, counters.kv_held.0, counters.cancelled), (0, 0, 1));
}

#[tokio::test]
async fn a16_a_client_that_leaves_before_an_answer_or_while_it_waits_stops_the_work_too() {
    let engine = engine(1.0, 1).await;
    let mut long = body(10, 100_000);
    long["stream"] = json!(false);
    let running = tokio::spawn(client().request(post(&url(&engine), &long, &[])));
    until(|| engine.counters(0).running == 1).await;
    let waiting = tokio::spawn(client().request(post(&url(&engine), &long, &[])));
    until(|| engine.counters(0).waiting == 1).await;
    waiting.abort();
    let records = tokio::time::timeout(PATIENCE, engine.recorded(0, 1)).await.unwrap();
    assert_eq!((records[0].cancelled, records[0].produced, records[0].status), (true, 0, None));
    running.abort();
    let records = tokio::time::timeout(PATIENCE, engine.recorded(0, 2)).await.unwrap();
    assert!(records[1].cancelled && records[1].status.is_none());
    assert_eq!(engine.counters(0).running + engine.counters(0).waiting, 0);
}

#[tokio::test]
async fn waiting_requests_start_by_priority_lower_first() {
    let engine = engine(50.0, 1).await;
    let mut tasks = Vec::new();
    for (place, priority) in [0, 7, 3, -1].into_iter().enumerate() {
        let mut request = body(10, 400);
        request["priority"] = json!(priority);
        let request = post(&url(&engine), &request, &[]);
        tasks.push(tokio::spawn(async move { super::client::send(request).await }));
        until(|| engine.counters(0).running + engine.counters(0).waiting == place + 1).await;
    }
    for task in tasks {
        assert_eq!(task.await.unwrap().status, 200);
    }
    let order: Vec<i64> =
        engine.recorded(0, 4).await.iter().map(|record| record.priority.unwrap_or_default()).collect();
    assert_eq!(order, [0, -1, 3, 7]);
}

#[tokio::test]
async fn above_the_queue_limit_requests_are_503_and_nothing_of_them_runs() {
    let options = EngineOptions { queue_limit: 2, ..EngineOptions::default() };
    let engine = spawn(options).await.unwrap();
    let first = open(post(&url(&engine), &body(10, 10_000), &[])).await;
    let second = open(post(&url(&engine), &body(10, 10_000), &[])).await;
    assert_eq!(ask(&engine, CHAT, &body(1, 1)).await.status, 503);
    drop((first, second));
    tokio::time::timeout(PATIENCE, engine.recorded(0, 3)).await.unwrap();
    assert_eq!(ask(&engine, CHAT, &body(1, 1)).await.status, 200);
}

#[tokio::test]
async fn each_replica_has_its_own_address_and_its_own_work() {
    let options = EngineOptions { replicas: 3, pace: Pace::Instant, ..EngineOptions::default() };
    let engine = spawn(options).await.unwrap();
    assert_eq!(engine.addresses().len(), 3);
    let url = format!("{}{CHAT}", engine.urls()[2]);
    super::client::send(post(&url, &body(5, 5), &[])).await;
    let produced = [0, 1, 2].map(|replica| engine.counters(replica).output_tokens.0);
    assert_eq!(produced, [0, 0, 5]);
}

#[tokio::test]
async fn http_2_streams_are_served_and_a_reset_stops_the_work() {
    let engine = engine(1.0, 48).await;
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http::<Full<bytes::Bytes>>();
    let mut left = client.request(post(&url(&engine), &body(10, 100_000), &[])).await.unwrap();
    let stays = client.request(post(&url(&engine), &body(10, 20), &[])).await.unwrap();
    left.frame().await.unwrap().unwrap();
    drop(left);
    let records = tokio::time::timeout(PATIENCE, engine.recorded(0, 1)).await.unwrap();
    assert!(records[0].cancelled && records[0].produced < 1_000);
    let events = super::client::events(&stays.collect().await.unwrap().to_bytes());
    assert_eq!(events.len(), 1 + 20 + 1 + 1);
}
