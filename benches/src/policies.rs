//! Policies for benches in process. What a policy gains in fields is filled in here, and nowhere else.

use fairlane_core::bucket::Rate;
use fairlane_core::gate::{Arrival, RequestId};
use fairlane_core::occupancy::Headroom;
use fairlane_core::policy::{
    ALPHA_PERMILLE, Backend, Charging, Class, ClassId, Concurrency, Dimension, Key, KeyId, Limits, Model,
    ModelId, OnBudgetEnd, OnClientGone, OnExcess, Order, Pacing, Placing, Policy, Pool, PoolId, RateLimit,
    ScopeLimits, Tenant, TenantId, WEIGHT_ONE_MILLIS, Work,
};
use fairlane_core::units::{Micros, Tokens};

/// Tenants of these limits before one backend of `slots`, with KV memory of `kv_tokens` where it is told.
///
/// # Panics
/// Never: its rates are valid.
#[must_use]
pub fn policy(tenants: usize, limits: &Limits, (slots, kv_tokens): (u32, Option<u64>)) -> Policy {
    Policy {
        service: Limits::default(),
        pools: vec![Pool {
            name: "main".to_owned(),
            limits: Limits::default(),
            backends: vec![Backend {
                name: "one".to_owned(),
                slots,
                kv_tokens: kv_tokens.map(Tokens),
                pacing: Pacing::Fixed,
                is_awaited: false,
                limits: Limits::default(),
            }],
            work: Work::default(),
            stickiness: Tokens(0),
            placing: Placing::default(),
        }],
        models: vec![Model { name: "bench".to_owned(), pool: PoolId(0), max_output: None }],
        classes: vec![class("interactive"), class("batch")],
        teams: Vec::new(),
        tenants: (0..tenants).map(|place| tenant(place, limits)).collect(),
        order: Order::LanesFair,
        alpha_permille: ALPHA_PERMILLE,
        end_users_max: 100_000,
    }
}

/// Rates in these dimensions that no bench reaches.
///
/// # Panics
/// Never: the rate is valid.
#[must_use]
pub fn wide(dimensions: &[Dimension]) -> Limits {
    let rate = Rate::new(600_000_000, 1).expect("a valid rate");
    let limit = |dimension: &Dimension| {
        RateLimit::new(*dimension, rate, Micros::from_secs(5)).expect("a bucket that a policy may have")
    };
    Limits { rates: dimensions.iter().map(limit).collect(), ..Limits::default() }
}

/// The same, and a bound on requests at the same time.
#[must_use]
pub fn with_slots(limits: Limits, on_excess: OnExcess) -> Limits {
    Limits { concurrency: Some(Concurrency { limit: 100_000, on_excess, shadow: false }), ..limits }
}

/// A request of a tenant.
#[must_use]
pub fn arrival(tenant: usize, run: Option<u128>) -> Arrival {
    Arrival {
        request: RequestId(0),
        tenant: TenantId(tenant as u32),
        key: Some(KeyId(0)),
        class: ClassId(0),
        model: ModelId(0),
        run,
        end_user: None,
        input: Tokens(220),
        output_bound: Tokens(64),
        choices: 1,
        wait_max: None,
    }
}

fn tenant(place: usize, limits: &Limits) -> Tenant {
    Tenant {
        name: format!("tenant-{place:06}"),
        team: None,
        class: ClassId(0),
        weight_millis: WEIGHT_ONE_MILLIS,
        limits: ScopeLimits { all: limits.clone(), ..ScopeLimits::default() },
        charging: Charging::Reserve,
        on_client_gone: OnClientGone::default(),
        on_budget_end: OnBudgetEnd::default(),
        allowed_models: None,
        keys: vec![Key { name: "web".to_owned(), ..Key::default() }],
        runs: None,
        end_users: None,
    }
}

fn class(name: &str) -> Class {
    Class {
        name: name.to_owned(),
        wait_max: Micros::from_secs(86_400),
        queue_requests_max: 1_000_000,
        queue_tokens_max: Tokens(4_000_000_000),
        min_share_ppm: 0,
        headroom: Headroom::default(),
        ageing: None,
        is_evictable: false,
        max_output: None,
    }
}

/// Five limits of each tenant.
pub const FIVE: [Dimension; 5] = [
    Dimension::Requests,
    Dimension::Tokens,
    Dimension::InputTokens,
    Dimension::OutputTokens,
    Dimension::Work,
];
