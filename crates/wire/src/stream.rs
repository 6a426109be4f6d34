//! Reads a streamed answer as it passes: what to forward, when it first had content, what it used and how it ended.
//!
//! Nothing is decoded twice and no event is ever held whole: the JSON is scanned where it lies, at whatever places the chunks were cut.
//! So there is no limit on the length of an event; only what is remembered of it has bounds.

mod encoded;
mod ending;
mod gaps;
mod hold;
mod mark;
pub(crate) mod reports;
mod summary;
mod template;

pub use encoded::{AnswerReader, Coding, Encoded};
pub use gaps::Gaps;
pub use hold::Forward;
pub use summary::{EndOfStream, Opening, Outcome, Summary};

use hold::{Hold, Verdict};
use mark::Mark;
use reports::Reports;
use template::Template;

use crate::dialect::Endpoint;
use crate::reply::ErrorFacts;
use crate::reply::facts::{Event, Facts, Kind};
use crate::reply::scanner::Scanner;
use crate::reply::tally::Tally;
use crate::sse::{LineKind, LinePiece, SseLines};

/// The status waits for the first event no longer than this many bytes of it.
const OPENING_BYTES_MAX: usize = 64 * 1024;

/// Whether the client is to see the usage-only chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HideUsage {
    /// The gateway asked for it and the client did not.
    Yes,
    /// The client asked for it, or nobody did.
    No,
}

/// What to do with a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fed {
    /// The bytes to send.
    pub forward: Forward,
    /// This chunk brought the first content: the moment for the time to first token.
    pub first_content: bool,
}

/// Reads one stream.
///
/// ```
/// use fairlane_wire::dialect::Endpoint;
/// use fairlane_wire::stream::{EndOfStream, Forward, HideUsage, Outcome, StreamReader};
/// use fairlane_wire::usage::UsageSource;
///
/// let mut reader = StreamReader::new(Endpoint::ChatCompletions, HideUsage::Yes);
/// let fed = reader.feed(b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n");
/// assert_eq!(fed.forward, Forward::Whole);
/// assert!(fed.first_content);
///
/// reader.feed(b"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n");
/// let usage = b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n";
/// let done = usage.len() - b"data: [DONE]\n\n".len()..usage.len();
/// let fed = reader.feed(usage);
/// assert_eq!(fed.forward, Forward::Parts { released: vec![], ranges: vec![done] });
///
/// let summary = reader.finish(EndOfStream::Clean);
/// assert_eq!((summary.usage.input, summary.usage.output), (Some(9), Some(1)));
/// assert_eq!((summary.source, summary.outcome), (UsageSource::Reported, Outcome::Completed));
/// ```
#[derive(Clone, Debug)]
pub struct StreamReader {
    lines: SseLines,
    document: Document,
    scanner: Scanner,
    facts: Facts,
    template: Template,
    reports: Reports,
    hold: Option<Hold>,
    event_name: Mark,
    error_named: bool,
    mark: Mark,
    opening: Opening,
    opening_bytes: usize,
    events: u64,
    events_hidden: u64,
    first_content: Option<u64>,
    terminal: bool,
    error: Option<(u64, ErrorFacts)>,
}

/// What a data line holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Document {
    None,
    Json,
    /// Anything else, as `[DONE]`.
    Mark,
}

impl StreamReader {
    /// A reader for an answer of `endpoint`.
    ///
    /// Hiding concerns chat completions and completions only: the other APIs have no usage-only chunk. It needs plain bytes, so a gateway
    /// that asks for usage has to ask the backend for `identity` encoding too.
    #[must_use]
    pub fn new(endpoint: Endpoint, hide: HideUsage) -> Self {
        let hides =
            hide == HideUsage::Yes && matches!(endpoint, Endpoint::ChatCompletions | Endpoint::Completions);
        Self {
            lines: SseLines::default(),
            document: Document::None,
            scanner: Scanner::default(),
            facts: Facts::default(),
            template: Template::default(),
            reports: Reports::new(endpoint),
            hold: hides.then(Hold::default),
            event_name: Mark::default(),
            error_named: false,
            mark: Mark::default(),
            opening: Opening::Nothing,
            opening_bytes: 0,
            events: 0,
            events_hidden: 0,
            first_content: None,
            terminal: false,
            error: None,
        }
    }

    /// Says how many choices the request asked for (1 unless told): a stream without an end mark is whole when all have finished.
    #[must_use]
    pub fn expecting_choices(mut self, choices: u32) -> Self {
        self.reports.expect_choices(choices);
        self
    }

    /// Keeps up to `bytes_max` bytes of generated text, for an exact count if usage never comes. Without it text is estimated only.
    #[must_use]
    pub fn keeping_text(mut self, bytes_max: usize) -> Self {
        self.facts.texts.keep(bytes_max);
        self
    }

    /// Reads a chunk and says which bytes to forward.
    pub fn feed(&mut self, chunk: &[u8]) -> Fed {
        let had_content = self.first_content.is_some();
        let mut hold = self.hold.take();
        if let Some(hold) = &mut hold {
            hold.begin();
        }
        let mut at = 0;
        while let Some(piece) = self.lines.next(chunk, at) {
            at = piece.bytes.end;
            let verdict = self.read(&piece, chunk);
            if let Some(hold) = &mut hold {
                self.events_hidden += u64::from(hold.place(&piece, verdict));
            }
        }
        let forward = hold.as_mut().map_or(Forward::Whole, |hold| hold.end(chunk));
        self.hold = hold;
        Fed { forward, first_content: !had_content && self.first_content.is_some() }
    }

    /// What the first event was.
    #[must_use]
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// The first error event.
    #[must_use]
    pub fn error(&self) -> Option<&ErrorFacts> {
        self.error.as_ref().map(|(_, facts)| facts)
    }

    /// Whether an end mark came: `[DONE]`, `message_stop` or a terminal Responses event.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.terminal
    }

    /// Whether content came: text, reasoning or part of a tool call.
    #[must_use]
    pub fn has_content(&self) -> bool {
        self.first_content.is_some()
    }

    /// Output tokens so far: the last running usage plus what was counted since. It may fall when a report corrects the count.
    #[must_use]
    pub fn produced(&self) -> u64 {
        self.reports.produced()
    }

    /// Output tokens so far by estimate alone. It never falls.
    #[must_use]
    pub fn counted_output(&self) -> u64 {
        self.reports.counted()
    }

    /// Heap memory of what grows with the stream, in bytes: held bytes, kept text, the shape of the last event.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let hold = self.hold.as_ref().map_or(0, Hold::held_bytes);
        hold + self.template.held_bytes() + self.facts.texts.held_bytes()
    }

    fn read(&mut self, piece: &LinePiece, chunk: &[u8]) -> Verdict {
        match piece.kind {
            LineKind::Data => return self.data(piece, &chunk[piece.value.clone()]),
            LineKind::EventName => {
                if piece.starts {
                    self.event_name = Mark::default();
                }
                self.event_name.push(&chunk[piece.value.clone()]);
                self.error_named = piece.ends && self.event_name.is(b"error");
            }
            LineKind::Blank => {
                if self.document != Document::None {
                    self.malformed();
                }
                self.error_named = false;
            }
            LineKind::Comment => {
                if self.opening == Opening::Nothing {
                    self.opening = Opening::Comment;
                }
            }
            LineKind::Undecided | LineKind::Other | LineKind::LateLineFeed => {}
        }
        Verdict::Open
    }

    fn data(&mut self, piece: &LinePiece, mut value: &[u8]) -> Verdict {
        let mut whole = None;
        if self.document == Document::None {
            value = without_leading_blanks(value);
            match value.first() {
                None => return Verdict::Open,
                Some(b'{') if piece.starts && piece.ends => {
                    if !self.error_named && self.repeated_shape(value) {
                        return Verdict::Passed;
                    }
                    self.document = Document::Json;
                    whole = Some(value);
                }
                Some(b'{') => self.document = Document::Json,
                Some(_) => self.document = Document::Mark,
            }
        }
        self.opening_waits_for(value.len());
        if self.document == Document::Mark {
            self.mark.push(value);
            if self.mark.too_long {
                self.opened(Opening::Other);
            }
            return if piece.ends { self.end_document() } else { Verdict::Pass };
        }
        self.scanner.feed(value, &mut self.facts);
        if self.scanner.has_failed() {
            self.opened(Opening::Other);
        }
        let done = self.scanner.is_complete() || self.scanner.has_failed();
        if piece.ends && done {
            self.end_json(whole)
        } else if self.facts.event.may_be_usage_only() && !self.scanner.has_failed() {
            Verdict::Open
        } else {
            Verdict::Pass
        }
    }

    /// Reads a piece of text in the shape of the one before, without a scan.
    fn repeated_shape(&mut self, document: &[u8]) -> bool {
        let Some((text, choice)) = self.template.text(document) else {
            return false;
        };
        let mut tally = Tally::default();
        tally.add(text);
        self.reports.add_delta(tally.tokens());
        self.facts.texts.push(text);
        self.facts.texts.commit(choice);
        self.events += 1;
        true
    }

    /// The document ended, or the stream did.
    fn end_document(&mut self) -> Verdict {
        match self.document {
            Document::None => Verdict::Open,
            Document::Json => self.end_json(None),
            Document::Mark if self.mark.is(b"[DONE]") => {
                self.terminal = true;
                self.opened(Opening::Other);
                self.forget_document();
                Verdict::Passed
            }
            Document::Mark => self.malformed(),
        }
    }

    fn end_json(&mut self, whole: Option<&[u8]>) -> Verdict {
        if !self.scanner.is_complete() {
            return self.malformed();
        }
        self.facts.settle();
        let usage_only = self.facts.event.is_usage_only();
        let error = self.facts.event.take_error();
        let event = &self.facts.event;
        self.reports.add(event);
        self.terminal |= matches!(event.kind, Kind::MessageStop | Kind::ResponseDone | Kind::ResponseFailed);
        let content = event.content;
        if let Some(document) = whole
            && error.is_none()
            && is_plain_delta(event)
        {
            let choice = event.ends.first().map_or(0, |end| end.index);
            self.template.learn(document, event.span, choice);
        }
        self.event_ended(error, content);
        if usage_only { Verdict::Drop } else { Verdict::Passed }
    }

    /// A document that is no JSON: it passes, and tells nothing but by its name.
    fn malformed(&mut self) -> Verdict {
        self.event_ended(None, false);
        Verdict::Passed
    }

    fn event_ended(&mut self, error: Option<ErrorFacts>, content: bool) {
        let error = error.or_else(|| self.error_named.then(ErrorFacts::default));
        let number = self.events;
        self.events += 1;
        if content && self.first_content.is_none() {
            self.first_content = Some(number);
        }
        self.opened(match (&error, content) {
            (Some(_), _) => Opening::Error,
            (None, true) => Opening::Content,
            (None, false) => Opening::Other,
        });
        if self.error.is_none() {
            self.error = error.map(|facts| (number, facts));
        }
        self.forget_document();
    }

    fn forget_document(&mut self) {
        self.document = Document::None;
        self.scanner.reset();
        self.facts.reset();
        self.mark = Mark::default();
    }

    fn opened(&mut self, opening: Opening) {
        if matches!(self.opening, Opening::Nothing | Opening::Comment) {
            self.opening = opening;
        }
    }

    fn opening_waits_for(&mut self, bytes: usize) {
        if matches!(self.opening, Opening::Nothing | Opening::Comment) {
            self.opening_bytes = self.opening_bytes.saturating_add(bytes);
            if self.opening_bytes > OPENING_BYTES_MAX {
                self.opened(Opening::Other);
            }
        }
    }
}

/// Blanks as JSON has them: a cut behind them must change nothing.
fn without_leading_blanks(value: &[u8]) -> &[u8] {
    let blanks = value.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &value[blanks..]
}

/// Whether the event says nothing but one piece of text.
fn is_plain_delta(event: &Event) -> bool {
    event.deltas == 1
        && event.choices <= 1
        && !event.usage_seen
        && event.timings.is_empty()
        && !event.stopped
        && event.ends.iter().all(|end| !end.finished)
        && matches!(event.kind, Kind::None | Kind::TextDelta | Kind::Other)
        && event.span.0 < event.span.1
}
