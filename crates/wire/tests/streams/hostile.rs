//! Hostile streams neither panic nor grow, and every byte of them passes.

use std::io::Write;

use fairlane_wire::dialect::Endpoint;
use fairlane_wire::reply::ReplyReader;
use fairlane_wire::stream::{
    Coding, Encoded, EndOfStream, Forward, HideUsage, Opening, Outcome, StreamReader,
};
use fairlane_wire::usage::{TOKENS_MAX, UsageSource};
use proptest::prelude::*;

use super::{forward, read_cut, reader};

const ENDPOINTS: [Endpoint; 7] = [
    Endpoint::ChatCompletions,
    Endpoint::Completions,
    Endpoint::Embeddings,
    Endpoint::Responses,
    Endpoint::Messages,
    Endpoint::CountTokens,
    Endpoint::Models,
];

fn endless(start: &[u8], filler: u8, mebibytes: usize) {
    for hide in [HideUsage::No, HideUsage::Yes] {
        let mut reader = reader(Endpoint::ChatCompletions, hide);
        let chunk = vec![filler; 64 * 1024];
        let mut sent_bytes = 0;
        let mut count = |fed: &Forward, length: usize| match fed {
            Forward::Whole => sent_bytes += length,
            Forward::Parts { released, ranges } => {
                sent_bytes += released.len();
                sent_bytes += ranges.iter().map(ExactSizeIterator::len).sum::<usize>();
            }
        };
        count(&reader.feed(start).forward, start.len());
        let chunks = mebibytes * 1024 * 1024 / chunk.len();
        for _ in 0..chunks {
            count(&reader.feed(&chunk).forward, chunk.len());
            assert!(reader.held_bytes() <= 256 * 1024, "{}", reader.held_bytes());
        }
        assert_eq!(reader.opening(), Opening::Other);
        let summary = reader.finish(EndOfStream::Broken);
        assert_eq!(sent_bytes + summary.release.len(), start.len() + chunks * chunk.len());
        assert_eq!(summary.source, UsageSource::Estimated);
        assert_eq!(summary.outcome, Outcome::Interrupted);
    }
}

#[test]
fn d02_an_event_without_end_passes_and_is_not_held() {
    endless(b"data: ", b'a', 256);
}

#[test]
fn d02_a_json_string_without_end_passes_and_is_not_held() {
    endless(b"data: {\"choices\":[{\"delta\":{\"content\":\"", b'a', 32);
}

#[test]
fn d02_json_nested_without_end_passes_and_is_not_held() {
    endless(b"data: {\"x\":", b'[', 32);
}

#[test]
fn d08_a_stream_that_breaks_is_interrupted_even_after_content() {
    let stream = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"alpha\"}}]}\n\n";
    for how in [EndOfStream::Broken, EndOfStream::Clean] {
        let mut reader = reader(Endpoint::ChatCompletions, HideUsage::Yes);
        assert_eq!(reader.feed(stream).forward, Forward::Whole);
        let summary = reader.finish(how);
        assert_eq!(summary.outcome, Outcome::Interrupted);
        assert_eq!(summary.usage.output, Some(1));
        assert_eq!(summary.release, b"");
    }
}

#[test]
fn blanks_before_a_document_are_those_of_json_at_every_cut() {
    for stream in [
        &b"data: \x0c{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n"[..],
        b"data: \t {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n",
        b"data:                     [DONE]\n\n",
    ] {
        let whole = read_cut(reader(Endpoint::ChatCompletions, HideUsage::No), stream, &[]);
        for cut in 0..stream.len() {
            let reader = reader(Endpoint::ChatCompletions, HideUsage::No);
            assert_eq!(read_cut(reader, stream, &[cut]), whole, "cut at {cut}");
        }
    }
}

#[test]
fn a_stream_that_never_said_anything_ran_nothing() {
    for (how, outcome) in
        [(EndOfStream::Broken, Outcome::UpstreamError), (EndOfStream::Clean, Outcome::UpstreamEmpty)]
    {
        let summary = reader(Endpoint::Messages, HideUsage::No).finish(how);
        assert_eq!((summary.outcome, summary.source), (outcome, UsageSource::None));
    }
}

#[test]
fn hostile_numbers_saturate_or_are_left_out() {
    let huge = "9".repeat(500);
    let stream = format!(
        "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{huge},\"completion_tokens\":-5,\
         \"prompt_tokens_details\":{{\"cached_tokens\":1e99}}}}}}\n\ndata: [DONE]\n\n"
    );
    let (_, summary) = read_cut(reader(Endpoint::ChatCompletions, HideUsage::No), stream.as_bytes(), &[]);
    assert_eq!(summary.usage.input, Some(TOKENS_MAX));
    assert_eq!(summary.usage.output, None);
    assert_eq!(summary.usage.cached, None);
    let text = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":\"7\",\"completion_tokens\":2.5}}\n\n";
    let (_, summary) = read_cut(reader(Endpoint::ChatCompletions, HideUsage::No), text.as_bytes(), &[]);
    assert_eq!((summary.usage.input, summary.usage.output), (None, None));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_compression_bomb_stops_the_copy_and_is_estimated() {
    let mut plain = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"alpha\"}}]}\n\n".to_vec();
    plain.resize(64 * 1024 * 1024, b'\n');
    plain.extend_from_slice(
        b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n",
    );
    let bomb = gzip(&plain);
    assert!(plain.len() / bomb.len() > 500);
    let mut encoded = Encoded::new(Coding::Gzip, reader(Endpoint::ChatCompletions, HideUsage::No));
    encoded.feed(&bomb);
    let summary = encoded.finish(EndOfStream::Clean);
    assert_eq!(summary.source, UsageSource::Estimated);
    assert_eq!((summary.outcome, summary.usage.output), (Outcome::Completed, Some(1)));
}

#[test]
fn broken_and_unknown_encodings_are_estimated_and_not_called_empty() {
    for (coding, bytes) in [
        (Coding::Gzip, &b"this is no gzip at all"[..]),
        (Coding::Deflate, b"\xff\xff\xff\xff"),
        (Coding::from_header("br").unwrap(), b"\x0b\x02\x80"),
    ] {
        let mut encoded = Encoded::new(coding, ReplyReader::new(Endpoint::ChatCompletions));
        encoded.feed(bytes);
        let summary = encoded.finish(EndOfStream::Clean);
        assert_eq!(
            (summary.source, summary.outcome),
            (UsageSource::Estimated, Outcome::Completed),
            "{coding:?}"
        );
    }
}

#[test]
fn deflate_is_read_with_and_without_its_wrapper() {
    let body =
        br#"{"choices":[{"message":{"content":"alpha"}}],"usage":{"prompt_tokens":9,"completion_tokens":4}}"#;
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    zlib.write_all(body).unwrap();
    let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    raw.write_all(body).unwrap();
    for bytes in [zlib.finish().unwrap(), raw.finish().unwrap()] {
        for cut in 0..bytes.len() {
            let mut encoded = Encoded::new(Coding::Deflate, ReplyReader::new(Endpoint::ChatCompletions));
            encoded.feed(&bytes[..cut]);
            encoded.feed(&bytes[cut..]);
            let summary = encoded.finish(EndOfStream::Clean);
            assert_eq!((summary.usage.input, summary.usage.output), (Some(9), Some(4)));
        }
    }
}

#[test]
fn an_encoded_stream_is_read_as_soon_as_its_bytes_come() {
    let event = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"alpha\"}}]}\n\n";
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(event).unwrap();
    encoder.flush().unwrap();
    let mut encoded = Encoded::new(Coding::Gzip, reader(Endpoint::ChatCompletions, HideUsage::No));
    encoded.feed(encoder.get_ref());
    assert_eq!(encoded.reader().opening(), Opening::Content);
}

/// Pieces that make up plausible and implausible streams.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        &b"data: "[..],
        b"data:",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b": c\n",
        b"event: error\n",
        b"id: 1\n",
        b"[DONE]",
        b"{",
        b"}",
        b"[",
        b"]",
        b"\"",
        b"\\",
        b"\\u",
        b"\\ud83d",
        b"\\ude00",
        b":",
        b",",
        b"null",
        b"-1",
        b"1e9",
        b"12",
        b"\"usage\":",
        b"\"choices\":",
        b"{\"usage\":{\"completion_tokens\":4}}",
        b"\"delta\":",
        b"\"content\":",
        b"\"index\":",
        b"\"type\":\"message_delta\"",
        b"\"type\":\"response.completed\"",
        b"\"error\":{\"code\":500}",
        b"\xef\xbb\xbf",
        b"\xf0\x9f",
        b"{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}",
        b"{\"choices\":[],\"usage\":{\"completion_tokens\":4}}",
    ])
    .prop_map(<[u8]>::to_vec);
    prop_oneof![9 => known, 1 => prop::collection::vec(any::<u8>(), 0..8)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn arbitrary_streams_never_panic_and_pass_whole(
        fragments in prop::collection::vec(fragment(), 0..40),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        pick in any::<prop::sample::Index>(),
    ) {
        let stream = fragments.concat();
        let endpoint = ENDPOINTS[pick.index(ENDPOINTS.len())];
        let mut cuts: Vec<usize> = places.iter().map(|place| place.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        let whole = read_cut(reader(endpoint, HideUsage::No), &stream, &[]);
        prop_assert_eq!(&whole.0, &stream);
        prop_assert_eq!(&read_cut(reader(endpoint, HideUsage::No), &stream, &cuts), &whole);

        let hidden = read_cut(reader(endpoint, HideUsage::Yes), &stream, &[]);
        let hidden_cut = read_cut(reader(endpoint, HideUsage::Yes), &stream, &cuts);
        prop_assert_eq!(hidden.1.usage, whole.1.usage);
        prop_assert_eq!(hidden_cut.1.usage, whole.1.usage);
        if hidden.1.events_hidden == 0 {
            prop_assert_eq!(&hidden.0, &stream);
        }
        if hidden_cut.1.events_hidden == 0 {
            prop_assert_eq!(&hidden_cut.0, &stream);
        }

        let mut reply = ReplyReader::new(endpoint);
        let mut reply_cut = ReplyReader::new(endpoint);
        reply.feed(&stream);
        let mut from = 0;
        for cut in cuts.iter().chain([&stream.len()]) {
            reply_cut.feed(&stream[from..*cut]);
            from = *cut;
        }
        prop_assert_eq!(reply.finish(EndOfStream::Clean), reply_cut.finish(EndOfStream::Clean));
    }

    #[test]
    fn arbitrary_bytes_never_panic_a_decoder(bytes in prop::collection::vec(any::<u8>(), 0..400), head in any::<bool>()) {
        for coding in [Coding::Gzip, Coding::Deflate] {
            let mut encoded = Encoded::new(coding, StreamReader::new(Endpoint::Responses, HideUsage::No));
            if head {
                encoded.feed(&gzip(b"data: {}\n\n")[..12]);
            }
            encoded.feed(&bytes);
            encoded.finish(EndOfStream::Broken);
        }
        let mut sent = Vec::new();
        let mut reader = StreamReader::new(Endpoint::Completions, HideUsage::Yes);
        forward(&reader.feed(&bytes), &bytes, &mut sent);
        let summary = reader.finish(EndOfStream::Clean);
        sent.extend_from_slice(&summary.release);
        prop_assert_eq!(sent, bytes);
    }
}
