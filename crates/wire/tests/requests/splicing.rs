//! Edits of a body, byte by byte.

use fairlane_wire::splice::Piece;

use super::*;

#[test]
fn nothing_to_set_leaves_the_bytes_alone() {
    let facts = read(Endpoint::ChatCompletions, CHAT.as_bytes()).unwrap();
    let edits = Edits { output_bound: Some(300), ..ASKED };
    let edited = splice(&facts.layout, &edits);
    assert!(edited.is_unchanged());
    assert!(matches!(edited.apply(CHAT.as_bytes()), std::borrow::Cow::Borrowed(_)));
    assert_eq!(edited.pieces().collect::<Vec<_>>(), [Piece::Body(0..CHAT.len())]);
}

#[test]
fn the_bound_goes_into_the_field_that_the_client_used() {
    let edits = Edits { output_bound: Some(7), ..Edits::default() };
    let for_openai = Edits { chat_bound: ChatBound::MaxCompletionTokens, ..edits };
    for (endpoint, edits, body, sent) in [
        (
            Endpoint::ChatCompletions,
            edits,
            r#"{"model":"m","messages":[]}"#,
            r#"{"max_tokens":7,"model":"m","messages":[]}"#,
        ),
        (
            Endpoint::ChatCompletions,
            for_openai,
            r#"{ "model":"m","messages":[]}"#,
            r#"{"max_completion_tokens":7, "model":"m","messages":[]}"#,
        ),
        (
            Endpoint::ChatCompletions,
            edits,
            r#"{"model":"m","messages":[],"max_completion_tokens":null}"#,
            r#"{"model":"m","messages":[],"max_completion_tokens":7}"#,
        ),
        (
            Endpoint::ChatCompletions,
            for_openai,
            r#"{"model":"m","messages":[],"max_tokens": null }"#,
            r#"{"model":"m","messages":[],"max_tokens": 7 }"#,
        ),
        (
            Endpoint::ChatCompletions,
            edits,
            r#"{"model":"m","messages":[],"max_tokens":8,"max_completion_tokens":9}"#,
            r#"{"model":"m","messages":[],"max_tokens":7,"max_completion_tokens":7}"#,
        ),
        (
            Endpoint::ChatCompletions,
            edits,
            r#"{"model":"m","messages":[],"max_tokens":1,"max_completion_tokens":9}"#,
            r#"{"model":"m","messages":[],"max_tokens":1,"max_completion_tokens":7}"#,
        ),
        (
            Endpoint::Completions,
            edits,
            r#"{"model":"m","prompt":"a"}"#,
            r#"{"max_tokens":7,"model":"m","prompt":"a"}"#,
        ),
        (
            Endpoint::Responses,
            edits,
            r#"{"model":"m","max_tokens":5}"#,
            r#"{"max_output_tokens":7,"model":"m","max_tokens":5}"#,
        ),
        (
            Endpoint::Messages,
            edits,
            r#"{"model":"m","messages":[],"max\u005ftokens":9}"#,
            r#"{"model":"m","messages":[],"max\u005ftokens":7}"#,
        ),
        (Endpoint::Embeddings, edits, r#"{"model":"m","input":"a"}"#, r#"{"model":"m","input":"a"}"#),
        (Endpoint::CountTokens, edits, r#"{"model":"m","messages":[]}"#, r#"{"model":"m","messages":[]}"#),
    ] {
        assert_eq!(spliced(endpoint, body, &edits), sent);
    }
}

#[test]
fn q26_q27_q28_usage_is_asked_in_streams_of_chat_and_completions_only() {
    let chat = |members: &str| format!(r#"{{"model":"m","messages":[],"stream":true{members}}}"#);
    let with = r#"{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":true}}"#;
    for (members, sent) in [
        (r#","stream_options":null"#, with),
        (r#","stream_options":{}"#, with),
        (r#","stream_options":{"include_usage":false}"#, with),
        (r#","stream_options":{"include_usage":null}"#, with),
        (r#","stream_options":{"include_usage":true}"#, with),
        (
            r#","stream_options": { "x":1}"#,
            r#"{"model":"m","messages":[],"stream":true,"stream_options": {"include_usage":true, "x":1}}"#,
        ),
        ("", r#"{"stream_options":{"include_usage":true},"model":"m","messages":[],"stream":true}"#),
    ] {
        assert_eq!(spliced(Endpoint::ChatCompletions, &chat(members), &ASKED), sent);
    }
    for (endpoint, body) in [
        (Endpoint::ChatCompletions, r#"{"model":"m","messages":[]}"#),
        (Endpoint::ChatCompletions, r#"{"model":"m","messages":[],"stream":false,"stream_options":null}"#),
        (Endpoint::Responses, r#"{"model":"m","stream":true}"#),
        (Endpoint::Messages, r#"{"model":"m","messages":[],"stream":true,"max_tokens":1}"#),
    ] {
        assert_eq!(spliced(endpoint, body, &ASKED), body);
    }
}

#[test]
fn c07_priority_is_removed_or_set_and_engine_controls_never_pass() {
    let set = Edits { priority: Priority::Set(-3), ..Edits::default() };
    for (body, removed, with_priority) in [
        (r#"{"priority":1,"model":"m"}"#, r#"{"model":"m"}"#, r#"{"priority":-3,"model":"m"}"#),
        (r#"{"model":"m","priority":1}"#, r#"{"model":"m"}"#, r#"{"model":"m","priority":-3}"#),
        (r#"{"model":"m" , "priority" : 1 }"#, r#"{"model":"m"  }"#, r#"{"model":"m" , "priority" : -3 }"#),
        (r#"{"model":"m"}"#, r#"{"model":"m"}"#, r#"{"priority":-3,"model":"m"}"#),
        (
            r#"{ "id_slot":1, "priority":{"a":[1]}, "model":"m", "kv_transfer_params":{}, "data_parallel_rank":0 }"#,
            r#"{ "model":"m" }"#,
            r#"{ "priority":-3, "model":"m" }"#,
        ),
        (
            r#"{"priority":1,"bootstrap_host":"h","model":"m","bootstrap_port":1,"user":"u","priorit\u0079_":2}"#,
            r#"{"model":"m","user":"u","priorit\u0079_":2}"#,
            r#"{"priority":-3,"model":"m","user":"u","priorit\u0079_":2}"#,
        ),
        (r#"{"pr\u0069ority":1,"model":"m"}"#, r#"{"model":"m"}"#, r#"{"pr\u0069ority":-3,"model":"m"}"#),
    ] {
        assert_eq!(spliced(Endpoint::Responses, body, &Edits::default()), removed);
        assert_eq!(spliced(Endpoint::Responses, body, &set), with_priority);
    }
}

#[test]
fn control_headers_are_known() {
    use fairlane_wire::splice::is_control_header;
    for name in
        ["x-vllm-priority", "x-override-priority", "x-data-parallel-rank", "x-gateway-inference-objective"]
    {
        assert!(is_control_header(name), "{name}");
    }
    for name in ["content-type", "x-request-id", "anthropic-beta", "x-overridden"] {
        assert!(!is_control_header(name), "{name}");
    }
}
