//! Tenants, their parents, their keys and the shapes they share.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::limits::{Limits, ModelLimitsMap, OnExcess};
use crate::config::scalars::{Count, Decimal, Name, Rate, TimeSpan};
use crate::config::secret::Credential;

/// How a tenant is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Charging {
    /// Input and output bound up front, the rest refunded.
    Reserve,
    /// Input and the 90th percentile of recent outputs up front, the difference settled.
    Quantile,
    /// Input up front, each output token as it streams.
    Postpay,
}

/// What becomes of an answer whose client has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnClientGone {
    /// Its backend is told to stop; what was made is charged.
    Cancel,
    /// It is read to its end, and its real usage is charged.
    Drain,
}

/// What becomes of a stream that uses up a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnBudgetEnd {
    /// It finishes; the next request is refused.
    Finish,
    /// It is cut with an error event.
    Stop,
}

/// Where a request without a run id belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WithoutId {
    /// To one run per key.
    Shared,
    /// To one run per end user.
    EndUser,
    /// Nowhere: it is refused.
    Refuse,
}

/// A parent of tenants.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Team {
    /// Name. Required.
    pub name: Name,
    /// Share beside other teams. Default: 1.
    pub weight: Option<Decimal>,
    /// Limits that its tenants share. Default: no limit.
    pub limits: Option<Limits>,
    /// Further limits by model. Default: none.
    #[serde(default)]
    pub models: ModelLimitsMap,
}

/// A shared shape of limits.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tier {
    /// Class of its tenants. Default: the first class.
    pub class: Option<Name>,
    /// Limits of each of its tenants. Default: no limit.
    pub limits: Option<Limits>,
    /// How its tenants are charged. Default: `reserve`.
    pub charging: Option<Charging>,
    /// What becomes of answers of its tenants whose client has left. Default: `cancel`.
    pub on_client_gone: Option<OnClientGone>,
    /// What becomes of streams of its tenants that use up a budget. Default: `finish`.
    pub on_budget_end: Option<OnBudgetEnd>,
    /// Rules for agent runs. Default: runs are not followed.
    pub runs: Option<Runs>,
    /// Limits of each end user. Default: end users are not limited.
    pub end_users: Option<EndUsers>,
}

/// Who is charged.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// Name. Required.
    pub name: Name,
    /// Parent, by name. Default: none.
    pub team: Option<Name>,
    /// Shape of limits, by name; the tenant's own values win field by field. Default: none.
    pub tier: Option<Name>,
    /// Usual class, and the best it may ask for. Default: the tier's, else the first class.
    pub class: Option<Name>,
    /// Share beside other tenants of its class and team. Default: 1.
    pub weight: Option<Decimal>,
    /// Its limits. Default: the tier's, else no limit.
    pub limits: Option<Limits>,
    /// Further limits by model; this does not restrict which models it may use. Default: none.
    #[serde(default)]
    pub models: ModelLimitsMap,
    /// Models it may use. Default: all.
    pub allowed_models: Option<Vec<Name>>,
    /// `reserve` takes input and output bound and refunds the rest, `quantile` takes input and a usual output, `postpay` takes the output as it streams. Default: the tier's, else `reserve`.
    pub charging: Option<Charging>,
    /// `cancel` tells the backend to stop when a client leaves, `drain` reads its answer to the end (within `timeouts.client_gone` and `bounds.max_drained_answer`) and charges the real usage. Default: the tier's, else `cancel`.
    pub on_client_gone: Option<OnClientGone>,
    /// `finish` lets a stream that uses up a budget finish and refuses the next request, `stop` cuts it with an error event. Default: the tier's, else `finish`.
    pub on_budget_end: Option<OnBudgetEnd>,
    /// Its keys. Default: those in `keys_file`, else nobody can use it.
    #[serde(default)]
    pub keys: Vec<KeyEntry>,
    /// Rules for agent runs. Default: the tier's, else runs are not followed.
    pub runs: Option<Runs>,
    /// Limits of each end user. Default: the tier's, else end users are not limited.
    pub end_users: Option<EndUsers>,
}

/// A key with its own name, expiry or limits. It has either `key` or `digest`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Key {
    /// Name in limits and logs. Default: `key-N`, counted from 1.
    pub name: Option<Name>,
    /// The key: `env:NAME` or the text itself; kept as its digest. Default: none, then `digest` is required.
    pub key: Option<Credential>,
    /// The key's digest: `sha256:` and 64 hexadecimal digits. Default: none, then `key` is required.
    pub digest: Option<Credential>,
    /// From this moment on the key is refused: a date (`2027-06-30`, its first moment in UTC) or `2027-06-30T12:00:00Z`. Default: never.
    pub expires: Option<String>,
    /// Limits besides the tenant's. Default: no limit.
    pub limits: Option<Limits>,
    /// Further limits by model. Default: none.
    pub models: ModelLimitsMap,
}

/// A key, alone or with its particulars.
#[derive(Clone, Debug)]
pub struct KeyEntry(pub Key);

impl<'de> Deserialize<'de> for KeyEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyVisitor)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = KeyEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key in quotes, or a map with name, key or digest, expires and limits")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<KeyEntry, E> {
        let key = Credential::from_text(text).map_err(E::custom)?;
        Ok(KeyEntry(Key { key: Some(key), ..Key::default() }))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<KeyEntry, A::Error> {
        Key::deserialize(MapAccessDeserializer::new(map)).map(KeyEntry)
    }
}

impl JsonSchema for KeyEntry {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "KeyEntry".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (text, map) = (generator.subschema_for::<Credential>(), generator.subschema_for::<Key>());
        schemars::json_schema!({"description": "A key: its text, or a map with its particulars.", "anyOf": [text, map]})
    }
}

/// Rules for agent runs.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Runs {
    /// Tokens that a run may use in all. Default: no budget.
    pub token_budget: Option<Count>,
    /// Steps that a run may make. Default: no cap.
    pub max_steps: Option<Count>,
    /// Requests of a run, as a rate. Default: no limit.
    pub requests: Option<Rate>,
    /// Input and output tokens of a run, as a rate. Default: no limit.
    pub tokens: Option<Rate>,
    /// Input tokens of a run, as a rate. Default: no limit.
    pub input_tokens: Option<Rate>,
    /// Output tokens of a run, as a rate. Default: no limit.
    pub output_tokens: Option<Rate>,
    /// Weighted tokens of a run, as a rate. Default: no limit.
    pub work: Option<Rate>,
    /// Requests of a run at the same time. Default: no limit.
    pub concurrent_requests: Option<Count>,
    /// `queue` lets requests over `concurrent_requests` wait, `reject` refuses them. Default: `queue`.
    pub on_concurrency_excess: Option<OnExcess>,
    /// The rates and the concurrency of this block count what they would have refused, and refuse nothing. Default: `false`.
    pub shadow: Option<bool>,
    /// What a cached input token weighs in the token limits of this block. Default: 1, as much as any other. Bound: 0 to 1.
    pub cached_input_weight: Option<Decimal>,
    /// Further limits of a run by model. Default: none.
    pub models: ModelLimitsMap,
    /// A run ends when it makes no step for so long. Default: `30m`. Bound: 1s to 366d.
    pub idle_expiry: Option<TimeSpan>,
    /// Live runs of a tenant. Default: 1,000. Bound: 1 to 1,000,000.
    pub max_live: Option<Count>,
    /// Runs that a tenant may begin in a minute. Default: 60.
    pub new_per_minute: Option<Count>,
    /// Requests that name no run: `shared` gives them one run per key, `end_user` one per end user, `refuse` refuses them. Default: `shared`.
    pub without_id: Option<WithoutId>,
}

/// Limits of each end user of a tenant. An absent one is no limit, zero is nobody.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EndUsers {
    /// Requests of an end user, as a rate. Default: no limit.
    pub requests: Option<Rate>,
    /// Input and output tokens of an end user, as a rate. Default: no limit.
    pub tokens: Option<Rate>,
    /// Input tokens of an end user, as a rate. Default: no limit.
    pub input_tokens: Option<Rate>,
    /// Output tokens of an end user, as a rate. Default: no limit.
    pub output_tokens: Option<Rate>,
    /// Weighted tokens of an end user, as a rate. Default: no limit.
    pub work: Option<Rate>,
    /// Requests of an end user at the same time. Default: no limit.
    pub concurrent_requests: Option<Count>,
    /// `queue` lets requests over `concurrent_requests` wait, `reject` refuses them. Default: `queue`.
    pub on_concurrency_excess: Option<OnExcess>,
    /// Every limit of this block counts what it would have refused, and refuses nothing. Default: `false`.
    pub shadow: Option<bool>,
    /// What a cached input token weighs in the token limits of this block. Default: 1, as much as any other. Bound: 0 to 1.
    pub cached_input_weight: Option<Decimal>,
    /// Further limits of an end user by model. Default: none.
    pub models: ModelLimitsMap,
}

impl Runs {
    /// This block over `base`: its own values win field by field.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        Self {
            token_budget: self.token_budget.or(base.token_budget),
            max_steps: self.max_steps.or(base.max_steps),
            requests: self.requests.or(base.requests),
            tokens: self.tokens.or(base.tokens),
            input_tokens: self.input_tokens.or(base.input_tokens),
            output_tokens: self.output_tokens.or(base.output_tokens),
            work: self.work.or(base.work),
            concurrent_requests: self.concurrent_requests.or(base.concurrent_requests),
            on_concurrency_excess: self.on_concurrency_excess.or(base.on_concurrency_excess),
            shadow: self.shadow.or(base.shadow),
            cached_input_weight: self.cached_input_weight.or(base.cached_input_weight),
            models: models_over(&self.models, &base.models),
            idle_expiry: self.idle_expiry.or(base.idle_expiry),
            max_live: self.max_live.or(base.max_live),
            new_per_minute: self.new_per_minute.or(base.new_per_minute),
            without_id: self.without_id.or(base.without_id),
        }
    }

    /// The rates and the concurrency of each run.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            requests: self.requests,
            tokens: self.tokens,
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            work: self.work,
            concurrent_requests: self.concurrent_requests,
            on_concurrency_excess: self.on_concurrency_excess,
            shadow: self.shadow,
            cached_input_weight: self.cached_input_weight,
            ..Limits::default()
        }
    }
}

impl EndUsers {
    /// This block over `base`: its own values win field by field.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        Self {
            requests: self.requests.or(base.requests),
            tokens: self.tokens.or(base.tokens),
            input_tokens: self.input_tokens.or(base.input_tokens),
            output_tokens: self.output_tokens.or(base.output_tokens),
            work: self.work.or(base.work),
            concurrent_requests: self.concurrent_requests.or(base.concurrent_requests),
            on_concurrency_excess: self.on_concurrency_excess.or(base.on_concurrency_excess),
            shadow: self.shadow.or(base.shadow),
            cached_input_weight: self.cached_input_weight.or(base.cached_input_weight),
            models: models_over(&self.models, &base.models),
        }
    }

    /// The limits of each end user.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            requests: self.requests,
            tokens: self.tokens,
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            work: self.work,
            concurrent_requests: self.concurrent_requests,
            on_concurrency_excess: self.on_concurrency_excess,
            shadow: self.shadow,
            cached_input_weight: self.cached_input_weight,
            ..Limits::default()
        }
    }
}

fn models_over(own: &ModelLimitsMap, base: &ModelLimitsMap) -> ModelLimitsMap {
    let mut merged = base.clone();
    merged.extend(own.iter().map(|(name, limits)| (name.clone(), limits.clone())));
    merged
}
