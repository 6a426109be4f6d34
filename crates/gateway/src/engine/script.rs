//! How a dialect tells a stream: the events of each moment of a generation.

use bytes::Bytes;
use serde_json::Value;

use super::plan::{Plan, Usage};
use super::problem::Problem;

/// One token of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) choice: usize,
    /// From 0.
    pub(super) token: u64,
}

/// The events of one dialect's stream. The calls come in the order of the methods; choices may interleave.
pub(super) trait Script: Send {
    /// Before the first token of any choice.
    fn opening(&mut self, plan: &Plan) -> Vec<Bytes>;
    /// A token; `running` is the usage so far, where the dialect tells it.
    fn token(&mut self, plan: &Plan, place: Place, running: Option<Usage>) -> Vec<Bytes>;
    /// The end of a choice.
    fn choice_end(&mut self, plan: &Plan, choice: usize, running: Option<Usage>) -> Vec<Bytes>;
    /// The end of the stream.
    fn closing(&mut self, plan: &Plan, usage: Option<Usage>) -> Vec<Bytes>;
    /// An end by an error, possibly before anything else.
    fn failure(&mut self, problem: &Problem) -> Vec<Bytes>;
}

/// An event without a name.
pub(super) fn data(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

/// An event whose name is its `type`.
pub(super) fn named(value: &Value) -> Bytes {
    let name = value.get("type").and_then(Value::as_str).unwrap_or_default();
    Bytes::from(format!("event: {name}\ndata: {value}\n\n"))
}

/// The end mark of OpenAI's chat and completion streams.
pub(super) fn done() -> Bytes {
    Bytes::from_static(b"data: [DONE]\n\n")
}

/// When every answer says it was made: a fixed second, so that equal requests get equal answers.
pub(super) const CREATED: u64 = 1_767_225_600;
