//! The Responses API: what a body asks, the answer, and the numbered events of its stream.

use bytes::Bytes;
use serde_json::{Value, json};

use super::chat::{asks_for_tool, at_least_one};
use super::plan::{Choice, Draft, Endpoint, Finish, Plan, Prompt, Usage};
use super::problem::Problem;
use super::reply::{Tool, ToolCall};
use super::request::Fields;
use super::script::{CREATED, Place, Script, named};
use super::server::Engine;
use super::words::texts_of;

pub(super) fn draft<'a>(fields: Fields<'a>, engine: &Engine) -> Result<Draft<'a>, Problem> {
    let texts = texts(fields)?;
    Ok(Draft {
        endpoint: Endpoint::Responses,
        tool: tool_to_call(fields, &texts)?,
        prompts: vec![Prompt::of_texts(&texts, engine)],
        bound: at_least_one(fields.count("max_output_tokens")?, "max_output_tokens")?,
        shown: 1,
        made: 1,
        include_usage: true,
        continuous_usage: false,
    })
}

/// The instructions, then the input.
pub(super) fn texts(fields: Fields<'_>) -> Result<Vec<&str>, Problem> {
    let mut texts = Vec::new();
    texts.extend(fields.text("instructions")?);
    texts_of(fields.required("input")?, &mut texts);
    Ok(texts)
}

fn tool_to_call<'a>(fields: Fields<'a>, texts: &[&str]) -> Result<Option<Tool<'a>>, Problem> {
    let choice = fields.value("tool_choice");
    let forced = choice.and_then(Value::as_str);
    let wanted = choice.and_then(|choice| choice.get("name")?.as_str());
    if forced == Some("none") || (forced != Some("required") && wanted.is_none() && !asks_for_tool(texts)) {
        return Ok(None);
    }
    let tools = fields
        .list("tools")?
        .iter()
        .filter_map(|tool| Some(Tool { name: tool.get("name")?.as_str()?, schema: tool.get("parameters") }));
    Ok(tools.into_iter().find(|tool| wanted.is_none_or(|wanted| wanted == tool.name)))
}

fn usage_value(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached.unwrap_or(0)},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.output,
    })
}

/// How far an answer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Running,
    Ended,
}

/// The whole answer.
pub(super) fn answer(plan: &Plan) -> Value {
    envelope(plan, Progress::Ended)
}

fn envelope(plan: &Plan, progress: Progress) -> Value {
    let choice = &plan.choices[0];
    let ended = progress == Progress::Ended;
    let cut = ended && choice.finish == Finish::Length;
    let mut response = json!({
        "id": format!("resp_{}", plan.id),
        "object": "response",
        "created_at": CREATED,
        "status": if ended { final_status(choice) } else { "in_progress" },
        "error": null,
        "incomplete_details": cut.then(|| json!({"reason": "max_output_tokens"})),
        "instructions": null,
        "max_output_tokens": plan.bound,
        "metadata": {},
        "model": plan.model,
        "output": if ended { vec![item(choice, plan, Progress::Ended)] } else { Vec::new() },
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": null,
    });
    if let Some(usage) = plan.final_usage().filter(|_| ended) {
        response["usage"] = usage_value(usage);
    }
    response
}

fn final_status(choice: &Choice) -> &'static str {
    if choice.finish == Finish::Length { "incomplete" } else { "completed" }
}

fn item(choice: &Choice, plan: &Plan, progress: Progress) -> Value {
    let (status, tokens) = match progress {
        Progress::Running => ("in_progress", 0),
        Progress::Ended => (final_status(choice), choice.job.output.0),
    };
    let text = choice.reply.text(tokens);
    match choice.reply.tool() {
        None => json!({
            "id": item_id(choice, plan),
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": if progress == Progress::Ended { vec![part(&text)] } else { Vec::new() },
        }),
        Some(call) => json!({
            "id": item_id(choice, plan),
            "type": "function_call",
            "call_id": format!("call_{}", call.id),
            "name": call.name,
            "arguments": text,
            "status": status,
        }),
    }
}

fn item_id(choice: &Choice, plan: &Plan) -> String {
    match choice.reply.tool() {
        None => format!("msg_{}", plan.id),
        Some(ToolCall { id, .. }) => format!("fc_{id}"),
    }
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// The stream. Every event carries the next sequence number.
#[derive(Debug, Default)]
pub(super) struct ResponseScript {
    sequence_number: u64,
}

impl ResponseScript {
    fn event(&mut self, kind: &str, mut event: Value) -> Bytes {
        event["type"] = Value::from(kind);
        event["sequence_number"] = Value::from(self.sequence_number);
        self.sequence_number += 1;
        named(&event)
    }

    /// An event about the content of the only output item.
    fn content_event(&mut self, plan: &Plan, kind: &str, mut event: Value) -> Bytes {
        let choice = &plan.choices[0];
        event["item_id"] = Value::from(item_id(choice, plan));
        event["output_index"] = Value::from(0);
        if choice.reply.tool().is_none() {
            event["content_index"] = Value::from(0);
        }
        self.event(kind, event)
    }
}

impl Script for ResponseScript {
    fn opening(&mut self, plan: &Plan) -> Vec<Bytes> {
        let choice = &plan.choices[0];
        let response = envelope(plan, Progress::Running);
        let mut events = vec![
            self.event("response.created", json!({"response": response})),
            self.event("response.in_progress", json!({"response": response})),
        ];
        let item = item(choice, plan, Progress::Running);
        events.push(self.event("response.output_item.added", json!({"output_index": 0, "item": item})));
        if choice.reply.tool().is_none() {
            events.push(self.content_event(plan, "response.content_part.added", json!({"part": part("")})));
        }
        events
    }

    fn token(&mut self, plan: &Plan, place: Place, _running: Option<Usage>) -> Vec<Bytes> {
        let reply = &plan.choices[place.choice].reply;
        let delta = reply.piece(place.token);
        vec![match reply.tool() {
            None => self.content_event(
                plan,
                "response.output_text.delta",
                json!({"delta": delta, "logprobs": []}),
            ),
            Some(_) => {
                self.content_event(plan, "response.function_call_arguments.delta", json!({"delta": delta}))
            }
        }]
    }

    fn choice_end(&mut self, plan: &Plan, choice: usize, _running: Option<Usage>) -> Vec<Bytes> {
        let choice = &plan.choices[choice];
        let text = choice.reply.text(choice.job.output.0);
        let mut events = match choice.reply.tool() {
            None => vec![
                self.content_event(plan, "response.output_text.done", json!({"text": text, "logprobs": []})),
                self.content_event(plan, "response.content_part.done", json!({"part": part(&text)})),
            ],
            Some(call) => {
                let done = json!({"name": call.name, "arguments": text});
                vec![self.content_event(plan, "response.function_call_arguments.done", done)]
            }
        };
        let item = item(choice, plan, Progress::Ended);
        events.push(self.event("response.output_item.done", json!({"output_index": 0, "item": item})));
        events
    }

    fn closing(&mut self, plan: &Plan, _usage: Option<Usage>) -> Vec<Bytes> {
        let kind = match plan.choices[0].finish {
            Finish::Length => "response.incomplete",
            Finish::Stop | Finish::Tool => "response.completed",
        };
        vec![self.event(kind, json!({"response": envelope(plan, Progress::Ended)}))]
    }

    fn failure(&mut self, problem: &Problem) -> Vec<Bytes> {
        let code = if problem.status.as_u16() == 503 { "server_overloaded" } else { "server_error" };
        vec![self.event("error", json!({"code": code, "message": problem.message, "param": null}))]
    }
}
