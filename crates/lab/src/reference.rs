//! The reference scenario: four chat apps, a batch tenant and a runaway agent before four replicas, and its reference policy.

use std::sync::Arc;

use fairlane_core::bucket::Rate;
use fairlane_core::occupancy::Headroom;
use fairlane_core::policy::{
    self, Backend, BackendId, ClassId, Dimension, Fit, Limits, Model, OnBudgetEnd, OnClientGone, Order,
    Pacing, Placement, Placing, Policy, Pool, PoolId, RateLimit, ScopeLimits, TenantId, WEIGHT_ONE_MILLIS,
    Work,
};
use fairlane_core::units::{Micros, Moment, Tokens};

use crate::shape::Shape;
use crate::traffic::{Class, Pattern, Size, Tenant, Traffic};
use crate::world::{Comeback, Edge, Offer, Sender, Setup, Store, Watch};

/// Replicas that serve the reference traffic.
pub const REPLICAS: usize = 4;
/// The length of a run; arrivals stop here, the work in flight drains after it.
pub const LENGTH: Micros = Micros(120_000_000);
/// The index of the batch tenant.
pub const BATCH: usize = 4;
/// The index of the agent.
pub const AGENT: usize = 5;
/// Chat requests a second and tenant, outside a burst.
pub const CHAT_RATE: f64 = 1.5;
/// How much faster chat comes in a burst.
pub const BURST_FACTOR: f64 = 2.5;
/// When the burst of a run starts.
pub const BURST_START: Moment = Moment(45_000_000);
/// When the burst of a run ends.
pub const BURST_END: Moment = Moment(75_000_000);
/// Agent requests a second.
pub const AGENT_RATE: f64 = 2.0;

const CHAT_NAMES: [&str; 4] = ["chat-a", "chat-b", "chat-c", "chat-d"];
const MAX_TOKENS: Tokens = Tokens(1_024);

/// How much the batch tenant asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batch {
    /// 15 requests every 4 seconds.
    #[default]
    Normal,
    /// 50 requests every 4 seconds.
    Heavy,
}

/// The switches of the scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// How much the batch tenant asks.
    pub batch: Batch,
    /// Whether the runaway agent runs.
    pub agent: bool,
    /// Whether chat bursts in the middle of the run.
    pub burst: bool,
}

/// The tenants in the order of their indices: chat-a to chat-d, batch, agent (absent when switched off).
#[must_use]
pub fn tenants(switches: Switches) -> Vec<Tenant> {
    let mut tenants: Vec<Tenant> = CHAT_NAMES.iter().map(|name| chat(name, switches.burst)).collect();
    tenants.push(batch(switches.batch));
    if switches.agent {
        tenants.push(agent());
    }
    tenants
}

/// The arrivals of one run.
#[must_use]
pub fn traffic(switches: Switches, seed: u64) -> Traffic {
    Traffic::seeded(tenants(switches), seed, Moment(LENGTH.0))
}

/// The policy of the reference rows: key-value cache reserved up to the output bound, the replica with the fewest requests, first
/// in first out, and waits and queues without a bound. `limits` are those of the tenant with that index.
#[must_use]
pub fn policy(limits: impl Fn(usize) -> Limits) -> Policy {
    let tenants = tenants(Switches { agent: true, ..Switches::default() });
    let backend = |index: usize| Backend {
        name: format!("replica-{}", index + 1),
        slots: Shape::REFERENCE.slots as u32,
        kv_tokens: Some(Shape::REFERENCE.kv),
        pacing: Pacing::Fixed,
        is_awaited: false,
        limits: Limits::default(),
    };
    Policy {
        order: Order::Fifo,
        alpha_permille: 0,
        service: Limits::default(),
        pools: vec![Pool {
            name: "main".into(),
            limits: Limits::default(),
            backends: (0..REPLICAS).map(backend).collect(),
            work: WORK,
            stickiness: Tokens::ZERO,
            placing: Placing {
                fit: Fit::Reserved,
                placement: Placement::FewestRunning,
                ..Placing::default()
            },
        }],
        models: vec![Model { name: "sim".into(), pool: PoolId(0), max_output: None }],
        classes: [Class::Interactive, Class::Batch, Class::Background].map(class).to_vec(),
        teams: Vec::new(),
        tenants: (0..).zip(&tenants).map(|(index, one)| tenant(one, limits(index))).collect(),
        end_users_max: 1_000,
    }
}

/// Tokens a minute with a bucket of `burst`. `None` if a bucket would hold more than a policy allows.
#[must_use]
pub fn tokens_per_minute(tokens: u64, burst: Micros) -> Option<Limits> {
    rate(Dimension::Tokens, tokens, burst)
}

/// Requests a minute with a bucket of `burst`. `None` if a bucket would hold more than a policy allows.
#[must_use]
pub fn requests_per_minute(requests: u64, burst: Micros) -> Option<Limits> {
    rate(Dimension::Requests, requests, burst)
}

/// One run of the scenario under a policy.
#[must_use]
pub fn setup(switches: Switches, seed: u64, policy: Arc<Policy>) -> Setup {
    let senders = (0..).zip(tenants(Switches { agent: true, ..switches })).map(|(index, tenant)| Sender {
        name: tenant.name.into_owned(),
        class: tenant.class,
        tenant: TenantId(index),
        comeback: Comeback::GivesUp,
        patience: None,
    });
    let replica = |index| (BackendId { pool: PoolId(0), index }, Shape::REFERENCE);
    Setup {
        senders: senders.collect(),
        offers: traffic(switches, seed).map(Offer::of).collect(),
        length: LENGTH,
        ends: Some(Micros(2 * LENGTH.0)),
        backends: (0..REPLICAS as u32).map(replica).collect(),
        policy,
        store: Store::AtOnce,
        faults: Vec::new(),
        edge: Edge::default(),
        watch: Watch::Nothing,
        seed,
    }
}

fn rate(dimension: Dimension, units_per_minute: u64, burst: Micros) -> Option<Limits> {
    let rate = RateLimit::new(dimension, Rate::new(units_per_minute, 60)?, burst)?;
    Some(Limits { rates: vec![rate], ..Limits::default() })
}

fn class(class: Class) -> policy::Class {
    policy::Class {
        name: class.name().into(),
        wait_max: Micros::from_secs(24 * 3_600),
        queue_requests_max: 1_000_000,
        queue_tokens_max: Tokens(4_000_000_000),
        min_share_ppm: 0,
        headroom: Headroom::NONE,
        ageing: None,
        is_evictable: false,
        max_output: None,
    }
}

fn tenant(tenant: &Tenant, limits: Limits) -> policy::Tenant {
    policy::Tenant {
        name: tenant.name.to_string(),
        team: None,
        class: ClassId(tenant.class.rank() as u32),
        weight_millis: WEIGHT_ONE_MILLIS,
        limits: ScopeLimits { all: limits, ..ScopeLimits::default() },
        charging: policy::Charging::Reserve,
        on_client_gone: OnClientGone::Cancel,
        on_budget_end: OnBudgetEnd::Finish,
        allowed_models: None,
        keys: Vec::new(),
        runs: None,
        end_users: None,
    }
}

/// What a token costs a full batch: 54 us for input, 246.7 us for output.
pub const WORK: Work = Work { input_millis: 1_000, cached_input_millis: 1_000, output_millis: 4_570 };

fn chat(name: &'static str, burst: bool) -> Tenant {
    let changes = vec![(BURST_START, CHAT_RATE * BURST_FACTOR), (BURST_END, CHAT_RATE)];
    Tenant {
        name: name.into(),
        class: Class::Interactive,
        rate: CHAT_RATE,
        rate_changes: if burst { changes } else { Vec::new() },
        pattern: Pattern::Poisson,
        prompt: Size::Spread { mean: 900.0, low: 0.8, high: 1.2 },
        output: Size::Spread { mean: 250.0, low: 0.6, high: 1.4 },
        max_tokens: MAX_TOKENS,
    }
}

fn batch(batch: Batch) -> Tenant {
    let (rate, block) = match batch {
        Batch::Normal => (3.75, 15),
        Batch::Heavy => (12.5, 50),
    };
    Tenant {
        name: "batch".into(),
        class: Class::Batch,
        rate,
        rate_changes: Vec::new(),
        pattern: Pattern::Even { block },
        prompt: Size::Spread { mean: 4_000.0, low: 0.9, high: 1.1 },
        output: Size::Spread { mean: 600.0, low: 0.8, high: 1.2 },
        max_tokens: MAX_TOKENS,
    }
}

/// Its context grows by three quarters of its last size in a run, as an agent's does that never trims.
fn agent() -> Tenant {
    Tenant {
        name: "agent".into(),
        class: Class::Background,
        rate: AGENT_RATE,
        rate_changes: Vec::new(),
        pattern: Pattern::Even { block: 1 },
        prompt: Size::Growing { from: 6_000.0, by: 18_000.0, over: LENGTH },
        output: Size::Spread { mean: 1_000.0, low: 0.98, high: 1.02 },
        max_tokens: MAX_TOKENS,
    }
}
