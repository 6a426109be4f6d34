//! Tests: Who sends a request, by header and body.

use std::collections::BTreeMap;

use super::*;
use crate::dialect::Endpoint;
use crate::request::read;

const OLD_CLAUDE_CODE: &str = r#"{"user_id":"user_0a1b_account_11-22_session_33-44"}"#;
const NEW_CLAUDE_CODE: &str =
    r#"{"user_id":"{\"device_id\":\"d1\",\"account_uuid\":\"a1\",\"session_id\":\"s1\"}"}"#;

/// The run id and the end user of a request with these headers and these members in its body.
fn ids(headers: &[(&str, &str)], members: &str) -> (Option<String>, Option<String>) {
    let headers: BTreeMap<&str, &str> = headers.iter().copied().collect();
    let body = format!(r#"{{"model":"m","messages":[],"max_tokens":1{members}}}"#);
    let facts = read(Endpoint::ChatCompletions, body.as_bytes()).unwrap();
    let header = |name: &str| headers.get(name).copied();
    let owned = |id: Option<Cow<'_, str>>| id.map(Cow::into_owned);
    (owned(run_id(header, &facts)), owned(end_user(header, &facts)))
}

fn run(headers: &[(&str, &str)], members: &str) -> Option<String> {
    ids(headers, members).0
}

fn user(headers: &[(&str, &str)], members: &str) -> Option<String> {
    ids(headers, members).1
}

#[test]
fn each_source_of_a_run_id_yields_to_those_before_it() {
    let headers = [
        ("x-fairlane-run", "r01"),
        ("x-claude-code-prompt-id", "r02"),
        ("x-claude-code-session-id", "r03"),
        ("thread-id", "r04"),
        ("session-id", "r05"),
        ("session_id", "r06"),
    ];
    let members = [
        (r#","prompt_cache_key":"r07""#, "r07"),
        (r#","conversation":{"id":"r08"}"#, "r08"),
        (r#","metadata":{"session_id":"r09"}"#, "r09"),
        (r#","session_id":"r10""#, "r10"),
    ];
    let all: String = members.iter().map(|(member, _)| *member).collect();
    for skipped in 0..headers.len() {
        let expected = headers[skipped].1;
        assert_eq!(run(&headers[skipped..], &all).as_deref(), Some(expected));
    }
    for skipped in 0..members.len() {
        let rest: String = members[skipped..].iter().map(|(member, _)| *member).collect();
        let late = [("x-litellm-session-id", "r11")];
        assert_eq!(run(&late, &rest).as_deref(), Some(members[skipped].1));
    }
    let trace = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    assert_eq!(run(&[("x-litellm-trace-id", "r12"), trace], "").as_deref(), Some("r12"));
    assert_eq!(run(&[trace], "").as_deref(), Some("0af7651916cd43dd8448eb211c80319c"));
    assert_eq!(run(&[], ""), None);
}

#[test]
fn a_previous_response_is_no_run_id_but_hides_the_trace() {
    let trace = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    assert_eq!(run(&[trace], r#","previous_response_id":"resp_1""#), None);
}

#[test]
fn a_trace_id_must_be_one() {
    let zeros = "0".repeat(32);
    for bad in ["", "00", "00-xyz-1-1", &format!("00-{zeros}-b7ad6b7169203331-01")] {
        assert_eq!(run(&[("traceparent", bad)], ""), None, "{bad}");
    }
}

#[test]
fn a_subagent_is_a_run_of_its_own() {
    let headers = [("x-claude-code-session-id", "s"), ("x-claude-code-agent-id", "a")];
    assert_eq!(run(&headers, "").as_deref(), Some("s/a"));
    assert_eq!(run(&headers[..1], "").as_deref(), Some("s"));
}

#[test]
fn claude_code_sessions_become_runs_and_never_users() {
    let old = format!(r#","metadata":{OLD_CLAUDE_CODE}"#);
    let new = format!(r#","metadata":{NEW_CLAUDE_CODE}"#);
    assert_eq!(ids(&[], &old), (Some("33-44".into()), Some("11-22".into())));
    assert_eq!(ids(&[], &new), (Some("s1".into()), Some("a1".into())));
    let no_account = r#","metadata":{"user_id":"user_0a1b_account__session_33"}"#;
    assert_eq!(ids(&[], no_account), (Some("33".into()), Some("0a1b".into())));
    let odd = r#","metadata":{"user_id":"{\"device_id\":7,\"session_id\":\"s1\"}"}"#;
    assert_eq!(ids(&[], odd), (Some("s1".into()), None));
    let no_part = r#","metadata":{"user_id":"user_0a1b_session_33"}"#;
    assert_eq!(ids(&[], no_part), (Some("33".into()), Some("0a1b".into())));
    let only_session = r#","metadata":{"user_id":"{\"session_id\":\"s1\"}"}"#;
    assert_eq!(ids(&[], only_session), (Some("s1".into()), None));
}

#[test]
fn another_user_id_stands_for_itself() {
    for id in ["u-1", "user_1", "{not json", "a_session_b"] {
        let member = format!(r#","metadata":{{"user_id":"{id}"}}"#);
        assert_eq!(ids(&[], &member), (None, Some(id.to_owned())));
    }
}

#[test]
fn each_source_of_an_end_user_yields_to_those_before_it() {
    let members = [
        (r#","user":"u3""#, "u3"),
        (r#","litellm_metadata":{"user":"u4"}"#, "u4"),
        (r#","metadata":{"user_id":"u5"}"#, "u5"),
        (r#","safety_identifier":"u6""#, "u6"),
    ];
    let all: String = members.iter().map(|(member, _)| *member).collect();
    let headers = [("x-fairlane-user", "u1"), ("x-litellm-customer-id", "u2")];
    assert_eq!(user(&headers, &all).as_deref(), Some("u1"));
    assert_eq!(user(&headers[1..], &all).as_deref(), Some("u2"));
    for skipped in 0..members.len() {
        let rest: String = members[skipped..].iter().map(|(member, _)| *member).collect();
        assert_eq!(user(&[], &rest).as_deref(), Some(members[skipped].1));
    }
}

#[test]
fn blank_ids_are_absent() {
    assert_eq!(run(&[("x-fairlane-run", "  ")], r#","prompt_cache_key":"k""#).as_deref(), Some("k"));
    assert_eq!(user(&[], r#","user":"","safety_identifier":"s""#).as_deref(), Some("s"));
}

#[test]
fn a_long_id_is_cut_at_a_character() {
    let long = "é".repeat(1_000);
    let id = run(&[("x-fairlane-run", &long)], "").unwrap();
    assert_eq!(id.len(), ID_BYTES_MAX);
    let member = format!(r#","user":"x{long}""#);
    assert_eq!(user(&[], &member).unwrap().len(), ID_BYTES_MAX - 1);
}

#[test]
fn the_least_deadline_counts() {
    let deadline = |headers: &[(&str, &str)]| {
        let headers: BTreeMap<&str, &str> = headers.iter().copied().collect();
        deadline_ms(|name| headers.get(name).copied())
    };
    assert_eq!(deadline(&[]), None);
    assert_eq!(deadline(&[("x-stainless-read-timeout", "600")]), Some(600_000));
    assert_eq!(deadline(&[("x-stainless-timeout", "0.0015")]), Some(2));
    assert_eq!(deadline(&[("x-stainless-timeout", "1.5"), ("x-fairlane-max-wait-ms", "900")]), Some(900));
    assert_eq!(
        deadline(&[("x-stainless-read-timeout", "0.5"), ("x-fairlane-max-wait-ms", "900")]),
        Some(500)
    );
    assert_eq!(deadline(&[("x-fairlane-max-wait-ms", "0")]), Some(0));
    for nonsense in ["", "None", "NaN", "inf", "-1", "0", "1e999"] {
        assert_eq!(deadline(&[("x-stainless-timeout", nonsense)]), None, "{nonsense}");
    }
    assert_eq!(deadline(&[("x-stainless-timeout", "1e300")]), Some(u64::MAX));
}

#[test]
fn the_attempt_is_read() {
    assert_eq!(retry_count(|_| Some("2")), Some(2));
    assert_eq!(retry_count(|_| Some("-1")), None);
    assert_eq!(retry_count(|_| None), None);
}
