//! Leaving at any stage, and every way a backend can fail: all comes back, once.

use fairlane_core::gate::{Arrival, Event, Failure, Outcome};
use fairlane_core::policy::{Dimension, Limits, OnExcess, Policy, Runs};
use fairlane_core::refusal::{Reason, Retry};
use fairlane_core::units::{Micros, Moment, Tokens};

use crate::policies::{
    backend, per_sec, policy, rates, run_budget, scope, slow, tenant, tokens, with_concurrency,
};
use crate::world::{ONE, State, Store, T, TWO, World, ask, nothing};

#[test]
fn leaving_while_the_store_thinks_gives_everything_back() {
    for store in [Store::TellsLate, Store::DecidesLate] {
        let mut world = World::with_store(everything(), store);
        let request = world.arrive(ask(100, 100));
        world.leave(request, 0);
        assert!(world.is_waiting(request), "its reservation may be on its way");
        world.answer();
        assert_eq!(world.account(request).outcome, Outcome::ClientGone);
        assert_eq!(world.starts, []);
        check_untouched(&mut world);
    }
}

#[test]
fn leaving_while_the_store_thinks_and_refuses_leaves_nothing() {
    let mut world = World::with_store(everything(), Store::DecidesLate);
    let running = world.arrive(ask(1_000, 1_000));
    world.answer();
    world.answer();
    let request = world.arrive(ask(100, 100));
    world.leave(request, 0);
    world.answer();
    assert!(world.is_refused(request));
    world.end(running, nothing());
    check_untouched(&mut world);
}

#[test]
fn leaving_the_queue_gives_everything_back() {
    let mut world = World::new(everything());
    let running = world.arrive(ask(10, 10));
    let second = world.arrive(ask(10, 10));
    let queued = world.arrive(ask(100, 100));
    assert!(world.is_running(running) && world.is_running(second) && world.is_waiting(queued));
    world.leave(queued, 0);
    assert_eq!(world.account(queued).outcome, Outcome::ClientGone);
    assert_eq!(world.account(queued).charged, Tokens(0));
    world.end(second, nothing());
    world.end(running, nothing());
    check_untouched(&mut world);
}

#[test]
fn leaving_while_parked_behind_a_concurrency_limit_gives_everything_back() {
    let mut policy = everything();
    policy.tenants[0].limits.all = with_concurrency(policy.tenants[0].limits.all.clone(), 1, OnExcess::Queue);
    let mut world = World::new(policy);
    let running = world.arrive(ask(10, 10));
    let parked = world.arrive(Arrival { run: Some(2), ..ask(100, 100) });
    let last = world.arrive(Arrival { run: Some(3), ..ask(10, 10) });
    world.leave(parked, 0);
    world.end(running, nothing());
    assert!(world.is_running(last));
    world.end(last, nothing());
    check_untouched(&mut world);
}

#[test]
fn leaving_while_a_dispatch_is_being_decided_gives_everything_back() {
    for refused in [false, true] {
        let mut policy = everything();
        policy.pools[0].limits = tokens(100, 10);
        let mut world = World::with_store(policy, Store::DecidesLate);
        if refused {
            let before = world.arrive(ask(900, 10));
            world.answer();
            world.answer();
            assert!(world.is_running(before));
        }
        let request = world.arrive(ask(100, 100));
        world.answer();
        assert_eq!(world.pending.len(), 1, "the pool's limit is asked");
        world.leave(request, 0);
        world.answer();
        assert_eq!(world.account(request).outcome, Outcome::ClientGone);
        assert!(!world.starts.iter().any(|start| start.1 == request), "nothing is sent for who has left");
        world.wind_up();
    }
}

#[test]
fn leaving_while_running_is_charged_what_was_counted() {
    let mut world = World::new(everything());
    let request = world.arrive(ask(100, 100));
    world.leave(request, 7);
    assert_eq!(world.tokens(), 2_000 - 107);
    assert_eq!(world.level(T, Dimension::Requests), 9);
    world.wind_up();
}

#[test]
fn a_bounce_goes_back_to_its_place_uncharged_and_waits_as_long_as_asked() {
    let mut world = World::new(everything());
    let first = world.arrive(ask(100, 100));
    let second = world.arrive(ask(10, 10));
    let third = world.arrive(ask(10, 10));
    world.hand_back(Event::Bounced { request: first, retry_after: Some(Micros::from_secs(3)) });
    assert!(world.is_waiting(first) && world.is_waiting(third));
    assert_eq!(world.tokens(), 2_000 - 240, "its reservation stays while it waits");
    world.complete(second, 10, 10);
    world.advance(Micros(2_999_999));
    assert!(world.is_waiting(first));
    world.advance(Micros(1));
    assert!(world.is_running(first), "before those that came later");
    assert_eq!(world.starts.iter().rev().nth(1).unwrap().1, first);
    assert_eq!(world.gate.live(), 2);
    world.complete(first, 100, 50);
    assert_eq!(world.account(first).attempts, 2);
    assert_eq!(world.account(first).charged, Tokens(150));
    world.wind_up();
}

#[test]
fn bounces_without_a_time_pause_the_backend_longer_each_time_until_it_answers() {
    let mut policy = everything();
    policy.classes[0].wait_max = Micros::from_secs(100);
    policy.pools[0].backends = vec![backend("one", 1)];
    let mut world = World::new(policy);
    let request = world.arrive(ask(10, 10));
    let mut pauses: Vec<u64> = Vec::new();
    for _ in 0..8 {
        let before = world.now;
        world.hand_back(Event::Bounced { request, retry_after: None });
        let opening = world.gate.deadline().unwrap();
        pauses.push(opening.since(before).0 / 1_000);
        world.advance(opening.since(before));
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 6_400, 6_400]);
    world.complete(request, 10, 10);
    let request = world.arrive(ask(10, 10));
    world.hand_back(Event::Bounced { request, retry_after: None });
    assert_eq!(world.gate.deadline(), Some(world.now.after(Micros::from_millis(100))));
}

#[test]
fn a_bounce_after_the_wait_is_over_passes_the_answer_on() {
    let mut world = World::new(everything());
    let request = world.arrive(ask(100, 100));
    world.advance_secs(11);
    world.hand_back(Event::Bounced { request, retry_after: None });
    assert_eq!(world.abandoned, [request]);
    assert_eq!(world.account(request).outcome, Outcome::UpstreamError);
    check_untouched(&mut world);
}

#[test]
fn a_bounced_request_whose_wait_ends_in_the_queue_passes_the_answer_on() {
    let mut world = World::new(everything());
    let request = world.arrive(ask(100, 100));
    world.hand_back(Event::Bounced { request, retry_after: Some(Micros::from_secs(60)) });
    world.advance(Micros(9_999_999));
    assert!(world.is_waiting(request));
    world.advance(Micros(1));
    assert_eq!(world.abandoned, [request]);
    check_untouched(&mut world);
}

#[test]
fn a_failure_is_tried_once_on_another_backend_and_then_passed_on() {
    let mut world = World::new(two_backends());
    let request = world.arrive(ask(100, 100));
    assert_eq!(world.state(request), &State::Running(ONE));
    world.hand_back(Event::Failed { request, failure: Failure::Error });
    assert_eq!(world.state(request), &State::Running(TWO));
    world.hand_back(Event::Failed { request, failure: Failure::Error });
    assert_eq!(world.abandoned, [request]);
    assert_eq!(world.account(request).attempts, 2);
    check_untouched(&mut world);
}

#[test]
fn a_failure_of_the_only_backend_is_passed_on_at_once() {
    let mut world = World::new(everything());
    let request = world.arrive(ask(100, 100));
    world.hand_back(Event::Failed { request, failure: Failure::Error });
    assert_eq!(world.abandoned, [request]);
    check_untouched(&mut world);
}

#[test]
fn a_failed_try_is_not_charged_to_the_backend_that_failed() {
    let mut policy = two_backends();
    policy.pools[0].backends[0].limits =
        rates(&[slow(Dimension::Tokens, 1_000), slow(Dimension::Requests, 9)]);
    let mut world = World::new(policy);
    let request = world.arrive(ask(100, 100));
    world.hand_back(Event::Failed { request, failure: Failure::Error });
    assert_eq!(world.state(request), &State::Running(TWO));
    let one = fairlane_core::scope::Owner::Backend(ONE);
    assert_eq!(world.level(one, Dimension::Tokens), 1_000);
    assert_eq!(world.level(one, Dimension::Requests), 9);
}

#[test]
fn a_drain_refuses_what_waits_and_lets_what_runs_finish() {
    let mut policy = two_backends();
    policy.pools[0].backends = vec![backend("one", 1)];
    let mut world = World::new(policy);
    let running = world.arrive(ask(10, 10));
    let queued = world.arrive(ask(10, 10));
    world.handle(Event::Drain);
    assert_eq!(world.reason(queued), Reason::Shutdown);
    let late = world.arrive(ask(10, 10));
    assert_eq!(world.reason(late), Reason::Shutdown);
    assert!(matches!(world.refusal(late).retry, Retry::After(_)));
    world.complete(running, 10, 5);
    assert_eq!(world.tokens(), 2_000 - 15);
    world.wind_up();
}

#[test]
fn nothing_starts_after_a_drain() {
    let mut world = World::with_store(two_backends(), Store::DecidesLate);
    let running = world.arrive(ask(10, 10));
    world.answer();
    let asking = world.arrive(ask(10, 10));
    world.handle(Event::Drain);
    world.answer();
    assert_eq!(world.reason(asking), Reason::Shutdown);
    world.hand_back(Event::Bounced { request: running, retry_after: None });
    assert_eq!(world.abandoned, [running]);
    check_untouched(&mut world);
}

#[test]
fn events_of_a_request_that_is_over_change_nothing() {
    let mut world = World::new(everything());
    let request = world.arrive(ask(100, 100));
    world.complete(request, 100, 50);
    let (level, totals) = (world.tokens(), *world.ledger.totals());
    world.handle(Event::Produced { request, output: Tokens(5_000) });
    world.handle(Event::Bounced { request, retry_after: None });
    world.handle(Event::Failed { request, failure: Failure::Error });
    world.leave(request, 400);
    world.complete(request, 1, 1);
    assert_eq!((world.tokens(), *world.ledger.totals()), (level, totals));
}

#[test]
fn a_full_queue_refuses_and_gives_back() {
    let mut policy = everything();
    policy.pools[0].backends = vec![backend("one", 1)];
    policy.classes[0].queue_tokens_max = Tokens(150);
    let mut world = World::new(policy);
    world.arrive(ask(10, 10));
    let fits = world.arrive(ask(100, 50));
    let level = world.tokens();
    let over = world.arrive(ask(1, 0));
    assert!(world.is_waiting(fits));
    assert_eq!(world.reason(over), Reason::QueueFull);
    assert!(world.told(over) >= Micros::from_secs(1));
    assert_eq!(world.tokens(), level);
    world.wind_up();
}

#[test]
fn waits_told_follow_the_pace_of_completions() {
    let mut policy = everything();
    policy.tenants = vec![tenant("T", Limits::default())];
    policy.pools[0].backends = vec![backend("one", 1)];
    policy.classes[0].queue_requests_max = 4;
    let mut world = World::new(policy);
    let mut running = world.arrive(ask(1, 1));
    for _ in 0..5 {
        let next = world.arrive(ask(1, 1));
        world.advance_secs(3);
        world.complete(running, 1, 1);
        running = next;
    }
    for _ in 0..4 {
        world.arrive(ask(1, 1));
    }
    let over = world.arrive(ask(1, 1));
    assert_eq!(world.told(over), Micros::from_secs(15), "five ahead at three seconds each");
}

/// One tenant with a limit of every kind, before a backend with two slots.
fn everything() -> Policy {
    let both = rates(&[per_sec(Dimension::Tokens, 100, 20), slow(Dimension::Requests, 10)]);
    let mut first = tenant("T", both);
    first.keys[0].limits = scope(with_concurrency(Limits::default(), 5, OnExcess::Reject));
    first.runs = Some(Runs {
        max_steps: Some(20),
        new_runs: Some(slow(Dimension::NewRuns, 5).shape),
        ..run_budget(10_000)
    });
    let mut policy = policy(vec![first]);
    policy.pools[0].backends = vec![backend("one", 2)];
    policy
}

fn two_backends() -> Policy {
    let mut policy = everything();
    policy.pools[0].backends = vec![backend("one", 2), backend("two", 1)];
    policy
}

/// Every limit is as full as at the start, without any time for a refill.
fn check_untouched(world: &mut World) {
    for view in world.gate.all_limits() {
        let level = world.ledger.level(view.cell, &view.shape, Moment(0));
        assert_eq!(level, view.shape.capacity, "{:?}", view.limit);
    }
    assert_eq!(world.gate.live(), 0);
    world.wind_up();
}
