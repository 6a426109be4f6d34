//! Agent runs: budget and steps hold whatever the ids, and beginning runs is bounded.

use std::collections::BTreeMap;

use fairlane_core::gate::{Arrival, Event, RequestId};
use fairlane_core::policy::{Dimension, KeyId, Limits, Policy, Runs, TenantId, WithoutRunId};
use fairlane_core::refusal::{Reason, Retry};
use fairlane_core::units::{Micros, Tokens};
use proptest::prelude::*;

use crate::many;
use crate::policies::{at_once, key, per_sec, policy, run_budget, scope, slow, tenant};
use crate::world::{State, Store, World, ask, nothing};

proptest! {
    #![proptest_config(many())]

    #[test]
    fn l12_a_run_uses_its_budget_and_its_overruns_at_most_and_makes_its_steps_at_most(
        budget in 1u64..3_000, steps_max in 1u32..12,
        steps in prop::collection::vec((0u8..8, any::<u8>(), 0u64..400), 20..60),
    ) {
        let mut world = World::new(with_runs(Runs {
            max_steps: Some(steps_max), idle_expiry: Micros::from_secs(100_000), ..run_budget(budget)
        }));
        for (kind, which, size) in steps {
            let running = world.running();
            let request = (!running.is_empty()).then(|| running[usize::from(which) % running.len()]);
            match (kind, request) {
                (0..=3, _) => {
                    world.arrive(Arrival { run: Some(u128::from(which % 3) + 1), ..ask(size / 2, size / 2) });
                }
                (4, Some(request)) => world.end(request, nothing()),
                (5, Some(request)) => world.leave(request, size),
                (6, Some(request)) => world.complete(request, size, size),
                _ => world.advance(Micros::from_secs(size)),
            }
            check_runs(&world, budget, steps_max);
        }
        world.wind_up();
    }

    #[test]
    fn l12_changing_the_id_with_each_request_begins_no_more_runs_than_the_rate_and_the_live_bound(
        per_sec_max in 1u64..4, burst in 1u64..4, live_max in 1u32..8,
        store in prop::sample::select(vec![Store::AtOnce, Store::TellsLate, Store::DecidesLate]),
        steps in prop::collection::vec((0u8..10, 0u32..1_500_000), 20..60),
    ) {
        let mut world = World::with_store(with_runs(Runs {
            new_runs: Some(per_sec(Dimension::NewRuns, per_sec_max, burst).shape),
            max_live: live_max,
            idle_expiry: Micros::from_secs(2),
            ..run_budget(1_000)
        }), store);
        let start = world.now;
        let mut id: u128 = 0;
        let mut used: Vec<u128> = Vec::new();
        for (kind, micros) in steps {
            match kind {
                // Twice the same unknown id in a row: the second must not come in past a refusal of the first.
                0..=4 => {
                    id += u128::from(kind != 4);
                    world.arrive(Arrival { run: Some(id), ..ask(1, 1) });
                }
                5 => world.advance(Micros(u64::from(micros))),
                6 => {
                    for request in world.running() {
                        world.complete(request, 1, 1);
                    }
                }
                _ => world.answer(),
            }
            for (_, request, _) in &world.starts {
                let run = world.arrivals[request].run.unwrap();
                if !used.contains(&run) {
                    used.push(run);
                }
            }
            // An id that ran out and came back counts again: at least the distinct ones are bounded.
            let window = world.now.since(start).0;
            let most = u128::from(per_sec_max * burst) * 1_000_000 + u128::from(per_sec_max) * u128::from(window);
            prop_assert!(used.len() as u128 * 1_000_000 <= most, "{} runs in {window} µs", used.len());
            prop_assert!(world.gate.runs(TenantId(0), 100).len() <= live_max as usize);
        }
    }
}

/// L12, from the accounts alone.
fn check_runs(world: &World, budget: u64, steps_max: u32) {
    let mut sums: BTreeMap<u128, (u64, u64, u32)> = BTreeMap::new();
    for (request, state) in &world.states {
        let run = world.arrivals[request].run.unwrap();
        let (used, overrun, steps) = sums.entry(run).or_default();
        match state {
            State::Finished(account) => {
                let tokens = account.used.input.0 + account.used.output.0;
                *used += tokens;
                *overrun += tokens.saturating_sub(account.reserved.0);
                *steps += u32::from(account.source != fairlane_core::gate::UsageSource::None);
            }
            State::Running(_) => {
                *used += world.reserved(*request);
                *steps += 1;
            }
            State::Waiting | State::Refused(_) => {}
        }
    }
    for (run, (used, overrun, steps)) in sums {
        assert!(used <= budget + overrun, "run {run} used {used} of {budget} with overruns of {overrun}");
        assert!(steps <= steps_max, "run {run} made {steps} steps of {steps_max}");
    }
}

#[test]
fn a_request_without_an_id_belongs_where_the_policy_says() {
    let mut runs = run_budget(300);
    let without = |run: Option<u128>| Arrival { run, ..ask(100, 50) };
    let mut world = World::new(with_runs(runs.clone()));
    assert!(admitted(&mut world, without(None)) && admitted(&mut world, without(None)));
    assert!(!admitted(&mut world, without(None)), "one run for all that name none, per key");
    assert!(admitted(&mut world, Arrival { key: Some(KeyId(1)), ..without(None) }));
    assert!(admitted(&mut world, without(Some(u128::MAX))));

    runs.without_id = WithoutRunId::EndUser;
    let mut world = World::new(with_runs(runs.clone()));
    let user = |user: u128| Arrival { end_user: Some(user), ..without(None) };
    assert!(admitted(&mut world, user(1)) && admitted(&mut world, user(1)));
    assert!(!admitted(&mut world, user(1)) && admitted(&mut world, user(2)));

    runs.without_id = WithoutRunId::Refuse;
    let mut world = World::new(with_runs(runs));
    let refused = world.arrive(without(None));
    assert_eq!(world.refusal(refused).reason, Reason::RunIdMissing);
    assert_eq!(world.refusal(refused).retry, Retry::Never);
    assert!(admitted(&mut world, without(Some(1))));
}

#[test]
fn a_run_ends_after_its_idle_time_and_its_place_is_told() {
    let mut world =
        World::new(with_runs(Runs { max_live: 1, idle_expiry: Micros::from_secs(60), ..run_budget(100) }));
    let of = |run: u128| Arrival { run: Some(run), ..ask(50, 50) };
    let first = world.arrive(of(1));
    let busy = world.arrive(of(2));
    assert_eq!(world.reason(busy), Reason::TooManyRuns);
    assert_eq!(world.told(busy), Micros::from_secs(60));
    world.complete(first, 50, 50);
    world.advance_secs(20);
    let spent = world.arrive(of(1));
    assert_eq!(world.reason(spent), Reason::RunBudgetSpent);
    world.advance_secs(30);
    let second = world.arrive(of(2));
    assert_eq!(world.told(second), Micros::from_secs(30), "a refused step does begin its idle time anew");
    world.advance_secs(30);
    assert!(admitted(&mut world, of(2)));
}

#[test]
fn a_spent_budget_can_be_raised_by_exactly_what_is_granted() {
    let mut world = World::new(with_runs(run_budget(1_000)));
    let of = |input: u64| Arrival { run: Some(1), ..ask(input, 0) };
    let first = world.arrive(of(800));
    assert!(!admitted(&mut world, of(300)));
    world.handle(Event::Raise { tenant: TenantId(0), run: 1, tokens: Tokens(100) });
    let level = |world: &World| {
        let view = world.gate.runs(TenantId(0), 1)[0].limits[0];
        let level = world.ledger.level(view.cell, &view.shape, world.now);
        (level.floor_units(), view.shape.capacity.floor_units())
    };
    assert_eq!(level(&world), (300, 1_100));
    let second = world.arrive(of(300));
    assert!(world.is_running(second));
    world.complete(first, 700, 0);
    assert_eq!(level(&world), (100, 1_100));
    world.handle(Event::Raise { tenant: TenantId(0), run: 9, tokens: Tokens(100) });
    assert_eq!(world.gate.runs(TenantId(0), 9).len(), 1, "an unknown run is not made by raising it");
}

#[test]
fn a_step_without_any_work_of_a_backend_is_given_back_and_others_are_not() {
    let mut world = World::new(with_runs(Runs { max_steps: Some(2), ..Runs::default() }));
    let of = || Arrival { run: Some(1), ..ask(1, 1) };
    let failed = world.arrive(of());
    world.end(failed, nothing());
    let step = world.arrive(of());
    world.leave(step, 0);
    assert!(admitted(&mut world, of()));
    let third = world.arrive(of());
    assert_eq!(world.reason(third), Reason::RunStepsSpent);
}

#[test]
fn beginning_runs_for_nothing_does_not_evade_their_rate() {
    let mut world = World::new(with_runs(Runs {
        new_runs: Some(slow(Dimension::NewRuns, 2).shape),
        limits: scope(at_once(1)),
        ..Runs::default()
    }));
    let mut begun = 0;
    for run in 1..=5 {
        let of = || Arrival { run: Some(run), ..ask(1, 1) };
        let first = world.arrive(of());
        let second = world.arrive(of());
        world.end(first, nothing());
        begun += u32::from(world.is_running(second));
    }
    assert_eq!(begun, 2);
    let mut world =
        World::new(with_runs(Runs { new_runs: Some(slow(Dimension::NewRuns, 2).shape), ..Runs::default() }));
    for run in 1..=5 {
        let failed = world.arrive(Arrival { run: Some(run), ..ask(1, 1) });
        assert!(world.is_running(failed), "a run that did nothing was not begun");
        world.end(failed, nothing());
        assert_eq!(world.gate.runs(TenantId(0), 9).len(), 0);
    }
}

#[test]
fn two_first_steps_before_a_late_store_do_not_slip_past_the_rate_of_beginning() {
    let mut world = World::with_store(
        with_runs(Runs { new_runs: Some(slow(Dimension::NewRuns, 1).shape), ..Runs::default() }),
        Store::DecidesLate,
    );
    let of = |run: u128| Arrival { run: Some(run), ..ask(1, 1) };
    let requests: Vec<RequestId> = [1, 2, 2].map(|run| world.arrive(of(run))).into();
    for _ in 0..3 {
        world.answer();
    }
    assert!(world.is_running(requests[0]));
    assert!(world.is_refused(requests[1]) && world.is_refused(requests[2]));
}

fn admitted(world: &mut World, arrival: Arrival) -> bool {
    let request = world.arrive(arrival);
    world.is_running(request)
}

fn with_runs(runs: Runs) -> Policy {
    let mut first = tenant("T", Limits::default());
    first.keys.push(key("app", Limits::default()));
    first.runs = Some(runs);
    policy(vec![first])
}
