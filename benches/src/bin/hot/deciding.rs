//! Deciding: the ledger, and the gate with its store.

use std::hint::black_box;

use fairlane_benches::policies::{self, FIVE};
use fairlane_benches::world::World;
use fairlane_core::ledger::{CellId, Charge, Closing, Ledger, Reservation, ReservationId, Settlement};
use fairlane_core::policy::{Limits, TenantId};
use fairlane_core::scope::{Limit, Owner};
use fairlane_core::units::{Moment, Tokens};

use crate::Operation;

/// A reservation over five limits and its settlement.
pub(crate) fn ledger() -> Operation {
    let limits = policies::wide(&FIVE);
    let charge = |(place, rate): (u32, &fairlane_core::policy::RateLimit)| Charge {
        cell: CellId { index: place, epoch: 0 },
        limit: Limit { owner: Owner::Tenant(TenantId(0)), model: None, dimension: rate.dimension },
        shape: rate.shape,
        reserved: Tokens(284).amount(),
        used: Tokens(240).amount(),
        shadow: false,
    };
    let charges: Vec<Charge> = (0..).zip(&limits.rates).map(charge).collect();
    let mut reservation = Reservation { id: ReservationId(0), charges: charges.clone(), tokens: Tokens(284) };
    let mut settlement =
        Settlement { id: ReservationId(0), charges, used: Tokens(240), closing: Closing::Counted };
    let (mut ledger, mut now) = (Ledger::new(), Moment(1_000_000_000));
    Box::new(move || {
        reservation.id.0 += 1;
        settlement.id = reservation.id;
        now.0 += 5;
        black_box(ledger.reserve(&reservation, now));
        now.0 += 5;
        black_box(ledger.settle(&settlement, now));
    })
}

/// Arrival, reservation, dispatch, end and settlement, with others in flight.
pub(crate) fn gate() -> Operation {
    let mut world = World::new(policies::policy(1_000, &policies::wide(&FIVE), (4_096, None)));
    for tenant in 0..64 {
        world.arrive(policies::arrival(tenant, None));
    }
    let mut number = 0;
    Box::new(move || {
        number = (number + 379) % 1_000;
        world.now.0 += 5;
        world.arrive(policies::arrival(number, None));
        world.now.0 += 5;
        world.end_oldest();
    })
}

/// Under a backlog of 10,000 an end lets another request go, and one arrives behind the others.
pub(crate) fn backlog() -> Operation {
    let mut world = World::new(policies::policy(1_000, &Limits::default(), (256, Some(200_000))));
    let mut number = 0;
    let mut next = move || {
        number = (number + 379) % 1_000;
        policies::arrival(number, Some(number as u128))
    };
    for _ in 0..10_256 {
        world.arrive(next());
    }
    Box::new(move || {
        world.now.0 += 20;
        world.end_oldest();
        world.arrive(next());
    })
}
