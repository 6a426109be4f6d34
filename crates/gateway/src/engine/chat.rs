//! Chat completions: what a body asks, the answer, and the stream.

use bytes::Bytes;
use serde_json::{Value, json};

use super::plan::{Choice, Draft, Endpoint, Finish, Plan, Prompt, Usage};
use super::problem::Problem;
use super::reply::{Tool, ToolCall};
use super::request::Fields;
use super::script::{CREATED, Place, Script, data, done};
use super::server::Engine;
use super::words::texts_of;

pub(super) fn draft<'a>(fields: Fields<'a>, engine: &Engine) -> Result<Draft<'a>, Problem> {
    let mut texts = Vec::new();
    fields.required("messages")?;
    fields.list("messages")?.iter().for_each(|message| texts_of(message, &mut texts));
    let bound = match fields.count("max_completion_tokens")? {
        Some(bound) => Some(bound),
        None => fields.count("max_tokens")?,
    };
    let choices = fields.count("n")?.unwrap_or(1);
    let (include_usage, continuous_usage) = stream_options(fields)?;
    Ok(Draft {
        endpoint: Endpoint::Chat,
        tool: tool_to_call(fields, &texts)?,
        prompts: vec![Prompt::of_texts(&texts, engine)],
        bound: at_least_one(bound, "max_tokens")?,
        shown: choices,
        made: choices,
        include_usage,
        continuous_usage,
    })
}

/// `include_usage` and `continuous_usage_stats`, which counts only beside it.
pub(super) fn stream_options(fields: Fields<'_>) -> Result<(bool, bool), Problem> {
    let Some(options) = fields.object("stream_options")? else {
        return Ok((false, false));
    };
    let include_usage = options.flag("include_usage")?;
    Ok((include_usage, include_usage && options.flag("continuous_usage_stats")?))
}

/// OpenAI's endpoints refuse a bound of zero.
pub(super) fn at_least_one(bound: Option<u64>, name: &str) -> Result<Option<u64>, Problem> {
    match bound {
        Some(0) => Err(Problem::bad_request(format!("{name}: must be at least 1"))),
        Some(_) | None => Ok(bound),
    }
}

/// Whether the last text asks for a tool in words.
pub(super) fn asks_for_tool(texts: &[&str]) -> bool {
    texts.last().is_some_and(|text| text.to_lowercase().contains("use the tool"))
}

fn tool_to_call<'a>(fields: Fields<'a>, texts: &[&str]) -> Result<Option<Tool<'a>>, Problem> {
    let tools = fields.list("tools")?;
    let choice = fields.value("tool_choice");
    let wanted = choice.and_then(|choice| choice.pointer("/function/name")?.as_str());
    let forced = choice.and_then(Value::as_str);
    if forced == Some("none") || (forced != Some("required") && wanted.is_none() && !asks_for_tool(texts)) {
        return Ok(None);
    }
    let functions = tools.iter().filter_map(|tool| {
        let function = tool.get("function")?;
        Some(Tool { name: function.get("name")?.as_str()?, schema: function.get("parameters") })
    });
    Ok(functions.into_iter().find(|tool| wanted.is_none_or(|wanted| wanted == tool.name)))
}

pub(super) fn usage_value(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.prompt + usage.output,
        "prompt_tokens_details": usage.cached.map(|cached| json!({"cached_tokens": cached})),
    })
}

pub(super) const fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::Tool => "tool_calls",
    }
}

/// The whole answer.
pub(super) fn answer(plan: &Plan) -> Value {
    let choices: Vec<Value> = plan
        .shown_choices()
        .iter()
        .enumerate()
        .map(|(index, choice)| {
            json!({
                "index": index,
                "message": message(choice),
                "logprobs": null,
                "finish_reason": finish_reason(choice.finish),
            })
        })
        .collect();
    let mut answer = json!({
        "id": format!("chatcmpl-{}", plan.id),
        "object": "chat.completion",
        "created": CREATED,
        "model": plan.model,
        "choices": choices,
    });
    if let Some(usage) = plan.final_usage() {
        answer["usage"] = usage_value(usage);
    }
    answer
}

fn message(choice: &Choice) -> Value {
    let text = choice.reply.text(choice.job.output.0);
    match choice.reply.tool() {
        None => json!({"role": "assistant", "content": text, "refusal": null}),
        Some(call) => {
            json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": [{
                "id": call_id(call),
                "type": "function",
                "function": {"name": call.name, "arguments": text},
            }]})
        }
    }
}

fn call_id(call: &ToolCall) -> String {
    format!("call_{}", call.id)
}

/// The stream: a role for each choice, one token a chunk, the finish reason apart, then the usage if it was asked for.
#[derive(Debug)]
pub(super) struct ChatScript;

impl ChatScript {
    fn chunk(plan: &Plan, choices: &Value, usage: Option<Usage>) -> Bytes {
        let mut chunk = json!({
            "id": format!("chatcmpl-{}", plan.id),
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": plan.model,
            "choices": choices,
        });
        if plan.include_usage {
            chunk["usage"] = usage.map_or(Value::Null, usage_value);
        }
        data(&chunk)
    }

    fn delta(plan: &Plan, index: usize, delta: Value, running: Option<Usage>) -> Bytes {
        let choices = json!([{"index": index, "delta": delta, "logprobs": null, "finish_reason": null}]);
        Self::chunk(plan, &choices, running.filter(|_| plan.continuous_usage))
    }
}

impl Script for ChatScript {
    fn opening(&mut self, plan: &Plan) -> Vec<Bytes> {
        let role = |(index, choice): (usize, &Choice)| {
            let delta = match choice.reply.tool() {
                None => json!({"role": "assistant", "content": ""}),
                Some(call) => json!({"role": "assistant", "content": null, "tool_calls": [{
                    "index": 0,
                    "id": call_id(call),
                    "type": "function",
                    "function": {"name": call.name, "arguments": ""},
                }]}),
            };
            Self::delta(plan, index, delta, plan.running_usage(0))
        };
        plan.shown_choices().iter().enumerate().map(role).collect()
    }

    fn token(&mut self, plan: &Plan, place: Place, running: Option<Usage>) -> Vec<Bytes> {
        let reply = &plan.choices[place.choice].reply;
        let piece = reply.piece(place.token);
        let delta = match reply.tool() {
            None => json!({"content": piece}),
            Some(_) => json!({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}),
        };
        vec![Self::delta(plan, place.choice, delta, running)]
    }

    fn choice_end(&mut self, plan: &Plan, choice: usize, running: Option<Usage>) -> Vec<Bytes> {
        let reason = finish_reason(plan.choices[choice].finish);
        let choices = json!([{"index": choice, "delta": {}, "logprobs": null, "finish_reason": reason}]);
        vec![Self::chunk(plan, &choices, running.filter(|_| plan.continuous_usage))]
    }

    fn closing(&mut self, plan: &Plan, usage: Option<Usage>) -> Vec<Bytes> {
        let usage = usage.filter(|_| plan.include_usage);
        let usage = usage.map(|usage| Self::chunk(plan, &json!([]), Some(usage)));
        usage.into_iter().chain([done()]).collect()
    }

    /// vLLM still sends the end mark after an error.
    fn failure(&mut self, problem: &Problem) -> Vec<Bytes> {
        vec![data(&json!({"error": problem.openai_error()})), done()]
    }
}
