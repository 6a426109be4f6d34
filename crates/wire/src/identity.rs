//! Who sent a request and for how long they wait, as headers and body tell.
//!
//! Nothing here is to be trusted: every id is the client's claim. Scope it under the tenant, and
//! hash it before it is shown.

use std::borrow::Cow;

use crate::request::{IdentityFields, RequestFacts};

/// The longest id in bytes. A longer one is cut there, at a character: two ids that begin alike
/// then share one budget, which is the strict side to err on.
pub const ID_BYTES_MAX: usize = 512;

/// Headers that are looked at here and do not begin with `x-`.
pub const PLAIN_HEADERS: [&str; 4] = ["session-id", "session_id", "thread-id", "traceparent"];

/// The id of the agent run that a request belongs to; the first of these that is there:
///
/// 1. `x-fairlane-run`
/// 2. Claude Code: `x-claude-code-prompt-id` (one user prompt is one run), then
///    `x-claude-code-session-id` with the subagent's `x-claude-code-agent-id`, then the session in
///    the body's `metadata.user_id`
/// 3. Codex: `thread-id`, `session-id`, `session_id`
/// 4. body `prompt_cache_key`, then `conversation`
/// 5. body `metadata.session_id`, then `session_id`
/// 6. LiteLLM: `x-litellm-session-id`, `x-litellm-trace-id`
/// 7. the trace id of `traceparent`, unless the body has a `previous_response_id`
///
/// A `previous_response_id` changes with each step, so it is no id itself: where this gives `None`
/// and the body has one, the run is that of the response it names.
///
/// `header` gives the value of a header by its name in lower case.
#[must_use]
pub fn run_id<'a>(
    header: impl Fn(&str) -> Option<&'a str>,
    facts: &RequestFacts<'a>,
) -> Option<Cow<'a, str>> {
    let body = &facts.identity;
    named(&header, &["x-fairlane-run", "x-claude-code-prompt-id"])
        .or_else(|| claude_code_session(&header, body))
        .or_else(|| named(&header, &["thread-id", "session-id", "session_id"]))
        .or_else(|| present(&body.prompt_cache_key))
        .or_else(|| present(&body.conversation))
        .or_else(|| present(&body.metadata_session_id))
        .or_else(|| present(&body.session_id))
        .or_else(|| named(&header, &["x-litellm-session-id", "x-litellm-trace-id"]))
        .or_else(|| match body.previous_response_id {
            Some(_) => None,
            None => header("traceparent").and_then(trace_id).map(Cow::Borrowed),
        })
        .map(shortened)
}

/// The end user behind a request; the first of these that is there:
///
/// 1. `x-fairlane-user`
/// 2. `x-litellm-customer-id`, `x-litellm-end-user-id`
/// 3. body `user`, `litellm_metadata.user`
/// 4. body `metadata.user_id`; from Claude Code the account in it, else the device, never the
///    session
/// 5. body `safety_identifier`
///
/// `header` gives the value of a header by its name in lower case.
#[must_use]
pub fn end_user<'a>(
    header: impl Fn(&str) -> Option<&'a str>,
    facts: &RequestFacts<'a>,
) -> Option<Cow<'a, str>> {
    const HEADERS: [&str; 3] = ["x-fairlane-user", "x-litellm-customer-id", "x-litellm-end-user-id"];
    let body = &facts.identity;
    named(&header, &HEADERS)
        .or_else(|| present(&body.user))
        .or_else(|| present(&body.litellm_user))
        .or_else(|| match ClaudeCodeUser::parse(body.metadata_user_id.as_deref()?) {
            Some(claude_code) => claude_code.person(),
            None => present(&body.metadata_user_id),
        })
        .or_else(|| present(&body.safety_identifier))
        .map(shortened)
}

/// How long the client waits for an answer to begin, in milliseconds: the least of
/// `x-fairlane-max-wait-ms` (whole milliseconds; 0 means not at all) and the SDKs'
/// `x-stainless-read-timeout` and `x-stainless-timeout` (seconds, with fractions). Values that are
/// no such number say nothing.
#[must_use]
pub fn deadline_ms<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Option<u64> {
    let asked = header("x-fairlane-max-wait-ms").and_then(|value| value.trim().parse().ok());
    let timeouts = ["x-stainless-read-timeout", "x-stainless-timeout"];
    let timeouts = timeouts.into_iter().filter_map(|name| header(name).and_then(seconds_in_ms));
    timeouts.chain(asked).min()
}

/// Which attempt this is: 0 for the first, as `x-stainless-retry-count` tells.
#[must_use]
pub fn retry_count<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Option<u32> {
    header("x-stainless-retry-count")?.trim().parse().ok()
}

/// What Claude Code writes into `metadata.user_id`.
struct ClaudeCodeUser {
    device: Option<String>,
    account: Option<String>,
    session: Option<String>,
}

impl ClaudeCodeUser {
    /// `user_<hash>_account_<uuid>_session_<uuid>` (up to 2.0), or a JSON text (later). `None` if
    /// it is neither, so that it is an id by itself.
    fn parse(value: &str) -> Option<Self> {
        if value.trim_start().starts_with('{') {
            return Self::parse_json(value);
        }
        let (before, session) = value.rsplit_once("_session_")?;
        let rest = before.strip_prefix("user_")?;
        let (device, account) = rest.split_once("_account_").unwrap_or((rest, ""));
        Some(Self { device: not_empty(device), account: not_empty(account), session: not_empty(session) })
    }

    fn parse_json(value: &str) -> Option<Self> {
        let parts: serde_json::Map<String, serde_json::Value> = serde_json::from_str(value).ok()?;
        let part = |name| parts.get(name)?.as_str().and_then(not_empty);
        Some(Self { device: part("device_id"), account: part("account_uuid"), session: part("session_id") })
    }

    fn person(self) -> Option<Cow<'static, str>> {
        self.account.or(self.device).map(Cow::Owned)
    }
}

fn claude_code_session<'a>(
    header: &impl Fn(&str) -> Option<&'a str>,
    body: &IdentityFields<'a>,
) -> Option<Cow<'a, str>> {
    let session = named(header, &["x-claude-code-session-id"]).or_else(|| {
        let user = ClaudeCodeUser::parse(body.metadata_user_id.as_deref()?)?;
        user.session.map(Cow::Owned)
    })?;
    Some(match named(header, &["x-claude-code-agent-id"]) {
        Some(agent) => Cow::Owned(format!("{session}/{agent}")),
        None => session,
    })
}

fn named<'a>(header: &impl Fn(&str) -> Option<&'a str>, names: &[&str]) -> Option<Cow<'a, str>> {
    let mut values = names.iter().filter_map(|name| header(name));
    values.find_map(|value| Some(value.trim()).filter(|value| !value.is_empty())).map(Cow::Borrowed)
}

fn present<'a>(field: &Option<Cow<'a, str>>) -> Option<Cow<'a, str>> {
    field.clone().filter(|value| !value.trim().is_empty())
}

fn not_empty(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| value.to_owned())
}

/// The trace id of a W3C `traceparent`: version, trace, span, flags.
fn trace_id(traceparent: &str) -> Option<&str> {
    let trace = traceparent.trim().split('-').nth(1)?;
    let is_hex = trace.len() == 32 && trace.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_invalid = trace.bytes().all(|byte| byte == b'0');
    (is_hex && !is_invalid).then_some(trace)
}

fn shortened(id: Cow<'_, str>) -> Cow<'_, str> {
    if id.len() <= ID_BYTES_MAX {
        return id;
    }
    let mut end = ID_BYTES_MAX;
    while !id.is_char_boundary(end) {
        end -= 1;
    }
    match id {
        Cow::Borrowed(id) => Cow::Borrowed(&id[..end]),
        Cow::Owned(mut id) => {
            id.truncate(end);
            Cow::Owned(id)
        }
    }
}

fn seconds_in_ms(value: &str) -> Option<u64> {
    let seconds: f64 = value.trim().parse().ok()?;
    let is_time = seconds.is_finite() && seconds > 0.0;
    is_time.then(|| (seconds * 1_000.0).ceil() as u64)
}

#[cfg(test)]
mod tests;
