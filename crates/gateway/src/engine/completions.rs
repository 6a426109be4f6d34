//! Legacy completions: one or many prompts, as texts or as token ids.

use bytes::Bytes;
use serde_json::{Value, json};

use super::chat::{at_least_one, finish_reason, stream_options, usage_value};
use super::plan::{Draft, Endpoint, Plan, Prompt, Usage};
use super::problem::Problem;
use super::request::Fields;
use super::script::{CREATED, Place, Script, data, done};
use super::server::Engine;

pub(super) fn draft<'a>(fields: Fields<'a>, engine: &Engine) -> Result<Draft<'a>, Problem> {
    let prompts = prompts(fields.required("prompt")?, "prompt", engine)?;
    let shown = fields.count("n")?.unwrap_or(1);
    let made = fields.count("best_of")?.unwrap_or(shown);
    if made > shown && fields.flag("stream")? {
        return Err(Problem::bad_request("best_of: cannot be streamed when it is above n"));
    }
    let (include_usage, continuous_usage) = stream_options(fields)?;
    Ok(Draft {
        endpoint: Endpoint::Completions,
        prompts,
        bound: at_least_one(fields.count("max_tokens")?.or(Some(BOUND_DEFAULT)), "max_tokens")?,
        shown,
        made,
        tool: None,
        include_usage,
        continuous_usage,
    })
}

/// A text, token ids, or an array of either.
pub(super) fn prompts(value: &Value, name: &str, engine: &Engine) -> Result<Vec<Prompt>, Problem> {
    let prompts: Option<Vec<Prompt>> = match value {
        Value::Array(items) if !items.is_empty() && !items.iter().all(Value::is_u64) => {
            if items.len() > PROMPTS_MAX {
                return Err(Problem::bad_request(format!("{name}: must have at most {PROMPTS_MAX} entries")));
            }
            items.iter().map(|item| prompt(item, engine)).collect()
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => prompt(value, engine).map(|prompt| vec![prompt]),
    };
    let wanted = "must be a string, an array of integers, or an array of either, and not empty";
    prompts.ok_or_else(|| Problem::bad_request(format!("{name}: {wanted}")))
}

/// One text, or the token ids of one.
fn prompt(value: &Value, engine: &Engine) -> Option<Prompt> {
    match value {
        Value::String(text) => Some(Prompt::of_texts(&[text], engine)),
        Value::Array(ids) if !ids.is_empty() && ids.iter().all(Value::is_u64) => {
            Some(Prompt::of_tokens(ids, engine))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
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
                "text": choice.reply.text(choice.job.output.0),
                "logprobs": null,
                "finish_reason": finish_reason(choice.finish),
            })
        })
        .collect();
    let mut answer = json!({
        "id": format!("cmpl-{}", plan.id),
        "object": "text_completion",
        "created": CREATED,
        "model": plan.model,
        "choices": choices,
    });
    if let Some(usage) = plan.final_usage() {
        answer["usage"] = usage_value(usage);
    }
    answer
}

/// The stream: one token a chunk, the finish reason apart, then the usage if it was asked for.
#[derive(Debug)]
pub(super) struct CompletionScript;

impl CompletionScript {
    fn chunk(plan: &Plan, choices: &Value, usage: Option<Usage>) -> Bytes {
        let mut chunk = json!({
            "id": format!("cmpl-{}", plan.id),
            "object": "text_completion",
            "created": CREATED,
            "model": plan.model,
            "choices": choices,
        });
        if plan.include_usage {
            chunk["usage"] = usage.map_or(Value::Null, usage_value);
        }
        data(&chunk)
    }
}

impl Script for CompletionScript {
    fn opening(&mut self, _plan: &Plan) -> Vec<Bytes> {
        Vec::new()
    }

    fn token(&mut self, plan: &Plan, place: Place, running: Option<Usage>) -> Vec<Bytes> {
        let text = plan.choices[place.choice].reply.piece(place.token);
        let choices = json!([{"index": place.choice, "text": text, "logprobs": null, "finish_reason": null}]);
        vec![Self::chunk(plan, &choices, running.filter(|_| plan.continuous_usage))]
    }

    fn choice_end(&mut self, plan: &Plan, choice: usize, running: Option<Usage>) -> Vec<Bytes> {
        let reason = finish_reason(plan.choices[choice].finish);
        let choices = json!([{"index": choice, "text": "", "logprobs": null, "finish_reason": reason}]);
        vec![Self::chunk(plan, &choices, running.filter(|_| plan.continuous_usage))]
    }

    fn closing(&mut self, plan: &Plan, usage: Option<Usage>) -> Vec<Bytes> {
        let usage = usage.filter(|_| plan.include_usage);
        let usage = usage.map(|usage| Self::chunk(plan, &json!([]), Some(usage)));
        usage.into_iter().chain([done()]).collect()
    }

    fn failure(&mut self, problem: &Problem) -> Vec<Bytes> {
        vec![data(&json!({"error": problem.openai_error()})), done()]
    }
}

/// What vLLM and SGLang take when no bound is given.
const BOUND_DEFAULT: u64 = 16;
/// Prompts or inputs of one request.
pub(super) const PROMPTS_MAX: usize = 2_048;
