//! Pools of backends.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::limits::SharedLimits;
use crate::config::scalars::{Count, Decimal, Name, TimeSpan};
use crate::config::secret::Credential;

/// Backends that serve the same models.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Name. Required.
    pub name: Name,
    /// Models it serves: a list of names, or `"*"` for whatever its backends list under `/v1/models`. Required.
    pub models: Models,
    /// What its backends run: `vllm`, `sglang`, `llamacpp`, `openai` or `anthropic`; decides the credential's header, the health check and the names of metrics. Default: `openai`.
    pub engine: Option<Engine>,
    /// Its backends. Required, one or more. Bound: 1,024.
    pub backends: Vec<BackendEntry>,
    /// Requests that run at the same time on each backend. Default: 64. Bound: 1 to 65,536.
    pub slots: Option<Count>,
    /// Tokens that the KV cache of each backend holds. Default: read from the metrics of `vllm` and `sglang`, else slots alone. Bound: 1 to 4,000,000,000.
    pub kv_tokens: Option<Count>,
    /// Weights of its work. Default: 1 for every token.
    pub work: Option<Work>,
    /// How input is counted. Default: `o200k`, `auto`.
    pub tokenizer: Option<Tokenizer>,
    /// What an image costs. Default: 1,105 tokens, 85 at low detail.
    pub images: Option<Images>,
    /// Limits of the pool, debited at dispatch. Default: no limit.
    pub limits: Option<SharedLimits>,
    /// Other paths that are passed on at a fixed cost. Default: none. Bound: 256.
    #[serde(default)]
    pub passthrough: Vec<Passthrough>,
    /// How backends are checked, or `off`. Default: a request to the engine's own path (`/health`; `/v1/models` for `openai` and `anthropic`).
    pub health: Option<HealthEntry>,
    /// `stamp` tells an engine that orders by `priority` (vLLM: lower first, SGLang: higher first) the class of each request, where there are several; `strip` tells nothing, for engines that refuse the field. What clients send never passes. Default: `stamp`.
    pub priority: Option<PriorityUse>,
    /// Keeps a run on its backend while that costs others at most so many tokens. Default: 0, not at all.
    pub stickiness: Option<Count>,
}

/// What a pool's backends run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// llama.cpp.
    Llamacpp,
    /// Any other server of the OpenAI dialect, hosted ones included.
    Openai,
    /// A hosted API of the Anthropic dialect.
    Anthropic,
}

/// What becomes of `priority`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PriorityUse {
    /// The class of the request.
    #[default]
    Stamp,
    /// Nothing.
    Strip,
}

/// Models of a pool.
#[derive(Clone, Debug)]
pub enum Models {
    /// Whatever the backends list.
    Discovered,
    /// These.
    Listed(Vec<ModelEntry>),
}

impl<'de> Deserialize<'de> for Models {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ModelsVisitor)
    }
}

struct ModelsVisitor;

impl<'de> Visitor<'de> for ModelsVisitor {
    type Value = Models;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of model names, or \"*\" for whatever the backends list")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Models, E> {
        if text == "*" {
            return Ok(Models::Discovered);
        }
        Err(E::custom(
            "models is a list of names, such as [llama-3.1-8b], or \"*\" for whatever the backends list",
        ))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Models, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Models::Listed)
    }
}

impl JsonSchema for Models {
    fn schema_name() -> Cow<'static, str> {
        "Models".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let list = generator.subschema_for::<Vec<ModelEntry>>();
        json_schema!({"description": "A list of models, or `\"*\"`.", "anyOf": [{"const": "*"}, list]})
    }
}

/// A model, by name alone or with its cap.
#[derive(Clone, Debug)]
pub struct ModelEntry(pub Model);

/// A model with its cap.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Name in requests. Required.
    pub name: Name,
    /// Largest output of one choice, in tokens. Default: no cap.
    pub max_output_tokens: Option<Count>,
}

impl<'de> Deserialize<'de> for ModelEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ModelVisitor)
    }
}

struct ModelVisitor;

impl<'de> Visitor<'de> for ModelVisitor {
    type Value = ModelEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a model's name, or a map with name and max_output_tokens")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ModelEntry, E> {
        let name = Name::deserialize(serde::de::value::StrDeserializer::new(text))?;
        Ok(ModelEntry(Model { name, max_output_tokens: None }))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModelEntry, A::Error> {
        Model::deserialize(MapAccessDeserializer::new(map)).map(ModelEntry)
    }
}

impl JsonSchema for ModelEntry {
    fn schema_name() -> Cow<'static, str> {
        "ModelEntry".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (name, map) = (generator.subschema_for::<Name>(), generator.subschema_for::<Model>());
        json_schema!({"description": "A model's name, or a map with its cap.", "anyOf": [name, map]})
    }
}

/// A backend; it has either `url` or `dns`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Backend {
    /// Name in metrics and in the admin API. Default: host and port.
    pub name: Option<Name>,
    /// Its address, `http://` or `https://`; a final `/v1` is dropped, since requests bring their own. Default: none, then `dns` is required.
    pub url: Option<String>,
    /// A name with a port that is looked up again while running, for all its addresses; `https://` before it uses TLS. Default: none, then `url` is required.
    pub dns: Option<String>,
    /// Its credential: `env:NAME` or the text itself. No client's credential is ever passed on. Default: none is sent.
    pub api_key: Option<Credential>,
    /// A PEM file with the authorities that may have signed its certificate, relative to this file, instead of the public ones. Default: the public ones. Bound: 1 MiB.
    pub ca_file: Option<String>,
    /// Requests that run at the same time on it. Default: the pool's.
    pub slots: Option<Count>,
    /// Its own limits, debited at dispatch. Default: no limit.
    pub limits: Option<SharedLimits>,
}

/// A backend, by address alone or with its particulars.
#[derive(Clone, Debug)]
pub struct BackendEntry(pub Backend);

impl<'de> Deserialize<'de> for BackendEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BackendVisitor)
    }
}

struct BackendVisitor;

impl<'de> Visitor<'de> for BackendVisitor {
    type Value = BackendEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address such as http://10.0.0.11:8000, or a map with url or dns")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<BackendEntry, E> {
        Ok(BackendEntry(Backend { url: Some(text.to_owned()), ..Backend::default() }))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<BackendEntry, A::Error> {
        Backend::deserialize(MapAccessDeserializer::new(map)).map(BackendEntry)
    }
}

impl JsonSchema for BackendEntry {
    fn schema_name() -> Cow<'static, str> {
        "BackendEntry".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let map = generator.subschema_for::<Backend>();
        json_schema!({"description": "A backend's address, or a map with its particulars.", "anyOf": [{"type": "string"}, map]})
    }
}

/// Weights of a pool's work.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Work {
    /// Per input token that is not cached. Default: 1. Bound: 1,000.
    pub input: Option<Decimal>,
    /// Per cached input token. Default: 1. Bound: 1,000.
    pub cached_input: Option<Decimal>,
    /// Per output token. Default: 1. Bound: 1,000.
    pub output: Option<Decimal>,
}

/// How input is counted.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tokenizer {
    /// `o200k`, `cl100k`, or the path of a tokenizer.json, tekken or sentencepiece file, relative to this file. Default: `o200k`.
    pub vocabulary: Option<String>,
    /// `estimate` learns a ratio from the engine's counts, `exact` counts every request, `auto` counts where the decision is close. Default: `auto`.
    pub mode: Option<Mode>,
}

/// When input is counted exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Where the decision is close.
    Auto,
    /// Always.
    Exact,
    /// Never.
    Estimate,
}

/// What images and other attachments cost, whatever their bytes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Images {
    /// How a model charges images: `fixed`, or as published for `gpt-4o` (GPT-4.1 too), `gpt-4o-mini`, `gpt-5`, `o1` (o3 too), `gpt-4.1-mini`, or `patches` of 32 × 32 pixels. Default: `fixed`.
    pub rule: Option<ImageRuleName>,
    /// Tokens of an image, with `fixed`. Default: 1,105, six tiles of GPT-4o. Bound: 1,000,000.
    pub tokens: Option<Count>,
    /// Tokens of an image asked at low detail, with `fixed`. Default: 85. Bound: 1,000,000.
    pub low_detail_tokens: Option<Count>,
    /// Tokens of another attachment, such as a sound or a file. Default: 1,500. Bound: 1,000,000.
    pub attachment_tokens: Option<Count>,
}

/// How a model charges images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum ImageRuleName {
    /// The same for every image.
    #[serde(rename = "fixed")]
    Fixed,
    /// By tiles: GPT-4o and GPT-4.1.
    #[serde(rename = "gpt-4o")]
    Gpt4o,
    /// By tiles: GPT-4o mini.
    #[serde(rename = "gpt-4o-mini")]
    Gpt4oMini,
    /// By tiles: GPT-5.
    #[serde(rename = "gpt-5")]
    Gpt5,
    /// By tiles: o1 and o3.
    #[serde(rename = "o1")]
    O1,
    /// By patches: GPT-4.1 mini.
    #[serde(rename = "gpt-4.1-mini")]
    Gpt41Mini,
    /// By patches: others.
    #[serde(rename = "patches")]
    Patches,
}

/// Another path that is passed on.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Passthrough {
    /// The path, which must be met whole, such as `/v1/rerank`. Required.
    pub path: String,
    /// What a request to it costs, in input tokens. Required.
    pub cost: Count,
}

/// How backends are checked.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Health {
    /// Path that is asked; a status below 500 is alive. Default: the engine's own.
    pub path: Option<String>,
    /// Time between two checks. Default: `5s`; `30s` for `openai` and `anthropic`. Bound: 100ms to 1h.
    pub interval: Option<TimeSpan>,
    /// Longest wait for an answer. Default: `2s`. Bound: 10ms to 1m.
    pub timeout: Option<TimeSpan>,
    /// Failures in a row after which a backend is down. Default: 3. Bound: 1 to 100.
    pub unhealthy_after: Option<Count>,
    /// Successes in a row after which it is up again. Default: 1. Bound: 1 to 100.
    pub healthy_after: Option<Count>,
}

/// How backends are checked, or not at all.
#[derive(Clone, Debug)]
pub enum HealthEntry {
    /// No checks.
    Off,
    /// Like this.
    Checked(Health),
}

impl<'de> Deserialize<'de> for HealthEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HealthVisitor)
    }
}

struct HealthVisitor;

impl<'de> Visitor<'de> for HealthVisitor {
    type Value = HealthEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("off, or a map with path, interval and timeout")
    }

    fn visit_bool<E: Error>(self, on: bool) -> Result<HealthEntry, E> {
        Ok(if on { HealthEntry::Checked(Health::default()) } else { HealthEntry::Off })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<HealthEntry, E> {
        if text == "off" {
            return Ok(HealthEntry::Off);
        }
        Err(E::custom("health is off, or a map with path, interval and timeout"))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<HealthEntry, A::Error> {
        Health::deserialize(MapAccessDeserializer::new(map)).map(HealthEntry::Checked)
    }
}

impl JsonSchema for HealthEntry {
    fn schema_name() -> Cow<'static, str> {
        "HealthEntry".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let map = generator.subschema_for::<Health>();
        json_schema!({"description": "`off`, or a map.", "anyOf": [{"const": "off"}, map]})
    }
}
