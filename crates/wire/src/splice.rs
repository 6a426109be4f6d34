//! The few edits of a body before it is forwarded: every other byte stays as the client wrote it.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use crate::dialect::Endpoint;
use crate::request::layout::{Bound, BoundField, IncludeUsage, Layout, StreamOptions};

/// What to set in a body. The default sets nothing and removes what steers an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// The output bound that was reserved for each choice, in tokens. Afterwards no field that
    /// bounds the output exceeds it, and the field that the endpoint obeys is there. Give it
    /// whenever the reservation relies on it: nothing is written where the body says it already.
    pub output_bound: Option<u64>,
    /// The name of the bound where a chat body has none.
    pub chat_bound: ChatBound,
    /// Whether to ask the backend for the usage chunk.
    pub usage: UsageChunk,
    /// What becomes of `priority`.
    pub priority: Priority,
}

/// The field that takes the bound of a chat body that has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChatBound {
    /// `max_tokens`: every self-hosted engine takes it.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`: OpenAI's reasoning models take no other.
    MaxCompletionTokens,
}

/// Whether the backend shall send its usage at the end of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageChunk {
    /// As the client wrote.
    #[default]
    AsSent,
    /// `stream_options.include_usage` becomes true, in streams of the OpenAI chat and completions
    /// endpoints; other bodies have no such field.
    Asked,
}

/// What becomes of the top-level `priority`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// It is removed.
    #[default]
    Removed,
    /// It gets this value, for engines that order by it.
    Set(i64),
}

/// A body with its edits, not yet copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spliced {
    body_bytes: usize,
    patches: Vec<Patch>,
    text: String,
}

/// A stretch of the edited body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// These bytes of the original body.
    Body(Range<usize>),
    /// These bytes instead of, or between, the original ones.
    Text(&'a str),
}

/// Plans the edits of a body from its layout. Nothing is copied; the body is not read again.
///
/// # Examples
///
/// ```
/// use fairlane_wire::dialect::Endpoint;
/// use fairlane_wire::request::read;
/// use fairlane_wire::splice::{Edits, UsageChunk, splice};
///
/// let body = br#"{"model":"m", "stream":true,"priority":-9,"messages":[],"max_tokens":9000}"#;
/// let facts = read(Endpoint::ChatCompletions, body)?;
/// let edits = Edits { output_bound: Some(4096), usage: UsageChunk::Asked, ..Edits::default() };
/// let spliced = splice(&facts.layout, &edits);
/// let sent = spliced.apply(body);
/// assert_eq!(
///     std::str::from_utf8(&sent).unwrap(),
///     r#"{"stream_options":{"include_usage":true},"model":"m", "stream":true,"messages":[],"max_tokens":4096}"#,
/// );
/// assert_eq!(spliced.len_bytes(), sent.len());
/// # Ok::<(), fairlane_wire::request::RequestError>(())
/// ```
#[must_use]
pub fn splice(layout: &Layout, edits: &Edits) -> Spliced {
    let mut plan = Plan { layout, patches: Vec::new(), text: String::new() };
    if let Some(tokens) = edits.output_bound {
        plan.bound(tokens, edits.chat_bound);
    }
    if edits.usage == UsageChunk::Asked {
        plan.ask_usage();
    }
    plan.controls(edits.priority);
    plan.finish()
}

impl Spliced {
    /// Whether the body goes out as it came.
    #[must_use]
    pub const fn is_unchanged(&self) -> bool {
        self.patches.is_empty()
    }

    /// The length of the edited body, for `Content-Length`.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        let removed: usize = self.patches.iter().map(|patch| patch.replaced.len()).sum();
        self.body_bytes - removed + self.text.len()
    }

    /// The edited body as stretches of the original and of other text, in order, none empty.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let mut kept_from = 0;
        let patches = self.patches.iter().flat_map(move |patch| {
            let kept = kept_from..patch.replaced.start;
            kept_from = patch.replaced.end;
            let text = self.text.get(patch.text.clone()).unwrap_or_default();
            [Piece::Body(kept), Piece::Text(text)]
        });
        let last_from = self.patches.last().map_or(0, |patch| patch.replaced.end);
        let last = Piece::Body(last_from..self.body_bytes);
        patches.chain([last]).filter(|piece| match piece {
            Piece::Body(range) => !range.is_empty(),
            Piece::Text(text) => !text.is_empty(),
        })
    }

    /// The edited body in one piece; borrowed where nothing changes.
    ///
    /// # Panics
    ///
    /// If `body` is not as long as the one that the layout was read from.
    #[must_use]
    pub fn apply<'b>(&self, body: &'b [u8]) -> Cow<'b, [u8]> {
        assert_eq!(body.len(), self.body_bytes, "the layout is of another body");
        if self.is_unchanged() {
            return Cow::Borrowed(body);
        }
        let mut edited = Vec::with_capacity(self.len_bytes());
        for piece in self.pieces() {
            match piece {
                Piece::Body(range) => edited.extend_from_slice(&body[range]),
                Piece::Text(text) => edited.extend_from_slice(text.as_bytes()),
            }
        }
        Cow::Owned(edited)
    }
}

/// Whether a request header steers an engine's scheduling or routing, so that it is never passed
/// on from a tenant. The name is in lower case, as HTTP libraries give it.
#[must_use]
pub fn is_control_header(name: &str) -> bool {
    const NAMES: [&str; 4] =
        ["x-vllm-priority", "x-data-parallel-rank", "x-smg-routing-key", "x-ai-eg-model"];
    const PREFIXES: [&str; 2] = ["x-override-", "x-gateway-"];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// One replacement; an empty range is an insertion.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Patch {
    replaced: Range<usize>,
    text: Range<usize>,
}

struct Plan<'a> {
    layout: &'a Layout,
    patches: Vec<Patch>,
    text: String,
}

impl Plan<'_> {
    fn bound(&mut self, tokens: u64, chat_bound: ChatBound) {
        let layout = self.layout;
        let obeyed = BoundField::obeyed(layout.endpoint);
        if obeyed.is_empty() {
            return;
        }
        let mut is_set = false;
        for bound in layout.bounds.iter().flatten() {
            if bound.tokens.is_some_and(|sent| sent > tokens) {
                self.patch(bound.value.clone(), format_args!("{tokens}"));
            }
        }
        let mut null = None;
        for &field in obeyed {
            match &layout.bounds[field as usize] {
                Some(Bound { tokens: Some(_), .. }) => is_set = true,
                Some(Bound { value, tokens: None }) => null = null.or(Some(value)),
                None => {}
            }
        }
        self.bound_elsewhere(tokens, obeyed);
        match null {
            _ if is_set => {}
            Some(value) => self.patch(value.clone(), format_args!("{tokens}")),
            None => {
                let name = absent_bound(layout.endpoint, chat_bound).name();
                self.insert(format_args!("\"{name}\":{tokens},"));
            }
        }
    }

    /// A null in a field that only some engines know could hide the bound from them.
    fn bound_elsewhere(&mut self, tokens: u64, obeyed: &[BoundField]) {
        for (index, bound) in self.layout.bounds.iter().enumerate() {
            let is_obeyed = obeyed.iter().any(|&field| field as usize == index);
            if let (Some(Bound { value, tokens: None }), false) = (bound, is_obeyed) {
                self.patch(value.clone(), format_args!("{tokens}"));
            }
        }
    }

    fn ask_usage(&mut self) {
        let layout = self.layout;
        match layout.endpoint {
            Endpoint::ChatCompletions | Endpoint::Completions if layout.is_streaming => {}
            Endpoint::ChatCompletions
            | Endpoint::Completions
            | Endpoint::Embeddings
            | Endpoint::Responses
            | Endpoint::Messages
            | Endpoint::CountTokens
            | Endpoint::Models => return,
        }
        match &layout.stream_options {
            StreamOptions::Absent => {
                self.insert(format_args!("\"stream_options\":{{\"include_usage\":true}},"));
            }
            StreamOptions::Null { value } => {
                self.patch(value.clone(), format_args!("{{\"include_usage\":true}}"));
            }
            StreamOptions::Object { include_usage: Some(IncludeUsage { value, asked }), .. } => {
                if !asked {
                    self.patch(value.clone(), format_args!("true"));
                }
            }
            StreamOptions::Object { open, is_empty, include_usage: None } => {
                let comma = if *is_empty { "" } else { "," };
                self.patch(*open..*open, format_args!("\"include_usage\":true{comma}"));
            }
        }
    }

    fn controls(&mut self, priority: Priority) {
        let mut is_set = false;
        for control in &self.layout.controls {
            match priority {
                Priority::Set(value) if control.is_priority => {
                    self.patch(control.value.clone(), format_args!("{value}"));
                    is_set = true;
                }
                Priority::Set(_) | Priority::Removed => {
                    self.patch(control.removal.clone(), format_args!(""));
                }
            }
        }
        if let (Priority::Set(value), false) = (priority, is_set) {
            self.insert(format_args!("\"priority\":{value},"));
        }
    }

    /// Puts a member before all others. There is always another: a body has a model.
    fn insert(&mut self, member: std::fmt::Arguments<'_>) {
        let open = self.layout.open;
        self.patch(open..open, member);
    }

    fn patch(&mut self, replaced: Range<usize>, text: std::fmt::Arguments<'_>) {
        let from = self.text.len();
        // Writing into a String cannot fail.
        let _ = self.text.write_fmt(text);
        let text = from..self.text.len();
        self.patches.push(Patch { replaced, text });
    }

    fn finish(mut self) -> Spliced {
        // Insertions at the opening brace come before a removal that begins there.
        self.patches.sort_by_key(|patch| (patch.replaced.start, patch.replaced.end));
        Spliced { body_bytes: self.layout.body_bytes, patches: self.patches, text: self.text }
    }
}

const fn absent_bound(endpoint: Endpoint, chat_bound: ChatBound) -> BoundField {
    match (endpoint, chat_bound) {
        (Endpoint::ChatCompletions, ChatBound::MaxCompletionTokens) => BoundField::MaxCompletionTokens,
        (Endpoint::Responses, _) => BoundField::MaxOutputTokens,
        _ => BoundField::MaxTokens,
    }
}
