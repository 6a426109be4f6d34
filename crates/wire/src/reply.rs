//! Reads a whole (not streamed) JSON answer as it passes: its usage, its error, and whether it held anything.
//!
//! The body is never held: an answer with embeddings is megabytes. The scanner keeps its place and the few numbers that matter.

mod error_facts;
pub(crate) mod facts;
mod node;
pub(crate) mod scanner;
pub(crate) mod tally;
pub(crate) mod texts;

pub use error_facts::ErrorFacts;

use facts::Facts;
use scanner::Scanner;

use crate::dialect::Endpoint;
use crate::stream::reports::{Extent, Reports};
use crate::stream::{AnswerReader, EndOfStream, Outcome, StreamReader, Summary};
use crate::usage::{Usage, UsageSource};

/// Reads one reply. All bytes are forwarded as they came.
///
/// ```
/// use fairlane_wire::dialect::Endpoint;
/// use fairlane_wire::reply::ReplyReader;
/// use fairlane_wire::stream::EndOfStream;
///
/// let mut reader = ReplyReader::new(Endpoint::Embeddings);
/// reader.feed(b"{\"data\":[{\"embedding\":[0.1,0.2]}],\"usage\":{\"prompt_to");
/// reader.feed(b"kens\":900,\"total_tokens\":900}}");
/// let summary = reader.finish(EndOfStream::Clean);
/// assert_eq!((summary.usage.input, summary.usage.output), (Some(900), Some(0)));
/// ```
#[derive(Clone, Debug)]
pub struct ReplyReader {
    endpoint: Endpoint,
    scanner: Scanner,
    facts: Facts,
    bytes: u64,
}

impl ReplyReader {
    /// A reader for a reply of `endpoint`.
    #[must_use]
    pub fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, scanner: Scanner::default(), facts: Facts::default(), bytes: 0 }
    }

    /// Keeps up to `bytes_max` bytes of generated text, for an exact count if usage never comes. Without it text is estimated only.
    #[must_use]
    pub fn keeping_text(mut self, bytes_max: usize) -> Self {
        self.facts.texts.keep(bytes_max);
        self
    }

    /// Reads a part of the body.
    pub fn feed(&mut self, chunk: &[u8]) {
        self.bytes = self.bytes.saturating_add(chunk.len() as u64);
        self.scanner.feed(chunk, &mut self.facts);
    }

    /// The account at the end. Call it once.
    ///
    /// A body that is no JSON has no usage; it counts as complete if it ended as its framing said. For model lists and token counts
    /// the source is [`UsageSource::None`]: nothing ran.
    pub fn finish(&mut self, how: EndOfStream) -> Summary {
        let is_json = self.scanner.is_complete();
        self.facts.settle_cut();
        let error = if is_json { self.facts.event.take_error() } else { None };
        let outcome = if error.is_some() { Outcome::UpstreamError } else { self.outcome(how) };
        let mut reports = Reports::new(self.endpoint);
        reports.add_reply(&self.facts.event);
        let (mut usage, mut source) = reports.conclude(Extent::Whole);
        let ran = error.is_none()
            && self.bytes > 0
            && !matches!(self.endpoint, Endpoint::Models | Endpoint::CountTokens);
        if source == UsageSource::Estimated && !ran {
            (usage, source) = (Usage::default(), UsageSource::None);
        }
        let (texts, texts_complete) = self.facts.texts.take();
        Summary {
            usage,
            source,
            outcome,
            counted_output: reports.counted(),
            deltas: reports.deltas(),
            first_content_event: self.facts.event.content.then_some(0),
            events: u64::from(is_json),
            events_hidden: 0,
            choices_finished: self.facts.event.ends.iter().filter(|end| end.finished).count(),
            error,
            texts,
            texts_complete: texts_complete && is_json,
            release: Vec::new(),
        }
    }

    fn outcome(&self, how: EndOfStream) -> Outcome {
        let event = &self.facts.event;
        match how {
            EndOfStream::Broken if self.bytes == 0 => Outcome::UpstreamError,
            EndOfStream::Broken => Outcome::Interrupted,
            EndOfStream::Clean if self.bytes == 0 => Outcome::UpstreamEmpty,
            EndOfStream::Clean if self.scanner.has_failed() => Outcome::Completed,
            EndOfStream::Clean if !self.scanner.is_complete() => Outcome::Interrupted,
            EndOfStream::Clean if !event.content => Outcome::UpstreamEmpty,
            EndOfStream::Clean => Outcome::Completed,
        }
    }
}

impl AnswerReader for ReplyReader {
    fn read_plain(&mut self, bytes: &[u8]) {
        self.feed(bytes);
    }

    fn finish_plain(&mut self, how: EndOfStream) -> Summary {
        self.finish(how)
    }
}

impl AnswerReader for StreamReader {
    fn read_plain(&mut self, bytes: &[u8]) {
        self.feed(bytes);
    }

    fn finish_plain(&mut self, how: EndOfStream) -> Summary {
        self.finish(how)
    }
}
