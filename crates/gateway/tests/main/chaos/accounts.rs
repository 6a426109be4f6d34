//! What each request was charged, against what the engine made of it: ending by ending.

#![cfg(test)]

use fairlane::engine::Record;

use super::joined::Joined;
use super::settings::PASSED_COST;

/// The charge of one request is what the rules of `docs/accounting.md` say, as far as the engine's and the client's words tell.
///
/// # Errors
/// What does not fit.
pub(super) fn check(joined: &Joined<'_>) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{what}: {joined:?}"));
    let record = joined.record;
    let uncached = record.input - record.cached.min(record.input);
    if record.charged < uncached + record.output || record.charged > record.input + record.output {
        return wrong("charged is not input and output");
    }
    match (record.outcome, record.usage_source) {
        ("refused" | "upstream_error", _) if record.charged != 0 => {
            wrong("a request that cost nothing is charged")
        }
        ("refused" | "upstream_error", _) => Ok(()),
        (_, "none") if record.charged != 0 => wrong("nothing ran, and it is charged"),
        ("client_gone", "none") if was_served(joined) => {
            wrong("a backend served it, and it is charged nothing")
        }
        (_, "none") => Ok(()),
        _ if joined.seen.path == "/tokenize" && record.charged != PASSED_COST => {
            wrong("another cost than fixed")
        }
        _ if joined.seen.path == "/tokenize" => Ok(()),
        (outcome, source) => match (input(joined, source), output(joined, outcome, source)) {
            (Err(what), _) | (_, Err(what)) => wrong(what),
            (Ok(()), Ok(())) => Ok(()),
        },
    }
}

/// Output tokens that the engine lies about.
pub(super) fn lie(record: &Record) -> u64 {
    let makes_some = record.endpoint != "/v1/embeddings";
    let fault = record.fault.as_str();
    fault.strip_prefix("usage-over:").filter(|_| makes_some).and_then(|more| more.parse().ok()).unwrap_or(0)
}

fn was_served(joined: &Joined<'_>) -> bool {
    joined.last.is_some_and(|last| {
        last.record.status == Some(200) && !last.record.cancelled && last.record.produced > 0
    })
}

fn input(joined: &Joined<'_>, source: &str) -> Result<(), &'static str> {
    let (record, Some(last)) = (joined.record, joined.last) else { return Ok(()) };
    let is_told = matches!(source, "reported" | "reported_partial" | "mixed");
    let is_estimated = !is_told && &*record.pool == "quick";
    match record.input.cmp(&last.record.prompt) {
        std::cmp::Ordering::Equal => Ok(()),
        // The upper end of the estimate, which was never counted.
        std::cmp::Ordering::Greater if is_estimated => Ok(()),
        std::cmp::Ordering::Greater => Err("more input than the engine read"),
        std::cmp::Ordering::Less => Err("less input than the engine read"),
    }
}

fn output(joined: &Joined<'_>, outcome: &str, source: &str) -> Result<(), &'static str> {
    let (record, seen) = (joined.record, joined.seen);
    let Some(last) = joined.last.map(|last| &last.record) else {
        let is_unseen = source == "estimated";
        return if is_unseen { Ok(()) } else { Err("usage from an engine that knows nothing of it") };
    };
    let told = last.produced + lie(last);
    let is_complete = matches!(outcome, "completed") && source == "reported";
    if is_complete {
        return if record.output == told { Ok(()) } else { Err("another output than reported") };
    }
    if outcome == "completed" && last.endpoint != "/v1/embeddings" {
        return if record.output == last.sent { Ok(()) } else { Err("another output than was sent") };
    }
    if record.output < seen.tokens {
        return Err("less output than the client got");
    }
    let guess = last.max_tokens.unwrap_or(DEFAULT_OUTPUT) * (last.choices as u64).max(2);
    let most = match source {
        "reported" => told,
        // Where no token was seen, the output is a guess within the bound.
        _ if seen.tokens == 0 => last.sent.max(guess),
        _ => last.sent,
    };
    if record.output <= most { Ok(()) } else { Err("more output than the engine handed out") }
}

const DEFAULT_OUTPUT: u64 = 1_024;
