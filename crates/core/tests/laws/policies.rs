//! Short ways to write policies.

use fairlane_core::bucket::{Rate, Shape};
use fairlane_core::occupancy::Headroom;
use fairlane_core::policy::{
    ALPHA_PERMILLE, Backend, Class, Concurrency, Dimension, Key, Limits, Model, OnExcess, Order, Pacing,
    Placing, Policy, Pool, PoolId, RateLimit, Runs, ScopeLimits, Team, TeamId, Tenant, WEIGHT_ONE_MILLIS,
    Work,
};
use fairlane_core::units::{Amount, Micros, Tokens};

/// `per_sec` units a second with a bucket of `burst_secs`.
pub(crate) fn per_sec(dimension: Dimension, per_sec: u64, burst_secs: u64) -> RateLimit {
    RateLimit::new(dimension, Rate::new(per_sec, 1).unwrap(), Micros::from_secs(burst_secs)).unwrap()
}

/// `units` in each `period_secs`, with a bucket of one period.
pub(crate) fn per_period(dimension: Dimension, units: u64, period_secs: u64) -> RateLimit {
    let rate = Rate::new(units, period_secs).unwrap();
    RateLimit::new(dimension, rate, Micros::from_secs(period_secs)).unwrap()
}

/// The slowest bucket of `capacity` units: one unit a day.
pub(crate) fn slow(dimension: Dimension, capacity: u64) -> RateLimit {
    let shape = Shape {
        rate: Rate::new(1, 86_400).unwrap(),
        capacity: Amount::whole(capacity),
        debt_max: Amount::whole(capacity * 10),
    };
    RateLimit { dimension, shape, shadow: false }
}

pub(crate) fn rates(rates: &[RateLimit]) -> Limits {
    Limits { rates: rates.to_vec(), ..Limits::default() }
}

/// Tokens at `rate` a second, in a bucket of `burst_secs`.
pub(crate) fn tokens(rate: u64, burst_secs: u64) -> Limits {
    rates(&[per_sec(Dimension::Tokens, rate, burst_secs)])
}

/// At most `limit` at the same time, the others wait.
pub(crate) fn at_once(limit: u32) -> Limits {
    with_concurrency(Limits::default(), limit, OnExcess::Queue)
}

pub(crate) fn with_concurrency(limits: Limits, limit: u32, on_excess: OnExcess) -> Limits {
    Limits { concurrency: Some(Concurrency { limit, on_excess, shadow: false }), ..limits }
}

pub(crate) fn scope(limits: Limits) -> ScopeLimits {
    ScopeLimits { all: limits, models: Default::default() }
}

pub(crate) fn tenant(name: &str, limits: Limits) -> Tenant {
    Tenant {
        name: name.into(),
        team: None,
        class: fairlane_core::policy::ClassId(0),
        weight_millis: WEIGHT_ONE_MILLIS,
        limits: scope(limits),
        charging: Default::default(),
        on_client_gone: Default::default(),
        on_budget_end: Default::default(),
        allowed_models: None,
        keys: vec![key("web", Limits::default())],
        runs: None,
        end_users: None,
    }
}

pub(crate) fn in_team(tenant: Tenant) -> Tenant {
    Tenant { team: Some(TeamId(0)), ..tenant }
}

pub(crate) fn key(name: &str, limits: Limits) -> Key {
    Key { name: name.into(), limits: scope(limits) }
}

pub(crate) fn team(name: &str, limits: Limits) -> Team {
    Team { name: name.into(), weight_millis: WEIGHT_ONE_MILLIS, limits: scope(limits) }
}

pub(crate) fn run_budget(tokens: u64) -> Runs {
    Runs { token_budget: Some(Tokens(tokens)), ..Runs::default() }
}

pub(crate) fn backend(name: &str, slots: u32) -> Backend {
    Backend {
        name: name.into(),
        slots,
        kv_tokens: None,
        pacing: Pacing::Fixed,
        is_awaited: false,
        limits: Limits::default(),
    }
}

pub(crate) fn pool(name: &str, backends: Vec<Backend>) -> Pool {
    Pool {
        name: name.into(),
        limits: Limits::default(),
        backends,
        work: Work::default(),
        placing: Placing::default(),
        stickiness: Tokens(0),
    }
}

pub(crate) fn class(name: &str) -> Class {
    Class {
        name: name.into(),
        wait_max: Micros::from_secs(10),
        queue_requests_max: 2_000,
        queue_tokens_max: Tokens(8_000_000),
        min_share_ppm: 0,
        headroom: Headroom::NONE,
        ageing: None,
        is_evictable: false,
        max_output: None,
    }
}

pub(crate) fn model(name: &str, pool: u32) -> Model {
    Model { name: name.into(), pool: PoolId(pool), max_output: None }
}

/// These tenants before one roomy backend with the models `small` and `large`.
pub(crate) fn policy(tenants: Vec<Tenant>) -> Policy {
    Policy {
        service: Limits::default(),
        pools: vec![pool("main", vec![backend("one", 1_000)])],
        models: vec![model("small", 0), model("large", 0)],
        classes: vec![class("interactive"), class("batch")],
        teams: Vec::new(),
        tenants,
        order: Order::LanesFair,
        alpha_permille: ALPHA_PERMILLE,
        end_users_max: 10_000,
    }
}

/// Fixture F of the public cases: tenant T with 100 tokens a second, a bucket of 2,000, four at the same time.
pub(crate) fn fixture_f() -> Policy {
    policy(vec![tenant("T", with_concurrency(tokens(100, 20), 4, OnExcess::Queue))])
}
