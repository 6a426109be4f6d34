//! Anthropic messages: what a body asks, the answer, and the stream.

use bytes::Bytes;
use serde_json::{Value, json};

use super::chat::asks_for_tool;
use super::plan::{Choice, Draft, Endpoint, Finish, Plan, Prompt, Usage};
use super::problem::{Dialect, Problem};
use super::reply::{Tool, ToolCall};
use super::request::Fields;
use super::script::{Place, Script, named};
use super::server::Engine;
use super::words::texts_of;

pub(super) fn draft<'a>(fields: Fields<'a>, engine: &Engine) -> Result<Draft<'a>, Problem> {
    let texts = texts(fields)?;
    let bound =
        fields.count("max_tokens")?.ok_or_else(|| Problem::bad_request("max_tokens: Field required"))?;
    Ok(Draft {
        endpoint: Endpoint::Messages,
        tool: tool_to_call(fields, &texts)?,
        prompts: vec![Prompt::of_texts(&texts, engine)],
        bound: Some(bound),
        shown: 1,
        made: 1,
        include_usage: true,
        continuous_usage: false,
    })
}

/// The system prompt, then the messages.
pub(super) fn texts(fields: Fields<'_>) -> Result<Vec<&str>, Problem> {
    let mut texts = Vec::new();
    if let Some(system) = fields.value("system") {
        texts_of(system, &mut texts);
    }
    fields.required("messages")?;
    fields.list("messages")?.iter().for_each(|message| texts_of(message, &mut texts));
    Ok(texts)
}

fn tool_to_call<'a>(fields: Fields<'a>, texts: &[&str]) -> Result<Option<Tool<'a>>, Problem> {
    let choice = fields.object("tool_choice")?;
    let kind = choice.and_then(|choice| choice.value("type")?.as_str()).unwrap_or("auto");
    let wanted = choice.and_then(|choice| choice.value("name")?.as_str());
    let calls = match kind {
        "none" => false,
        "any" | "tool" => true,
        _ => asks_for_tool(texts),
    };
    let tools = fields.list("tools")?.iter().filter_map(|tool| {
        Some(Tool { name: tool.get("name")?.as_str()?, schema: tool.get("input_schema") })
    });
    Ok(tools.into_iter().find(|tool| calls && wanted.is_none_or(|wanted| wanted == tool.name)))
}

/// `input_tokens` is what no cache held; the cache's fields are absent while it is off, as in vLLM.
fn usage_value(usage: Usage) -> Value {
    let Some(cached) = usage.cached else {
        return json!({"input_tokens": usage.prompt, "output_tokens": usage.output});
    };
    json!({
        "input_tokens": usage.prompt - cached,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.output,
    })
}

const fn stop_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "end_turn",
        Finish::Length => "max_tokens",
        Finish::Tool => "tool_use",
    }
}

/// The whole answer.
pub(super) fn answer(plan: &Plan) -> Value {
    let choice = &plan.choices[0];
    let mut answer = envelope(plan, plan.final_usage());
    answer["content"] = Value::Array(content(choice));
    answer["stop_reason"] = Value::from(stop_reason(choice.finish));
    answer
}

fn envelope(plan: &Plan, usage: Option<Usage>) -> Value {
    let mut message = json!({
        "id": format!("msg_{}", plan.id),
        "type": "message",
        "role": "assistant",
        "model": plan.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
    });
    if let Some(usage) = usage {
        message["usage"] = usage_value(usage);
    }
    message
}

fn content(choice: &Choice) -> Vec<Value> {
    let text = choice.reply.text(choice.job.output.0);
    match choice.reply.tool() {
        _ if choice.job.output.0 == 0 => Vec::new(),
        None => vec![json!({"type": "text", "text": text})],
        // A call that its bound cut short has no whole arguments.
        Some(call) => {
            let input = serde_json::from_str(&text).unwrap_or_else(|_| json!({}));
            vec![tool_block(call, input)]
        }
    }
}

fn tool_block(call: &ToolCall, input: Value) -> Value {
    json!({"type": "tool_use", "id": format!("toolu_{}", call.id), "name": call.name, "input": input})
}

/// The stream: one content block, one token a delta, the final usage in `message_delta`.
#[derive(Debug)]
pub(super) struct MessageScript;

impl Script for MessageScript {
    fn opening(&mut self, plan: &Plan) -> Vec<Bytes> {
        let start = json!({"type": "message_start", "message": envelope(plan, plan.running_usage(0))});
        let choice = &plan.choices[0];
        if choice.job.output.0 == 0 {
            return vec![named(&start)];
        }
        let block = match choice.reply.tool() {
            None => json!({"type": "text", "text": ""}),
            Some(call) => tool_block(call, json!({})),
        };
        let block = json!({"type": "content_block_start", "index": 0, "content_block": block});
        vec![named(&start), named(&block), named(&json!({"type": "ping"}))]
    }

    fn token(&mut self, plan: &Plan, place: Place, _running: Option<Usage>) -> Vec<Bytes> {
        let reply = &plan.choices[place.choice].reply;
        let piece = reply.piece(place.token);
        let delta = match reply.tool() {
            None => json!({"type": "text_delta", "text": piece}),
            Some(_) => json!({"type": "input_json_delta", "partial_json": piece}),
        };
        vec![named(&json!({"type": "content_block_delta", "index": 0, "delta": delta}))]
    }

    fn choice_end(&mut self, plan: &Plan, choice: usize, _running: Option<Usage>) -> Vec<Bytes> {
        if plan.choices[choice].job.output.0 == 0 {
            return Vec::new();
        }
        vec![named(&json!({"type": "content_block_stop", "index": 0}))]
    }

    fn closing(&mut self, plan: &Plan, usage: Option<Usage>) -> Vec<Bytes> {
        let reason = stop_reason(plan.choices[0].finish);
        let mut delta =
            json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}});
        if let Some(usage) = usage {
            delta["usage"] = usage_value(usage);
        }
        vec![named(&delta), named(&json!({"type": "message_stop"}))]
    }

    fn failure(&mut self, problem: &Problem) -> Vec<Bytes> {
        vec![named(&problem.body(Dialect::Anthropic))]
    }
}
