//! A scenario file as it is written.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::config::raw::{Class, Order, SharedLimits, Team, Tenant, Tier, Work};
use crate::config::{Count, Decimal, Name, Share, TimeSpan};

/// A scenario file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Document {
    pub(super) name: Option<String>,
    pub(super) length: Option<TimeSpan>,
    pub(super) drain: Option<TimeSpan>,
    pub(super) backends: Backends,
    pub(super) traffic: Vec<Traffic>,
    pub(super) faults: Vec<Fault>,
    pub(super) quiet_max: Option<TimeSpan>,
    pub(super) policies: BTreeMap<Name, Policy>,
}

/// The replicas.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Backends {
    pub(super) replicas: Option<Count>,
    pub(super) slots: Option<Count>,
    pub(super) kv_tokens: Option<Count>,
    pub(super) prefill_chunk: Option<Count>,
    pub(super) step: Step,
    pub(super) work: Option<Work>,
}

/// How long a step lasts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Step {
    pub(super) fixed: Option<TimeSpan>,
    pub(super) per_sequence: Option<TimeSpan>,
    pub(super) per_prompt_token: Option<TimeSpan>,
}

/// A tenant's clients, or several alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Traffic {
    pub(super) name: Name,
    pub(super) copies: Option<Count>,
    pub(super) class: Option<Kind>,
    pub(super) rate: Decimal,
    #[serde(default)]
    pub(super) changes: Vec<Change>,
    pub(super) arrivals: Option<Arrivals>,
    pub(super) prompt: Size,
    pub(super) output: Size,
    pub(super) max_tokens: Option<Count>,
    pub(super) refused: Option<Comeback>,
    pub(super) patience: Option<TimeSpan>,
}

/// What requests are for.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Interactive,
    Batch,
    Background,
}

/// From when on the rate is another.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    pub(super) at: TimeSpan,
    pub(super) rate: Decimal,
}

/// How requests are spaced.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Arrivals {
    Poisson,
    Even,
    Blocks(Count),
    Gamma(Decimal),
}

/// How many tokens.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Size {
    pub(super) mean: Option<Decimal>,
    pub(super) spread: Option<Share>,
    pub(super) from: Option<Decimal>,
    pub(super) by: Option<Decimal>,
    pub(super) over: Option<TimeSpan>,
}

/// What a refused client does.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Comeback {
    GivesUp,
    After(After),
    AsTold(AsTold),
}

/// After a fixed span.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct After {
    pub(super) wait: TimeSpan,
    pub(super) tries: Count,
}

/// After the wait that it was told.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AsTold {
    pub(super) jitter: Option<Share>,
    pub(super) tries: Count,
}

/// Something that goes wrong.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fault {
    pub(super) at: TimeSpan,
    pub(super) replica: Option<Count>,
    pub(super) does: Does,
}

/// What it is.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Does {
    Dies,
    Returns,
    Stalls(TimeSpan),
    Slows(Slowness),
    IsBusy(TimeSpan),
    Fails,
    Serves,
    HidesUsage,
    ReportsUsage,
    ClientsVanish(Share),
}

/// A percentage of the usual time of a step.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Slowness {
    pub(super) percent: Count,
}

/// A policy, in the blocks of a gateway's configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Policy {
    pub(super) rules: Option<Rules>,
    pub(super) order: Option<Order>,
    pub(super) service: Option<SharedLimits>,
    pub(super) classes: Vec<Class>,
    pub(super) tiers: BTreeMap<Name, Tier>,
    pub(super) teams: Vec<Team>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) pool: Pool,
}

/// Whose rules fill in what a policy does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Rules {
    /// The product's defaults.
    #[default]
    Product,
    /// The reference policy of the lab's rows.
    Reference,
}

/// The pool's part of a policy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Pool {
    pub(super) slots: Option<Count>,
    pub(super) kv_tokens: Option<Count>,
    pub(super) limits: Option<SharedLimits>,
    pub(super) stickiness: Option<Count>,
}
