//! Reads an answer of any kind as it passes: streamed or whole, plain or encoded.

use std::sync::Arc;

use fairlane_wire::count::Vocabulary;
use fairlane_wire::dialect::Endpoint;
use fairlane_wire::reply::{ErrorFacts, ReplyReader};
use fairlane_wire::stream::{
    Coding, Encoded, EndOfStream, Fed, Forward, HideUsage, Opening, Outcome, StreamReader, Summary,
};
use fairlane_wire::usage::{Usage, UsageSource};

/// Reads one answer.
#[derive(Debug)]
pub struct Reader {
    kind: Kind,
    hides: bool,
    /// Bytes that the backend announced and has not sent.
    missing_bytes: Option<u64>,
    /// For an exact count of output that nobody reported.
    vocabulary: Option<Arc<Vocabulary>>,
    summary: Option<(Summary, Option<u64>)>,
}

#[derive(Debug)]
enum Kind {
    Stream(Box<StreamReader>),
    EncodedStream(Box<Encoded<StreamReader>>),
    Reply(Box<ReplyReader>),
    EncodedReply(Box<Encoded<ReplyReader>>),
    /// Nothing to read: another path that is passed on.
    Opaque,
}

/// What an answer is, as its head tells.
#[derive(Clone, Debug)]
pub struct Shape {
    /// What was asked for; `None` for other paths that are passed on.
    pub endpoint: Option<Endpoint>,
    /// Its content type is that of a stream.
    pub is_stream: bool,
    /// Its coding, where it has one.
    pub coding: Option<Coding>,
    /// Whether to leave out the usage-only chunk.
    pub hide: HideUsage,
    /// Choices that a stream must finish.
    pub choices: u32,
    /// Its length, if it announced one.
    pub length_bytes: Option<u64>,
    /// Counts output that nobody reports.
    pub vocabulary: Option<Arc<Vocabulary>>,
}

impl Reader {
    /// A reader for an answer of that shape.
    #[must_use]
    pub fn new(shape: &Shape) -> Self {
        let vocabulary = shape.vocabulary.clone();
        let keep = if vocabulary.is_some() { TEXT_BYTES_MAX } else { 0 };
        let kind = match (shape.endpoint, shape.is_stream) {
            (None, _) => Kind::Opaque,
            (Some(endpoint), true) => {
                let hide = if shape.coding.is_some() { HideUsage::No } else { shape.hide };
                let stream =
                    StreamReader::new(endpoint, hide).expecting_choices(shape.choices).keeping_text(keep);
                match shape.coding {
                    Some(coding) => Kind::EncodedStream(Box::new(Encoded::new(coding, stream))),
                    None => Kind::Stream(Box::new(stream)),
                }
            }
            (Some(endpoint), false) => {
                let reply = ReplyReader::new(endpoint).keeping_text(keep);
                match shape.coding {
                    Some(coding) => Kind::EncodedReply(Box::new(Encoded::new(coding, reply))),
                    None => Kind::Reply(Box::new(reply)),
                }
            }
        };
        let hides = shape.hide == HideUsage::Yes && matches!(kind, Kind::Stream(_));
        Self { kind, hides, missing_bytes: shape.length_bytes, vocabulary, summary: None }
    }

    /// Reads a chunk and says what of it to forward.
    pub fn feed(&mut self, chunk: &[u8]) -> Fed {
        self.missing_bytes = self.missing_bytes.map(|bytes| bytes.saturating_sub(chunk.len() as u64));
        match &mut self.kind {
            Kind::Stream(reader) => return reader.feed(chunk),
            Kind::EncodedStream(reader) => {
                let had_content = reader.reader().has_content();
                reader.feed(chunk);
                let first_content = !had_content && reader.reader().has_content();
                return Fed { forward: Forward::Whole, first_content };
            }
            Kind::Reply(reader) => reader.feed(chunk),
            Kind::EncodedReply(reader) => reader.feed(chunk),
            Kind::Opaque => {}
        }
        Fed { forward: Forward::Whole, first_content: false }
    }

    /// What a stream opened with.
    #[must_use]
    pub fn opening(&self) -> Opening {
        match &self.kind {
            Kind::Stream(reader) => reader.opening(),
            Kind::EncodedStream(reader) => reader.reader().opening(),
            Kind::Reply(_) | Kind::EncodedReply(_) | Kind::Opaque => Opening::Other,
        }
    }

    /// The first error event of a stream.
    #[must_use]
    pub fn error(&self) -> Option<&ErrorFacts> {
        match &self.kind {
            Kind::Stream(reader) => reader.error(),
            Kind::EncodedStream(reader) => reader.reader().error(),
            Kind::Reply(_) | Kind::EncodedReply(_) | Kind::Opaque => None,
        }
    }

    /// Whether events of our own can be put between those that pass.
    #[must_use]
    pub const fn is_plain_stream(&self) -> bool {
        matches!(self.kind, Kind::Stream(_))
    }

    /// Output tokens so far.
    #[must_use]
    pub fn produced(&self) -> u64 {
        match &self.kind {
            Kind::Stream(reader) => reader.produced(),
            Kind::EncodedStream(reader) => reader.reader().produced(),
            Kind::Reply(_) | Kind::EncodedReply(_) | Kind::Opaque => 0,
        }
    }

    /// Whether every announced byte has passed.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.missing_bytes == Some(0)
    }

    /// Whether the client gets every byte.
    #[must_use]
    pub const fn forwards_everything(&self) -> bool {
        !self.hides
    }

    /// The account at the end, and the exact output where it was counted. Asking again gives the same.
    pub fn finish(&mut self, how: EndOfStream) -> (Summary, Option<u64>) {
        if let Some(summary) = &self.summary {
            return summary.clone();
        }
        let summary = match &mut self.kind {
            Kind::Stream(reader) => reader.finish(how),
            Kind::EncodedStream(reader) => reader.finish(how),
            Kind::Reply(reader) => reader.finish(how),
            Kind::EncodedReply(reader) => reader.finish(how),
            Kind::Opaque => opaque(how),
        };
        let is_unreported = matches!(summary.source, UsageSource::Estimated | UsageSource::Mixed);
        let counted = match &self.vocabulary {
            Some(vocabulary) if is_unreported && summary.texts_complete => {
                Some(summary.texts.iter().map(|(_, text)| vocabulary.count(text)).sum())
            }
            _ => None,
        };
        self.summary = Some((summary.clone(), counted));
        (summary, counted)
    }
}

/// An answer that is not read: it costs what was reserved for it.
fn opaque(how: EndOfStream) -> Summary {
    Summary {
        usage: Usage { output: Some(0), ..Usage::default() },
        source: UsageSource::Estimated,
        outcome: match how {
            EndOfStream::Clean => Outcome::Completed,
            EndOfStream::Broken => Outcome::Interrupted,
        },
        counted_output: 0,
        deltas: 0,
        first_content_event: None,
        events: 0,
        events_hidden: 0,
        choices_finished: 0,
        error: None,
        texts: Vec::new(),
        texts_complete: false,
        release: Vec::new(),
    }
}

/// Text kept per answer for an exact count; beyond it output is estimated.
const TEXT_BYTES_MAX: usize = 256 * 1024;
