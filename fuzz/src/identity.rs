//! What headers and bodies say of a request's sender: bounded ids, times that are numbers, and nothing that panics.

use fairlane_wire::dialect::Endpoint;
use fairlane_wire::identity::{ID_BYTES_MAX, deadline_ms, end_user, retry_count, run_id};
use fairlane_wire::request::read;

/// Reads `input` as lines `name: value`, and behind an empty line a body.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (head, body) = text.split_once("\n\n").unwrap_or((&text, DEFAULT_BODY));
    let fields: Vec<(&str, &str)> = head.lines().filter_map(|line| line.split_once(": ")).collect();
    let header = |name: &str| fields.iter().find(|(found, _)| *found == name).map(|(_, value)| *value);
    let deadline = deadline_ms(header);
    for name in ["x-stainless-timeout", "x-stainless-read-timeout"] {
        let seconds: Option<f64> = header(name).and_then(|value| value.trim().parse().ok());
        if let Some(seconds) = seconds.filter(|seconds| seconds.is_finite() && *seconds > 0.0) {
            let deadline = deadline.expect("a time-out is a deadline") as f64;
            assert!(deadline <= (seconds * 1_000.0).ceil(), "{deadline} ms of {seconds} s");
        }
    }
    let retries = header("x-stainless-retry-count").and_then(|value| value.trim().parse::<u32>().ok());
    assert_eq!(retry_count(header), retries);
    let Ok(facts) = read(Endpoint::ChatCompletions, body.as_bytes()) else { return };
    let (run, user) = (run_id(header, &facts), end_user(header, &facts));
    for id in [&run, &user].into_iter().flatten() {
        assert!(id.len() <= ID_BYTES_MAX && !id.trim().is_empty(), "{id:?}");
    }
    let named = |name: &str| header(name).map(str::trim).filter(|value| !value.is_empty());
    for (found, name) in [(&run, "x-fairlane-run"), (&user, "x-fairlane-user")] {
        if let Some(id) = named(name) {
            assert!(id.starts_with(found.as_deref().expect("the first of all is taken")), "{name}: {id}");
        }
    }
}

const DEFAULT_BODY: &str =
    r#"{"model":"m","messages":[],"user":"u","metadata":{"user_id":"user_a_account_b_session_c"}}"#;
