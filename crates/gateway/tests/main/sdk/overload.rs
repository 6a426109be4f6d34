//! A full house: the wait is over before a slot is free.

use bytes::Bytes;
use fairlane::engine::Pace;
use serde_json::json;

use super::clients::Library;
use super::setting::Setting;
use crate::support::{KEY, in_time, open, until};

#[tokio::test]
async fn anthropic_for_python_is_told_529_and_when_to_come_back_when_no_slot_comes_free() {
    let library = Library::AnthropicPython;
    if !library.is_installed() {
        return;
    }
    let classes = "classes:\n  - {name: interactive, max_wait: 20ms}";
    let setting = Setting::start(Pace::Instant, 1, classes, "    class: interactive").await;
    let body = json!({"model": "sim", "messages": [{"role": "user", "content": "hold"}], "max_tokens": 1});
    let key = format!("Bearer {KEY}");
    let headers = [("authorization", key.as_str()), ("x-sim-fault", "stall")];
    let holding = open(
        setting.gateway.address(),
        "POST",
        "/v1/chat/completions",
        &headers,
        Bytes::from(body.to_string()),
    );
    let holding = in_time("the only slot is taken", holding).await;
    until("it runs", || setting.gateway.running.gateway.driver.live() == 1).await;

    let results = library.run(&setting.gateway_url(), &["--api-key", KEY], &["messages"]).await;
    let overloaded = results.error("messages");
    overloaded.is("APIStatusError", 529);
    assert_eq!(overloaded.kind(), "overloaded_error");
    assert!(overloaded.header("retry-after").parse::<u64>().unwrap() >= 1, "{}", overloaded.error);
    drop(holding);
    setting.gateway.idle().await;
}
