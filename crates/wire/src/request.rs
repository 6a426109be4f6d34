//! The facts of a request body that decide admission, read in one pass without a tree.
//!
//! `read` checks the whole body (a body that a backend could understand otherwise than the gateway
//! is refused) and keeps what the gateway needs; everything borrows from the body. The body itself
//! is forwarded as it came: see [`crate::splice`].

mod content;
mod draft;
mod error;
mod keys;
pub(crate) mod layout;
mod prompts;
mod scan;
mod segment;
mod text;
mod values;

use std::borrow::Cow;

pub use content::SEGMENTS_LIMIT;
pub use error::RequestError;
pub use layout::Layout;
pub use prompts::PROMPTS_LIMIT;
pub use scan::NESTING_LIMIT;
pub use segment::{Attachment, AttachmentKind, Base64, Detail, Image, ImageSource, Segment};
pub use text::Text;

use crate::dialect::Endpoint;
use draft::Draft;
use scan::Scanner;

/// Choices for one prompt (`n`, `best_of`): the largest that the OpenAI API takes.
pub const CHOICES_LIMIT: u64 = 128;

/// What the gateway needs to know of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFacts<'a> {
    /// The endpoint it was read for.
    pub endpoint: Endpoint,
    /// The model asked for; never empty.
    pub model: Cow<'a, str>,
    /// Whether the answer shall be a stream of events.
    pub is_streaming: bool,
    /// Whether the client itself asked for the usage chunk (`stream_options.include_usage`).
    pub asks_usage: bool,
    /// The output bound in tokens for each choice: the largest of the fields that bound it.
    /// `None` if all are absent or null. May be as large as `u64::MAX`: cap it.
    pub output_bound: Option<u64>,
    /// How many answers are generated for each prompt: the larger of `n` and `best_of`, at least 1.
    pub choices: u64,
    /// How many prompts or embedding inputs there are, at least 1.
    pub prompts: u64,
    /// Anthropic's `thinking.budget_tokens`, which counts inside `max_tokens`.
    pub thinking_budget: Option<u64>,
    /// Whether any tool or function is defined.
    pub has_tools: bool,
    /// `background` of the responses endpoint: the answer is made after the reply.
    pub is_background: bool,
    /// Whether the backend adds input that the body does not show: a previous response, a
    /// conversation, a stored prompt.
    pub has_unseen_input: bool,
    /// Who sent it, as the body tells. Not to be trusted: scope it under the tenant.
    pub identity: IdentityFields<'a>,
    /// Where the fields stand that [`crate::splice::splice`] sets. Owns itself, so it can be kept
    /// when the facts are dropped.
    pub layout: Layout,
    segments: Vec<Segment<'a>>,
}

/// Fields of the body that name a person, a session or a chain of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentityFields<'a> {
    /// `user`
    pub user: Option<Cow<'a, str>>,
    /// `safety_identifier`
    pub safety_identifier: Option<Cow<'a, str>>,
    /// `prompt_cache_key`
    pub prompt_cache_key: Option<Cow<'a, str>>,
    /// `session_id`
    pub session_id: Option<Cow<'a, str>>,
    /// `previous_response_id`
    pub previous_response_id: Option<Cow<'a, str>>,
    /// `conversation`, or its `id`
    pub conversation: Option<Cow<'a, str>>,
    /// `metadata.user_id`
    pub metadata_user_id: Option<Cow<'a, str>>,
    /// `metadata.session_id`
    pub metadata_session_id: Option<Cow<'a, str>>,
    /// `litellm_metadata.user`
    pub litellm_user: Option<Cow<'a, str>>,
}

/// Reads the facts of a body.
///
/// # Errors
///
/// A [`RequestError`] for everything that is not one JSON object of the endpoint's shape: see its
/// variants. Unknown members are no error.
///
/// # Examples
///
/// ```
/// use fairlane_wire::dialect::Endpoint;
/// use fairlane_wire::request::{Segment, read};
///
/// let body = br#"{"model":"m","n":2,"max_tokens":100,
///     "messages":[{"role":"user","content":"one two three"}]}"#;
/// let facts = read(Endpoint::ChatCompletions, body)?;
/// assert_eq!(facts.output_bound, Some(100));
/// assert_eq!(facts.generations(), 2);
/// let texts = facts.segments().iter().filter_map(|segment| match segment {
///     Segment::Text(text) => Some(text.decode()),
///     _ => None,
/// });
/// assert_eq!(texts.collect::<Vec<_>>(), ["one two three"]);
///
/// let error = read(Endpoint::ChatCompletions, br#"{"model":"m","max_tokens":"9"}"#).unwrap_err();
/// assert_eq!(error.param(), Some("max_tokens"));
/// # Ok::<(), fairlane_wire::request::RequestError>(())
/// ```
pub fn read(endpoint: Endpoint, body: &[u8]) -> Result<RequestFacts<'_>, RequestError> {
    if endpoint == Endpoint::Models {
        return Err(RequestError::NoBodyExpected);
    }
    if body.starts_with(b"\xEF\xBB\xBF") {
        return Err(RequestError::ByteOrderMark);
    }
    let text = match std::str::from_utf8(body) {
        Ok(text) => text,
        Err(error) => {
            let at = error.valid_up_to();
            return Err(RequestError::NotUtf8 { at });
        }
    };
    if text.trim_ascii().is_empty() {
        return Err(RequestError::Empty);
    }
    Draft::new(endpoint, body.len()).read(&mut Scanner::new(text))
}

impl<'a> RequestFacts<'a> {
    /// Everything that counts as input, in the order of the body.
    #[must_use]
    pub fn segments(&self) -> &[Segment<'a>] {
        &self.segments
    }

    /// How many answers are generated in all: the output bound is reserved this many times.
    /// 0 where nothing is generated.
    #[must_use]
    pub const fn generations(&self) -> u64 {
        if self.endpoint.generates() { self.choices.saturating_mul(self.prompts) } else { 0 }
    }

    /// How many input tokens came as ids, which need no counting.
    #[must_use]
    pub fn token_ids(&self) -> u64 {
        self.segments.iter().fold(
            0,
            |sum, segment| {
                if let Segment::TokenIds(ids) = segment { sum + ids } else { sum }
            },
        )
    }
}
