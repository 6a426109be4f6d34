//! Told waits: exact for the first, behind the others for the next, and nobody else's business.

use fairlane_core::bucket::{Rate, Shape};
use fairlane_core::gate::{Arrival, RequestId};
use fairlane_core::ledger::CellId;
use fairlane_core::policy::{Dimension, Limits, Policy, TenantId};
use fairlane_core::promises::{CELLS_MAX, PROMISES_PER_CELL_MAX, Promises};
use fairlane_core::units::{Amount, Micros, Moment};
use proptest::prelude::*;

use crate::many;
use crate::policies::{in_team, policy, rates, slow, team, tenant, tokens};
use crate::world::{State, World, ask};

#[test]
fn the_first_is_told_the_exact_wait_and_the_next_wait_behind_it() {
    let mut world = drained();
    let told: Vec<Micros> = (0..3)
        .map(|_| {
            let refused = world.arrive(ask(200, 150));
            world.told(refused)
        })
        .collect();
    assert_eq!(told, [3_500_000, 7_000_000, 10_500_000].map(Micros));
    let small = world.arrive(ask(50, 50));
    assert_eq!(world.told(small), Micros(1_000_000 + 10_500_000));
}

#[test]
fn clients_that_come_back_when_told_are_all_admitted_then() {
    let mut world = drained();
    let mut due: Vec<Moment> = Vec::new();
    for _ in 0..20 {
        let refused = world.arrive(ask(200, 150));
        due.push(world.now.after(world.told(refused)));
        world.advance(Micros::from_millis(10));
    }
    for moment in due {
        world.advance(moment.since(world.now));
        let again = world.arrive(ask(200, 150));
        assert!(world.is_running(again), "at {moment:?}");
        world.complete(again, 200, 150);
    }
}

#[test]
fn a_promise_that_nobody_claims_runs_out() {
    let mut world = drained();
    world.arrive(ask(200, 150));
    // Due after 3.5 s, with a grace of 2 s and a quarter of the wait.
    world.advance(Micros(6_374_999));
    let taken = world.arrive(ask(637, 0));
    assert!(world.is_running(taken));
    let second = world.arrive(ask(100, 0));
    let alone = world.told(second);
    assert!(alone <= Micros::from_secs(1), "{alone:?}");
}

#[test]
fn a_shared_limit_tells_the_exact_wait_to_everybody() {
    let mut policy = policy(vec![in_team(tenant("T", Limits::default()))]);
    policy.teams = vec![team("shop", tokens(100, 20))];
    let mut world = World::new(policy);
    world.arrive(ask(2_000, 0));
    for _ in 0..3 {
        let refused = world.arrive(ask(350, 0));
        assert_eq!(world.told(refused), Micros(3_500_000));
    }
}

#[test]
fn promises_are_bounded_in_cells_and_per_cell() {
    let mut promises = Promises::default();
    let shape = Shape { rate: Rate::new(1, 1).unwrap(), capacity: Amount::whole(10), debt_max: Amount::ZERO };
    let (cost, exact, now) = (Amount::whole(1), Micros(5), Moment(0));
    let cell = |index: usize| CellId { index: index as u32, epoch: 0 };
    let full = Micros(5 + PROMISES_PER_CELL_MAX as u64 * 1_000_000);
    for _ in 0..PROMISES_PER_CELL_MAX + 10 {
        assert!(promises.tell(cell(0), &shape, cost, exact, now) <= full);
    }
    for index in 1..CELLS_MAX {
        promises.tell(cell(index), &shape, cost, exact, now);
    }
    for _ in 0..2 {
        let beyond = promises.tell(cell(CELLS_MAX), &shape, cost, exact, now);
        assert_eq!(beyond, exact, "no room to remember: the exact wait");
    }
    let later = Moment(10_000_000_000);
    promises.tell(cell(CELLS_MAX), &shape, cost, exact, later);
    let second = promises.tell(cell(CELLS_MAX), &shape, cost, exact, later);
    assert!(second > exact, "what has run out made room");
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn a_refused_flood_lengthens_no_wait_and_changes_no_admission_of_another_tenant(
        steps in prop::collection::vec((0u8..4, 1u64..400, 0u32..2_000_000), 20..50),
        flood in 1u8..4, shared in any::<bool>()
    ) {
        let with_flood = outcomes(&steps, flood, shared);
        let without = outcomes(&steps, 0, shared);
        assert_eq!(with_flood, without);
    }

    #[test]
    fn a_promise_changes_no_admission_of_its_own_tenant(
        costs in prop::collection::vec((1u64..1_000, 0u64..3_000_000), 10..40)
    ) {
        let mut world = World::new(policy(vec![tenant("T", tokens(100, 20))]));
        // The same bucket by hand, in micro-tokens, which knows of no promise.
        let mut level: u64 = 2_000_000_000;
        for (cost, pause) in costs {
            world.advance(Micros(pause));
            level = 2_000_000_000.min(level + pause * 100);
            let request = world.arrive(ask(cost, 0));
            let fits = level >= cost * 1_000_000;
            assert_eq!(world.is_running(request), fits);
            if fits {
                level -= cost * 1_000_000;
            } else {
                let exact = (cost * 1_000_000 - level).div_ceil(100);
                assert!(world.told(request) >= Micros(exact), "never told shorter than the exact wait");
            }
        }
    }
}

/// What the second tenant's requests meet: admitted, or the wait told.
fn outcomes(steps: &[(u8, u64, u32)], flood: u8, shared: bool) -> Vec<Option<Micros>> {
    let mut world = World::new(neighbours(shared));
    let drained = world.arrive(ask(1_000, 0));
    assert!(world.is_running(drained));
    let mut asked: Vec<RequestId> = Vec::new();
    for (kind, cost, pause) in steps {
        match kind {
            0 => world.advance(Micros(u64::from(*pause))),
            1 => {
                if let Some(running) = world.running().into_iter().find(|request| asked.contains(request)) {
                    world.complete(running, cost / 2, 0);
                }
            }
            _ => {
                asked.push(world.arrive(Arrival {
                    tenant: TenantId(1),
                    end_user: Some(7),
                    ..ask(*cost, 10)
                }));
            }
        }
        for _ in 0..flood {
            let refused = world.arrive(Arrival { end_user: Some(7), run: Some(1), ..ask(*cost, 0) });
            assert!(world.is_refused(refused), "the flood is refused");
        }
    }
    let outcome = |request: &RequestId| match world.state(*request) {
        State::Refused(_) => Some(world.told(*request)),
        State::Waiting | State::Running(_) | State::Finished(_) => None,
    };
    asked.iter().map(outcome).collect()
}

fn neighbours(shared: bool) -> Policy {
    let of = |name: &str, limits: Limits| {
        let mut tenant = in_team(tenant(name, limits));
        tenant.end_users = Some(crate::policies::scope(tokens(80, 10)));
        tenant
    };
    let mut first = of("first", rates(&[slow(Dimension::Tokens, 1_000)]));
    first.end_users = None;
    let mut policy = policy(vec![first, of("second", tokens(60, 10))]);
    policy.teams = vec![team("shop", if shared { tokens(70, 20) } else { Limits::default() })];
    policy
}

/// One tenant whose bucket of 2,000 at 100 a second is empty.
fn drained() -> World {
    let mut world = World::new(policy(vec![tenant("T", tokens(100, 20))]));
    world.arrive(ask(2_000, 0));
    world
}
