//! Every recorded stream is read the same at every cut, and forwarded byte for byte.

#![cfg(test)]

mod hidden;
mod hostile;
mod replies;
mod shapes;

use std::path::PathBuf;

use fairlane_wire::dialect::Endpoint;
use fairlane_wire::stream::{Coding, Encoded, EndOfStream, Fed, Forward, HideUsage, StreamReader, Summary};
use proptest::prelude::*;

const TEXT_BYTES_MAX: usize = 1 << 16;

/// One line of `manifest.jsonl`.
struct Case {
    file: String,
    endpoint: Endpoint,
    coding: Option<Coding>,
    expect: serde_json::Value,
    stream: Vec<u8>,
}

fn data(file: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn cases() -> Vec<Case> {
    let manifest = String::from_utf8(data("sse/manifest.jsonl")).unwrap();
    let cases: Vec<Case> = manifest.lines().map(case).collect();
    assert_eq!(cases.len(), 24);
    cases
}

fn case(line: &str) -> Case {
    let row: serde_json::Value = serde_json::from_str(line).unwrap();
    let file = row["file"].as_str().unwrap().to_owned();
    let endpoint = match row["format"].as_str().unwrap() {
        "openai_chat" => Endpoint::ChatCompletions,
        "anthropic_messages" => Endpoint::Messages,
        other => panic!("{other}"),
    };
    Case {
        coding: row["content_encoding"].as_str().and_then(Coding::from_header),
        expect: row["expect"].clone(),
        stream: data(&file),
        file,
        endpoint,
    }
}

fn reader(endpoint: Endpoint, hide: HideUsage) -> StreamReader {
    StreamReader::new(endpoint, hide).keeping_text(TEXT_BYTES_MAX)
}

/// Appends what a chunk's answer forwards.
fn forward(fed: &Fed, chunk: &[u8], to: &mut Vec<u8>) {
    match &fed.forward {
        Forward::Whole => to.extend_from_slice(chunk),
        Forward::Parts { released, ranges } => {
            to.extend_from_slice(released);
            for range in ranges {
                to.extend_from_slice(&chunk[range.clone()]);
            }
        }
    }
}

/// Reads a stream cut at the given places; the forwarded bytes and the account.
fn read_cut(mut reader: StreamReader, stream: &[u8], cuts: &[usize]) -> (Vec<u8>, Summary) {
    let mut forwarded = Vec::new();
    let mut from = 0;
    let mut first_contents = 0;
    for &cut in cuts.iter().chain([&stream.len()]) {
        let chunk = &stream[from..cut];
        let fed = reader.feed(chunk);
        forward(&fed, chunk, &mut forwarded);
        first_contents += u64::from(fed.first_content);
        from = cut;
    }
    let mut summary = reader.finish(end_of(stream));
    forwarded.append(&mut summary.release);
    if stream_is_terminated(stream) {
        assert_eq!(first_contents, u64::from(summary.first_content_event.is_some()));
    }
    (forwarded, summary)
}

/// The recording that stops inside JSON stands for a broken connection.
fn end_of(stream: &[u8]) -> EndOfStream {
    if stream_is_terminated(stream) { EndOfStream::Clean } else { EndOfStream::Broken }
}

fn stream_is_terminated(stream: &[u8]) -> bool {
    stream.ends_with(b"\n")
}

fn read_encoded(case: &Case, coding: Coding, cuts: &[usize]) -> Summary {
    let mut encoded = Encoded::new(coding, reader(case.endpoint, HideUsage::No));
    let mut from = 0;
    for &cut in cuts.iter().chain([&case.stream.len()]) {
        encoded.feed(&case.stream[from..cut]);
        from = cut;
    }
    encoded.finish(EndOfStream::Clean)
}

/// What the client gets, and the account, with hiding off.
fn read_case(case: &Case, cuts: &[usize]) -> (Vec<u8>, Summary) {
    match case.coding {
        None => read_cut(reader(case.endpoint, HideUsage::No), &case.stream, cuts),
        Some(coding) => (case.stream.clone(), read_encoded(case, coding, cuts)),
    }
}

fn joined_text(summary: &Summary) -> String {
    summary.texts.iter().map(|(_, text)| text.as_str()).collect()
}

/// An expected figure: a number, an estimate left to the gateway, or text to count.
fn assert_tokens(case: &Case, side: &str, found: Option<u64>, summary: &Summary) {
    let expected = &case.expect[side];
    if let Some(tokens) = expected.as_u64() {
        assert_eq!(found.unwrap_or(0), tokens, "{} {side}", case.file);
        return;
    }
    let rule = expected.as_str().unwrap();
    match rule.strip_prefix("tokenizer(").and_then(|rest| rest.strip_suffix(")")) {
        Some(text) => {
            let words = text.split(' ').count() as u64;
            assert_eq!(joined_text(summary).trim_end(), text, "{}", case.file);
            assert!(summary.texts_complete, "{}", case.file);
            assert_eq!(found, Some(summary.counted_output), "{}", case.file);
            assert_eq!(summary.counted_output, words, "{}", case.file);
        }
        None => {
            assert_eq!(rule, "estimate>0", "{}", case.file);
            assert_eq!(found, None, "{}: left to the gateway", case.file);
        }
    }
}

#[test]
fn a03_a20_every_stream_of_the_manifest_tells_its_usage_and_outcome() {
    for case in cases() {
        let (forwarded, summary) = read_case(&case, &[]);
        assert_eq!(forwarded, case.stream, "{}", case.file);
        assert_tokens(&case, "input", summary.usage.input, &summary);
        assert_tokens(&case, "output", summary.usage.output, &summary);
        for (member, found) in [("cached", summary.usage.cached), ("cache_write", summary.usage.cache_write)]
        {
            if let Some(tokens) = case.expect[member].as_u64() {
                assert_eq!(found, Some(tokens), "{} {member}", case.file);
            }
        }
        assert_eq!(case.expect["usage_source"], summary.source.name(), "{}", case.file);
        assert_eq!(case.expect["outcome"], summary.outcome.name(), "{}", case.file);
    }
}

#[test]
fn every_stream_is_read_the_same_at_every_cut() {
    for case in cases() {
        let whole = read_case(&case, &[]);
        for cut in 0..=case.stream.len() {
            assert_eq!(read_case(&case, &[cut]), whole, "{} cut at {cut}", case.file);
        }
        let every: Vec<usize> = (1..case.stream.len()).collect();
        assert_eq!(read_case(&case, &every), whole, "{} byte by byte", case.file);
    }
}

#[test]
fn oc_08_is_read_the_same_when_every_pair_of_line_ends_is_cut() {
    let cases = cases();
    let case = cases.iter().find(|case| case.file.contains("oc_08")).unwrap();
    let cuts: Vec<usize> = memchr::memchr_iter(b'\n', &case.stream).collect();
    assert!(cuts.len() > 10 && cuts.iter().all(|cut| case.stream[cut - 1] == b'\r'));
    assert_eq!(read_case(case, &cuts), read_case(case, &[]));
}

#[test]
fn d10_a_gzip_header_cut_anywhere_loses_no_usage() {
    let cases = cases();
    let case = cases.iter().find(|case| case.coding.is_some()).unwrap();
    let (_, summary) = read_case(case, &[1, 2, 3, 9]);
    assert_eq!((summary.usage.input, summary.usage.output), (Some(9), Some(4)));
    assert_eq!(joined_text(&summary), "alpha beta gamma delta");
}

#[test]
fn e03_content_starts_at_the_first_delta_and_not_at_a_comment_or_the_role() {
    let cases = cases();
    let mut rows = 0;
    for case in &cases {
        if case.expect["ttft_event_index"].is_null() {
            continue;
        }
        rows += 1;
        let needle: &[u8] = if case.file.contains("oc_20") {
            br#""reasoning_content":"hmm "#
        } else {
            br#""content":"alpha "#
        };
        let at = memchr::memmem::find(&case.stream, needle).unwrap();
        let line_end = at + memchr::memchr(b'\n', &case.stream[at..]).unwrap() + 1;
        let mut reader = reader(case.endpoint, HideUsage::No);
        assert!(!reader.feed(&case.stream[..line_end - 1]).first_content);
        assert!(reader.feed(&case.stream[line_end - 1..]).first_content);
        let summary = reader.finish(EndOfStream::Clean);
        assert_eq!(summary.first_content_event, Some(1), "{}", case.file);
    }
    assert_eq!(rows, 2);
}

#[test]
fn e03_a_stream_without_content_has_no_first_content() {
    let mut reader = reader(Endpoint::ChatCompletions, HideUsage::No);
    let stream = b": ping\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
        data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":null},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    assert!(!reader.feed(stream).first_content);
    let summary = reader.finish(EndOfStream::Clean);
    assert_eq!(summary.first_content_event, None);
    assert_eq!(summary.outcome.name(), "upstream_empty");
}

/// The table of `data/real/README.md`: file, endpoint, choices, input, cached, output.
const REAL: [(&str, Endpoint, u32, [u64; 3]); 6] = [
    ("llamacpp_chat_usage.sse", Endpoint::ChatCompletions, 1, [33, 8, 12]),
    ("llamacpp_chat_no_usage.sse", Endpoint::ChatCompletions, 1, [33, 32, 12]),
    ("llamacpp_chat_n2.sse", Endpoint::ChatCompletions, 2, [33, 32, 12]),
    ("llamacpp_completions.sse", Endpoint::Completions, 1, [9, 2, 8]),
    ("llamacpp_responses.sse", Endpoint::Responses, 1, [33, 32, 10]),
    ("llamacpp_messages.sse", Endpoint::Messages, 1, [33, 32, 10]),
];

#[test]
fn a22_every_stream_of_a_real_engine_is_charged_as_its_table_says_at_every_cut() {
    for (file, endpoint, choices, [input, cached, output]) in REAL {
        let stream = data(&format!("real/{file}"));
        let read = |cuts: &[usize]| {
            read_cut(reader(endpoint, HideUsage::No).expecting_choices(choices), &stream, cuts)
        };
        let whole = read(&[]);
        let (forwarded, summary) = &whole;
        assert_eq!(forwarded, &stream, "{file}");
        assert_eq!(summary.usage.input, Some(input), "{file}");
        assert_eq!(summary.usage.cached, Some(cached), "{file}");
        assert_eq!(summary.usage.output, Some(output), "{file}");
        assert_eq!(summary.source.name(), "reported", "{file}");
        assert_eq!(summary.outcome.name(), "completed", "{file}");
        for cut in 0..=stream.len() {
            assert_eq!(read(&[cut]), whole, "{file} cut at {cut}");
        }
    }
}

proptest! {
    #[test]
    fn every_stream_is_read_the_same_at_every_pair_of_cuts(
        pick in any::<prop::sample::Index>(),
        places in prop::collection::vec(any::<prop::sample::Index>(), 2..6),
    ) {
        let cases = cases();
        let case = &cases[pick.index(cases.len())];
        let mut cuts: Vec<usize> = places
            .iter()
            .map(|place| place.index(case.stream.len() + 1))
            .collect();
        cuts.sort_unstable();
        prop_assert_eq!(read_case(case, &cuts), read_case(case, &[]), "{} {:?}", case.file, cuts);
    }
}
