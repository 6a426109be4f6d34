//! Random policies. Names are the same in each, so that one can follow the other in a reload.

use fairlane_core::bucket::Rate;
use fairlane_core::occupancy::Headroom;
use fairlane_core::policy::{
    ALPHA_PERMILLE, Backend, Charging, Class, ClassId, Concurrency, Dimension, Fit, Key, Limits, Model,
    ModelId, OnBudgetEnd, OnClientGone, OnExcess, Order, Pacing, Placement, Placing, Policy, Pool, PoolId,
    RATED, RateLimit, Runs, ScopeLimits, Team, TeamId, Tenant, WithoutRunId, Work,
};
use fairlane_core::units::{Micros, Tokens};

use crate::splitmix::Stream;

/// How much there is of everything, the same over all reloads of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) tenants: u64,
    pub(super) pools: u64,
}

/// A policy by chance.
pub(super) fn policy(chance: &mut Stream, extent: Extent) -> Policy {
    let classes = ["interactive", "batch", "background"].map(|name| class(chance, name)).to_vec();
    let pools: Vec<Pool> = (0..extent.pools).map(|index| pool(chance, index)).collect();
    let models: Vec<Model> = (0..MODELS).map(|index| model(chance, index, extent)).collect();
    Policy {
        order: pick(chance, &[Order::Fifo, Order::Lanes, Order::Fair, Order::LanesFair]),
        alpha_permille: pick(chance, &[0, ALPHA_PERMILLE, 1_000]),
        service: if one_in(chance, 4) { limits(chance, 40) } else { Limits::default() },
        models,
        pools,
        classes,
        teams: vec![Team {
            name: "team".into(),
            weight_millis: weight(chance),
            limits: scope(if one_in(chance, 2) { limits(chance, 20) } else { Limits::default() }),
        }],
        tenants: (0..extent.tenants).map(|index| tenant(chance, index)).collect(),
        // So few that newcomers have to share.
        end_users_max: 2 + chance.below(6) as u32,
    }
}

fn model(chance: &mut Stream, index: u64, extent: Extent) -> Model {
    Model {
        name: format!("model-{index}"),
        pool: PoolId((index % extent.pools) as u32),
        max_output: one_in(chance, 5).then(|| Tokens(50 + chance.below(400))),
    }
}

fn tenant(chance: &mut Stream, index: u64) -> Tenant {
    let mut own = scope(if one_in(chance, 5) { Limits::default() } else { limits(chance, 8) });
    if one_in(chance, 3) {
        own.models.insert(ModelId(chance.below(MODELS) as u32), limits(chance, 4));
    }
    let key = |chance: &mut Stream, index: u64| Key {
        name: format!("key-{index}"),
        limits: scope(if one_in(chance, 4) { limits(chance, 4) } else { Limits::default() }),
    };
    Tenant {
        name: format!("tenant-{index}"),
        team: one_in(chance, 2).then_some(TeamId(0)),
        class: ClassId(chance.below(3) as u32),
        weight_millis: weight(chance),
        limits: own,
        charging: pick(
            chance,
            &[Charging::Reserve, Charging::Reserve, Charging::Quantile, Charging::Postpay],
        ),
        on_client_gone: OnClientGone::Cancel,
        on_budget_end: pick(chance, &[OnBudgetEnd::Finish, OnBudgetEnd::Finish, OnBudgetEnd::Stop]),
        allowed_models: None,
        keys: (0..KEYS).map(|index| key(chance, index)).collect(),
        runs: one_in(chance, 3).then(|| runs(chance)),
        end_users: one_in(chance, 4).then(|| scope(limits(chance, 2))),
    }
}

fn runs(chance: &mut Stream) -> Runs {
    let per_minute = |chance: &mut Stream| Rate::new(5 + chance.below(60), 60);
    Runs {
        token_budget: one_in(chance, 2).then(|| Tokens(2_000 + chance.below(30_000))),
        max_steps: one_in(chance, 2).then(|| 1 + chance.below(8) as u32),
        limits: scope(if one_in(chance, 2) { limits(chance, 2) } else { Limits::default() }),
        idle_expiry: Micros::from_millis(500 + chance.below(20_000)),
        max_live: 1 + chance.below(5) as u32,
        new_runs: one_in(chance, 2)
            .then(|| RateLimit::new(Dimension::NewRuns, per_minute(chance)?, Micros::from_secs(10)))
            .flatten()
            .map(|limit| limit.shape),
        without_id: pick(chance, &[WithoutRunId::Shared, WithoutRunId::EndUser, WithoutRunId::Refuse]),
    }
}

fn pool(chance: &mut Stream, index: u64) -> Pool {
    let backends = 1 + chance.below(BACKENDS);
    Pool {
        name: format!("pool-{index}"),
        limits: if one_in(chance, 5) { limits(chance, 30) } else { Limits::default() },
        backends: (0..backends).map(|index| backend(chance, index)).collect(),
        work: Work {
            input_millis: 1_000,
            cached_input_millis: 100,
            output_millis: pick(chance, &[1_000, 4_000, 4_570]),
        },
        stickiness: Tokens(pick(chance, &[0, 0, 2_000])),
        placing: Placing {
            fit: pick(chance, &[Fit::Predicted, Fit::Reserved]),
            placement: pick(chance, &[Placement::MostRoom, Placement::FewestRunning]),
            slow_start: pick(chance, &[Micros::ZERO, Micros::from_secs(5)]),
        },
    }
}

fn backend(chance: &mut Stream, index: u64) -> Backend {
    Backend {
        name: format!("backend-{index}"),
        slots: 1 + chance.below(SLOTS) as u32,
        kv_tokens: one_in(chance, 2).then(|| Tokens(2_000 + chance.below(30_000))),
        pacing: pick(chance, &[Pacing::Fixed, Pacing::Fixed, Pacing::Adaptive]),
        is_awaited: false,
        limits: if one_in(chance, 4) { limits(chance, 15) } else { Limits::default() },
    }
}

fn class(chance: &mut Stream, name: &str) -> Class {
    Class {
        name: name.into(),
        wait_max: Micros::from_millis(chance.below(20_000)),
        queue_requests_max: chance.below(40) as u32,
        queue_tokens_max: Tokens(chance.below(100_000)),
        max_output: one_in(chance, 6).then(|| Tokens(20 + chance.below(500))),
        min_share_ppm: pick(chance, &[0, 20_000, 50_000, 300_000]),
        headroom: Headroom::ppm(pick(chance, &[0, 50_000, 100_000, 500_000])),
        ageing: one_in(chance, 4).then(|| Micros::from_millis(chance.below(10_000))),
        is_evictable: one_in(chance, 4),
    }
}

/// A block of limits, about `size` requests wide.
fn limits(chance: &mut Stream, size: u64) -> Limits {
    let rates = RATED.iter().filter_map(|dimension| {
        // Zero means nobody; it is rare, so that something happens besides.
        let wide = if one_in(chance, 60) { 0 } else { size * (1 + chance.below(8)) };
        let per_minute = if *dimension == Dimension::Requests { wide * 4 } else { wide * 2_000 };
        let burst = Micros::from_millis(200 + chance.below(30_000));
        let limit = RateLimit::new(*dimension, Rate::new(per_minute, 60)?, burst)?;
        let shadow = one_in(chance, 6);
        one_in(chance, 3).then_some(RateLimit { shadow, ..limit })
    });
    let rates: Vec<RateLimit> = rates.collect();
    let concurrency = one_in(chance, 3).then(|| Concurrency {
        limit: chance.below(size.max(2)) as u32,
        on_excess: pick(chance, &[OnExcess::Queue, OnExcess::Reject]),
        shadow: one_in(chance, 8),
    });
    Limits {
        rates,
        concurrency,
        max_input: one_in(chance, 10).then(|| Tokens(500 + chance.below(3_000))),
        max_output: one_in(chance, 6).then(|| Tokens(20 + chance.below(500))),
        default_max_output: None,
        on_output_excess: Default::default(),
        hold: if one_in(chance, 4) { Micros::from_millis(chance.below(4_000)) } else { Micros::ZERO },
        cached_input_weight_millis: one_in(chance, 4).then(|| chance.below(1_000) as u32),
    }
}

fn scope(limits: Limits) -> ScopeLimits {
    ScopeLimits { all: limits, ..ScopeLimits::default() }
}

fn weight(chance: &mut Stream) -> u32 {
    pick(chance, &[500, 1_000, 1_000, 3_000])
}

pub(super) fn one_in(chance: &mut Stream, many: u64) -> bool {
    chance.below(many) == 0
}

pub(super) fn pick<T: Copy>(chance: &mut Stream, from: &[T]) -> T {
    from[chance.below(from.len() as u64) as usize]
}

pub(super) const MODELS: u64 = 3;
pub(super) const KEYS: u64 = 2;
/// Backends that a pool may have.
pub(super) const BACKENDS: u64 = 3;
/// Slots that a backend may have.
pub(super) const SLOTS: u64 = 6;
