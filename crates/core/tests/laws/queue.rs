//! Waiting for a backend: order, bounded waits, limits at dispatch, backends that come and go.

use fairlane_core::gate::{Arrival, Event, Failure, RequestId};
use fairlane_core::policy::{Dimension, KeyId, Limits, OnExcess, Order, Policy, PoolId, Runs, TenantId};
use fairlane_core::refusal::Reason;
use fairlane_core::scope::Owner;
use fairlane_core::units::{Micros, Moment};

use crate::policies::{
    at_once, backend, key, policy, rates, run_budget, scope, slow, tenant, tokens, with_concurrency,
};
use crate::world::{ONE, State, Store, TWO, World, ask, nothing};

#[test]
fn a_wait_ends_at_exactly_its_moment() {
    let mut world = World::new(busy());
    let running = world.arrive(ask(1, 1));
    let class = world.arrive(ask(1, 1));
    let own = world.arrive(Arrival { wait_max: Some(Micros(1_500_000)), ..ask(1, 1) });
    let start = world.now;
    world.advance(Micros(1_499_999));
    assert!(world.is_waiting(own));
    world.advance(Micros(1));
    assert_eq!(world.reason(own), Reason::WaitTooLong);
    world.advance(Micros(8_499_999));
    assert!(world.is_waiting(class));
    assert_eq!(world.gate.deadline(), Some(start.after(Micros::from_secs(10))));
    world.advance(Micros(1));
    assert_eq!(world.reason(class), Reason::WaitTooLong);
    assert_eq!(world.refusals, [(Moment(start.0 + 1_500_000), own), (Moment(start.0 + 10_000_000), class)]);
    assert!(world.is_running(running));
}

#[test]
fn a_slot_that_frees_goes_past_one_that_is_held_elsewhere() {
    let mut first = tenant("first", at_once(2));
    first.keys = vec![key("web", at_once(1)), key("app", Limits::default())];
    let mut world = World::new(policy(vec![first]));
    let (web, app) = (ask(1, 1), Arrival { key: Some(KeyId(1)), ..ask(1, 1) });
    let running = [app.clone(), app.clone()].map(|arrival| world.arrive(arrival));
    // All three wait for a slot of the tenant; the key's only slot is free.
    let [takes_key, held_by_key, next] = [web.clone(), web, app].map(|arrival| world.arrive(arrival));
    world.complete(running[0], 1, 1);
    assert!(world.is_running(takes_key));
    world.complete(running[1], 1, 1);
    assert!(world.is_waiting(held_by_key), "its key has no slot");
    assert!(world.is_running(next), "the tenant's slot must not be lost with the one who cannot use it");
    world.complete(takes_key, 1, 1);
    assert!(world.is_running(held_by_key));
}

#[test]
fn a_slot_offered_to_one_who_leaves_goes_to_the_next() {
    let mut policy = policy(vec![tenant("first", at_once(1)), tenant("second", Limits::default())]);
    policy.pools[0].backends = vec![backend("one", 2)];
    policy.order = Order::Fifo;
    let mut world = World::new(policy);
    let second = Arrival { tenant: TenantId(1), ..ask(1, 1) };
    let held = world.arrive(ask(1, 1));
    let offered = world.arrive(ask(1, 1));
    let next = world.arrive(ask(1, 1));
    let filler = world.arrive(second.clone());
    let blocking = world.arrive(Arrival { wait_max: Some(Micros::from_secs(1)), ..second });
    world.complete(held, 1, 1);
    assert!(world.is_running(offered));
    world.complete(filler, 1, 1);
    assert!(world.is_running(blocking));
    // The backend is full; the tenant's slot is free and offered to `next`, which leaves.
    let last = world.arrive(ask(1, 1));
    let third = world.arrive(Arrival { tenant: TenantId(1), ..ask(1, 1) });
    world.complete(offered, 1, 1);
    assert!(world.is_running(next));
    world.leave(next, 0);
    assert!(world.is_running(last) && world.is_waiting(third));
}

#[test]
fn rejecting_limits_refuse_above_their_number_and_take_the_next_after_an_end() {
    let mut world =
        World::new(policy(vec![tenant("T", with_concurrency(Limits::default(), 2, OnExcess::Reject))]));
    let first = world.arrive(ask(1, 1));
    world.arrive(ask(1, 1));
    let third = world.arrive(ask(1, 1));
    assert_eq!(world.reason(third), Reason::LimitExhausted);
    assert_eq!(world.refusal(third).limit.unwrap().dimension, Dimension::ConcurrentRequests);
    assert!(world.told(third) >= Micros::from_secs(1));
    world.complete(first, 1, 1);
    let fourth = world.arrive(ask(1, 1));
    assert!(world.is_running(fourth));
}

#[test]
fn a_limit_of_the_pool_is_debited_at_dispatch_and_nobody_overtakes() {
    let mut policy = policy(vec![tenant("T", Limits::default())]);
    policy.pools[0].limits = tokens(100, 10);
    let mut world = World::new(policy);
    let pool = Owner::Pool(PoolId(0));
    let first = world.arrive(ask(500, 300));
    assert_eq!(world.level(pool, Dimension::Tokens), 200);
    let large = world.arrive(ask(200, 200));
    let small = world.arrive(ask(10, 10));
    assert!(world.is_running(first) && world.is_waiting(large) && world.is_waiting(small));
    world.advance(Micros(1_999_999));
    assert!(world.is_waiting(large) && world.is_waiting(small));
    world.advance(Micros(1));
    assert!(world.is_running(large), "the pool holds 400 after two seconds");
    assert!(world.is_waiting(small));
    world.complete(first, 500, 300);
    assert!(world.is_waiting(small), "nothing came back");
    world.complete(large, 200, 180);
    assert!(world.is_running(small), "what came back is enough at once");
}

#[test]
fn a_limit_of_one_backend_sends_the_work_to_another() {
    let mut policy = policy(vec![tenant("T", Limits::default())]);
    policy.pools[0].backends = vec![backend("one", 10), backend("two", 9)];
    policy.pools[0].backends[0].limits = rates(&[slow(Dimension::Tokens, 100)]);
    let mut world = World::new(policy);
    let first = world.arrive(ask(50, 50));
    let second = world.arrive(ask(50, 50));
    assert_eq!(world.state(first), &State::Running(ONE));
    assert_eq!(world.state(second), &State::Running(TWO));
    assert_eq!(world.level(Owner::Backend(ONE), Dimension::Tokens), 0);
    world.complete(first, 50, 10);
    assert_eq!(world.level(Owner::Backend(ONE), Dimension::Tokens), 40);
}

#[test]
fn a_cost_that_only_a_missing_backend_can_hold_is_refused_without_a_made_up_answer() {
    let mut policy = policy(vec![tenant("T", tokens(100, 20))]);
    policy.pools[0].backends = vec![backend("one", 10), backend("two", 9)];
    policy.pools[0].backends[0].limits = rates(&[slow(Dimension::Tokens, 100)]);
    let mut world = World::new(policy);
    world.handle(Event::BackendDown(TWO));
    let large = world.arrive(ask(500, 500));
    assert_eq!(world.reason(large), Reason::NoBackend);
    assert_eq!(world.abandoned, []);
    assert_eq!(world.tokens(), 2_000);
    world.handle(Event::BackendUp(TWO));
    let again = world.arrive(ask(500, 500));
    assert_eq!(world.state(again), &State::Running(TWO));
}

#[test]
fn a_late_store_keeps_the_order_of_dispatch() {
    let mut policy = policy(vec![tenant("T", Limits::default())]);
    policy.pools[0].limits = tokens(100, 10);
    let mut world = World::with_store(policy, Store::DecidesLate);
    let requests: Vec<RequestId> = (0..3).map(|_| world.arrive(ask(10, 10))).collect();
    for _ in 0..3 {
        world.answer();
    }
    assert_eq!(world.pending.len(), 1, "one dispatch at a time asks the store");
    for _ in 0..3 {
        world.answer();
    }
    let order: Vec<RequestId> = world.starts.iter().map(|start| start.1).collect();
    assert_eq!(order, requests);
}

#[test]
fn an_opening_that_passes_unseen_is_still_asked_for() {
    let mut world = World::new(busy());
    let first = world.arrive(ask(1, 1));
    let waiting = world.arrive(ask(1, 1));
    world.hand_back(Event::Bounced { request: first, retry_after: Some(Micros::from_secs(1)) });
    let opening = world.gate.deadline().unwrap();
    assert_eq!(opening, world.now.after(Micros::from_secs(1)));
    // The driver is late, and something that wakes nobody comes first.
    world.now = opening.after(Micros(500));
    world.handle(Event::Produced { request: first, output: fairlane_core::units::Tokens(1) });
    assert!(world.gate.deadline().is_some_and(|deadline| deadline <= world.now));
    world.handle(Event::Tick);
    assert!(world.is_running(first) && world.is_waiting(waiting));
}

#[test]
fn a_paused_backend_that_the_next_one_has_tried_asks_for_no_ticks() {
    let mut policy = policy(vec![tenant("T", Limits::default())]);
    policy.pools[0].backends = vec![backend("one", 1), backend("two", 1)];
    let mut world = World::new(policy);
    let failing = world.arrive(ask(1, 1));
    let other = world.arrive(ask(1, 1));
    world.hand_back(Event::Failed { request: failing, failure: Failure::Error });
    assert!(world.is_waiting(failing), "the other backend is full");
    let until = world.gate.deadline().unwrap();
    assert_eq!(until, world.now.after(Micros::from_secs(10)), "its wait, and no busy loop before");
    world.complete(other, 1, 1);
    assert_eq!(world.state(failing), &State::Running(TWO));
}

#[test]
fn backends_that_go_down_get_nothing_and_get_work_when_they_come_up() {
    let mut world = World::new(busy());
    world.handle(Event::BackendDown(ONE));
    let refused = world.arrive(ask(1, 1));
    assert_eq!(world.reason(refused), Reason::NoBackend);
    world.handle(Event::BackendUp(ONE));
    let running = world.arrive(ask(1, 1));
    let waiting = world.arrive(ask(1, 1));
    world.handle(Event::BackendDown(ONE));
    world.complete(running, 1, 1);
    assert!(world.is_waiting(waiting), "what waits stays until its wait is over");
    world.handle(Event::BackendUp(ONE));
    assert!(world.is_running(waiting));
    let last = world.arrive(ask(1, 1));
    world.handle(Event::BackendDown(ONE));
    world.advance_secs(10);
    assert_eq!(world.reason(last), Reason::NoBackend);
}

#[test]
fn a_run_waits_for_its_own_slot_while_others_go_on() {
    let mut first = tenant("T", Limits::default());
    first.runs = Some(Runs { limits: scope(at_once(1)), ..run_budget(1_000) });
    let mut world = World::new(policy(vec![first]));
    let of = |run: u128| Arrival { run: Some(run), ..ask(10, 10) };
    let step = world.arrive(of(1));
    let next = world.arrive(of(1));
    let other = world.arrive(of(2));
    assert!(world.is_running(step) && world.is_waiting(next) && world.is_running(other));
    world.end(step, nothing());
    assert!(world.is_running(next));
    assert_eq!(world.gate.runs(TenantId(0), 10).len(), 2);
}

/// One tenant before a backend with one slot.
fn busy() -> Policy {
    let mut policy = policy(vec![tenant("T", Limits::default())]);
    policy.pools[0].backends = vec![backend("one", 1)];
    policy
}
