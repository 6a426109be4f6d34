//! The configuration file as it is written: every option of every block, nothing resolved yet.
//!
//! The comments of the fields are the descriptions in the JSON schema and in `docs/configuration.md`: each says what the option
//! is, its unit, its default and its bound.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

mod edge;
mod limits;
mod pool;
mod tenant;

pub use edge::{Bounds, Timeouts, Usage};
pub use limits::{Limits, ModelLimits, ModelLimitsMap, OnExcess, OnOutputExcess, SharedLimits};
pub use pool::{
    Backend, BackendEntry, Engine, Health, HealthEntry, ImageRuleName, Images, Mode, ModelEntry, Models,
    Passthrough, Pool, PriorityUse, Tokenizer, Work,
};
pub use tenant::{
    Charging, EndUsers, Key, KeyEntry, OnBudgetEnd, OnClientGone, Runs, Team, Tenant, Tier, WithoutId,
};

use super::scalars::{Count, Name, Share, TimeSpan, Toggle};
use super::secret::Credential;

/// A configuration file. An empty one is valid: it listens and serves no model.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Fairlane configuration")]
pub struct Document {
    /// Address for clients: `IP:PORT` or `localhost:PORT`. Default: `127.0.0.1:8080`.
    pub listen: Option<String>,
    /// Address for metrics, dashboard, lab and admin API, or `off`. Off loopback it needs `admin_token`. Default: `127.0.0.1:9090`.
    pub admin: Option<String>,
    /// Bearer token of the admin address: `env:NAME`, `sha256:DIGEST` or the text itself. Default: none is asked.
    pub admin_token: Option<Credential>,
    /// Lets the admin API run scenarios of the lab. Default: `false`.
    pub lab: Option<bool>,
    /// File where budgets, debts, levels and the usage log are kept, relative to this file; `off` keeps nothing. A change is taken on at the next start. Default: `off`.
    pub data: Option<String>,
    /// How much of the usage log the file of `data` keeps. Default: each its own.
    pub usage: Option<Usage>,
    /// Where limits are counted: `memory`, or a `redis://`, `rediss://`, `redis+sentinel://` or `redis+cluster://` address that gateways share. Default: `memory`.
    pub store: Option<String>,
    /// What happens while a shared store is lost: `local_share` keeps each gateway on its last known share, `open` lets through, `closed` refuses. Default: `local_share`.
    pub on_store_loss: Option<OnStoreLoss>,
    /// Order of waiting requests: `fifo`, `lanes`, `fair` or `lanes+fair`. Default: `lanes+fair`.
    pub order: Option<Order>,
    /// Answers a stream that waits with 200 and sends a comment that often, in the queue, before the first event and while the backend is silent; what is refused after that is an error event. Default: `off`. Bound: 100ms to 1h.
    pub queue_heartbeat: Option<Toggle>,
    /// Tenant of requests that present no key; a wrong key is refused all the same. Default: none, a key is asked; without any tenant every request belongs to an open one.
    pub open_tenant: Option<Name>,
    /// Limits over all traffic. Default: no limit.
    pub service: Option<SharedLimits>,
    /// Groups of backends that serve the same models. Default: none.
    pub pools: Vec<Pool>,
    /// Classes of service, the first is served first. Default: `interactive` (wait 10s), `batch` (10m) and `background` (1h).
    pub classes: Vec<Class>,
    /// Shared shapes of limits, by name; a tenant's own values win field by field. Default: none.
    pub tiers: BTreeMap<Name, Tier>,
    /// Parents of tenants. Default: none.
    pub teams: Vec<Team>,
    /// Who may ask, in the order that metrics keep. Default: none, then every request belongs to one open tenant.
    pub tenants: Vec<Tenant>,
    /// Further files with pools, classes, tiers, teams and tenants, relative to this file, added after its own. Default: none. Bound: 64 files, 32 MiB in all.
    pub include: Vec<String>,
    /// A file of keys, relative to this file: a map of tenant names to lists of keys. Default: none.
    pub keys_file: Option<String>,
    /// Bounds on bytes and counts. Default: each its own.
    pub bounds: Option<Bounds>,
    /// Bounds on time. Default: each its own.
    pub timeouts: Option<Timeouts>,
}

/// A file named by `include`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Part {
    /// Groups of backends. Default: none.
    pub pools: Vec<Pool>,
    /// Classes of service. Default: none.
    pub classes: Vec<Class>,
    /// Shared shapes of limits. Default: none.
    pub tiers: BTreeMap<Name, Tier>,
    /// Parents of tenants. Default: none.
    pub teams: Vec<Team>,
    /// Who may ask. Default: none.
    pub tenants: Vec<Tenant>,
    /// Further files, relative to this one. Default: none. Bound: 64 files, 32 MiB in all.
    pub include: Vec<String>,
}

/// The file named by `keys_file`: tenant names and their keys.
pub type KeysFile = BTreeMap<Name, Vec<KeyEntry>>;

/// A class of service.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Name, asked for by `x-fairlane-class`. Required.
    pub name: Name,
    /// Longest wait in the queue; a longer one is refused, at once when it can be foreseen. Default: `1m`. Bound: 24h.
    pub max_wait: Option<TimeSpan>,
    /// Bounds of the queue. Default: 2,000 requests and 8,000,000 tokens.
    pub queue: Option<Queue>,
    /// Largest output of one choice, in tokens. Default: no cap.
    pub max_output_tokens: Option<Count>,
    /// Share of the dispatched work that the class gets even under a lasting load from above. Default: none. Bound: 100 % over all classes.
    pub min_share: Option<Share>,
    /// Share of a backend that stays free for the classes above. Default: none. Bound: below 100 %.
    pub headroom: Option<Share>,
    /// Orders the class as if its requests had come that much later, instead of strictly after the classes above. Default: `off`.
    pub ageing: Option<Toggle>,
    /// Lets a request of the class that has delivered nothing yet be taken off its backend, once and uncharged, where one of a class above would else not start in time. Default: `false`.
    pub evictable: Option<bool>,
}

/// Bounds of a class's queue, per pool.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Queue {
    /// Most requests that wait. Default: 2,000. Bound: 1,000,000.
    pub requests: Option<Count>,
    /// Most reserved tokens of requests that wait. Default: 8,000,000.
    pub tokens: Option<Count>,
}

/// What happens while a shared store is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnStoreLoss {
    /// Each gateway keeps to its last known share.
    LocalShare,
    /// Everything passes.
    Open,
    /// Everything is refused.
    Closed,
}

/// Order of waiting requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum Order {
    /// First in, first out.
    #[serde(rename = "fifo")]
    Fifo,
    /// By class.
    #[serde(rename = "lanes")]
    Lanes,
    /// By work received.
    #[serde(rename = "fair")]
    Fair,
    /// By class, then by work received.
    #[serde(rename = "lanes+fair")]
    LanesFair,
}
