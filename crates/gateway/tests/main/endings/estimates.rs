//! What is charged for answers that nobody saw, against what the simulated engine made of them.

use std::time::Duration;

use fairlane::engine::{EngineOptions, Pace, spawn};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{KEY, TestGateway, gateway, in_time, send};

/// As `docs/accounting.md` says: a quarter of what was made, and what is made until the engine sees that its client has left.
const TOLERANCE_PART: u64 = 4;
const UNTIL_SEEN_TOKENS: u64 = 8;
const USUAL_TOKENS: &str = "90";

#[tokio::test]
async fn an_abort_before_anything_was_seen_is_charged_within_a_quarter_of_what_the_engine_made() {
    // Model time is real time: eight milliseconds a token.
    let options = EngineOptions { pace: Pace::Scaled(1.0), ..EngineOptions::default() };
    let engine = spawn(options).await.unwrap();
    let gateway = gateway(&format!(
        "pools:\n  - name: main\n    models: [sim]\n    engine: vllm\n    backends: [{{url: \"{}\"}}]\n    \
         tokenizer: {{vocabulary: words, mode: exact}}\n    health: off\ntenants:\n  - name: t\n    keys: [\"{KEY}\"]\n    \
         limits: {{tokens: 1000000/day burst 1d}}\n",
        engine.urls()[0]
    ))
    .await;
    let taught = join_all((0..8).map(|_| ask(&gateway))).await;
    assert!(taught.iter().all(|status| *status == 200));
    gateway.idle().await;

    // Left after 200 to 600 ms, of the 750 that they take.
    let left = (1..=6).map(|step| {
        let patience = Duration::from_millis(100 + 80 * step);
        tokio::time::timeout(patience, ask(&gateway))
    });
    assert!(join_all(left).await.iter().all(Result::is_err), "all of them are left");
    gateway.idle().await;
    let recorded = engine.recorded(0, 14);
    let made = in_time("the engine's records", recorded).await;
    let mut made: Vec<u64> = made.iter().filter(|made| made.cancelled).map(|made| made.produced).collect();
    let mut charged: Vec<u64> = gateway
        .records()
        .iter()
        .filter(|record| record.outcome == "client_gone")
        .inspect(|record| assert_eq!(record.charged, record.input + record.output))
        .map(|record| record.output)
        .collect();
    made.sort_unstable();
    charged.sort_unstable();
    println!("charged {charged:?} of made {made:?}");
    assert_eq!((made.len(), charged.len()), (6, 6));
    for (charged, made) in charged.iter().zip(&made) {
        let tolerance = made / TOLERANCE_PART + UNTIL_SEEN_TOKENS;
        assert!(charged.abs_diff(*made) <= tolerance, "{charged} charged, {made} made");
    }
    assert!(made[0] < made[5], "they were left at different times");
}

async fn ask(gateway: &TestGateway) -> u16 {
    let body: Value = json!({
        "model": "sim", "max_tokens": 100, "messages": [{"role": "user", "content": "w w w w w w w w"}],
    });
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str()), ("x-sim-output-tokens", USUAL_TOKENS)];
    let path = "/v1/chat/completions";
    send(gateway.address(), "POST", path, &headers, body.to_string().into()).await.status
}
