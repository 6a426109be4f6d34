//! Fairlane's own: the ledger alone, the gate with everything, the scheduler under a backlog, the memory of many tenants.

use std::fs;
use std::hint::black_box;

use fairlane_benches::policies::{self, FIVE};
use fairlane_benches::world::World;
use fairlane_core::ledger::{
    CellId, Charge, Closing, Ledger, Reservation, ReservationId, Settlement, Verdict,
};
use fairlane_core::policy::{Dimension, Limits, OnExcess, TenantId};
use fairlane_core::scope::{Limit, Owner};
use fairlane_core::units::{Moment, Tokens};

use crate::Measured;
use crate::timing::{nanos_each, scattered};

/// Every row but the memory.
pub(crate) fn rows(scale: f64) -> Vec<Measured> {
    let nanos = |name: &str, value: f64, bar: Option<(f64, Option<f64>)>| Measured {
        name: name.to_owned(),
        value,
        unit: "ns",
        bar,
    };
    let five = policies::wide(&FIVE);
    vec![
        nanos("fairlane ledger, reserve + settle, five limits, 1 tenant", ledger(1, scale), None),
        nanos(
            "fairlane ledger, reserve + settle, five limits, 100,000 tenants",
            ledger(MANY, scale),
            Some((1_000.0, Some(400.0))),
        ),
        nanos("fairlane gate, whole life, five limits, 1 tenant", gate(1, &five, scale), None),
        nanos("fairlane gate, whole life, five limits, 100,000 tenants", gate(MANY, &five, scale), None),
        nanos(
            "fairlane gate, whole life, no limits, 1,000 tenants",
            gate(1_000, &Limits::default(), scale),
            None,
        ),
        nanos(
            "fairlane scheduler, 1,000 tenants, 100,000 queued, slots only",
            scheduler(None, scale),
            Some((2_000.0, Some(1_000.0))),
        ),
        nanos(
            "fairlane scheduler, the same with KV fit at 256 in flight",
            scheduler(Some(KV_TOKENS), scale),
            Some((10_000.0, Some(2_000.0))),
        ),
    ]
}

/// What 100,000 tenants with three limits each take, each of them used once, and of what it consists.
pub(crate) fn memory() -> Vec<Measured> {
    let limits =
        policies::with_slots(policies::wide(&[Dimension::Requests, Dimension::Tokens]), OnExcess::Reject);
    let empty = resident_kib();
    let policy = policies::policy(MANY, &limits, (64, None));
    let with_policy = resident_kib();
    let mut world = World::new(policy);
    let with_gate = resident_kib();
    for tenant in 0..MANY {
        world.arrive(policies::arrival(tenant, None));
        world.end_oldest();
    }
    assert_eq!(world.finished(), MANY as u64, "each tenant has been charged");
    let used = resident_kib();
    let row = |name: &str, kib: f64, bar: Option<(f64, Option<f64>)>| Measured {
        name: format!("fairlane memory, 100,000 tenants of three limits{name}"),
        value: kib * 1_024.0 / 1e6,
        unit: "MB",
        bar,
    };
    vec![
        row("", used - empty, Some((100.0, None))),
        row(": their policy", with_policy - empty, None),
        row(": the gate's own", with_gate - with_policy, None),
        row(": after one request each", used - with_gate, None),
    ]
}

/// The ledger alone, with its charges at hand: what a store in memory does for a request.
fn ledger(tenants: usize, scale: f64) -> f64 {
    let limits = policies::wide(&FIVE);
    let mut ledger = Ledger::new();
    let charges: Vec<Charge> = limits.rates.iter().map(|rate| charge(rate.dimension, rate.shape)).collect();
    let mut reservation = Reservation { id: ReservationId(0), charges: charges.clone(), tokens: Tokens(284) };
    let mut settlement =
        Settlement { id: ReservationId(0), charges, used: Tokens(240), closing: Closing::Counted };
    let mut now = Moment(1_000_000_000);
    nanos_each(2.0 * scale, |number| {
        let tenant = scattered(number, tenants);
        let both = reservation.charges.iter_mut().zip(&mut settlement.charges);
        for (place, (reserved, settled)) in (0_u32..).zip(both) {
            let cell = CellId { index: tenant as u32 * 5 + place, epoch: 0 };
            (reserved.cell, settled.cell) = (cell, cell);
        }
        (reservation.id, settlement.id) = (ReservationId(number), ReservationId(number));
        now.0 += 5;
        let verdict = ledger.reserve(&reservation, now);
        assert!(matches!(verdict, Verdict::Granted { .. }), "nothing is refused here");
        now.0 += 5;
        black_box(ledger.settle(&settlement, now));
    })
}

fn charge(dimension: Dimension, shape: fairlane_core::bucket::Shape) -> Charge {
    Charge {
        cell: CellId { index: 0, epoch: 0 },
        limit: Limit { owner: Owner::Tenant(TenantId(0)), model: None, dimension },
        shape,
        reserved: Tokens(284).amount(),
        used: Tokens(240).amount(),
        shadow: false,
    }
}

/// Arrival, reservation, dispatch, end and settlement, through the gate and its store.
fn gate(tenants: usize, limits: &Limits, scale: f64) -> f64 {
    let mut world = World::new(policies::policy(tenants, limits, (4_096, None)));
    // Some requests are in flight, as always where it matters.
    for number in 0..IN_FLIGHT {
        world.arrive(policies::arrival(scattered(number, tenants), None));
    }
    nanos_each(2.0 * scale, |number| {
        world.now.0 += 5;
        world.arrive(policies::arrival(scattered(number, tenants), None));
        world.now.0 += 5;
        world.end_oldest();
    })
}

/// Under a backlog each arrival queues and each end dispatches another request.
fn scheduler(kv_tokens: Option<u64>, scale: f64) -> f64 {
    let mut world = World::new(policies::policy(1_000, &Limits::default(), (SLOTS, kv_tokens)));
    let request = |number: u64| {
        let tenant = scattered(number, 1_000);
        policies::arrival(tenant, Some((tenant as u128) * 4 + u128::from(number % 4)))
    };
    for number in 0..QUEUED + u64::from(SLOTS) {
        world.arrive(request(number));
    }
    assert_eq!(world.running(), SLOTS as usize, "the backend is full");
    let each = nanos_each(2.0 * scale, |number| {
        world.now.0 += 20;
        world.end_oldest();
        world.arrive(request(number));
    });
    assert_eq!(
        (world.running(), world.waiting()),
        (SLOTS as usize, QUEUED as usize),
        "the backlog has stayed"
    );
    each
}

fn resident_kib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(f64::NAN)
}

const MANY: usize = 100_000;
const IN_FLIGHT: u64 = 64;
const SLOTS: u32 = 256;
const QUEUED: u64 = 100_000;
/// Room for the slots' requests, so that each test for room is made and passed.
const KV_TOKENS: u64 = 200_000;
