//! A streamed answer: read the same at every choice of cuts, forwarded whole, remembered within bounds.

use std::io::Write as _;

use fairlane_wire::dialect::Endpoint;
use fairlane_wire::stream::{
    AnswerReader, Coding, Encoded, EndOfStream, Fed, Forward, HideUsage, StreamReader, Summary,
};
use fairlane_wire::usage::{TOKENS_MAX, Usage, UsageSource};

use super::input::{ENDPOINTS, Input, pieces};

/// Reads `input` as endpoint, choices, end, cuts and stream.
pub fn check(input: &[u8]) {
    let mut input = Input::new(input);
    let endpoint = ENDPOINTS[input.pick(ENDPOINTS.len())];
    let flags = input.byte();
    let end = if flags & 1 == 0 { EndOfStream::Clean } else { EndOfStream::Broken };
    let choices = u32::from(flags >> 1 & 7);
    let cuts = input.cuts();
    let stream = input.rest();
    let cut = pieces(stream, &cuts);
    let answer = Answer { endpoint, choices, end };

    let (sent, whole) = answer.read(HideUsage::No, &[stream]);
    assert!(sent == stream, "every byte passes");
    assert_eq!(answer.read(HideUsage::No, &cut), (sent, whole.clone()));
    plausible(&whole);
    for chunks in [&[stream][..], &cut] {
        answer.hidden(chunks, stream, &whole);
    }
    answer.encoded(stream, &cuts, &whole);
    hostile(&cut);
}

struct Answer {
    endpoint: Endpoint,
    choices: u32,
    end: EndOfStream,
}

impl Answer {
    fn reader(&self, hide: HideUsage) -> StreamReader {
        StreamReader::new(self.endpoint, hide).expecting_choices(self.choices).keeping_text(TEXT_BYTES_MAX)
    }

    /// What is forwarded, and the account.
    fn read(&self, hide: HideUsage, chunks: &[&[u8]]) -> (Vec<u8>, Summary) {
        let mut reader = self.reader(hide);
        let mut sent = Vec::new();
        let (mut counted, mut has_content) = (0, false);
        for chunk in chunks {
            let fed = reader.feed(chunk);
            forward(&fed, chunk, &mut sent);
            assert!(reader.held_bytes() <= HELD_BYTES_MAX, "{} bytes are held", reader.held_bytes());
            assert!(reader.counted_output() >= counted, "what was counted is taken back");
            assert_eq!(fed.first_content, !has_content && reader.has_content());
            (counted, has_content) = (reader.counted_output(), reader.has_content());
        }
        let mut summary = reader.finish(self.end);
        sent.append(&mut summary.release);
        (sent, summary)
    }

    /// Hiding leaves out lines and nothing else, and changes no account.
    fn hidden(&self, chunks: &[&[u8]], stream: &[u8], whole: &Summary) {
        let (sent, mut summary) = self.read(HideUsage::Yes, chunks);
        let hides = matches!(self.endpoint, Endpoint::ChatCompletions | Endpoint::Completions);
        assert!(hides || summary.events_hidden == 0);
        if summary.events_hidden == 0 {
            assert!(sent == stream, "nothing was hidden, and something is missing");
        } else {
            assert!(sent.len() < stream.len());
            let mut left = lines(stream);
            for line in lines(&sent) {
                assert!(left.any(|candidate| candidate == line), "a line was changed or moved");
            }
        }
        summary.events_hidden = 0;
        assert_eq!(&summary, whole, "hiding changes the account");
    }

    /// The compressed stream, cut as well, has the account of the plain one.
    fn encoded(&self, stream: &[u8], cuts: &[usize], whole: &Summary) {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(stream).expect("a vector takes everything");
        let bytes = encoder.finish().expect("a vector takes everything");
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let mut encoded = Encoded::new(Coding::Gzip, self.reader(HideUsage::No));
        pieces(&bytes, &cuts).into_iter().for_each(|piece| encoded.feed(piece));
        assert_eq!(&encoded.finish(self.end), whole, "the compressed stream tells something else");
    }
}

/// The stream as if it were compressed: it is decoded within bounds, whatever it is.
fn hostile(chunks: &[&[u8]]) {
    for coding in [Coding::Gzip, Coding::Deflate, Coding::Unreadable] {
        let mut encoded = Encoded::new(coding, Counter::default());
        let mut fed = 0;
        for chunk in chunks {
            encoded.feed(chunk);
            fed += chunk.len() as u64;
            let bound = (fed * EXPANSION_MAX).max(EXPANDED_BYTES);
            assert!(encoded.reader().bytes <= bound, "{} bytes from {fed}", encoded.reader().bytes);
        }
    }
}

fn plausible(summary: &Summary) {
    let Usage { input, output, cached, .. } = summary.usage;
    assert!([input, output, cached].into_iter().flatten().all(|tokens| tokens <= TOKENS_MAX), "{summary:?}");
    assert!(cached.unwrap_or(0) <= input.unwrap_or(u64::MAX), "more is cached than was there: {summary:?}");
    assert!(summary.source != UsageSource::None || output.unwrap_or(0) == 0, "{summary:?}");
    let texts: usize = summary.texts.iter().map(|(_, text)| text.len()).sum();
    assert!(texts <= TEXT_BYTES_MAX, "{texts} bytes of text are kept");
}

/// Appends what a chunk's answer forwards.
fn forward(fed: &Fed, chunk: &[u8], to: &mut Vec<u8>) {
    match &fed.forward {
        Forward::Whole => to.extend_from_slice(chunk),
        Forward::Parts { released, ranges } => {
            to.extend_from_slice(released);
            ranges.iter().for_each(|range| to.extend_from_slice(&chunk[range.clone()]));
        }
    }
}

/// Lines with their ends; CRLF counts as one end.
fn lines(stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = stream;
    std::iter::from_fn(move || {
        let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let length = match end {
            Some(end) if rest[end..].starts_with(b"\r\n") => end + 2,
            Some(end) => end + 1,
            None => rest.len(),
        };
        let (line, after) = rest.split_at(length);
        rest = after;
        (!line.is_empty()).then_some(line)
    })
}

/// Counts what a decoder gives it.
#[derive(Default)]
struct Counter {
    bytes: u64,
}

impl AnswerReader for Counter {
    fn read_plain(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
    }

    fn finish_plain(&mut self, how: EndOfStream) -> Summary {
        StreamReader::new(Endpoint::Models, HideUsage::No).finish(how)
    }
}

const TEXT_BYTES_MAX: usize = 1 << 12;
/// Held bytes (16 KiB and their room to grow), kept text, the shape of the last event.
const HELD_BYTES_MAX: usize = 256 * 1024;
const EXPANDED_BYTES: u64 = 1024 * 1024;
const EXPANSION_MAX: u64 = 200;
