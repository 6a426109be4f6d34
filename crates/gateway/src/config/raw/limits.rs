//! Blocks of limits.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::scalars::{Count, Decimal, Name, Rate, TimeSpan};

/// What becomes of a request over a concurrency limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnExcess {
    /// It waits in the queue.
    Queue,
    /// It is refused.
    Reject,
}

/// What becomes of an asked output above the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnOutputExcess {
    /// It is lowered to the cap.
    Clamp,
    /// The request is refused.
    Reject,
}

/// Limits of a tenant, team, key or end user. An absent one is no limit, zero is nobody.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Requests, as a rate. Default: no limit.
    pub requests: Option<Rate>,
    /// Input and output tokens together, as a rate. Default: no limit.
    pub tokens: Option<Rate>,
    /// Input tokens, as a rate. Default: no limit.
    pub input_tokens: Option<Rate>,
    /// Output tokens, as a rate. Default: no limit.
    pub output_tokens: Option<Rate>,
    /// Weighted tokens in the pool's `work`, as a rate. Default: no limit.
    pub work: Option<Rate>,
    /// Requests at the same time. Default: no limit.
    pub concurrent_requests: Option<Count>,
    /// Largest input of one request, in tokens. Default: no cap.
    pub max_input_tokens: Option<Count>,
    /// Largest output of one choice, in tokens. Default: no cap.
    pub max_output_tokens: Option<Count>,
    /// Output of a choice that names no bound, in tokens; never above the cap. Default: 1,024.
    pub default_max_output_tokens: Option<Count>,
    /// `clamp` lowers an output above the cap and says so, `reject` refuses the request. Default: `clamp`.
    pub on_output_excess: Option<OnOutputExcess>,
    /// `queue` lets requests over `concurrent_requests` wait, `reject` refuses them. Default: `queue`.
    pub on_concurrency_excess: Option<OnExcess>,
    /// Every limit of this block counts what it would have refused, and refuses nothing. Default: `false`.
    pub shadow: Option<bool>,
    /// Lets a request wait that long for a budget to return, instead of refusing it. Default: `0s`. Bound: 1h.
    pub hold: Option<TimeSpan>,
    /// What a cached input token weighs in the token limits of this block. Default: 1, as much as any other. Bound: 0 to 1.
    pub cached_input_weight: Option<Decimal>,
}

/// Limits that tenants share: of the service, a pool or a backend. An absent one is no limit, zero is nobody.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SharedLimits {
    /// Requests, as a rate. Default: no limit.
    pub requests: Option<Rate>,
    /// Input and output tokens together, as a rate. Default: no limit.
    pub tokens: Option<Rate>,
    /// Input tokens, as a rate. Default: no limit.
    pub input_tokens: Option<Rate>,
    /// Output tokens, as a rate. Default: no limit.
    pub output_tokens: Option<Rate>,
    /// Weighted tokens in the pool's `work`, as a rate. Default: no limit.
    pub work: Option<Rate>,
    /// Requests at the same time. Default: no limit.
    pub concurrent_requests: Option<Count>,
    /// `queue` lets requests over `concurrent_requests` wait, `reject` refuses them. Default: `queue`.
    pub on_concurrency_excess: Option<OnExcess>,
    /// Every limit of this block counts what it would have refused, and refuses nothing. Default: `false`.
    pub shadow: Option<bool>,
    /// Lets a request wait that long for a budget to return, instead of refusing it. Default: `0s`. Bound: 1h.
    pub hold: Option<TimeSpan>,
    /// What a cached input token weighs in the token limits of this block. Default: 1, as much as any other. Bound: 0 to 1.
    pub cached_input_weight: Option<Decimal>,
}

/// Further limits for requests of one model.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelLimits {
    /// Limits besides those for all models. Default: none.
    pub limits: Option<Limits>,
}

/// Limits by model name.
pub type ModelLimitsMap = BTreeMap<Name, ModelLimits>;

impl Limits {
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
            max_input_tokens: self.max_input_tokens.or(base.max_input_tokens),
            max_output_tokens: self.max_output_tokens.or(base.max_output_tokens),
            default_max_output_tokens: self.default_max_output_tokens.or(base.default_max_output_tokens),
            on_output_excess: self.on_output_excess.or(base.on_output_excess),
            on_concurrency_excess: self.on_concurrency_excess.or(base.on_concurrency_excess),
            shadow: self.shadow.or(base.shadow),
            hold: self.hold.or(base.hold),
            cached_input_weight: self.cached_input_weight.or(base.cached_input_weight),
        }
    }
}

impl From<&SharedLimits> for Limits {
    fn from(shared: &SharedLimits) -> Self {
        Self {
            requests: shared.requests,
            tokens: shared.tokens,
            input_tokens: shared.input_tokens,
            output_tokens: shared.output_tokens,
            work: shared.work,
            concurrent_requests: shared.concurrent_requests,
            on_concurrency_excess: shared.on_concurrency_excess,
            shadow: shared.shadow,
            hold: shared.hold,
            cached_input_weight: shared.cached_input_weight,
            ..Self::default()
        }
    }
}
