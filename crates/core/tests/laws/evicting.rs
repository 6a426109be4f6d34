//! Requests taken off their backends to make room, and runs kept on theirs.

use fairlane_core::gate::{Arrival, Event, RequestId};
use fairlane_core::policy::{ClassId, Limits, Policy, TenantId};
use fairlane_core::refusal::Reason;
use fairlane_core::units::{Micros, Tokens};

use crate::policies::{backend, class, policy, tenant, tokens};
use crate::world::{ONE, State, TWO, World, ask, nothing};

#[test]
fn an_interactive_request_that_would_miss_its_wait_takes_a_background_ones_place() {
    let mut world = World::new(evictable());
    let [old, young] = [world.arrive(background()), world.arrive(background())];
    let chat = world.arrive(chat());
    world.advance(Micros(8_999_999));
    assert!(world.evictions.is_empty());
    world.advance(Micros(1));
    assert_eq!(world.evictions, [young], "the one that has worked for the shortest time");
    world.hand_back(Event::Evicted { request: young });
    assert!(world.is_running(chat) && world.is_waiting(young) && world.is_running(old));
    assert_eq!(world.reserved(young), 20, "its reservation stays while it waits");
    world.complete(chat, 10, 10);
    assert!(world.is_running(young), "it is back");
    world.complete(young, 10, 10);
    assert_eq!(world.account(young).charged, Tokens(20), "once");
    world.end(old, nothing());
    world.wind_up();
}

#[test]
fn who_has_delivered_something_or_was_evicted_before_stays() {
    let mut world = World::new(evictable());
    let [first, second] = [world.arrive(background()), world.arrive(background())];
    world.handle(Event::Produced { request: second, output: Tokens(1) });
    let rescued = world.arrive(chat());
    world.advance_secs(9);
    assert_eq!(world.evictions, [first]);
    world.hand_back(Event::Evicted { request: first });
    assert!(world.is_running(rescued));
    world.complete(rescued, 10, 10);
    assert!(world.is_running(first));
    let missed = world.arrive(chat());
    world.advance_secs(10);
    assert_eq!(world.evictions, [first], "nobody is left to be evicted");
    assert_eq!(world.reason(missed), Reason::WaitTooLong);
}

#[test]
fn nobody_is_evicted_where_it_is_off_or_for_a_class_below() {
    let mut off = evictable();
    off.classes[1].is_evictable = false;
    let mut world = World::new(off);
    world.arrive(background());
    world.arrive(background());
    world.arrive(chat());
    world.advance_secs(10);
    assert!(world.evictions.is_empty());
    let mut world = World::new(evictable());
    world.arrive(background());
    world.arrive(background());
    world.arrive(background());
    world.advance_secs(600);
    assert!(world.evictions.is_empty());
}

#[test]
fn a_run_stays_on_its_backend_while_that_costs_others_little() {
    let follow = |stickiness: u64| {
        let mut policy = policy(vec![tenant("one", Limits::default())]);
        policy.pools[0].backends = vec![backend("one", 1), backend("two", 1)];
        policy.pools[0].stickiness = Tokens(stickiness);
        let mut world = World::new(policy);
        let of = |run: u128| Arrival { run: Some(run), ..ask(100, 0) };
        let [a, b] = [world.arrive(of(1)), world.arrive(of(2))];
        assert_eq!((world.state(a), world.state(b)), (&State::Running(ONE), &State::Running(TWO)));
        // Both go on; the one that is free first is not the one that the first in order was on.
        let [next_a, next_b] = [world.arrive(of(1)), world.arrive(of(2))];
        world.complete(b, 100, 0);
        let where_to = |request: RequestId, world: &World| match world.state(request) {
            State::Running(backend) => Some(*backend),
            State::Waiting | State::Refused(_) | State::Finished(_) => None,
        };
        (where_to(next_a, &world), where_to(next_b, &world))
    };
    assert_eq!(follow(0), (Some(TWO), None), "first in, first out");
    assert_eq!(follow(200), (None, Some(TWO)), "the run that was there goes before");
}

#[test]
fn a_run_is_passed_over_by_no_more_than_the_stickiness() {
    let mut policy = policy(vec![tenant("one", Limits::default())]);
    policy.pools[0].backends = vec![backend("one", 1), backend("two", 1)];
    policy.pools[0].stickiness = Tokens(250);
    let mut world = World::new(policy);
    let of = |run: u128| Arrival { run: Some(run), ..ask(100, 0) };
    let long = world.arrive(of(1));
    let mut last = world.arrive(of(2));
    let waiting = world.arrive(of(1));
    let mut passed = 0;
    while world.is_waiting(waiting) {
        let next = world.arrive(of(2));
        world.complete(last, 100, 0);
        last = next;
        passed += 100;
        assert!(passed <= 400, "it waits for its backend for ever");
    }
    assert!(world.is_running(long) && world.state(waiting) == &State::Running(TWO));
    assert!(passed >= 200, "it waited for a while");
}

/// Two slots; the second class can be evicted.
fn evictable() -> Policy {
    let mut policy = policy(vec![tenant("T", tokens(100, 20)), tenant("other", Limits::default())]);
    policy.classes = vec![class("interactive"), class("background")];
    policy.classes[1].wait_max = Micros::from_secs(1_000);
    policy.classes[1].is_evictable = true;
    policy.pools[0].backends = vec![backend("one", 2)];
    policy
}

fn background() -> Arrival {
    Arrival { class: ClassId(1), ..ask(10, 10) }
}

fn chat() -> Arrival {
    Arrival { tenant: TenantId(0), ..ask(10, 10) }
}
