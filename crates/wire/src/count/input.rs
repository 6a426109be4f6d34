//! The input tokens of a whole request: its texts, its images, and what the chat template adds.

use super::Memo;
use crate::estimate::{Calibration, Interval, Shape};
use crate::images::ImageRule;
use crate::request::{RequestFacts, Segment, Text};

/// What a chat template adds around the texts, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatOverhead {
    /// For each message, and once for instructions outside the messages.
    pub per_message: u64,
    /// For the role of a message.
    pub per_role: u64,
    /// For the name of an author, beside the name itself.
    pub per_name: u64,
    /// For each call of a tool in the history, beside its name and arguments.
    pub per_tool_call: u64,
    /// Once, if tools are defined.
    pub tools: u64,
    /// Once, for the beginning of the answer to a chat.
    pub priming: u64,
}

impl ChatOverhead {
    /// Nothing: the input is what the client wrote.
    pub const NONE: Self =
        Self { per_message: 0, per_role: 0, per_name: 0, per_tool_call: 0, tools: 0, priming: 0 };

    /// OpenAI's recipe for its chat models (the role is one of the encoded values and always one
    /// token); the eight tokens of a tool call are an allowance for its frame.
    pub const OPENAI: Self =
        Self { per_message: 3, per_role: 1, per_name: 1, per_tool_call: 8, tools: 9, priming: 3 };
}

/// How the parts of a request count that are not text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputRules {
    /// What the chat template adds.
    pub overhead: ChatOverhead,
    /// What an image costs.
    pub image: ImageRule,
    /// What sound, film or a document costs, each; their size says little.
    pub attachment_tokens: u64,
}

impl InputRules {
    /// The rules around a vocabulary: see [`super::Vocabulary::chat_overhead`].
    #[must_use]
    pub const fn new(overhead: ChatOverhead) -> Self {
        Self { overhead, image: ImageRule::DEFAULT, attachment_tokens: 1_500 }
    }
}

/// The input of a request without counting its texts: they lie in an interval, the rest is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputEstimate {
    /// The tokens of the texts, not calibrated.
    pub texts: Interval,
    /// The tokens of images, attachments, token ids and the chat template.
    pub rest: u64,
}

impl InputEstimate {
    /// The whole input, with the texts as they are in the vocabularies built in.
    #[must_use]
    pub const fn interval(self) -> Interval {
        self.texts.plus(Interval::exactly(self.rest))
    }

    /// The whole input, with the texts as `calibration` has learnt them.
    #[must_use]
    pub fn calibrated(self, calibration: &Calibration) -> Interval {
        calibration.interval(self.texts).plus(Interval::exactly(self.rest))
    }

    /// Teaches `calibration` from the engine's own count of this input, cached tokens included.
    pub fn teach(self, calibration: &mut Calibration, reported_input: u64) {
        calibration.learn(self.texts, reported_input.saturating_sub(self.rest));
    }
}

/// Estimates the input of a request in one pass over its texts.
///
/// # Examples
///
/// ```
/// use fairlane_wire::count::{ChatOverhead, InputRules, estimate_input};
/// use fairlane_wire::dialect::Endpoint;
/// use fairlane_wire::request::read;
///
/// let body = br#"{"model":"m","messages":[{"role":"user","content":"one two three"}]}"#;
/// let facts = read(Endpoint::ChatCompletions, body)?;
/// let estimate = estimate_input(&facts, &InputRules::new(ChatOverhead::OPENAI));
/// assert!(estimate.interval().contains(3 + 3 + 1 + 3));
/// # Ok::<(), fairlane_wire::request::RequestError>(())
/// ```
#[must_use]
pub fn estimate_input(facts: &RequestFacts<'_>, rules: &InputRules) -> InputEstimate {
    let mut shape = Shape::default();
    for text in texts(facts) {
        if text.is_escaped() {
            shape.add_escaped(text.raw());
        } else {
            shape.add(text.raw());
        }
    }
    InputEstimate { texts: shape.interval(), rest: rest(facts, rules) }
}

/// Counts the input of a request exactly, as far as its rules are exact; `None` if it is more than
/// `limit`, which is found without counting all of it. `u64::MAX` for no limit.
#[must_use]
pub fn count_input(facts: &RequestFacts<'_>, memo: &Memo, rules: &InputRules, limit: u64) -> Option<u64> {
    let mut sum = rest(facts, rules);
    for text in texts(facts) {
        let left = limit.checked_sub(sum)?;
        sum = sum.saturating_add(memo.count_up_to(text, left)?);
    }
    (sum <= limit).then_some(sum)
}

/// How many bytes of text [`count_input`] would have to count because `memo` does not know them:
/// above some 32,768 do it off the request's thread.
#[must_use]
pub fn uncounted_bytes(facts: &RequestFacts<'_>, memo: &Memo) -> usize {
    texts(facts).filter(|text| !memo.knows(*text)).map(|text| text.raw().len()).sum()
}

/// Everything in a request that is counted as text.
fn texts<'f, 'a>(facts: &'f RequestFacts<'a>) -> impl Iterator<Item = Text<'a>> + use<'f, 'a> {
    facts.segments().iter().filter_map(|segment| match *segment {
        Segment::Name(text) | Segment::System(text) | Segment::Text(text) => Some(text),
        Segment::Json(raw) | Segment::Tool(raw) => Some(Text::plain(raw)),
        Segment::Message
        | Segment::Prompt
        | Segment::ToolCall
        | Segment::Role(_)
        | Segment::TokenIds(_)
        | Segment::Image(_)
        | Segment::Attachment(_) => None,
    })
}

/// Everything else.
fn rest(facts: &RequestFacts<'_>, rules: &InputRules) -> u64 {
    let overhead = &rules.overhead;
    let (mut sum, mut has_messages, mut has_system) = (0_u64, false, false);
    for segment in facts.segments() {
        sum = sum.saturating_add(match segment {
            Segment::Message => {
                has_messages = true;
                overhead.per_message
            }
            Segment::System(_) if !has_system => {
                has_system = true;
                overhead.per_message + overhead.per_role
            }
            Segment::Role(_) => overhead.per_role,
            Segment::Name(_) => overhead.per_name,
            Segment::ToolCall => overhead.per_tool_call,
            Segment::TokenIds(ids) => *ids,
            Segment::Image(image) => rules.image.tokens(image),
            Segment::Attachment(_) => rules.attachment_tokens,
            Segment::Prompt | Segment::System(_) | Segment::Text(_) | Segment::Json(_) | Segment::Tool(_) => {
                0
            }
        });
    }
    if has_messages {
        sum = sum.saturating_add(overhead.priming);
    }
    if facts.has_tools {
        sum = sum.saturating_add(overhead.tools);
    }
    sum
}
