//! Whole replies of every dialect: usage, errors, emptiness, at every cut.

use fairlane_wire::dialect::Endpoint;
use fairlane_wire::reply::{ErrorFacts, ReplyReader};
use fairlane_wire::stream::{EndOfStream, Outcome, Summary};
use fairlane_wire::usage::UsageSource;

use super::data;

fn read(endpoint: Endpoint, body: &[u8], cuts: &[usize], how: EndOfStream) -> Summary {
    let mut reader = ReplyReader::new(endpoint).keeping_text(1 << 16);
    let mut from = 0;
    for &cut in cuts.iter().chain([&body.len()]) {
        reader.feed(&body[from..cut]);
        from = cut;
    }
    reader.finish(how)
}

/// Reads a body whole and at every cut: the account must not depend on it.
fn read_everywhere(endpoint: Endpoint, body: &[u8]) -> Summary {
    let whole = read(endpoint, body, &[], EndOfStream::Clean);
    for cut in 0..=body.len() {
        assert_eq!(read(endpoint, body, &[cut], EndOfStream::Clean), whole, "cut at {cut}");
    }
    let every: Vec<usize> = (1..body.len()).collect();
    assert_eq!(read(endpoint, body, &every, EndOfStream::Clean), whole);
    whole
}

/// Endpoint, body, input, cached, output, text.
type Row = (Endpoint, &'static str, u64, Option<u64>, u64, &'static str);

const REPLIES: [Row; 5] = [
    (
        Endpoint::ChatCompletions,
        r#"{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"alpha \u00e9\n","reasoning_content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}],"refusal":null},"logprobs":{"content":[{"token":"a","bytes":[97]}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":8,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":3}}}"#,
        9,
        Some(8),
        4,
        "alpha é\nf{}",
    ),
    (
        Endpoint::Completions,
        r#"{"object":"text_completion","choices":[{"text":"alpha","index":0,"logprobs":null,"finish_reason":"length"},{"text":" beta","index":1,"finish_reason":"length"}],"usage":{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2}}"#,
        3,
        None,
        2,
        "alpha beta",
    ),
    (
        Endpoint::Embeddings,
        r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-2e-05,3]}],"model":"m","usage":{"prompt_tokens":900,"total_tokens":900}}"#,
        900,
        None,
        0,
        "",
    ),
    (
        Endpoint::Responses,
        r#"{"id":"r","object":"response","status":"completed","error":null,"output":[{"type":"reasoning","summary":[{"type":"summary_text","text":"why"}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"alpha","annotations":[]}]},{"type":"function_call","name":"f","arguments":"{}"}],"usage":{"input_tokens":33,"input_tokens_details":{"cached_tokens":32},"output_tokens":10,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":43}}"#,
        33,
        Some(32),
        10,
        "whyalphaf{}",
    ),
    (
        Endpoint::Messages,
        r#"{"id":"msg","type":"message","role":"assistant","content":[{"type":"thinking","thinking":"why"},{"type":"text","text":"alpha"}],"stop_reason":"end_turn","usage":{"input_tokens":27,"cache_creation_input_tokens":3,"cache_read_input_tokens":300,"cache_creation":{"ephemeral_5m_input_tokens":3},"output_tokens":47}}"#,
        330,
        Some(300),
        47,
        "whyalpha",
    ),
];

#[test]
fn a22_each_api_is_charged_its_reported_usage() {
    for (endpoint, body, input, cached, output, text) in REPLIES {
        let summary = read_everywhere(endpoint, body.as_bytes());
        assert_eq!(summary.usage.input, Some(input), "{endpoint:?}");
        assert_eq!(summary.usage.cached, cached, "{endpoint:?}");
        assert_eq!(summary.usage.output, Some(output), "{endpoint:?}");
        assert_eq!(summary.source, UsageSource::Reported, "{endpoint:?}");
        assert_eq!(summary.outcome, Outcome::Completed, "{endpoint:?}");
        assert_eq!(super::joined_text(&summary), text, "{endpoint:?}");
        assert!(summary.texts_complete);
    }
}

#[test]
fn a02_a_reply_and_a_stream_of_the_same_answer_are_charged_alike() {
    let cases = super::cases();
    let case = cases.iter().find(|case| case.file.contains("oc_08")).unwrap();
    let (_, streamed) = super::read_case(case, &[]);
    let body = br#"{"choices":[{"index":0,"message":{"content":"alpha beta gamma delta"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}"#;
    let whole = read_everywhere(Endpoint::ChatCompletions, body);
    assert_eq!((whole.usage, whole.source), (streamed.usage, streamed.source));
    assert_eq!(whole.texts, streamed.texts);

    let bare =
        br#"{"choices":[{"index":0,"message":{"content":"alpha beta gamma delta"},"finish_reason":"stop"}]}"#;
    let counted = read_everywhere(Endpoint::ChatCompletions, bare);
    assert_eq!((counted.usage.output, counted.source), (Some(4), UsageSource::Estimated));
}

#[test]
fn the_input_of_a_tool_counts_as_output_when_no_usage_comes() {
    let body = br#"{"type":"message","content":[{"type":"tool_use","id":"t","name":"find","input":{"place":"alpha beta","limit":3}}],"stop_reason":"tool_use"}"#;
    let summary = read_everywhere(Endpoint::Messages, body);
    assert_eq!(summary.outcome, Outcome::Completed);
    let output = summary.usage.output.unwrap();
    assert!((5..=12).contains(&output), "{output}");
}

#[test]
fn numbers_that_only_python_writes_do_not_hide_the_usage() {
    let body = br#"{"choices":[{"message":{"content":"a"},"logprobs":{"x":[NaN,Infinity,-Infinity]}}],"usage":{"prompt_tokens":9,"completion_tokens":4}}"#;
    assert_eq!(read_everywhere(Endpoint::ChatCompletions, body).usage.output, Some(4));
}

#[test]
fn llama_cpp_timings_stand_in_for_usage() {
    let body = br#"{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}],"timings":{"cache_n":32,"prompt_n":1,"prompt_ms":0.3,"predicted_n":12}}"#;
    let summary = read_everywhere(Endpoint::ChatCompletions, body);
    assert_eq!(
        (summary.usage.input, summary.usage.cached, summary.usage.output),
        (Some(33), Some(32), Some(12))
    );
    assert_eq!(summary.source, UsageSource::Reported);
}

#[test]
fn a_success_without_content_is_told() {
    for (endpoint, body) in [
        (
            Endpoint::ChatCompletions,
            &br#"{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}"#[..],
        ),
        (Endpoint::ChatCompletions, br#"{"choices":[{"message":{"content":null,"tool_calls":[]}}]}"#),
        (Endpoint::Responses, br#"{"status":"completed","error":null,"output":[]}"#),
        (Endpoint::Messages, br#"{"type":"message","content":[],"stop_reason":"end_turn"}"#),
        (Endpoint::Embeddings, br#"{"data":[]}"#),
        (Endpoint::ChatCompletions, b""),
        (Endpoint::ChatCompletions, b"{}"),
    ] {
        let summary = read_everywhere(endpoint, body);
        assert_eq!(summary.outcome, Outcome::UpstreamEmpty, "{}", String::from_utf8_lossy(body));
        assert_eq!(summary.usage.output, None);
    }
}

#[test]
fn an_error_in_a_success_is_an_error_and_nothing_ran() {
    let body = br#"{"error":{"message":"full","type":"x","code":503}}"#;
    let summary = read_everywhere(Endpoint::ChatCompletions, body);
    assert_eq!((summary.outcome, summary.source), (Outcome::UpstreamError, UsageSource::None));
    assert_eq!(summary.error.unwrap().http_status(), Some(503));
}

#[test]
fn errors_of_a_real_engine_are_read() {
    for (file, kind) in [
        ("real/llamacpp_context_error.txt", "exceed_context_size_error"),
        ("real/llamacpp_bad_json.txt", "invalid_request_error"),
    ] {
        let text = String::from_utf8(data(file)).unwrap();
        let (body, status) = text.trim_end().rsplit_once('\n').unwrap();
        let error = ErrorFacts::from_body(body.as_bytes()).unwrap();
        assert_eq!(error.http_status(), status.parse().ok());
        assert_eq!(error.kind.as_deref(), Some(kind));
        assert!(error.message.len() > 40);
    }
}

#[test]
fn model_lists_and_token_counts_run_nothing() {
    for (endpoint, file) in [
        (Endpoint::Models, "real/llamacpp_models.json"),
        (Endpoint::CountTokens, "real/llamacpp_count_tokens.json"),
    ] {
        let summary = read_everywhere(endpoint, &data(file));
        assert_eq!((summary.outcome, summary.source), (Outcome::Completed, UsageSource::None));
    }
}

#[test]
fn what_is_no_json_has_no_usage() {
    for body in [&b"<html>ok</html>"[..], b"plain", b"42", b"\xff\xfe"] {
        let summary = read_everywhere(Endpoint::ChatCompletions, body);
        assert_eq!((summary.source, summary.usage.output), (UsageSource::Estimated, None));
        assert_eq!(summary.outcome, Outcome::Completed);
    }
}

#[test]
fn d08_a_body_that_breaks_is_interrupted_and_its_text_is_counted() {
    let body = br#"{"choices":[{"index":0,"message":{"content":"alpha beta gam"#;
    for how in [EndOfStream::Broken, EndOfStream::Clean] {
        let summary = read(Endpoint::ChatCompletions, body, &[], how);
        assert_eq!((summary.outcome, summary.source), (Outcome::Interrupted, UsageSource::Estimated));
        assert_eq!(summary.usage.output, Some(3));
        assert!(!summary.texts_complete);
    }
}

#[test]
fn text_that_is_no_utf_8_is_kept_up_to_there_and_within_its_bound() {
    let body = |text: &[u8]| [br#"{"choices":[{"message":{"content":""#, text, br#""}}]}"#].concat();
    let odd = [&b"alpha "[..], &[0xFF; 50]].concat();
    let summary = read_everywhere(Endpoint::ChatCompletions, &body(&odd));
    assert_eq!(summary.texts, [(0, "alpha ".to_owned())]);
    assert!(!summary.texts_complete);
    let cut = read_everywhere(Endpoint::ChatCompletions, &body(b"alpha \xF0\x9F"));
    assert_eq!(cut.texts, [(0, "alpha ".to_owned())]);
    assert!(cut.texts_complete);
}

#[test]
fn megabytes_of_embeddings_are_read_without_being_held() {
    let numbers = "-0.012345678,".repeat(400_000);
    let body = format!(
        r#"{{"data":[{{"embedding":[{numbers}0.5]}},{{"embedding":"{}"}}],"usage":{{"prompt_tokens":7,"total_tokens":7}}}}"#,
        "QUJD".repeat(500_000)
    );
    let mut reader = ReplyReader::new(Endpoint::Embeddings);
    for chunk in body.as_bytes().chunks(16 * 1024 + 7) {
        reader.feed(chunk);
    }
    let summary = reader.finish(EndOfStream::Clean);
    assert_eq!((summary.usage.input, summary.usage.output), (Some(7), Some(0)));
    assert_eq!(summary.outcome, Outcome::Completed);
}
