//! What is charged: the three modes, cached weights, usage that nobody reported, and the predictor behind it.

use fairlane_core::gate::{Answer, Event, Outcome, Report, Reported, UsageSource};
use fairlane_core::policy::{Charging, Dimension, Limits, ModelId, Policy, TenantId};
use fairlane_core::predict::Predictor;
use fairlane_core::refusal::Reason;
use fairlane_core::units::{Micros, Tokens};
use proptest::prelude::*;

use crate::many;
use crate::policies::{policy, rates, slow, tenant, tokens};
use crate::world::{T, World, ask, nothing, reported};

#[test]
fn reserve_takes_input_and_bound_and_gives_the_rest_back() {
    let mut world = World::new(charged(Charging::Reserve));
    let request = world.arrive(ask(300, 500));
    assert_eq!(world.tokens(), 1_200);
    assert_eq!(world.gate.reserved(TenantId(0)), Tokens(800));
    world.complete(request, 290, 60);
    assert_eq!(world.tokens(), 1_650);
    let account = world.account(request);
    assert_eq!((account.reserved, account.charged), (Tokens(800), Tokens(350)));
    assert_eq!(account.source, UsageSource::Reported);
    let totals = *world.ledger.totals();
    assert_eq!((totals.reserved, totals.settled, totals.refunded), (800, 350, 450));
}

#[test]
fn every_choice_is_reserved() {
    let mut world = World::new(charged(Charging::Reserve));
    world.arrive(fairlane_core::gate::Arrival { choices: 3, ..ask(100, 200) });
    assert_eq!(world.tokens(), 1_300);
}

#[test]
fn quantile_takes_the_ninetieth_percentile_once_it_knows_eight_outputs() {
    let mut world = World::new(charged(Charging::Quantile));
    for output in [10, 20, 30, 40, 50, 60, 70] {
        let request = world.arrive(ask(10, 1_000));
        world.complete(request, 10, output);
        world.advance_secs(100);
    }
    let cold = world.arrive(ask(10, 1_000));
    assert_eq!(world.reserved(cold), 10 + 40, "the model's mean while there are fewer");
    world.complete(cold, 10, 80);
    world.advance_secs(100);
    let warm = world.arrive(ask(10, 1_000));
    assert_eq!(world.reserved(warm), 10 + 80);
    let bounded = world.arrive(ask(10, 520));
    assert_eq!(world.reserved(bounded), 10 + 80, "a bound of the same class");
    let level = world.tokens();
    world.complete(warm, 10, 700);
    assert_eq!(world.tokens(), level + 90 - 710, "the difference is settled");
}

#[test]
fn quantile_before_any_output_takes_the_least_of_bound_and_512() {
    let mut world = World::new(charged(Charging::Quantile));
    let large = world.arrive(ask(10, 1_000));
    assert_eq!(world.reserved(large), 10 + 512);
    let small = world.arrive(ask(10, 100));
    assert_eq!(world.reserved(small), 10 + 100);
}

#[test]
fn postpay_takes_input_at_admission_and_output_as_it_streams() {
    let mut world = World::new(charged(Charging::Postpay));
    let request = world.arrive(ask(2_000, 4_000));
    assert_eq!(world.tokens(), 0, "admitted at exactly its input");
    let empty = world.arrive(ask(1, 4_000));
    assert_eq!(world.reason(empty), Reason::LimitExhausted);
    world.handle(Event::Produced { request, output: Tokens(30) });
    assert_eq!(world.tokens(), -30);
    world.handle(Event::Produced { request, output: Tokens(30) });
    world.handle(Event::Produced { request, output: Tokens(20) });
    assert_eq!(world.tokens(), -30, "only what is more is drawn");
    world.complete(request, 1_990, 50);
    assert_eq!(world.tokens(), -40);
    let totals = *world.ledger.totals();
    assert_eq!((totals.reserved, totals.overrun, totals.forgiven), (2_000, 40, 0));
}

#[test]
fn what_passes_the_deepest_debt_is_forgiven_and_never_given_back() {
    let mut world = World::new(charged(Charging::Postpay));
    let request = world.arrive(ask(2_000, 100_000));
    world.handle(Event::Produced { request, output: Tokens(20_500) });
    assert_eq!(world.tokens(), -20_000, "ten buckets");
    world.complete(request, 2_000, 20_400);
    assert_eq!(world.tokens(), -20_000, "400 of what was forgiven were used, 100 were not");
    assert_eq!(world.ledger.totals().forgiven, 400);
    world.advance_secs(220);
    assert_eq!(world.tokens(), 2_000);
}

#[test]
fn an_overrun_beyond_the_reservation_is_debited_down_to_the_debt() {
    let mut world = World::new(charged(Charging::Reserve));
    let request = world.arrive(ask(100, 100));
    world.complete(request, 100, 25_000);
    assert_eq!(world.tokens(), -20_000);
    let totals = *world.ledger.totals();
    assert_eq!((totals.settled, totals.overrun, totals.forgiven), (200, 24_900, 25_100 - 22_000));
}

#[test]
fn a_streamed_and_an_interrupted_answer_are_charged_what_was_counted() {
    for outcome in [Outcome::ClientGone, Outcome::Interrupted, Outcome::UpstreamErrorMidStream] {
        let mut world = World::new(charged(Charging::Reserve));
        let request = world.arrive(ask(100, 500));
        world.end(request, unreported(outcome, 37));
        assert_eq!(world.tokens(), 2_000 - 137, "{outcome:?}");
        assert_eq!(world.account(request).source, UsageSource::Estimated);
        assert_eq!(world.account(request).outcome, outcome);
    }
}

#[test]
fn reported_input_with_counted_output_is_mixed_and_a_cut_report_is_partial() {
    let mut world = World::new(charged(Charging::Reserve));
    let request = world.arrive(ask(100, 500));
    let mut report = unreported(Outcome::Interrupted, 12);
    report.reported.input = Some(Tokens(90));
    world.end(request, report);
    assert_eq!(world.account(request).source, UsageSource::Mixed);
    assert_eq!(world.account(request).charged, Tokens(102));
    let request = world.arrive(ask(100, 500));
    let mut report = reported(90, 40);
    report.reported.partial = true;
    world.end(request, report);
    assert_eq!(world.account(request).source, UsageSource::ReportedPartial);
    assert_eq!(world.account(request).charged, Tokens(130));
}

#[test]
fn usage_that_nobody_counted_is_the_least_of_bound_mean_and_measured_pace() {
    let mut world = World::new(charged(Charging::Reserve));
    // Ten outputs of 100 tokens in one second each: 10,000 µs a token.
    for _ in 0..10 {
        let request = world.arrive(ask(10, 200));
        world.advance_secs(1);
        world.complete(request, 10, 100);
        world.advance_secs(60);
    }
    let unseen = |world: &mut World, bound: u64, millis: u64| {
        let request = world.arrive(ask(10, bound));
        world.advance(Micros::from_millis(millis));
        world.end(request, unreported(Outcome::Completed, 0));
        let charged = world.account(request).charged.0;
        world.advance_secs(60);
        charged
    };
    assert_eq!(unseen(&mut world, 200, 500), 10 + 50, "half a second at the measured pace");
    assert_eq!(unseen(&mut world, 200, 5_000), 10 + 100, "the mean, however long it took");
    assert_eq!(unseen(&mut world, 30, 5_000), 10 + 30, "never above the bound");
}

#[test]
fn an_empty_answer_is_charged_its_input_and_a_rejected_one_only_the_request() {
    let both = rates(&[slow(Dimension::Tokens, 2_000), slow(Dimension::Requests, 10)]);
    let mut world = World::new(policy(vec![tenant("T", both)]));
    let empty = world.arrive(ask(100, 100));
    world.end(empty, unreported(Outcome::UpstreamEmpty, 0));
    assert_eq!(world.tokens(), 1_900);
    let rejected = world.arrive(ask(100, 100));
    world.end(rejected, Report { answer: Answer::Rejected, ..reported(100, 100) });
    assert_eq!((world.tokens(), world.level(T, Dimension::Requests)), (1_900, 8));
    let failed = world.arrive(ask(100, 100));
    world.end(failed, nothing());
    assert_eq!((world.tokens(), world.level(T, Dimension::Requests)), (1_900, 8));
}

#[test]
fn a_shadow_limit_counts_and_refuses_nothing() {
    let mut shadowed = slow(Dimension::Tokens, 100);
    shadowed.shadow = true;
    let mut policy = policy(vec![tenant("T", rates(&[shadowed]))]);
    policy.pools[0].limits = rates(&[shadowed]);
    policy.pools[0].backends[0].limits = rates(&[shadowed]);
    let mut world = World::new(policy);
    for _ in 0..3 {
        let request = world.arrive(ask(60, 60));
        assert!(world.is_running(request));
        world.complete(request, 60, 60);
    }
    assert_eq!(world.tokens(), 100, "nothing was taken where the limit would have refused");
    let small = world.arrive(ask(30, 30));
    world.complete(small, 30, 10);
    assert_eq!(world.tokens(), 60);
}

#[test]
fn the_predictor_stays_bounded_and_forgets_the_oldest_samples() {
    let mut predictor = Predictor::default();
    let (tenant, model, bound) = (TenantId(0), ModelId(0), Tokens(1_000));
    for _ in 0..64 {
        predictor.learn(tenant, model, bound, Tokens(900), Micros::from_secs(1));
    }
    for _ in 0..64 {
        predictor.learn(tenant, model, bound, Tokens(10), Micros::from_secs(1));
    }
    assert_eq!(predictor.p90(tenant, model, bound), Tokens(10));
    assert_eq!(predictor.mean(tenant, model, bound), Tokens(10));
    let other = predictor.p90(TenantId(1), model, bound);
    assert!(other > Tokens(10) && other < Tokens(900), "another tenant has the model's mean: {other}");
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn a_prediction_never_passes_the_bound_nor_the_largest_output(
        outputs in prop::collection::vec(0u64..5_000, 0..80), bound in 0u64..5_000
    ) {
        let mut predictor = Predictor::default();
        let (tenant, model) = (TenantId(0), ModelId(0));
        for output in &outputs {
            predictor.learn(tenant, model, Tokens(bound), Tokens(*output), Micros::from_secs(1));
        }
        let (mean, p90) = (predictor.mean(tenant, model, Tokens(bound)), predictor.p90(tenant, model, Tokens(bound)));
        prop_assert!(mean.0 <= bound && p90.0 <= bound);
        if outputs.len() >= 8 {
            let mut last: Vec<u64> = outputs.iter().rev().take(64).copied().collect();
            last.sort_unstable();
            prop_assert_eq!(p90.0, last[(last.len() * 9).div_ceil(10) - 1].min(bound));
        }
    }
}

fn charged(charging: Charging) -> Policy {
    let mut first = tenant("T", tokens(100, 20));
    first.charging = charging;
    policy(vec![first, tenant("U", Limits::default())])
}

fn unreported(outcome: Outcome, counted: u64) -> Report {
    Report {
        outcome,
        answer: Answer::Content,
        reported: Reported::default(),
        counted_output: Tokens(counted),
    }
}
