//! Early ends: a library that leaves its stream, and a run whose budget is spent.

#![cfg(test)]

use fairlane::engine::Pace;

use super::clients::Library;
use super::setting::Setting;
use crate::support::KEY;

/// Model time is real time: eight milliseconds a token.
const PACE: Pace = Pace::Scaled(1.0);
/// Of the stream that is left early, by the engine's own will.
const OUTPUT_TOKENS: u64 = 150;
/// Tokens that the engine may make from the client's last read until it learns that the client has left.
const IN_FLIGHT_TOKENS_MAX: u64 = 25;

#[tokio::test]
async fn openai_for_python_pays_for_a_stream_that_it_leaves_what_was_made_and_stops_at_a_spent_run() {
    check(Library::OpenaiPython).await;
}

#[tokio::test]
async fn openai_for_node_pays_for_a_stream_that_it_leaves_what_was_made_and_stops_at_a_spent_run() {
    check(Library::OpenaiNode).await;
}

#[tokio::test]
async fn anthropic_for_python_pays_for_a_stream_that_it_leaves_what_was_made_and_stops_at_a_spent_run() {
    check(Library::AnthropicPython).await;
}

async fn check(library: Library) {
    if !library.is_installed() {
        return;
    }
    let tenant = "    limits: {tokens: 1000000/min}\n    runs: {token_budget: 400}";
    let setting = Setting::start(PACE, 64, "", tenant).await;
    let output = format!("x-sim-output-tokens={OUTPUT_TOKENS}");
    let options = ["--api-key", KEY, "--max-tokens", "200", "--stop-after", "8", "--requests", "9"];
    let named = ["--header", "x-fairlane-run=agent-7", "--header", &output];
    let options: Vec<&str> = options.into_iter().chain(named).collect();
    let results = library.run(&setting.gateway_url(), &options, &["early_stop", "retry"]).await;
    setting.gateway.idle().await;
    results.answer("early_stop");

    let spent = results.error("retry");
    spent.is("RateLimitError", 429);
    assert_eq!(spent.attempts.len(), 1, "a spent budget does not come back, so the library must not retry");
    assert_eq!((spent.header("x-should-retry"), spent.header("retry-after")), ("false", ""));
    assert!(spent.header("x-fairlane-limit").contains("token_budget"), "{}", spent.error);
    if library == Library::AnthropicPython {
        assert_eq!(spent.kind(), "rate_limit_error");
    } else {
        assert_eq!(
            (spent.kind(), &spent.error["code"]),
            ("insufficient_quota", &"run_budget_exceeded".into())
        );
    }
    check_charges(&setting).await;
}

/// The stream that was left: the engine stopped, and the charge lies between what was handed on and what was made.
async fn check_charges(setting: &Setting) {
    let mut charged = setting.gateway.records();
    charged.retain(|record| record.charged > 0);
    let made = setting.engine_records(0, charged.len()).await;
    let left = charged.iter().find(|record| record.outcome == "client_gone").unwrap();
    let cut = &made[0];
    println!("left after {} tokens were handed on, {} made", left.output, cut.produced);
    assert!(cut.cancelled && cut.produced < OUTPUT_TOKENS, "{cut:?}");
    assert_eq!(left.input, cut.prompt, "{left:?}");
    assert_eq!(left.charged, left.input + left.output, "{left:?}");
    assert!(left.output >= 1 && left.output <= cut.produced, "{left:?} {cut:?}");
    assert!(cut.produced - left.output <= IN_FLIGHT_TOKENS_MAX, "{left:?} {cut:?}");
    let others: u64 = charged.iter().map(|record| record.charged).sum::<u64>() - left.charged;
    assert_eq!(others, made[1..].iter().map(|made| made.prompt + made.produced).sum::<u64>());
}
