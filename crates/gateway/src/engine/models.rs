//! What needs no sequence: the model list, token counts, and token ids.

use http::StatusCode;
use serde_json::{Value, json};

use super::messages;
use super::plan::model_of;
use super::problem::Problem;
use super::request::Fields;
use super::responses;
use super::script::CREATED;
use super::server::Engine;
use super::words::{count, hash_of, texts_of};

pub(super) fn list(engine: &Engine) -> Value {
    let models: Vec<Value> = engine.options.models.iter().map(|model| card(engine, model)).collect();
    json!({"object": "list", "data": models})
}

pub(super) fn one(engine: &Engine, name: &str) -> Result<Value, Problem> {
    let known = engine.options.models.iter().find(|model| *model == name);
    let missing = || Problem::of(StatusCode::NOT_FOUND, "The model does not exist.");
    known.map(|model| card(engine, model)).ok_or_else(missing)
}

fn card(engine: &Engine, model: &str) -> Value {
    json!({
        "id": model,
        "object": "model",
        "created": CREATED,
        "owned_by": "fairlane",
        "root": model,
        "parent": null,
        "max_model_len": engine.options.max_model_len,
    })
}

/// `/tokenize`: of a prompt, or of messages.
pub(super) fn tokenize(fields: Fields<'_>, engine: &Engine) -> Result<Value, Problem> {
    model_of(fields, engine)?;
    let mut texts = Vec::new();
    match fields.text("prompt")? {
        Some(prompt) => texts.push(prompt),
        None => texts_of(fields.required("messages")?, &mut texts),
    }
    let words = texts.iter().flat_map(|text| text.split_whitespace());
    let tokens: Vec<u64> = words.map(|word| hash_of(word.as_bytes()) % VOCABULARY_SIZE).collect();
    Ok(
        json!({"count": tokens.len(), "max_model_len": engine.options.max_model_len, "tokens": tokens, "token_strs": null}),
    )
}

/// Anthropic's count.
pub(super) fn count_message_tokens(fields: Fields<'_>, engine: &Engine) -> Result<Value, Problem> {
    model_of(fields, engine)?;
    let tokens: u64 = messages::texts(fields)?.into_iter().map(count).sum();
    Ok(json!({"input_tokens": tokens}))
}

/// OpenAI's count.
pub(super) fn count_response_tokens(fields: Fields<'_>, engine: &Engine) -> Result<Value, Problem> {
    model_of(fields, engine)?;
    let tokens: u64 = responses::texts(fields)?.into_iter().map(count).sum();
    Ok(json!({"object": "response.input_tokens", "input_tokens": tokens}))
}

const VOCABULARY_SIZE: u64 = 100_000;
