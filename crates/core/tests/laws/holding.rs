//! Waiting in place for a budget to return.

use fairlane_core::gate::{Arrival, Event};
use fairlane_core::policy::{Dimension, KeyId, Limits, Policy};
use fairlane_core::refusal::Reason;
use fairlane_core::units::{Micros, Tokens};
use proptest::prelude::*;

use crate::chance::Chance;
use crate::policies::{backend, key, per_sec, policy, rates, tenant, tokens};
use crate::some;
use crate::world::{Store, T, World, ask};

#[test]
fn a_request_is_held_until_its_budget_returns_and_no_longer_than_may_be() {
    let mut world = World::new(holds(Micros::from_secs(2)));
    world.arrive(ask(2_000, 0));
    let held = world.arrive(ask(150, 0));
    assert!(world.is_waiting(held));
    assert_eq!(
        world.gate.deadline(),
        Some(world.now.after(Micros(1_500_000))),
        "100 tokens come each second"
    );
    let too_late = world.arrive(ask(100, 0));
    assert_eq!(
        world.reason(too_late),
        Reason::LimitExhausted,
        "behind the held one it would be two and a half seconds"
    );
    assert!(world.told(too_late) >= Micros(2_500_000));
    let just = world.arrive(ask(50, 0));
    assert!(world.is_waiting(just), "in two seconds exactly");
    world.advance(Micros(1_499_999));
    assert!(world.is_waiting(held));
    world.advance(Micros(1));
    assert!(world.is_running(held) && world.is_waiting(just));
    world.advance(Micros(500_000));
    assert!(world.is_running(just));
    world.wind_up();
}

#[test]
fn what_comes_back_lets_the_held_go_at_once_and_in_order() {
    let mut world = World::new(holds(Micros::from_secs(60)));
    let running = world.arrive(ask(1_000, 1_000));
    let [first, second] = [world.arrive(ask(600, 0)), world.arrive(ask(10, 0))];
    assert!(world.is_waiting(first) && world.is_waiting(second), "nobody overtakes who is held");
    world.complete(running, 1_000, 390);
    assert_eq!(world.starts.iter().map(|start| start.1).collect::<Vec<_>>(), [running, first, second]);
    assert_eq!(world.tokens(), 0);
    world.wind_up();
}

#[test]
fn a_held_client_that_leaves_gives_its_place_to_the_next() {
    let mut world = World::new(holds(Micros::from_secs(60)));
    world.arrive(ask(2_000, 0));
    let [first, second] = [world.arrive(ask(500, 0)), world.arrive(ask(100, 0))];
    world.advance_secs(1);
    world.leave(first, 0);
    assert!(world.is_running(second), "100 tokens have come");
    assert_eq!(world.account(first).charged, Tokens(0));
    world.wind_up();
}

#[test]
fn a_budget_that_a_neighbour_uses_up_ends_the_hold_in_time() {
    let mut policy = holds(Micros::from_secs(2));
    policy.tenants[0].keys =
        vec![key("web", Limits::default()), key("app", rates(&[per_sec(Dimension::Tokens, 1, 1)]))];
    let mut world = World::new(policy);
    let running = world.arrive(ask(1_900, 0));
    let held = world.arrive(ask(250, 0));
    assert!(world.is_waiting(held));
    // It uses more than it reserved: the budget returns too late.
    world.complete(running, 1_900, 2_000);
    world.advance_secs(2);
    assert_eq!(world.reason(held), Reason::LimitExhausted);
    let other = world.arrive(Arrival { key: Some(KeyId(1)), ..ask(5, 0) });
    assert_eq!(world.reason(other), Reason::NeverFits);
    world.wind_up();
}

#[test]
fn limits_without_a_hold_refuse_at_once() {
    let mut world = World::new(holds(Micros::ZERO));
    world.arrive(ask(2_000, 0));
    let refused = world.arrive(ask(1, 0));
    assert_eq!(world.reason(refused), Reason::LimitExhausted);
}

#[test]
fn the_held_count_for_the_bound_of_the_queue_and_end_with_a_shutdown() {
    let mut policy = holds(Micros::from_secs(60));
    policy.classes[0].queue_requests_max = 2;
    let mut world = World::new(policy);
    world.arrive(ask(2_000, 0));
    let held = [world.arrive(ask(10, 0)), world.arrive(ask(10, 0))];
    let third = world.arrive(ask(10, 0));
    assert_eq!(world.reason(third), Reason::QueueFull);
    assert_eq!(world.gate.pools()[0].classes[0].1, 2);
    world.handle(Event::Drain);
    assert!(held.iter().all(|request| world.reason(*request) == Reason::Shutdown));
    world.wind_up();
}

#[test]
fn a_raised_limit_lets_the_held_go() {
    let mut world = World::new(holds(Micros::from_secs(60)));
    world.arrive(ask(2_000, 0));
    let held = world.arrive(ask(1_000, 0));
    let mut wider = holds(Micros::from_secs(60));
    wider.tenants[0].limits.all.rates = tokens(200, 20).rates;
    world.reload(wider);
    world.advance_secs(5);
    assert!(world.is_running(held), "twice as much comes");
    world.wind_up();
}

#[test]
fn a_burst_that_is_held_is_refused_less_and_uses_no_more() {
    let refused = |hold: Micros| {
        let mut world = World::new(holds(hold));
        let mut started_late = 0;
        for _ in 0..400 {
            let request = world.arrive(ask(30, 0));
            world.advance(Micros::from_millis(200));
            started_late += u32::from(world.is_waiting(request));
        }
        let most = 2_000 + 80 * 100;
        let used: u64 = world.starts.iter().map(|start| world.arrivals[&start.1].input.0).sum();
        assert!(used <= most, "{used} of {most}");
        (world.refusals.len(), started_late)
    };
    let (without, with) = (refused(Micros::ZERO), refused(Micros::from_secs(2)));
    assert!(with.0 < without.0, "{with:?} against {without:?}");
}

proptest! {
    #![proptest_config(some(400))]

    #[test]
    fn the_held_go_first_in_first_out_within_their_time_and_budget(seed: u64) {
        let mut chance = Chance::new(seed);
        let hold = Micros(chance.below(4_000_000));
        let store = chance.pick(&[Store::AtOnce, Store::AtOnce, Store::TellsLate, Store::DecidesLate]);
        let mut policy = holds(hold);
        policy.service = rates(&[per_sec(Dimension::Tokens, 150, 5)]);
        policy.service.hold = chance.pick(&[Micros::ZERO, Micros::from_secs(3)]);
        policy.pools[0].backends = vec![backend("one", 2)];
        let mut world = World::with_store(policy, store);
        let mut arrived = std::collections::BTreeMap::new();
        for _ in 0..80 {
            match chance.below(6) {
                0..3 => {
                    let request = world.arrive(ask(1 + chance.below(400), chance.below(200)));
                    arrived.insert(request, world.now);
                }
                3 => {
                    let running = world.running();
                    if let Some(request) = running.first().copied() {
                        let (input, output) = (chance.below(400), chance.below(200));
                        world.complete(request, input, output);
                    }
                }
                4 => {
                    let waiting = world.waiting();
                    if let Some(request) = waiting.last().copied().filter(|_| chance.one_in(3)) {
                        world.leave(request, 0);
                    }
                }
                _ => world.advance(Micros(chance.below(800_000))),
            }
            if chance.one_in(2) {
                world.answer();
            }
        }
        // Nobody of this one tenant and run overtakes another: what is held goes in the order of its arrival.
        if store == Store::AtOnce {
            let order: Vec<_> = world.starts.iter().map(|start| start.1).collect();
            let mut sorted = order.clone();
            sorted.sort();
            prop_assert_eq!(order, sorted);
            prop_assert!(world.level(T, Dimension::Tokens) <= 2_000);
        }
        world.wind_up();
    }
}

/// 100 tokens a second in a bucket of 2,000.
fn holds(hold: Micros) -> Policy {
    let mut limits = tokens(100, 20);
    limits.hold = hold;
    policy(vec![tenant("T", limits)])
}
