//! What is known of an answer when it has ended.

use crate::reply::ErrorFacts;
use crate::usage::{Usage, UsageSource};

/// How the bytes of an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOfStream {
    /// The body ended as its framing said.
    Clean,
    /// The connection broke, or the reader gave up, before that.
    Broken,
}

/// What the answer was, as far as its bytes tell. The gateway knows further outcomes (time-outs, clients gone).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All of it came.
    Completed,
    /// It was cut by the backend.
    Interrupted,
    /// The first event, or the whole body, was an error, or nothing came at all before the connection broke.
    UpstreamError,
    /// An error came after other events.
    UpstreamErrorMidStream,
    /// Success without content.
    UpstreamEmpty,
}

impl Outcome {
    /// The name used in the admin API and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Interrupted => "interrupted",
            Self::UpstreamError => "upstream_error",
            Self::UpstreamErrorMidStream => "upstream_error_mid_stream",
            Self::UpstreamEmpty => "upstream_empty",
        }
    }
}

/// What the first event of a stream was: enough to commit the status, or to answer otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Nothing whole came yet.
    Nothing,
    /// Comments only.
    Comment,
    /// An error: [`StreamReader::error`](super::StreamReader::error) has it.
    Error,
    /// Generated content.
    Content,
    /// Anything else: a chunk with only the role, `message_start`, something that is no JSON.
    Other,
}

/// The end of an answer's account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// What to charge. `None` fields are for the caller to estimate; with [`UsageSource::None`] nothing is charged.
    pub usage: Usage,
    /// Where the usage comes from.
    pub source: UsageSource,
    /// What the answer was.
    pub outcome: Outcome,
    /// Tokens estimated from the text that passed, whatever was reported.
    pub counted_output: u64,
    /// Pieces of text that were not empty. One piece may be several tokens.
    pub deltas: u64,
    /// The number, from 0, of the first event with content. Comments are no events.
    pub first_content_event: Option<u64>,
    /// Events read; the end mark is none.
    pub events: u64,
    /// Events left out of what the client got.
    pub events_hidden: u64,
    /// Choices that told their end.
    pub choices_finished: usize,
    /// The first error.
    pub error: Option<ErrorFacts>,
    /// The text of each choice, if it was to be kept.
    pub texts: Vec<(u32, String)>,
    /// Whether `texts` is all the text there was.
    pub texts_complete: bool,
    /// Bytes that were held back and have to be sent before the end.
    pub release: Vec<u8>,
}
