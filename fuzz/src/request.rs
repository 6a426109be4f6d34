//! A request's body: its facts beside what a JSON tree says, and the edits of its bytes beside the tree's members.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use fairlane_wire::count::{
    ChatOverhead, InputRules, Memo, MemoKey, Vocabulary, count_input, estimate_input,
};
use fairlane_wire::dialect::{Dialect, Endpoint};
use fairlane_wire::request::{RequestError, RequestFacts, Segment, read};
use fairlane_wire::splice::{ChatBound, Edits, Priority, UsageChunk, splice};
use serde_json::{Map, Value};

use super::input::Input;

/// Reads `input` as endpoint, edits and body.
pub fn check(input: &[u8]) {
    let mut input = Input::new(input);
    let endpoint = ENDPOINTS[input.pick(ENDPOINTS.len())];
    let edits = edits(&mut input);
    let body = input.rest();
    let is_json = std::str::from_utf8(body)
        .is_ok_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok());
    match read(endpoint, body) {
        Err(error) => refused(&error, body, is_json),
        Ok(facts) => {
            assert!(is_json, "what is no JSON was read");
            counted(&facts);
            // A number beyond every type, or a lone surrogate, is JSON that this tree cannot hold.
            if let Ok(Value::Object(tree)) = serde_json::from_slice(body) {
                told(&facts, &tree);
                edited(&facts, &edits, body, &tree);
            }
            spliced(&facts, &edits, body);
        }
    }
}

fn edits(input: &mut Input<'_>) -> Edits {
    let flags = input.byte();
    let bound = input.number();
    Edits {
        output_bound: (flags & 1 != 0).then_some(bound.max(1)),
        chat_bound: if flags & 2 == 0 { ChatBound::MaxTokens } else { ChatBound::MaxCompletionTokens },
        usage: if flags & 4 == 0 { UsageChunk::AsSent } else { UsageChunk::Asked },
        priority: if flags & 8 == 0 { Priority::Removed } else { Priority::Set(-7) },
    }
}

fn refused(error: &RequestError, body: &[u8], is_json: bool) {
    assert!(error.at().is_none_or(|at| at <= body.len()), "{error:?}");
    assert!(error.to_string().len() < ERROR_BYTES_MAX, "{} bytes", error.to_string().len());
    let is_about_json = matches!(error, RequestError::Syntax { .. } | RequestError::NotUtf8 { .. });
    assert!(!(is_json && is_about_json), "JSON was refused: {error}");
}

/// The interval is one, the exact count is found at its limit and not below, and a memo changes nothing.
fn counted(facts: &RequestFacts<'_>) {
    let rules = InputRules::new(ChatOverhead::OPENAI);
    let estimate = estimate_input(facts, &rules);
    let interval = estimate.interval();
    assert!(interval.low <= interval.mean && interval.mean <= interval.high, "{interval:?}");
    for memo in [&*WORDS, &*O200K] {
        let exact = count_input(facts, memo, &rules, u64::MAX).expect("no limit");
        assert_eq!(count_input(facts, memo, &rules, exact), Some(exact));
        assert_eq!(exact.checked_sub(1).and_then(|less| count_input(facts, memo, &rules, less)), None);
    }
}

/// Every fact is what the tree says.
fn told(facts: &RequestFacts<'_>, tree: &Map<String, Value>) {
    let generates = facts.endpoint.generates();
    assert_eq!(Some(&*facts.model), tree["model"].as_str());
    assert_eq!(facts.is_streaming, truth(tree.get("stream")));
    let bounds = BOUNDS.iter().filter_map(|name| tree.get(*name)).filter_map(count);
    assert_eq!(facts.output_bound, if generates { bounds.max() } else { None });
    if generates {
        let names: &[&str] = match facts.endpoint.dialect() {
            Dialect::OpenAi => &["n", "n_cmpl"],
            Dialect::Anthropic => &[],
        };
        let mut choices = names.iter().filter_map(|name| tree.get(*name)).filter_map(count).max();
        if facts.endpoint == Endpoint::Completions {
            choices = choices.max(tree.get("best_of").and_then(count));
        }
        assert_eq!(facts.choices, choices.unwrap_or(1));
    }
    texts(facts, tree);
}

/// No text is made up, and none that stands where every client puts it is overlooked.
fn texts(facts: &RequestFacts<'_>, tree: &Map<String, Value>) {
    let mut written = HashSet::new();
    tree.values().for_each(|value| strings(value, &mut written));
    let mut found = HashSet::new();
    for segment in facts.segments() {
        match segment {
            Segment::Text(text) | Segment::System(text) | Segment::Role(text) | Segment::Name(text) => {
                let text = text.decode().into_owned();
                assert!(written.contains(text.as_str()), "{text:?} is not in the body");
                found.insert(text);
            }
            Segment::Json(raw) | Segment::Tool(raw) => {
                serde_json::from_str::<serde::de::IgnoredAny>(raw).expect("a piece of JSON is JSON");
            }
            Segment::Image(image) => {
                assert!(InputRules::new(ChatOverhead::NONE).image.tokens(image) < 1 << 40)
            }
            Segment::Message
            | Segment::Prompt
            | Segment::ToolCall
            | Segment::TokenIds(_)
            | Segment::Attachment(_) => {}
        }
    }
    let messages = match facts.endpoint {
        Endpoint::ChatCompletions | Endpoint::Messages | Endpoint::CountTokens => tree["messages"].as_array(),
        Endpoint::Completions | Endpoint::Embeddings | Endpoint::Responses | Endpoint::Models => None,
    };
    for content in messages.into_iter().flatten().filter_map(|message| message["content"].as_str()) {
        assert!(content.is_empty() || found.contains(content), "{content:?} is not counted");
    }
}

/// The edits of the bytes mean the edits of the tree.
fn edited(facts: &RequestFacts<'_>, edits: &Edits, body: &[u8], tree: &Map<String, Value>) {
    let sent = splice(&facts.layout, edits).apply(body).into_owned();
    let sent: Map<String, Value> = serde_json::from_slice(&sent).expect("the edited body is JSON");
    let touched = |name: &str| TOUCHED.contains(&name) || CONTROLS.contains(&name);
    for (name, value) in tree.iter().filter(|(name, _)| !touched(name)) {
        assert_eq!(sent.get(name), Some(value), "{name}");
    }
    for name in sent.keys() {
        assert!(touched(name) || tree.contains_key(name), "{name} was added");
    }
    for name in CONTROLS.iter().filter(|name| **name != "priority") {
        assert!(!sent.contains_key(*name), "{name} was sent");
    }
    match edits.priority {
        Priority::Removed => assert!(!sent.contains_key("priority")),
        Priority::Set(value) => assert_eq!(sent.get("priority").and_then(Value::as_i64), Some(value)),
    }
    let asks = edits.usage == UsageChunk::Asked
        && facts.is_streaming
        && matches!(facts.endpoint, Endpoint::ChatCompletions | Endpoint::Completions);
    if asks {
        assert_eq!(sent["stream_options"]["include_usage"], true);
    } else {
        assert_eq!(sent.get("stream_options"), tree.get("stream_options"));
    }
    if let Some(bound) = edits.output_bound.filter(|_| facts.endpoint.generates()) {
        for value in BOUNDS.iter().filter_map(|name| sent.get(*name)) {
            assert!(
                value.is_null() || count(value).is_some_and(|tokens| tokens <= bound),
                "{value} over {bound}"
            );
        }
    }
}

/// The edited body is read again, says what was set, and editing it again changes nothing.
fn spliced(facts: &RequestFacts<'_>, edits: &Edits, body: &[u8]) {
    let plan = splice(&facts.layout, edits);
    let sent = plan.apply(body);
    assert_eq!(plan.len_bytes(), sent.len());
    assert_eq!(plan.is_unchanged(), *sent == *body);
    let again = read(facts.endpoint, &sent).expect("the edited body is read again");
    if let Some(bound) = edits.output_bound.filter(|_| facts.endpoint.generates()) {
        assert!(
            again.output_bound.is_some_and(|sent| sent <= bound),
            "{:?} over {bound}",
            again.output_bound
        );
    }
    assert!(splice(&again.layout, edits).apply(&sent) == sent, "edited twice");
    assert_eq!(again.segments(), facts.segments());
    assert_eq!(again.identity, facts.identity);
    assert_eq!(again.generations(), facts.generations());
}

fn strings<'v>(value: &'v Value, into: &mut HashSet<&'v str>) {
    match value {
        Value::String(text) => {
            into.insert(text);
        }
        Value::Array(items) => items.iter().for_each(|item| strings(item, into)),
        Value::Object(members) => {
            for (name, member) in members {
                into.insert(name);
                strings(member, into);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn truth(value: Option<&Value>) -> bool {
    value.and_then(Value::as_bool).unwrap_or(false)
}

/// A whole number, also one that is written as a fraction; too large ones are the largest.
fn count(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_f64().map(|number| number as u64))
}

static WORDS: LazyLock<Memo> = LazyLock::new(|| memo(Vocabulary::words()));
static O200K: LazyLock<Memo> = LazyLock::new(|| memo(Vocabulary::o200k()));

fn memo(vocabulary: Vocabulary) -> Memo {
    Memo::new(Arc::new(vocabulary), MemoKey([1, 2]), 1_000)
}

const ENDPOINTS: [Endpoint; 6] = [
    Endpoint::ChatCompletions,
    Endpoint::Messages,
    Endpoint::Responses,
    Endpoint::Completions,
    Endpoint::Embeddings,
    Endpoint::CountTokens,
];
const BOUNDS: [&str; 4] = ["max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"];
const TOUCHED: [&str; 5] =
    ["max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "stream_options"];
const CONTROLS: [&str; 12] = [
    "priority",
    "data_parallel_rank",
    "routed_dp_rank",
    "disagg_prefill_dp_rank",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "bootstrap_pair_key",
    "kv_transfer_params",
    "ec_transfer_params",
    "id_slot",
    "slot_id",
];
const ERROR_BYTES_MAX: usize = 2_000;
