//! The usage-only chunk that the gateway asked for is left out, wherever it was cut, and nothing else is held back.

use fairlane_wire::dialect::Endpoint;
use fairlane_wire::stream::{EndOfStream, Forward, HideUsage, StreamReader};

use super::{REAL, cases, data, forward, read_cut, reader};

/// The stream without the events that only tell usage, found with a whole JSON parser.
fn without_usage_only(stream: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(stream.to_vec()).unwrap();
    let gap = if text.contains("\r\n\r\n") { "\r\n\r\n" } else { "\n\n" };
    text.split_inclusive(gap).filter(|event| !is_usage_only(event)).collect::<String>().into_bytes()
}

fn is_usage_only(event: &str) -> bool {
    let data: Vec<&str> = event.lines().filter_map(|line| line.strip_prefix("data:")).collect();
    let Ok(chunk) = serde_json::from_str::<serde_json::Value>(&data.join("\n")) else {
        return false;
    };
    let empty = chunk["choices"].as_array().is_none_or(Vec::is_empty);
    chunk["usage"].is_object() && empty
}

#[test]
fn the_usage_only_chunk_is_left_out_at_every_cut() {
    let mut hidden = 0;
    for case in cases() {
        if case.endpoint != Endpoint::ChatCompletions || case.coding.is_some() {
            continue;
        }
        let expected = without_usage_only(&case.stream);
        hidden += usize::from(expected.len() < case.stream.len());
        let (_, shown) = super::read_case(&case, &[]);
        for cut in 0..=case.stream.len() {
            let (forwarded, mut summary) =
                read_cut(reader(case.endpoint, HideUsage::Yes), &case.stream, &[cut]);
            assert_eq!(
                String::from_utf8_lossy(&forwarded),
                String::from_utf8_lossy(&expected),
                "{} cut at {cut}",
                case.file
            );
            summary.events_hidden = 0;
            assert_eq!(summary, shown, "{} cut at {cut}", case.file);
        }
        let every: Vec<usize> = (1..case.stream.len()).collect();
        let (forwarded, _) = read_cut(reader(case.endpoint, HideUsage::Yes), &case.stream, &every);
        assert_eq!(forwarded, expected, "{} byte by byte", case.file);
    }
    assert!(hidden >= 12, "{hidden} streams had something to hide");
}

#[test]
fn both_usage_chunks_of_an_engine_that_sends_one_per_choice_are_left_out() {
    for (file, endpoint, choices, _) in REAL {
        let stream = data(&format!("real/{file}"));
        let expected = match endpoint {
            Endpoint::ChatCompletions | Endpoint::Completions => without_usage_only(&stream),
            Endpoint::Embeddings
            | Endpoint::Responses
            | Endpoint::Messages
            | Endpoint::CountTokens
            | Endpoint::Models => stream.clone(),
        };
        for cut in 0..=stream.len() {
            let reader = reader(endpoint, HideUsage::Yes).expecting_choices(choices);
            let (forwarded, summary) = read_cut(reader, &stream, &[cut]);
            assert_eq!(forwarded, expected, "{file} cut at {cut}");
            let usage_only = if choices == 2 { 2 } else { u64::from(expected.len() < stream.len()) };
            assert_eq!(summary.events_hidden, usage_only, "{file}");
        }
    }
}

#[test]
fn d03_a_comment_and_content_pass_at_once_whatever_is_cut() {
    let mut reader = StreamReader::new(Endpoint::ChatCompletions, HideUsage::Yes);
    for chunk in [
        &b": ping\n\n"[..],
        b": half a com",
        b"ment\n",
        b"\n",
        b"data: {\"choices\":[{\"delta\":{\"content\":\"al",
        b"pha\"}}]}",
        b"\n\n: ping\n",
    ] {
        let fed = reader.feed(chunk);
        let mut sent = Vec::new();
        forward(&fed, chunk, &mut sent);
        assert_eq!(sent, chunk);
    }
}

#[test]
fn d03_a_comment_releases_an_event_that_waits() {
    let mut reader = StreamReader::new(Endpoint::ChatCompletions, HideUsage::Yes);
    let mut sent = Vec::new();
    for chunk in [&b"id: 7\ndata: {\"usage\":\n"[..], b": ping\n", b"data: {}}\n\n"] {
        let fed = reader.feed(chunk);
        forward(&fed, chunk, &mut sent);
    }
    assert_eq!(sent, b"id: 7\ndata: {\"usage\":\n: ping\ndata: {}}\n\n");
}

#[test]
fn a_usage_chunk_that_had_to_pass_is_not_counted_as_hidden() {
    let stream = b"data: {\"choices\":[],\n: ping\ndata: \"usage\":{\"completion_tokens\":4}}\n\n";
    for end in [stream.len(), stream.len() - 2] {
        let reader = StreamReader::new(Endpoint::ChatCompletions, HideUsage::Yes);
        let (sent, summary) = read_cut(reader, &stream[..end], &[]);
        assert_eq!(sent, stream[..end]);
        assert_eq!((summary.events_hidden, summary.usage.output), (0, Some(4)));
    }
}

#[test]
fn only_an_event_that_may_be_the_usage_chunk_waits() {
    let mut reader = StreamReader::new(Endpoint::ChatCompletions, HideUsage::Yes);
    let open = b"data: {\"id\":\"x\",\"choices\":[";
    let fed = reader.feed(open);
    assert_eq!(fed.forward, Forward::Parts { released: vec![], ranges: vec![] });
    let fed = reader.feed(b"{\"index\":0,");
    assert_eq!(
        fed.forward,
        Forward::Parts { released: open.to_vec(), ranges: std::iter::once(0..11).collect() }
    );
    assert_eq!(reader.feed(b"\"delta\":{}}]}\n\n").forward, Forward::Whole);
}

#[test]
fn an_event_that_never_ends_is_released_after_a_bound() {
    let mut reader = StreamReader::new(Endpoint::ChatCompletions, HideUsage::Yes);
    let mut sent = Vec::new();
    let mut fed_bytes = b"data: {\"id\":\"".to_vec();
    forward(&reader.feed(&fed_bytes), &fed_bytes, &mut sent);
    let chunk = [b'x'; 1000];
    for _ in 0..100 {
        fed_bytes.extend_from_slice(&chunk);
        forward(&reader.feed(&chunk), &chunk, &mut sent);
        assert!(fed_bytes.len() - sent.len() <= 16 * 1024);
    }
    assert_eq!(sent, fed_bytes);
    assert!(reader.held_bytes() <= 64 * 1024, "{}", reader.held_bytes());
}

#[test]
fn what_waits_at_the_end_is_handed_out_unless_it_is_the_usage_chunk() {
    for (tail, hidden) in [
        ("data: {\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}", true),
        ("data: {\"usage\":{\"prompt_tokens\":9", false),
        ("data: {\"usage\":null}", false),
        ("id: 9", false),
    ] {
        let mut reader = StreamReader::new(Endpoint::ChatCompletions, HideUsage::Yes);
        let mut sent = Vec::new();
        forward(&reader.feed(tail.as_bytes()), tail.as_bytes(), &mut sent);
        assert_eq!(sent, b"");
        let summary = reader.finish(EndOfStream::Broken);
        let expected = if hidden { "" } else { tail };
        assert_eq!(String::from_utf8_lossy(&summary.release), expected);
        assert_eq!(summary.usage.output, hidden.then_some(4));
    }
}

#[test]
fn lines_around_a_hidden_chunk_are_kept_whole_at_every_cut() {
    let stream = b"id: 1\nevent: message\ndata: {\"choices\":[],\"usage\":{\"completion_tokens\":1}}\nid: 2\n: note\n\n\
        data: {\"usage\":{\"completion_tokens\":2}}\ndata: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"y\"}}]}\ndata: {\"usage\":{\"completion_tokens\":3}}\n\ndata: [DONE]\n\n";
    let expected = "id: 2\n: note\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"y\"}}]}\ndata: [DONE]\n\n";
    for first in 0..=stream.len() {
        for second in first..=stream.len() {
            let reader = reader(Endpoint::ChatCompletions, HideUsage::Yes);
            let (forwarded, summary) = read_cut(reader, stream, &[first, second]);
            assert_eq!(String::from_utf8_lossy(&forwarded), expected, "{first} {second}");
            assert_eq!((summary.events, summary.events_hidden), (5, 3));
        }
    }
}

#[test]
fn d03_a_comment_after_a_hidden_chunk_keeps_its_blank_line() {
    let stream = b"data: {\"usage\":{\"completion_tokens\":1}}\n\n: ping\n\ndata: [DONE]\n\n";
    for cut in 0..=stream.len() {
        let reader = reader(Endpoint::ChatCompletions, HideUsage::Yes);
        let (forwarded, _) = read_cut(reader, stream, &[cut]);
        assert_eq!(String::from_utf8_lossy(&forwarded), ": ping\n\ndata: [DONE]\n\n");
    }
}
