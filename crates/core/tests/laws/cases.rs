//! Public failure cases that the core alone decides, each under its id. Fixture F: 100 tokens a second, a bucket of 2,000, full.

use fairlane_core::gate::{Answer, Arrival, Event, Failure, Outcome, Report, RequestId};
use fairlane_core::policy::{Charging, Dimension, Limits, OnExcess, Policy, Runs, TenantId};
use fairlane_core::refusal::{Reason, Retry};
use fairlane_core::scope::Owner;
use fairlane_core::units::{Micros, Moment, Tokens};
use proptest::prelude::*;

use crate::many;
use crate::policies::{
    backend, fixture_f, in_team, per_period, policy, rates, run_budget, slow, team, tenant, tokens,
    with_concurrency,
};
use crate::world::{State, T, World, ask, nothing, reported};

#[test]
fn a01_requests_in_parallel_are_each_charged_before_the_next_is_judged() {
    // Bucket of 1,000 and no limit on concurrency.
    let mut world = World::new(only(tokens(100, 10)));
    let requests: Vec<RequestId> = (0..10).map(|_| world.arrive(ask(100, 100))).collect();
    assert_eq!(count_running(&world, &requests), 5);
    assert!(requests[5..].iter().all(|request| world.reason(*request) == Reason::LimitExhausted));
}

#[test]
fn a02_a_stream_and_a_whole_answer_cost_the_same() {
    let mut world = World::new(fixture_f());
    let streamed = world.arrive(ask(50, 100));
    for output in 1..=20 {
        world.handle(Event::Produced { request: streamed, output: Tokens(output) });
    }
    world.complete(streamed, 50, 20);
    let after_stream = world.tokens();
    let whole = world.arrive(ask(50, 100));
    world.complete(whole, 50, 20);
    assert_eq!((2_000 - after_stream, after_stream - world.tokens()), (70, 70));
}

#[test]
fn a03_the_reported_tokens_are_charged_not_one_unit() {
    // 30 tokens an hour; the request reserves 30 and the reply reports 150.
    let mut world = World::new(only(rates(&[per_period(Dimension::Tokens, 30, 3_600)])));
    let first = world.arrive(ask(20, 10));
    world.complete(first, 100, 50);
    assert_eq!(world.account(first).charged, Tokens(150));
    assert_eq!(world.tokens(), 30 - 150);
    let next = world.arrive(ask(1, 0));
    assert_eq!(world.reason(next), Reason::LimitExhausted);
    assert_eq!(world.told(next), Micros::from_secs(121 * 120));
}

#[test]
fn a04_the_prompt_is_reserved_with_the_output() {
    let mut world = World::new(fixture_f());
    let requests: Vec<RequestId> = (0..5).map(|_| world.arrive(ask(1_500, 1))).collect();
    assert_eq!(count_running(&world, &requests), 1);
    assert_eq!(world.refusal(requests[1]).asked, 1_501);
    assert_eq!(requests[1..].iter().filter(|request| world.is_refused(**request)).count(), 4);
}

#[test]
fn a05_at_exactly_the_limit_one_passes_and_the_next_does_not() {
    let mut world = World::new(fixture_f());
    world.arrive(ask(1_800, 0));
    let exact = world.arrive(ask(100, 100));
    assert!(world.is_running(exact));
    assert_eq!(world.tokens(), 0);
    let over = world.arrive(ask(1, 0));
    assert_eq!(world.reason(over), Reason::LimitExhausted);
    assert_eq!(world.told(over).as_secs_ceil(), 1);
}

#[test]
fn a07_a_cost_above_the_bucket_is_refused_at_once_for_good() {
    let mut world = World::new(fixture_f());
    let never = world.arrive(ask(2_000, 1));
    let refusal = world.refusal(never);
    assert_eq!((refusal.reason, refusal.retry), (Reason::NeverFits, Retry::Never));
    assert_eq!(refusal.limit.unwrap().name(world.gate.policy()), "tenant/T/tokens");
    assert_eq!((refusal.asked, refusal.left), (2_001, 2_000));
    assert_eq!(world.gate.live(), 0);
    let fits = world.arrive(ask(2_000, 0));
    assert!(world.is_running(fits), "a cost of the whole bucket fits");
}

#[test]
fn a08_refusals_cost_nothing() {
    let mut world = World::new(fixture_f());
    world.arrive(ask(1_900, 0));
    for _ in 0..50 {
        let refused = world.arrive(ask(400, 100));
        assert_eq!(world.reason(refused), Reason::LimitExhausted);
    }
    assert_eq!(world.tokens(), 100);
    let fits = world.arrive(ask(50, 50));
    assert!(world.is_running(fits));
}

#[test]
fn a09_a_refused_tenant_never_drains_the_shared_limit() {
    let mut policy = policy(vec![
        in_team(tenant("T", rates(&[slow(Dimension::Requests, 1)]))),
        in_team(tenant("U", rates(&[slow(Dimension::Requests, 1)]))),
    ]);
    policy.teams = vec![team("shared", rates(&[slow(Dimension::Requests, 10)]))];
    policy.service = rates(&[slow(Dimension::Requests, 10)]);
    let mut world = World::new(policy);
    let requests: Vec<RequestId> = (0..20).map(|_| world.arrive(ask(1, 1))).collect();
    assert_eq!(count_running(&world, &requests), 1);
    let other = world.arrive(Arrival { tenant: TenantId(1), ..ask(1, 1) });
    assert!(world.is_running(other));
    assert_eq!(world.level(Owner::Service, Dimension::Requests), 8);
    assert_eq!(world.level(Owner::Team(fairlane_core::policy::TeamId(0)), Dimension::Requests), 8);
}

#[test]
fn a11_a_second_try_is_the_same_request_with_the_same_charge() {
    let both = rates(&[slow(Dimension::Tokens, 2_000), slow(Dimension::Requests, 10)]);
    let mut policy = only(with_concurrency(both, 1, OnExcess::Reject));
    policy.pools[0].backends = vec![backend("one", 5), backend("two", 4)];
    let mut world = World::new(policy);
    let request = world.arrive(ask(100, 100));
    world.hand_back(Event::Failed { request, failure: Failure::Error });
    world.complete(request, 100, 20);
    assert_eq!(world.account(request).attempts, 2);
    assert_eq!(world.level(T, Dimension::Requests), 9);
    assert_eq!(world.tokens(), 2_000 - 120);
    assert_eq!(world.level(T, Dimension::ConcurrentRequests), 1);
    assert_eq!(world.ledger.totals().reserved, 200);
}

#[test]
fn a12_a_stream_that_ends_in_an_error_is_charged_what_was_made() {
    let mut world = World::new(fixture_f());
    let request = world.arrive(ask(40, 100));
    let report = Report {
        outcome: Outcome::UpstreamErrorMidStream,
        reported: Default::default(),
        counted_output: Tokens(9),
        answer: Answer::Content,
    };
    world.end(request, report);
    assert_eq!(world.account(request).outcome, Outcome::UpstreamErrorMidStream);
    assert_eq!(world.account(request).charged, Tokens(49));
}

#[test]
fn a13_a_failure_before_the_first_byte_gives_all_back() {
    let both = rates(&[slow(Dimension::Tokens, 2_000), slow(Dimension::Requests, 10)]);
    let mut world = World::new(only(both));
    let request = world.arrive(ask(100, 1_000));
    assert_eq!(world.tokens(), 900);
    world.end(request, nothing());
    assert_eq!((world.tokens(), world.level(T, Dimension::Requests)), (2_000, 10));
}

#[test]
fn a15_a_slot_is_free_when_its_client_cuts_the_stream() {
    for on_excess in [OnExcess::Queue, OnExcess::Reject] {
        let mut world = World::new(only(with_concurrency(tokens(100, 20), 1, on_excess)));
        let request = world.arrive(ask(10, 100));
        world.handle(Event::Produced { request, output: Tokens(3) });
        world.leave(request, 3);
        world.advance_secs(1);
        let next = world.arrive(ask(10, 100));
        assert!(world.is_running(next));
        world.leave(next, 1);
        assert_eq!(world.gate.live(), 0);
    }
}

#[test]
fn a16_a_client_that_leaves_pays_input_and_what_was_sent() {
    for charging in [Charging::Reserve, Charging::Quantile, Charging::Postpay] {
        let mut policy = fixture_f();
        policy.tenants[0].charging = charging;
        policy.tenants[0].limits.all = rates(&[slow(Dimension::Tokens, 20_000)]);
        let mut world = World::new(policy);
        let request = world.arrive(ask(10, 10_000));
        for output in 1..=3 {
            world.handle(Event::Produced { request, output: Tokens(output) });
        }
        world.leave(request, 3);
        assert_eq!(world.tokens(), 20_000 - 13, "{charging:?}");
    }
}

#[test]
fn a18_the_unused_part_of_every_stream_comes_back() {
    let mut world = World::new(fixture_f());
    for _ in 0..100 {
        let request = world.arrive(ask(10, 1_000));
        assert!(world.is_running(request));
        world.advance(Micros::from_millis(200));
        world.complete(request, 10, 5);
    }
    world.advance_secs(1);
    assert_eq!(world.tokens(), 2_000);
}

#[test]
fn a20_use_far_above_the_reservation_is_a_debt_that_is_repaid_first() {
    let mut world = World::new(fixture_f());
    let request = world.arrive(ask(9, 100));
    world.complete(request, 9, 5_000);
    assert_eq!(world.account(request).charged, Tokens(5_009));
    assert_eq!(world.tokens(), 2_000 - 5_009);
    let next = world.arrive(ask(100, 0));
    let wait = world.told(next);
    assert_eq!(wait, Micros(31_090_000));
    world.advance(Micros(wait.0 - 1));
    let early = world.arrive(ask(100, 0));
    assert!(world.is_refused(early));
    world.advance(Micros(1));
    let repaid = world.arrive(ask(100, 0));
    assert!(world.is_running(repaid));
}

#[test]
fn a21_cached_tokens_weigh_what_the_policy_says() {
    for (weight, charged) in [(Some(1_000), 10_010), (Some(100), 2_810), (Some(0), 2_010), (None, 10_010)] {
        // A bucket of 20,000, so that only the weight decides.
        let mut limits = rates(&[slow(Dimension::Tokens, 20_000), slow(Dimension::InputTokens, 20_000)]);
        limits.cached_input_weight_millis = weight;
        let mut world = World::new(only(limits));
        let request = world.arrive(ask(10_000, 10));
        let mut report = reported(10_000, 10);
        report.reported.cached = Tokens(8_000);
        world.end(request, report);
        assert_eq!(world.account(request).charged, Tokens(charged), "{weight:?}");
        assert_eq!(world.tokens(), 20_000 - charged as i64, "{weight:?}");
        assert_eq!(world.level(T, Dimension::InputTokens), 20_000 - charged as i64 + 10, "{weight:?}");
        // More cached than input: the input share is never negative.
        let request = world.arrive(ask(100, 10));
        let mut report = reported(100, 10);
        report.reported.cached = Tokens(8_000);
        world.end(request, report);
        let least = 10 + u64::from(weight.unwrap_or(1_000)) / 10;
        assert_eq!(world.account(request).charged, Tokens(least), "{weight:?}");
    }
}

#[test]
fn a24_the_wait_told_is_exact_and_rounded_up_for_headers() {
    let mut world = World::new(fixture_f());
    world.arrive(ask(2_000, 0));
    let refused = world.arrive(ask(300, 50));
    let wait = world.told(refused);
    assert_eq!((wait.as_secs_ceil(), wait.as_millis_ceil()), (4, 3_500));
    world.advance_secs(4);
    let again = world.arrive(ask(300, 50));
    assert!(world.is_running(again));
}

#[test]
fn a26_what_is_left_falls_and_is_never_negative_nor_above_the_limit() {
    let mut world = World::new(fixture_f());
    let first = world.arrive(ask(50, 50));
    assert_eq!(world.tokens(), 1_900);
    world.complete(first, 50, 10);
    for left in [1_940, 1_880] {
        assert_eq!(world.tokens(), left);
        let next = world.arrive(ask(50, 50));
        world.complete(next, 50, 10);
    }
    let large = world.arrive(ask(2_000, 0));
    assert_eq!(world.refusal(large).left, 1_820);
    let overrun = world.arrive(ask(1_820, 0));
    world.complete(overrun, 1_820, 500);
    let refused = world.arrive(ask(1, 0));
    assert_eq!(world.refusal(refused).left, 0, "debt is not shown as what is left");
    let unlimited = World::new(only(Limits::default()));
    assert!(unlimited.gate.limits(TenantId(0)).is_empty());
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn a27_any_interval_admits_at_most_the_bucket_and_what_refills(
        arrivals in prop::collection::vec((0u64..4_000_000, 1u64..700), 20..60)
    ) {
        let mut world = World::new(only(tokens(100, 20)));
        let mut admitted: Vec<(Moment, u64)> = Vec::new();
        for (pause, cost) in arrivals {
            world.advance(Micros(pause));
            let request = world.arrive(ask(cost, 0));
            if world.is_running(request) {
                admitted.push((world.now, cost));
            }
        }
        for (first, (start, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for (moment, cost) in &admitted[first..] {
                sum += cost * 1_000_000;
                prop_assert!(sum <= 2_000_000_000 + 100 * moment.since(*start).0);
            }
        }
    }
}

#[test]
fn a29_a_budget_that_runs_out_in_a_stream_stops_the_next_request() {
    let mut policy = only(tokens(100, 20));
    policy.tenants[0].charging = Charging::Postpay;
    let mut world = World::new(policy);
    let request = world.arrive(ask(1_970, 50));
    for output in 1..=50 {
        world.handle(Event::Produced { request, output: Tokens(output) });
        assert!(world.is_running(request), "the stream goes on past its limit");
    }
    assert_eq!(world.tokens(), -20);
    world.complete(request, 1_970, 50);
    assert_eq!(world.account(request).outcome, Outcome::Completed);
    let next = world.arrive(ask(1, 0));
    assert_eq!(world.reason(next), Reason::LimitExhausted);
}

#[test]
fn b09_a_clock_that_jumps_neither_locks_out_nor_frees_more_than_a_bucket() {
    let mut world = World::new(fixture_f());
    world.arrive(ask(1_000, 0));
    world.now = Moment(world.now.0 - 900_000_000);
    let back = world.arrive(ask(600, 0));
    assert!(world.is_running(back), "what was there is still there");
    assert_eq!(world.tokens(), 400, "and nothing came");
    world.now = world.now.after(Micros::from_secs(2 * 3_600));
    assert_eq!(world.tokens(), 2_000);
    let all = world.arrive(ask(2_000, 0));
    let more = world.arrive(ask(1, 0));
    assert!(world.is_running(all) && world.is_refused(more));
    world.wind_up();
}

#[test]
fn c03_the_clients_own_deadline_ends_the_wait() {
    let mut policy = fixture_f();
    policy.classes[0].wait_max = Micros::from_secs(2);
    policy.pools[0].backends = vec![backend("one", 1)];
    let mut world = World::new(policy);
    let busy = world.arrive(ask(10, 10));
    let queued = world.arrive(Arrival { wait_max: Some(Micros::from_secs(1)), ..ask(10, 10) });
    let start = world.now;
    world.advance_secs(10);
    assert_eq!(world.refusals, [(start.after(Micros::from_secs(1)), queued)]);
    assert_eq!(world.reason(queued), Reason::WaitTooLong, "not a missing backend: it is alive");
    assert!(matches!(world.refusal(queued).retry, Retry::After(_)));
    world.complete(busy, 10, 10);
}

#[test]
fn c04_a_client_that_left_the_queue_is_never_sent() {
    let mut policy = fixture_f();
    policy.pools[0].backends = vec![backend("one", 1)];
    let mut world = World::new(policy);
    let running = world.arrive(ask(10, 10));
    let queued = world.arrive(ask(500, 500));
    world.leave(queued, 0);
    world.complete(running, 10, 10);
    assert_eq!(world.starts.len(), 1);
    assert_eq!(world.tokens(), 1_980);
    let pools = world.gate.pools();
    assert_eq!(pools[0].classes[0].1, 0, "nothing is queued");
}

#[test]
fn c10_the_bound_of_the_queue_counts_the_same_idle_and_loaded() {
    let mut policy = only(Limits::default());
    policy.pools[0].backends = vec![backend("one", 8)];
    policy.classes[0].queue_requests_max = 4;
    let mut world = World::new(policy);
    for _ in 0..3 {
        let requests: Vec<RequestId> = (0..20).map(|_| world.arrive(ask(1, 1))).collect();
        let waiting = requests.iter().filter(|request| world.is_waiting(**request)).count();
        let refused = requests.iter().filter(|request| world.is_refused(**request)).count();
        assert_eq!((count_running(&world, &requests), waiting, refused), (8, 4, 8));
        assert!(
            requests
                .iter()
                .filter(|request| world.is_refused(**request))
                .all(|request| { world.reason(*request) == Reason::QueueFull })
        );
        for _ in 0..12 {
            let running = world.running();
            world.complete(running[0], 1, 1);
        }
    }
}

#[test]
fn e06_a_run_stops_before_its_budget_and_others_go_on() {
    let mut first = tenant("T", Limits::default());
    first.runs = Some(run_budget(50_000));
    let mut world = World::new(policy(vec![first]));
    let mut used = 0;
    let mut step = 6_000;
    let refused = loop {
        let request = world.arrive(Arrival { run: Some(1), ..ask(step, 500) });
        if world.is_refused(request) {
            break request;
        }
        world.complete(request, step, 500);
        used += step + 500;
        step += 1_000;
    };
    assert_eq!((used, step), (42_500, 11_000));
    let refusal = world.refusal(refused);
    assert_eq!((refusal.reason, refusal.retry), (Reason::RunBudgetSpent, Retry::Never));
    assert_eq!(refusal.limit.unwrap().name(world.gate.policy()), "run/T/token_budget");
    let other = world.arrive(Arrival { run: Some(2), ..ask(step, 500) });
    assert!(world.is_running(other));
}

#[test]
fn e08_runs_behind_one_key_have_their_own_limits() {
    let mut first = tenant("T", Limits::default());
    first.runs = Some(Runs { max_steps: Some(1), ..Runs::default() });
    let mut world = World::new(policy(vec![first]));
    for run in 1..=13 {
        let step = world.arrive(Arrival { run: Some(run), ..ask(10, 10) });
        assert!(world.is_running(step), "run {run}");
    }
    let nameless = [ask(10, 10), ask(10, 10)].map(|arrival| world.arrive(arrival));
    assert!(world.is_running(nameless[0]), "requests without an id are one run per key");
    assert_eq!(world.reason(nameless[1]), Reason::RunStepsSpent);
}

fn count_running(world: &World, requests: &[RequestId]) -> usize {
    requests.iter().filter(|request| matches!(world.state(**request), State::Running(_))).count()
}

/// One tenant with these limits alone.
fn only(limits: Limits) -> Policy {
    policy(vec![tenant("T", limits)])
}
