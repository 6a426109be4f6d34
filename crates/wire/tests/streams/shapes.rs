//! Shapes of streams that no recording holds: other engines, several choices, running usage, errors, the first event.

use fairlane_wire::dialect::Endpoint;
use fairlane_wire::stream::{EndOfStream, HideUsage, Opening, Outcome, Summary};
use fairlane_wire::usage::UsageSource;

use super::{read_cut, reader};

fn events(events: &[&str]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

fn read(endpoint: Endpoint, choices: u32, list: &[&str], how: EndOfStream) -> Summary {
    let mut reader = reader(endpoint, HideUsage::No).expecting_choices(choices);
    reader.feed(events(list).as_bytes());
    reader.finish(how)
}

fn chat(list: &[&str], how: EndOfStream) -> Summary {
    read(Endpoint::ChatCompletions, 1, list, how)
}

const ALPHA: &str = r#"{"choices":[{"index":0,"delta":{"content":"alpha "},"finish_reason":null}]}"#;
const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;

#[test]
fn running_usage_of_a_cut_stream_is_partial_and_what_came_after_is_added() {
    let running = r#"{"choices":[{"index":0,"delta":{"content":"alpha "}}],"usage":{"prompt_tokens":16,"completion_tokens":5}}"#;
    let summary = chat(&[running, ALPHA, ALPHA], EndOfStream::Broken);
    assert_eq!(summary.source, UsageSource::ReportedPartial);
    assert_eq!((summary.usage.input, summary.usage.output), (Some(16), Some(7)));
    assert_eq!(summary.outcome, Outcome::Interrupted);
}

#[test]
fn usage_that_stops_before_the_text_does_is_filled_up_by_counting() {
    let first = r#"{"choices":[{"index":0,"delta":{"role":"assistant"}}],"usage":{"prompt_tokens":16,"completion_tokens":0}}"#;
    let summary = chat(&[first, ALPHA, ALPHA, STOP, "[DONE]"], EndOfStream::Clean);
    assert_eq!((summary.usage.input, summary.usage.output), (Some(16), Some(2)));
    assert_eq!(summary.source, UsageSource::Mixed);
}

#[test]
fn running_usage_of_each_choice_is_added_when_the_total_never_comes() {
    let of = |index: u32, tokens: u32| {
        format!(
            r#"{{"choices":[{{"index":{index},"delta":{{"content":"x "}}}}],"usage":{{"prompt_tokens":9,"completion_tokens":{tokens}}}}}"#
        )
    };
    let list = [of(0, 1), of(1, 1), of(0, 2), of(1, 2), of(1, 3)];
    let list: Vec<&str> = list.iter().map(String::as_str).collect();
    let cut = read(Endpoint::ChatCompletions, 2, &list, EndOfStream::Broken);
    assert_eq!((cut.usage.output, cut.source), (Some(5), UsageSource::ReportedPartial));

    let total = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5}}"#;
    let whole: Vec<&str> = list.iter().copied().chain([total, "[DONE]"]).collect();
    let whole = read(Endpoint::ChatCompletions, 2, &whole, EndOfStream::Clean);
    assert_eq!((whole.usage.output, whole.source), (Some(5), UsageSource::Reported));
}

#[test]
fn a_total_sent_twice_is_not_added() {
    let stop_1 = r#"{"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}"#;
    let total = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":8}}"#;
    let list = [ALPHA, STOP, stop_1, total, total, "[DONE]"];
    let summary = read(Endpoint::ChatCompletions, 2, &list, EndOfStream::Clean);
    assert_eq!((summary.usage.output, summary.source), (Some(8), UsageSource::Reported));
}

#[test]
fn usage_chunks_of_several_choices_cut_in_the_middle_are_never_below_the_text() {
    let stop_1 = r#"{"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}"#;
    let one = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#;
    let list = [ALPHA, ALPHA, ALPHA, stop_1, one, ALPHA];
    let summary = read(Endpoint::ChatCompletions, 2, &list, EndOfStream::Broken);
    assert_eq!((summary.usage.output, summary.source), (Some(4), UsageSource::ReportedPartial));
}

#[test]
fn a_report_for_several_choices_below_their_pieces_of_text_is_raised() {
    let beta = r#"{"choices":[{"index":1,"delta":{"content":"beta "},"finish_reason":"stop"}]}"#;
    let total = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#;
    let list = [ALPHA, ALPHA, STOP, beta, total, "[DONE]"];
    let summary = read(Endpoint::ChatCompletions, 2, &list, EndOfStream::Clean);
    assert_eq!((summary.usage.output, summary.source), (Some(3), UsageSource::Mixed));
}

#[test]
fn without_an_end_mark_a_stream_is_whole_only_when_every_expected_choice_ended() {
    let list = [ALPHA, STOP];
    for (choices, outcome) in [(1, Outcome::Completed), (3, Outcome::Interrupted)] {
        let summary = read(Endpoint::ChatCompletions, choices, &list, EndOfStream::Clean);
        assert_eq!(summary.outcome, outcome, "{choices}");
    }
}

#[test]
fn e05_tokens_are_not_chunks() {
    let ten = r#"{"choices":[{"index":0,"delta":{"content":"one two three four five six seven eight nine ten "}}]}"#;
    let mut list = vec![ten; 10];
    let counted = chat(&[&list[..], &[STOP, "[DONE]"]].concat(), EndOfStream::Clean);
    assert_eq!((counted.usage.output, counted.deltas), (Some(100), 10));
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":100}}"#;
    list.extend([STOP, usage, "[DONE]"]);
    assert_eq!(chat(&list, EndOfStream::Clean).usage.output, Some(100));
}

#[test]
fn every_kind_of_generated_text_is_content() {
    let deltas = [
        (Endpoint::ChatCompletions, r#"{"choices":[{"index":0,"delta":{"reasoning":"why"}}]}"#),
        (
            Endpoint::ChatCompletions,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]}}]}"#,
        ),
        (
            Endpoint::ChatCompletions,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a"}}]},"index":0}]}"#,
        ),
        (Endpoint::ChatCompletions, r#"{"choices":[{"index":0,"delta":{"refusal":"no"}}]}"#),
        (Endpoint::Completions, r#"{"choices":[{"text":" x","index":0,"finish_reason":null}]}"#),
        (
            Endpoint::Messages,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a"}}"#,
        ),
        (
            Endpoint::Messages,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"why"}}"#,
        ),
        (
            Endpoint::Messages,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#,
        ),
        (
            Endpoint::Responses,
            r#"{"type":"response.function_call_arguments.delta","delta":"{","sequence_number":4}"#,
        ),
        (
            Endpoint::Responses,
            r#"{"delta":"why","sequence_number":4,"type":"response.reasoning_summary_text.delta"}"#,
        ),
    ];
    for (endpoint, event) in deltas {
        let summary = read(endpoint, 1, &[event], EndOfStream::Broken);
        assert_eq!(summary.first_content_event, Some(0), "{event}");
        assert_eq!(summary.deltas, 1, "{event}");
        assert!(summary.counted_output >= 1, "{event}");
    }
}

#[test]
fn what_is_not_generated_is_no_content() {
    let others = [
        (
            Endpoint::ChatCompletions,
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[]}}],"usage":null,"obfuscation":"abc"}"#,
        ),
        (Endpoint::ChatCompletions, r#"{"choices":[],"prompt_filter_results":[{"content":"x"}]}"#),
        (
            Endpoint::Messages,
            r#"{"type":"message_start","message":{"content":[],"usage":{"input_tokens":27,"output_tokens":1}}}"#,
        ),
        (
            Endpoint::Messages,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        ),
        (
            Endpoint::Messages,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"abc"}}"#,
        ),
        (Endpoint::Messages, r#"{"type":"ping"}"#),
        (
            Endpoint::Responses,
            r#"{"type":"response.created","response":{"status":"queued","usage":null,"error":null}}"#,
        ),
        (Endpoint::Responses, r#"{"type":"response.audio.delta","delta":"QUJD"}"#),
        (Endpoint::Responses, r#"{"type":"response.output_text.done","text":"all of it"}"#),
    ];
    for (endpoint, event) in others {
        let summary = read(endpoint, 1, &[event], EndOfStream::Broken);
        assert_eq!(summary.first_content_event, None, "{event}");
        assert_eq!((summary.counted_output, summary.texts.len()), (0, 0), "{event}");
    }
}

#[test]
fn reasoning_sent_under_two_names_is_counted_once() {
    let event = r#"{"choices":[{"index":0,"delta":{"reasoning":"why","reasoning_content":"why"}}]}"#;
    let summary = chat(&[event], EndOfStream::Broken);
    assert_eq!((summary.counted_output, super::joined_text(&summary).as_str()), (1, "why"));
}

#[test]
fn text_of_interleaved_choices_is_kept_apart_whatever_the_order_of_members() {
    let list = [
        r#"{"choices":[{"index":0,"delta":{"content":"al"}}]}"#,
        r#"{"choices":[{"delta":{"content":"be"},"index":1}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"pha"}}]}"#,
        r#"{"choices":[{"delta":{"content":"t\u0061\ud83d\ude00"},"index":1}]}"#,
    ];
    let summary = read(Endpoint::ChatCompletions, 2, &list, EndOfStream::Broken);
    assert_eq!(summary.texts, [(0, "alpha".to_owned()), (1, "beta😀".to_owned())]);
}

#[test]
fn text_is_kept_up_to_its_bound_and_told_to_be_incomplete() {
    let mut reader =
        fairlane_wire::stream::StreamReader::new(Endpoint::ChatCompletions, HideUsage::No).keeping_text(14);
    reader.feed(events(&[ALPHA, ALPHA, ALPHA]).as_bytes());
    let summary = reader.finish(EndOfStream::Broken);
    assert_eq!(super::joined_text(&summary), "alpha alpha ");
    assert!(!summary.texts_complete);
    assert_eq!(summary.counted_output, 3);
}

#[test]
fn a12_an_error_after_content_is_no_success_and_keeps_what_was_counted() {
    let error = r#"{"error":{"message":"engine died","type":"server_error","code":500}}"#;
    let summary = chat(&[ALPHA, error, "[DONE]"], EndOfStream::Clean);
    assert_eq!(summary.outcome, Outcome::UpstreamErrorMidStream);
    assert_eq!(summary.usage.output, Some(1));
    assert_eq!(summary.error.unwrap().http_status(), Some(500));
}

#[test]
fn a_failed_response_is_an_error_and_its_usage_counts() {
    let delta = r#"{"type":"response.output_text.delta","delta":"alpha"}"#;
    let failed = r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"later"},"usage":{"input_tokens":33,"output_tokens":7}}}"#;
    let summary = read(Endpoint::Responses, 1, &[delta, failed], EndOfStream::Clean);
    assert_eq!(summary.outcome, Outcome::UpstreamErrorMidStream);
    assert_eq!((summary.usage.input, summary.usage.output), (Some(33), Some(7)));
    assert_eq!(summary.source, UsageSource::Reported);
    assert_eq!(summary.error.unwrap().http_status(), Some(429));
}

#[test]
fn a_bare_error_event_of_responses_is_an_error() {
    let error =
        r#"{"type":"error","code":"server_error","message":"engine died","param":null,"sequence_number":1}"#;
    let summary = read(Endpoint::Responses, 1, &[error], EndOfStream::Clean);
    assert_eq!((summary.outcome, summary.source), (Outcome::UpstreamError, UsageSource::None));
    assert_eq!(summary.error.unwrap().message, "engine died");
}

#[test]
fn an_incomplete_response_is_complete_for_us() {
    let delta = r#"{"type":"response.output_text.delta","delta":"alpha"}"#;
    let end = r#"{"type":"response.incomplete","response":{"status":"incomplete","error":null,"usage":{"input_tokens":33,"output_tokens":7}}}"#;
    let summary = read(Endpoint::Responses, 1, &[delta, end], EndOfStream::Clean);
    assert_eq!((summary.outcome, summary.source), (Outcome::Completed, UsageSource::Reported));
}

#[test]
fn an_error_event_without_json_is_an_error_by_its_name() {
    let mut reader = reader(Endpoint::Messages, HideUsage::No);
    reader.feed(b"event: error\ndata: out of memory\n\n");
    assert_eq!(reader.opening(), Opening::Error);
    assert_eq!(reader.finish(EndOfStream::Clean).outcome, Outcome::UpstreamError);
}

#[test]
fn an_error_by_its_name_is_seen_even_in_the_shape_of_the_text_before() {
    let mut reader = reader(Endpoint::ChatCompletions, HideUsage::No);
    reader.feed(format!("data: {ALPHA}\n\nevent: error\ndata: {ALPHA}\n\n").as_bytes());
    assert_eq!(reader.finish(EndOfStream::Clean).outcome, Outcome::UpstreamErrorMidStream);
}

#[test]
fn a_null_error_is_none() {
    let event = r#"{"error":null,"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}"#;
    assert_eq!(chat(&[event], EndOfStream::Clean).outcome, Outcome::Completed);
}

#[test]
fn the_opening_is_told_by_the_first_whole_event() {
    let role = r#"{"choices":[{"index":0,"delta":{"role":"assistant"}}]}"#;
    let table = [
        (": ping\n\n".to_owned(), Opening::Comment),
        (": ping\n\nretry: 3\nid: 1\n\n".to_owned(), Opening::Comment),
        (events(&[ALPHA]), Opening::Content),
        (events(&[role, ALPHA]), Opening::Other),
        (format!(": ping\n\n{}", events(&[r#"{"error":{"code":503}}"#])), Opening::Error),
        (events(&["[DONE]"]), Opening::Other),
        (events(&["not json at all, of any length"]), Opening::Other),
        ("data: {\"choices\":[{\"index\":0,\"delta\":".to_owned(), Opening::Nothing),
    ];
    for (stream, opening) in table {
        let mut reader = reader(Endpoint::ChatCompletions, HideUsage::No);
        reader.feed(stream.as_bytes());
        assert_eq!(reader.opening(), opening, "{stream}");
    }
}

#[test]
fn multi_line_data_is_one_event() {
    let stream =
        b"data: {\"choices\":\ndata: [{\"index\":0,\"delta\":{\"content\":\ndata:\"x\"}}]\ndata: }\n\n";
    for cut in 0..=stream.len() {
        let (forwarded, summary) =
            read_cut(reader(Endpoint::ChatCompletions, HideUsage::Yes), stream, &[cut]);
        assert_eq!(forwarded, stream);
        assert_eq!((summary.events, summary.deltas), (1, 1), "cut at {cut}");
    }
}

#[test]
fn a29_what_was_produced_is_told_while_the_stream_runs() {
    let mut reader = reader(Endpoint::ChatCompletions, HideUsage::No);
    for produced in 1..=30 {
        reader.feed(events(&[ALPHA]).as_bytes());
        assert_eq!((reader.produced(), reader.counted_output()), (produced, produced));
    }
    let running = r#"{"choices":[{"index":0,"delta":{"content":"alpha "}}],"usage":{"prompt_tokens":16,"completion_tokens":45}}"#;
    reader.feed(events(&[running, ALPHA]).as_bytes());
    assert_eq!((reader.produced(), reader.counted_output()), (46, 32));
}

#[test]
fn anthropic_usage_of_a_cut_stream_is_mixed_partial_or_final() {
    let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":27,"output_tokens":1}}}"#;
    let text = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"alpha "}}"#;
    let running = r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":5}}"#;
    let last = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}"#;
    for (list, output, source) in [
        (&[start, text][..], 1, UsageSource::Mixed),
        (&[start, text, running, text], 6, UsageSource::ReportedPartial),
        (&[start, text, running, text, last], 9, UsageSource::Reported),
    ] {
        let summary = read(Endpoint::Messages, 1, list, EndOfStream::Broken);
        assert_eq!((summary.usage.input, summary.usage.output), (Some(27), Some(output)));
        assert_eq!(summary.source, source);
        assert_eq!(summary.outcome, Outcome::Interrupted);
    }
}

#[test]
fn usage_wins_over_measurements_that_come_later() {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":33,"completion_tokens":12}}"#;
    let timings = r#"{"choices":[],"timings":{"prompt_n":1,"cache_n":32,"predicted_n":5}}"#;
    let summary = chat(&[ALPHA, STOP, usage, timings, "[DONE]"], EndOfStream::Clean);
    assert_eq!((summary.usage.input, summary.usage.output), (Some(33), Some(12)));
}

#[test]
fn an_event_that_breaks_off_does_not_hide_the_next() {
    let summary = chat(&[r#"{"choices":[{"index":0,"#, ALPHA, STOP], EndOfStream::Clean);
    assert_eq!((summary.events, summary.deltas), (3, 1));
    assert_eq!(summary.outcome, Outcome::Completed);
}

#[test]
fn chunks_with_the_same_text_and_the_same_running_usage_are_each_read() {
    let running = r#"{"choices":[{"index":0,"delta":{"content":"alpha "}}],"usage":{"prompt_tokens":16,"completion_tokens":5}}"#;
    let summary = chat(&[running, running, running], EndOfStream::Broken);
    assert_eq!((summary.usage.output, summary.deltas), (Some(5), 3));
}

#[test]
fn a_chunk_that_starts_like_the_one_before_may_end_otherwise() {
    let last = r#"{"choices":[{"index":0,"delta":{"content":"beta"},"finish_reason":"stop"}]}"#;
    let summary = chat(&[ALPHA, last], EndOfStream::Clean);
    assert_eq!(summary.outcome, Outcome::Completed);
    assert_eq!(super::joined_text(&summary), "alpha beta");
}

#[test]
fn an_empty_finish_reason_is_none() {
    let chunk = r#"{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":""}]}"#;
    assert_eq!(chat(&[chunk], EndOfStream::Clean).outcome, Outcome::Interrupted);
}

#[test]
fn halves_of_surrogate_pairs_become_replacement_characters() {
    let chunk =
        r#"{"choices":[{"index":0,"delta":{"content":"\ud83dA\ud83d\n\ude00\ud83d\ud83d\ude00\ud83d"}}]}"#;
    let (_, summary) =
        read_cut(reader(Endpoint::ChatCompletions, HideUsage::No), events(&[chunk]).as_bytes(), &[]);
    assert_eq!(super::joined_text(&summary), "\u{fffd}A\u{fffd}\n\u{fffd}\u{fffd}😀\u{fffd}");
}
