//! Endings that are a choice or an estimate: streams cut at their budget's end, backends that take too long, buckets that lie idle.

use fairlane_core::gate::{Answer, Arrival, Event, Failure, Outcome, Report, RequestId, UsageSource};
use fairlane_core::policy::{Charging, Dimension, ModelId, OnBudgetEnd, Policy, Runs};
use fairlane_core::refusal::{Reason, Retry};
use fairlane_core::units::{Micros, Tokens};

use crate::policies::{backend, policy, rates, run_budget, slow, tenant, tokens};
use crate::world::{T, World, ask, reported};

#[test]
fn a29_a_stream_is_cut_when_its_budget_is_used_up_only_where_the_switch_says_so() {
    for (on_budget_end, cuts) in [(OnBudgetEnd::Finish, 0), (OnBudgetEnd::Stop, 1)] {
        let mut world = World::new(charged(Charging::Postpay, on_budget_end));
        let request = world.arrive(ask(1_970, 50));
        for chunk in 1..=30 {
            world.handle(Event::Produced { request, output: Tokens(chunk) });
        }
        assert!(world.stops.is_empty(), "30 tokens were left, and 30 were made");
        world.handle(Event::Produced { request, output: Tokens(31) });
        assert_eq!(world.stops.len(), cuts, "{on_budget_end:?}");
        world.end(request, Report { outcome: Outcome::BudgetEnd, ..reported(1_970, 31) });
        assert_eq!(world.tokens(), -1, "what was made is charged");
        let next = world.arrive(ask(1, 1));
        assert_eq!(world.reason(next), Reason::LimitExhausted);
    }
}

#[test]
fn a_cut_names_the_limit_what_was_asked_of_it_and_when_it_holds_a_token_again() {
    let mut world = World::new(charged(Charging::Postpay, OnBudgetEnd::Stop));
    let request = world.arrive(ask(2_000, 50));
    world.handle(Event::Produced { request, output: Tokens(9) });
    let (stopped, refusal) = world.stops[0];
    assert_eq!(stopped, request);
    assert_eq!((refusal.reason, refusal.limit.unwrap().owner), (Reason::LimitExhausted, T));
    assert_eq!((refusal.asked, refusal.left), (2_009, 0));
    assert_eq!(refusal.retry, Retry::After(Micros::from_millis(100)), "ten tokens at 100 a second");
}

#[test]
fn a_spent_run_budget_cuts_its_stream_for_good_and_no_other() {
    let mut policy = policy(vec![tenant("T", tokens(1_000, 100))]);
    policy.tenants[0].charging = Charging::Postpay;
    policy.tenants[0].on_budget_end = OnBudgetEnd::Stop;
    policy.tenants[0].runs = Some(Runs { ..run_budget(100) });
    let mut world = World::new(policy);
    let first = world.arrive(Arrival { run: Some(1), ..ask(90, 50) });
    let other = world.arrive(Arrival { run: Some(2), ..ask(50, 50) });
    for request in [first, other] {
        world.handle(Event::Produced { request, output: Tokens(11) });
    }
    assert_eq!(world.stops.len(), 1);
    let (stopped, refusal) = world.stops[0];
    assert_eq!((stopped, refusal.reason, refusal.retry), (first, Reason::RunBudgetSpent, Retry::Never));
}

#[test]
fn a_debt_bounded_at_zero_cuts_as_one_that_is_not() {
    let mut limit = slow(Dimension::Tokens, 100);
    limit.shape.debt_max = fairlane_core::units::Amount::ZERO;
    let mut policy = policy(vec![tenant("T", rates(&[limit]))]);
    policy.tenants[0].charging = Charging::Postpay;
    policy.tenants[0].on_budget_end = OnBudgetEnd::Stop;
    let mut world = World::new(policy);
    let request = world.arrive(ask(100, 50));
    world.handle(Event::Produced { request, output: Tokens(1) });
    assert_eq!((world.stops.len(), world.tokens()), (1, 0));
}

#[test]
fn a_shadow_limit_cuts_nothing() {
    let mut limit = slow(Dimension::Tokens, 100);
    limit.shadow = true;
    let mut policy = policy(vec![tenant("T", rates(&[limit]))]);
    policy.tenants[0].charging = Charging::Postpay;
    policy.tenants[0].on_budget_end = OnBudgetEnd::Stop;
    let mut world = World::new(policy);
    let request = world.arrive(ask(100, 50));
    world.handle(Event::Produced { request, output: Tokens(40) });
    assert_eq!((world.stops.len(), world.tokens()), (0, -40));
}

#[test]
fn a_reserved_bound_is_passed_by_a_third_before_an_estimate_of_it_is_believed() {
    let mut world = World::new(charged(Charging::Reserve, OnBudgetEnd::Stop));
    let request = world.arrive(ask(1_400, 600));
    world.handle(Event::Produced { request, output: Tokens(800) });
    assert_eq!((world.tokens(), world.stops.len()), (0, 0));
    world.handle(Event::Produced { request, output: Tokens(801) });
    assert_eq!((world.tokens(), world.stops.len()), (-201, 1));
    world.complete(request, 1_400, 600);
    assert_eq!(world.tokens(), 0, "the report corrects what was drawn");
}

#[test]
fn what_is_left_in_the_bucket_covers_a_stream_beyond_its_quantile() {
    let mut world = World::new(charged(Charging::Quantile, OnBudgetEnd::Stop));
    let request = world.arrive(ask(1_000, 900));
    assert_eq!(world.reserved(request), 1_000 + 512);
    world.handle(Event::Produced { request, output: Tokens(900) });
    assert_eq!((world.tokens(), world.stops.len()), (100, 0));
    world.handle(Event::Produced { request, output: Tokens(1_001) });
    assert_eq!((world.tokens(), world.stops.len()), (-1, 1));
}

#[test]
fn a_backend_that_takes_too_long_is_charged_for_the_time_that_it_had() {
    let both = rates(&[slow(Dimension::Tokens, 2_000), slow(Dimension::Requests, 10)]);
    let mut policy = policy(vec![tenant("T", both)]);
    policy.pools[0].backends[0].limits = rates(&[slow(Dimension::Tokens, 5_000)]);
    let mut world = World::new(policy);
    pace(&mut world, ask(10, 200), 100);
    let (level, units) = (world.tokens(), world.level(T, Dimension::Requests));
    let request = world.arrive(ask(10, 200));
    world.advance(Micros::from_millis(500));
    world.handle(Event::Failed { request, failure: Failure::TimedOut });
    assert_eq!(world.abandoned, [request]);
    let account = world.account(request);
    assert_eq!((account.outcome, account.charged), (Outcome::UpstreamTimeout, Tokens(10 + 50)));
    assert_eq!(account.source, UsageSource::Estimated);
    assert_eq!((world.tokens(), world.level(T, Dimension::Requests)), (level - 60, units - 1));
    let backend = fairlane_core::scope::Owner::Backend(crate::world::ONE);
    assert_eq!(world.level(backend, Dimension::Tokens), 5_000 - 110 - 60, "its own limit is charged as well");
    world.wind_up();
}

#[test]
fn a_request_that_ends_well_after_a_try_that_took_too_long_is_charged_once() {
    let mut policy = policy(vec![tenant("T", tokens(100, 20))]);
    policy.pools[0].backends = vec![backend("one", 1), backend("two", 1)];
    let mut world = World::new(policy);
    let request = world.arrive(ask(100, 100));
    world.advance_secs(1);
    world.hand_back(Event::Failed { request, failure: Failure::TimedOut });
    assert!(world.is_running(request), "on the other one");
    world.complete(request, 100, 50);
    assert_eq!(world.account(request).charged, Tokens(150));
    assert_eq!(world.account(request).attempts, 2);
}

#[test]
fn the_time_before_the_last_dispatch_counts_for_no_pace_and_no_charge() {
    let mut world = World::new(charged(Charging::Reserve, OnBudgetEnd::Finish));
    pace(&mut world, ask(10, 200), 100);
    let request = world.arrive(ask(10, 200));
    world.hand_back(Event::Bounced { request, retry_after: Some(Micros::from_secs(5)) });
    world.advance_secs(5);
    assert!(world.is_running(request));
    world.advance(Micros::from_millis(200));
    world.leave(request, 0);
    assert_eq!(world.account(request).charged, Tokens(10 + 20), "0.2 s at 100 tokens a second");
    assert_eq!(world.account(request).queued, Micros::ZERO, "the first dispatch ends the wait");
}

#[test]
fn each_model_is_charged_at_its_own_pace() {
    let mut world = World::new(charged(Charging::Reserve, OnBudgetEnd::Finish));
    let large = Arrival { model: ModelId(1), ..ask(10, 200) };
    pace(&mut world, ask(10, 200), 100);
    pace(&mut world, large.clone(), 20);
    for (arrival, made) in [(ask(10, 200), 20), (large, 4)] {
        let request = world.arrive(arrival);
        world.advance(Micros::from_millis(200));
        world.leave(request, 0);
        assert_eq!(world.account(request).charged, Tokens(10 + made));
    }
}

#[test]
fn b16_a_bucket_that_lies_idle_for_an_hour_is_full_and_its_owner_forgotten() {
    let mut policy = policy(vec![tenant("T", tokens(100, 20))]);
    policy.tenants[0].end_users = Some(crate::policies::scope(tokens(10, 100)));
    let mut world = World::new(policy);
    let user = Arrival { end_user: Some(7), ..ask(500, 500) };
    let request = world.arrive(user.clone());
    world.complete(request, 500, 500);
    assert_eq!((world.tokens(), world.gate.subjects()), (1_000, 1));
    world.advance_secs(3_600);
    assert_eq!((world.tokens(), world.gate.subjects()), (2_000, 0));
    let again = world.arrive(user);
    assert!(world.is_running(again), "all 1,000 of the end user are there");
    world.complete(again, 500, 500);
}

/// One answer of so many tokens in a second.
fn pace(world: &mut World, arrival: Arrival, output: u64) -> RequestId {
    let input = arrival.input.0;
    let request = world.arrive(arrival);
    world.advance_secs(1);
    let report = Report { answer: Answer::Content, ..reported(input, output) };
    world.end(request, report);
    request
}

fn charged(charging: Charging, on_budget_end: OnBudgetEnd) -> Policy {
    let mut first = tenant("T", tokens(100, 20));
    first.charging = charging;
    first.on_budget_end = on_budget_end;
    policy(vec![first])
}
