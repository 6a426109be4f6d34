//! Random traffic and random faults.

use std::sync::Arc;

use fairlane_core::policy::{BackendId, KeyId, ModelId, PoolId, TenantId};
use fairlane_core::units::{Micros, Moment, Tokens};

use super::policy::{BACKENDS, Extent, KEYS, MODELS, SLOTS, one_in, pick, policy};
use crate::shape::Shape;
use crate::splitmix::Stream;
use crate::traffic::{Arrival, Class};
use crate::world::{Comeback, Edge, Fault, Honesty, Manner, Offer, Sender, Setup, Store, Watch};

/// The world of a seed. What it is made of is drawn from streams of their own, so that a change in one part of this file leaves
/// the others as they were.
pub(super) fn setup(seed: u64) -> Setup {
    let mut chance = Stream::seeded(seed, 0);
    let extent = Extent { tenants: 1 + chance.below(4), pools: 1 + chance.below(2) };
    let senders = (0..extent.tenants).map(|tenant| sender(&mut chance, tenant)).collect();
    let backends = (0..extent.pools as u32)
        .flat_map(|pool| (0..BACKENDS as u32).map(move |index| BackendId { pool: PoolId(pool), index }));
    let backends: Vec<(BackendId, Shape)> = backends.map(|id| (id, shape(&mut chance))).collect();
    let store = pick(&mut chance, &[Store::AtOnce, Store::Late(Micros::from_millis(300))]);
    let edge = Edge {
        quiet_max: pick(&mut chance, &[None, Some(Micros::from_secs(2)), Some(Micros::from_secs(8))]),
        health_check: pick(&mut chance, &[Micros::ZERO, Micros::from_millis(700)]),
    };
    Setup {
        senders,
        offers: offers(&mut Stream::seeded(seed, 1), extent),
        length: LENGTH,
        ends: None,
        policy: Arc::new(policy(&mut Stream::seeded(seed, 2), extent)),
        store,
        faults: faults(&mut Stream::seeded(seed, 3), extent, &backends),
        backends,
        edge,
        watch: Watch::Laws,
        seed,
    }
}

fn sender(chance: &mut Stream, tenant: u64) -> Sender {
    let tries_max = 1 + chance.below(6) as u32;
    Sender {
        name: format!("tenant-{tenant}"),
        class: pick(chance, &[Class::Interactive, Class::Batch, Class::Background]),
        tenant: TenantId(tenant as u32),
        comeback: match chance.below(4) {
            0 => Comeback::GivesUp,
            1 => Comeback::After { wait: Micros::ZERO, tries_max },
            2 => Comeback::After { wait: Micros::from_millis(1 + chance.below(500)), tries_max },
            _ => Comeback::AsTold { jitter_percent: pick(chance, &[0, 30]), tries_max },
        },
        patience: one_in(chance, 3).then(|| Micros::from_millis(chance.below(8_000))),
    }
}

fn shape(chance: &mut Stream) -> Shape {
    Shape {
        // Sometimes less than the policy believes: the engine queues, or says that it can never hold it.
        slots: 1 + chance.below(SLOTS + 2) as usize,
        kv: Tokens(1_000 + chance.below(40_000)),
        prefill_chunk: Tokens(pick(chance, &[128, 1_024])),
        ..Shape::REFERENCE
    }
}

fn offers(chance: &mut Stream, extent: Extent) -> Vec<Offer> {
    let requests = 40 + chance.below(160);
    let mut offers: Vec<Offer> = Vec::new();
    while (offers.len() as u64) < requests {
        let offer = offer(chance, extent);
        // Some come in blocks at one moment.
        let block = if one_in(chance, 8) { 1 + chance.below(12) } else { 1 };
        offers.extend((0..block).map(|_| offer));
    }
    offers.sort_by_key(|offer| offer.arrival.at);
    offers
}

fn offer(chance: &mut Stream, extent: Extent) -> Offer {
    let prompt = Tokens(pick(chance, &[1, 10, 300, 300, 2_000, 6_000]) * (1 + chance.below(9)) / 5 + 1);
    let max_tokens = Tokens(pick(chance, &[0, 1, 16, 200, 200, 1_000]) * (1 + chance.below(9)) / 5);
    let tenant = chance.below(extent.tenants) as usize;
    let least = Tokens(prompt.0 - prompt.0 / 10);
    let most = Tokens(prompt.0 + prompt.0 / 8);
    Offer {
        arrival: Arrival {
            at: Moment(chance.below(LENGTH.0)),
            tenant,
            class: Class::Interactive,
            prompt,
            output: Tokens(chance.below(max_tokens.0 + 1)),
            max_tokens,
        },
        model: ModelId(chance.below(MODELS) as u32),
        key: (!one_in(chance, 4)).then(|| KeyId(chance.below(KEYS) as u32)),
        run: one_in(chance, 2).then(|| 1 + u128::from(chance.below(6))),
        end_user: one_in(chance, 2).then(|| (1 << 127) | u128::from(chance.below(9))),
        choices: pick(chance, &[1, 1, 1, 3]),
        estimate: one_in(chance, 3).then_some((least, most)),
    }
}

fn faults(chance: &mut Stream, extent: Extent, backends: &[(BackendId, Shape)]) -> Vec<(Moment, Fault)> {
    let count = chance.below(40);
    let mut faults: Vec<(Moment, Fault)> = Vec::new();
    for _ in 0..count {
        let at = Moment(chance.below(LENGTH.0));
        let backend = backends[chance.below(backends.len() as u64) as usize].0;
        let (fault, mended) = fault(chance, extent, backend);
        faults.push((at, fault));
        if let Some(mended) = mended {
            faults.push((at.after(Micros::from_millis(chance.below(15_000))), mended));
        }
    }
    if one_in(chance, 12) {
        faults.push((Moment(LENGTH.0 / 4 * 3), Fault::Drain));
    }
    faults.sort_by_key(|(at, _)| *at);
    faults
}

/// Something that goes wrong, and what mends it.
fn fault(chance: &mut Stream, extent: Extent, backend: BackendId) -> (Fault, Option<Fault>) {
    match chance.below(11) {
        0 | 1 => (Fault::Dies(backend), Some(Fault::Returns(backend))),
        2 => (Fault::Stalls(backend, Micros::from_millis(chance.below(12_000))), None),
        3 => (Fault::Slows(backend, pick(chance, &[150, 400, 3_000])), Some(Fault::Slows(backend, 100))),
        4 => (Fault::Answers(backend, manner(chance)), Some(Fault::Answers(backend, Manner::Serves))),
        5 => {
            let honesty = pick(
                chance,
                &[
                    Honesty::Silent,
                    Honesty::InputAlone,
                    Honesty::Percent(0),
                    Honesty::Percent(50),
                    Honesty::Percent(1_000),
                    Honesty::Absurd,
                ],
            );
            (Fault::Reports(backend, honesty), Some(Fault::Reports(backend, Honesty::Honest)))
        }
        6 => (Fault::ClientsVanish(10 + chance.below(90) as u32), None),
        7 => {
            let by = chance.below(20_000_000) as i64 - 10_000_000;
            (Fault::ClockJumps(by), None)
        }
        8 => (Fault::Reload(Arc::new(policy(chance, extent))), None),
        9 => {
            let tenant = TenantId(chance.below(extent.tenants) as u32);
            let run = 1 + u128::from(chance.below(6));
            (Fault::Raise(tenant, run, Tokens(chance.below(5_000))), None)
        }
        _ => (Fault::Scrape, None),
    }
}

fn manner(chance: &mut Stream) -> Manner {
    match chance.below(6) {
        0 => Manner::IsBusy(None),
        1 => Manner::IsBusy(Some(Micros::from_millis(chance.below(5_000)))),
        2 => Manner::Fails,
        3 => Manner::Rejects,
        4 => Manner::IsEmpty,
        _ => Manner::BreaksAfter(1 + chance.below(100)),
    }
}

/// Requests come for one minute.
const LENGTH: Micros = Micros::from_secs(60);
