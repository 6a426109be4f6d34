//! Faults that random worlds of the lab have found, each as the smallest history that shows it.

use fairlane_core::gate::{Answer, Arrival, Event, Outcome, Report, Reported};
use fairlane_core::policy::{Dimension, Limits, Policy};
use fairlane_core::refusal::Reason;
use fairlane_core::units::{Amount, Micros, Tokens};

use crate::policies::{per_sec, policy, rates, scope, tenant, tokens};
use crate::world::{World, ask};

#[test]
fn an_end_users_limit_that_is_taken_away_and_comes_back_is_remembered_though_a_quicker_one_stays() {
    let slow = per_sec(Dimension::Tokens, 1, 1_000);
    let quick = per_sec(Dimension::Requests, 10, 1);
    let users = |limits: Limits| {
        let mut first = tenant("T", Limits::default());
        first.end_users = Some(scope(limits));
        policy(vec![first])
    };
    let of = |cost: u64| Arrival { end_user: Some(1), ..ask(cost, 0) };
    let mut world = World::new(users(rates(&[slow, quick])));
    let running = world.arrive(of(1_000));
    world.reload(users(rates(&[quick])));
    // It leaves under limits that are full again within eleven seconds.
    world.complete(running, 1_000, 0);
    world.advance_secs(60);
    world.reload(users(rates(&[slow, quick])));
    let again = world.arrive(of(61));
    assert_eq!(world.reason(again), Reason::LimitExhausted, "a reload is never a refill");
    let again = world.arrive(of(60));
    assert!(world.is_running(again));
    world.wind_up();
}

#[test]
fn held_requests_that_a_reload_refuses_leave_no_reservation_behind() {
    let mut stricter = holding();
    stricter.tenants[0].limits.all.max_input = Some(Tokens(50));
    refuses_all_held(|world| world.reload(stricter));
}

#[test]
fn held_requests_that_a_drain_refuses_leave_no_reservation_behind() {
    refuses_all_held(|world| world.handle(Event::Drain));
}

#[test]
fn usage_that_no_request_can_have_is_cut_and_both_laws_hold() {
    let mut world = World::new(policy(vec![tenant("T", tokens(100, 20))]));
    for _ in 0..3 {
        let request = world.arrive(ask(0, 0));
        let reported = Reported {
            input: Some(Tokens(u64::MAX)),
            cached: Tokens(0),
            output: Some(Tokens(u64::MAX)),
            partial: false,
        };
        world.end(
            request,
            Report {
                outcome: Outcome::Completed,
                answer: Answer::Content,
                reported,
                counted_output: Tokens(0),
            },
        );
        assert_eq!(world.account(request).used.input, Tokens(Amount::WHOLE_MAX));
        world.advance_secs(3_600);
    }
    world.wind_up();
}

/// Three requests wait for the budget of the first, and none of them may wait any longer.
fn refuses_all_held(change: impl FnOnce(&mut World)) {
    let mut world = World::new(holding());
    let running = world.arrive(ask(2_000, 0));
    let held = [300, 100, 100].map(|cost| world.arrive(ask(cost, 0)));
    assert!(held.iter().all(|request| world.is_waiting(*request)));
    // The store would grant what the second one asks, as soon as it is first.
    world.advance(Micros::from_millis(2_900));
    change(&mut world);
    assert!(held.iter().all(|request| world.is_refused(*request)));
    world.complete(running, 2_000, 0);
    world.wind_up();
}

fn holding() -> Policy {
    let mut limits = tokens(100, 20);
    limits.hold = Micros::from_secs(60);
    policy(vec![tenant("T", limits)])
}
