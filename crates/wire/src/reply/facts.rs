//! What one event, or one whole reply, says: filled by the scanner member by member.

use super::error_facts::{ErrorDraft, ErrorFacts};
use super::node::Node;
use super::tally::Tally;
use super::texts::{CHOICES_MAX, Texts};
use crate::usage::{RawUsage, parse_count};

/// The `type` of an event, as far as it matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    None,
    MessageStart,
    MessageDelta,
    MessageStop,
    /// `response.completed`, `response.incomplete`.
    ResponseDone,
    ResponseFailed,
    /// A Responses event whose `delta` is generated text.
    TextDelta,
    Error,
    Other,
}

/// A choice of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChoiceEnd {
    pub(crate) index: u32,
    pub(crate) finished: bool,
}

/// The facts of one event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    /// A usage object was there; `null` is none.
    pub(crate) usage_seen: bool,
    pub(crate) usage: RawUsage,
    pub(crate) timings: RawUsage,
    pub(crate) error: ErrorDraft,
    /// Elements of `choices`.
    pub(crate) choices: usize,
    pub(crate) ends: Vec<ChoiceEnd>,
    /// A stop reason outside choices.
    pub(crate) stopped: bool,
    /// Anything a user would see: text, reasoning, a tool call.
    pub(crate) content: bool,
    /// Estimated tokens of the text.
    pub(crate) tokens: u64,
    /// Pieces of text that were not empty.
    pub(crate) deltas: u64,
    /// Where the last piece of text lies, if the document was read in one go.
    pub(crate) span: (usize, usize),
    root: ErrorDraft,
    error_object: bool,
    bare_delta: bool,
    json: Tally,
}

/// Facts of the document being read, and the text kept over all documents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) event: Event,
    pub(crate) texts: Texts,
    tally: Tally,
    open_text: Option<Node>,
    text_at: usize,
    choice: Option<ChoiceEnd>,
    reasoning_counted: bool,
}

impl Event {
    /// Whether it is the chunk that only tells usage: no choices, no content.
    pub(crate) fn is_usage_only(&self) -> bool {
        self.usage_seen && self.may_be_usage_only()
    }

    /// Whether what was read so far leaves that open.
    pub(crate) fn may_be_usage_only(&self) -> bool {
        self.choices == 0 && !self.content && !self.bare_delta && !self.error.seen && self.kind == Kind::None
    }

    /// The error, if the event is one.
    pub(crate) fn take_error(&mut self) -> Option<ErrorFacts> {
        let error = core::mem::take(&mut self.error);
        if error.seen {
            return Some(error.into_facts());
        }
        let root = core::mem::take(&mut self.root);
        let told = matches!(self.kind, Kind::Error | Kind::ResponseFailed);
        (told || (self.error_object && root.has_message())).then(|| root.into_facts())
    }

    /// Drops a bare `delta` string that is no text, as audio in base64.
    fn settle(&mut self) -> bool {
        let json = self.json.tokens();
        if json > 0 {
            self.content = true;
            self.tokens = self.tokens.saturating_add(json);
            self.deltas += 1;
        }
        if self.bare_delta && self.kind != Kind::TextDelta {
            self.content = false;
            (self.tokens, self.deltas) = (0, 0);
            return false;
        }
        true
    }

    fn reset(&mut self) {
        let mut ends = core::mem::take(&mut self.ends);
        ends.clear();
        *self = Self { ends, ..Self::default() };
    }
}

impl Facts {
    /// The document ended: its facts are final.
    pub(crate) fn settle(&mut self) {
        if self.event.settle() {
            self.texts.commit(0);
        } else {
            self.texts.discard();
        }
    }

    /// The document broke off: a text that was still open counts as far as it came.
    pub(crate) fn settle_cut(&mut self) {
        if let Some(node) = self.open_text {
            self.text_ends(node, 0);
        }
        self.settle();
    }

    /// Makes ready for another document.
    pub(crate) fn reset(&mut self) {
        self.event.reset();
        self.texts.discard();
        self.open_text = None;
        self.choice = None;
        self.reasoning_counted = false;
    }

    pub(crate) fn opened(&mut self, node: Node) {
        if node == Node::Usage {
            self.event.usage_seen = true;
        } else if node == Node::Error {
            self.event.error.seen = true;
        } else if node == Node::Present {
            self.event.content = true;
        } else if node == Node::Choice {
            let index = u32::try_from(self.event.choices).unwrap_or(u32::MAX);
            self.event.choices += 1;
            self.reasoning_counted = false;
            self.choice = Some(ChoiceEnd { index, finished: false });
        }
    }

    pub(crate) fn closed(&mut self, node: Node) {
        if node != Node::Choice {
            return;
        }
        if let Some(choice) = self.choice.take() {
            self.texts.commit(choice.index);
            if self.event.ends.len() < CHOICES_MAX {
                self.event.ends.push(choice);
            }
        }
    }

    /// A number or literal.
    pub(crate) fn scalar(&mut self, node: Node, text: &[u8]) {
        if text == b"null" || text == b"false" {
            return;
        }
        let count = parse_count(text);
        let event = &mut self.event;
        if node == Node::InputTokens {
            event.usage.input = count.or(event.usage.input);
        } else if node == Node::OutputTokens {
            event.usage.output = count.or(event.usage.output);
        } else if node == Node::TotalTokens {
            event.usage.total = count.or(event.usage.total);
        } else if node == Node::CacheRead {
            event.usage.cache_read = count.or(event.usage.cache_read);
        } else if node == Node::CacheWrite {
            event.usage.cache_write = count.or(event.usage.cache_write);
        } else if node == Node::TimingsPrompt {
            event.timings.input = count;
        } else if node == Node::TimingsCache {
            event.timings.cache_read = count;
        } else if node == Node::TimingsPredicted {
            event.timings.output = count;
        } else if node == Node::ChoiceIndex {
            if let (Some(choice), Some(index)) = (&mut self.choice, count) {
                choice.index = u32::try_from(index).unwrap_or(u32::MAX);
            }
        } else if node == Node::ErrorCode {
            event.error.code = Some(lossy(text));
        } else if node == Node::RootCode {
            event.root.code = Some(lossy(text));
        } else if node == Node::Error {
            event.error.seen = true;
        } else if node == Node::Present {
            event.content = true;
        }
    }

    /// A short string; `None` if it is too long or oddly written to be a known word.
    pub(crate) fn word(&mut self, node: Node, word: Option<&[u8]>) {
        let some = word != Some(b"");
        let event = &mut self.event;
        if node == Node::Kind {
            event.kind = word.map_or(Kind::Other, kind_of);
        } else if node == Node::FinishReason && some {
            match &mut self.choice {
                Some(choice) => choice.finished = true,
                None => event.stopped = true,
            }
        } else if node == Node::Present && some {
            event.content = true;
        } else if node == Node::ObjectName {
            event.error_object = word == Some(b"error");
        } else if node == Node::ErrorCode {
            event.error.code = word.map(lossy);
        } else if node == Node::ErrorKind {
            event.error.kind = word.map(lossy);
        } else if node == Node::RootCode {
            event.root.code = word.map(lossy);
        }
    }

    pub(crate) fn text_starts(&mut self, node: Node, at: usize) {
        let repeated = node == Node::Reasoning && self.reasoning_counted;
        self.open_text = (!repeated).then_some(node);
        self.tally = Tally::default();
        if is_generated(node) && !repeated {
            self.event.bare_delta |= node == Node::EventDelta;
            self.text_at = at;
        }
    }

    /// A part of a string, unescaped. A character may be cut between parts.
    pub(crate) fn text(&mut self, node: Node, part: &[u8]) {
        if node == Node::ErrorMessage {
            self.event.error.add_message(part);
        } else if node == Node::Error {
            self.event.error.seen = true;
            self.event.error.add_message(part);
        } else if node == Node::RootMessage {
            self.event.root.add_message(part);
        } else if self.open_text.is_some() {
            self.tally.add(part);
            self.texts.push(part);
        }
    }

    pub(crate) fn text_ends(&mut self, node: Node, at: usize) {
        let tokens = self.tally.tokens();
        let counted = self.open_text.take().is_some() && is_generated(node) && tokens > 0;
        if counted {
            self.event.content = true;
            self.event.tokens = self.event.tokens.saturating_add(tokens);
            self.event.deltas += 1;
            self.event.span = (self.text_at, at);
            self.reasoning_counted |= node == Node::Reasoning;
        }
    }

    /// A part of something skipped: counted where it is generated JSON.
    pub(crate) fn json(&mut self, node: Node, part: &[u8]) {
        if node == Node::Json && !part.is_empty() {
            self.event.json.add(part);
            self.texts.push(part);
        }
    }
}

fn is_generated(node: Node) -> bool {
    matches!(node, Node::Text | Node::Content | Node::Reasoning | Node::EventDelta)
}

fn kind_of(word: &[u8]) -> Kind {
    match word {
        b"message_start" => Kind::MessageStart,
        b"message_delta" => Kind::MessageDelta,
        b"message_stop" => Kind::MessageStop,
        b"response.completed" | b"response.incomplete" => Kind::ResponseDone,
        b"response.failed" => Kind::ResponseFailed,
        b"response.audio.delta" => Kind::Other,
        b"error" => Kind::Error,
        _ if word.starts_with(b"response.") && word.ends_with(b".delta") => Kind::TextDelta,
        _ => Kind::Other,
    }
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}
