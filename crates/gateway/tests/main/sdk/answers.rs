//! What the libraries get through the gateway: the engine's own answers, the right exceptions, and waits that hold.

#![cfg(test)]

use fairlane::engine::{Pace, Record};

use super::clients::{Library, Results};
use super::setting::Setting;
use crate::support::KEY;

/// Scenarios of the OpenAI libraries that the engine works for: each is one request.
const OPENAI: [&str; 15] = [
    "chat",
    "chat_stream",
    "chat_stream_usage",
    "chat_two_choices",
    "chat_two_choices_stream",
    "tools",
    "tools_stream",
    "responses",
    "responses_stream",
    "response_tools",
    "response_tools_stream",
    "embeddings",
    "embeddings_float",
    "completions",
    "completions_stream",
];

/// The same of the Anthropic library.
const ANTHROPIC: [&str; 5] = ["messages", "messages_stream", "stream_helper", "tools", "tools_stream"];

/// Scenarios that the gateway answers itself; the last two use up the tenant's bucket.
const REFUSED: [&str; 5] = ["bad_key", "unknown_model", "never_fits", "until_refused", "retry"];

/// More than the engine's shortest outputs, less than its longest: some end by themselves, some at the bound.
const OUTPUT_BOUND: &str = "120";

/// A retry leaves the library no sooner than told; this much later is the machine's doing.
const LATE_MS_MAX: u64 = 1_500;

#[tokio::test]
async fn openai_for_python_gets_the_engines_answers_at_the_engines_count_and_its_retries_succeed() {
    check(Library::OpenaiPython, &OPENAI, "models").await;
}

#[tokio::test]
async fn openai_for_node_gets_the_engines_answers_at_the_engines_count_and_its_retries_succeed() {
    check(Library::OpenaiNode, &OPENAI, "models").await;
}

#[tokio::test]
async fn anthropic_for_python_gets_the_engines_answers_at_the_engines_count_and_its_retries_succeed() {
    check(Library::AnthropicPython, &ANTHROPIC, "count_tokens").await;
}

/// `free` is a scenario that costs nothing.
async fn check(library: Library, worked: &[&str], free: &str) {
    if !library.is_installed() {
        return;
    }
    // A refill of a request's cost takes about a second.
    let limits = "    limits: {tokens: {rate: 100/s, burst: 60s}}";
    let setting = Setting::start(Pace::Instant, 64, "", limits).await;
    let same = ["--api-key", KEY, "--max-tokens", OUTPUT_BOUND, "--requests", "1000"];
    let scenarios: Vec<&str> = worked.iter().copied().chain([free]).collect();
    let direct = library.run(&setting.engine_url(), &same, &scenarios).await;
    let before = setting.engine.records(0).len() as u64;
    assert_eq!(before, worked.len() as u64, "each scenario is one request");

    let scenarios: Vec<&str> = scenarios.into_iter().chain(REFUSED).collect();
    let through = library.run(&setting.gateway_url(), &same, &scenarios).await;
    setting.gateway.idle().await;
    for scenario in worked.iter().chain([&free]) {
        assert_eq!(through.answer(scenario), direct.answer(scenario), "{}: {scenario}", library.name());
    }
    check_charges(&setting, &through, worked, before).await;
    check_refusals(library, &through);
    check_retry(&through);
}

/// Every request is charged what the engine made of it, one by one and in the sum.
async fn check_charges(setting: &Setting, through: &Results, worked: &[&str], before: u64) {
    let charged = setting.gateway.records();
    let paid: Vec<_> = charged.iter().filter(|record| record.charged > 0).collect();
    let made = setting.engine_records(before, paid.len()).await;
    for (scenario, made) in worked.iter().zip(&made) {
        let id = through.header(scenario, "x-fairlane-request-id");
        let record = charged.iter().find(|record| record.id.to_string() == id).unwrap();
        assert_eq!(
            (record.usage_source, record.outcome),
            ("reported", "completed"),
            "{scenario}: {record:?}"
        );
        assert_eq!((record.input, record.output), (made.prompt, made.produced), "{scenario}: {record:?}");
        assert_eq!(record.charged, tokens(made), "{scenario}: {record:?}");
    }
    let mut charges: Vec<u64> = paid.iter().map(|record| record.charged).collect();
    let mut makings: Vec<u64> = made.iter().map(tokens).collect();
    charges.sort_unstable();
    makings.sort_unstable();
    assert_eq!(charges, makings, "as many requests were charged as the engine served, each its own count");
    let totals = setting.gateway.running.gateway.driver.totals();
    println!("{} requests charged: {totals:?}", charges.len());
    assert_eq!(totals.settled, charges.iter().sum::<u64>());
    assert!(totals.refunded > 0 && totals.overrun == 0 && totals.expired == 0, "{totals:?}");
}

const fn tokens(made: &Record) -> u64 {
    made.prompt + made.produced
}

fn check_refusals(library: Library, through: &Results) {
    let is_anthropic = library == Library::AnthropicPython;
    let bad_key = through.error("bad_key");
    bad_key.is("AuthenticationError", 401);
    through.error("unknown_model").is("NotFoundError", 404);
    let never_fits = through.error("never_fits");
    assert_eq!(never_fits.attempts.len(), 1, "what can never pass is not tried again");
    assert_eq!(never_fits.header("x-should-retry"), "false");
    assert_eq!(never_fits.header("retry-after"), "");
    let exhausted = through.error("until_refused");
    exhausted.is("RateLimitError", 429);
    assert!(exhausted.header("retry-after").parse::<u64>().unwrap() >= 1);
    if is_anthropic {
        assert_eq!(bad_key.kind(), "authentication_error");
        assert_eq!(through.error("unknown_model").kind(), "not_found_error");
        never_fits.is("APIStatusError", 413);
        assert_eq!(never_fits.kind(), "request_too_large");
        assert_eq!(exhausted.kind(), "rate_limit_error");
        through.header("messages", "anthropic-ratelimit-tokens-remaining");
    } else {
        assert_eq!(bad_key.error["code"], "invalid_api_key");
        assert_eq!(through.error("unknown_model").error["code"], "model_not_found");
        never_fits.is("BadRequestError", 400);
        assert_eq!(never_fits.error["code"], "request_too_large");
        assert_eq!(exhausted.error["code"], "rate_limit_exceeded");
        assert_eq!(exhausted.kind(), "tokens");
        through.header("chat_stream", "x-ratelimit-remaining-tokens");
    }
}

/// One refusal, one wait as told, one answer.
fn check_retry(through: &Results) {
    let answer = through.answer("retry");
    let attempts = through.of("retry")["attempts"].as_array().unwrap();
    let statuses: Vec<&serde_json::Value> = attempts.iter().map(|attempt| &attempt["status"]).collect();
    assert_eq!(statuses, [429, 200], "{answer}");
    assert_eq!((&attempts[0]["retry_count"], &attempts[1]["retry_count"]), (&"0".into(), &"1".into()));
    let wait = &answer["waits"][0];
    let number = |name: &str| wait[name].as_str().unwrap().parse::<u64>().unwrap();
    let (told_ms, told_seconds) = (number("told_ms"), number("told_seconds"));
    assert_eq!(told_seconds, told_ms.div_ceil(1_000), "{wait}");
    let waited_ms = wait["waited_ms"].as_u64().unwrap();
    println!("told to wait {told_ms} ms, waited {waited_ms} ms");
    // Both ends are cut to whole milliseconds.
    assert!(waited_ms + 1 >= told_ms && waited_ms < told_ms + LATE_MS_MAX, "{wait}");
}
