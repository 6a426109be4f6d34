//! The rows of the lab's model, under the very gate and ledger that decide live and the reference policy: the mean over seeds must
//! be within the tolerance that the model gives. `cargo xtask golden` runs the same rows over more seeds.

use std::sync::Arc;

use fairlane_core::policy::{Limits, Order};
use fairlane_core::units::{Micros, Moment};
use fairlane_lab::reference::{self, AGENT, BATCH, Batch, Switches};
use fairlane_lab::world::{self, Figures};
use fairlane_lab::{Pattern, Size, Tenant, Traffic};

#[test]
fn row_1_without_the_agent_100_percent_start_in_2_s() {
    let runs = runs(NORMAL, Order::Fifo, none);
    assert!(runs.iter().all(|figures| figures.interactive_started_2s == 1.0));
    near(mean(&runs, |figures| figures.utilisation), 0.50, 0.015, "utilisation");
}

#[test]
fn rows_2_and_4_with_the_agent_66_to_72_percent_start_in_2_s_and_the_p95_wait_is_about_8_s() {
    let runs = runs(WITH_AGENT, Order::Fifo, none);
    within(mean(&runs, |figures| figures.interactive_started_2s), 0.66..0.72, "started in 2 s");
    within(mean(&runs, |figures| figures.wait.p95.as_secs_f64()), 7.3..8.8, "p95 wait");
    near(mean(&runs, |figures| figures.kv_mean), 0.54, 0.01, "cache used");
    near(mean(&runs, |figures| figures.kv_peak), 0.93, 0.02, "peak of the cache used");
}

#[test]
fn row_3_400_requests_a_minute_change_nothing() {
    let limit = |_: usize| reference::requests_per_minute(400, BURST_10_S).unwrap();
    assert_eq!(runs(WITH_AGENT, Order::Fifo, limit), runs(WITH_AGENT, Order::Fifo, none));
}

#[test]
fn rows_5_and_6_800k_tokens_a_minute_restore_chat_and_batch_makes_about_1700() {
    let runs = runs(WITH_AGENT, Order::Fifo, |_| tokens(800_000, 10));
    within(mean(&runs, |figures| figures.interactive_started_2s), 0.999..1.001, "started in 2 s");
    within(mean(&runs, batch), 1_650.0..1_800.0, "batch");
    near(mean(&runs, |figures| figures.tenants[AGENT].refused), 0.476, 0.01, "agent refused");
}

#[test]
fn row_6_with_a_5_s_bucket_batch_makes_1666() {
    let runs = runs(WITH_AGENT, Order::Fifo, |_| tokens(800_000, 5));
    near(mean(&runs, batch), 1_666.0, 50.0, "batch");
}

#[test]
fn rows_7_and_8_in_a_burst_a_5_s_bucket_refuses_9_percent_of_chat_and_one_of_15_to_20_s_none() {
    let refused = |burst_secs: u64| {
        let limit = |tenant: usize| if tenant < BATCH { tokens(200_000, burst_secs) } else { none(tenant) };
        mean(&runs(BURST, Order::Fifo, limit), |figures| figures.classes[0].refused)
    };
    within(refused(5), 0.075..0.105, "refused with 5 s");
    near(refused(10), 0.040, 0.012, "refused with 10 s");
    within(refused(15), 0.0..0.02, "refused with 15 s");
    within(refused(20), 0.0..0.003, "refused with 20 s");
}

#[test]
fn row_9_even_chat_of_fixed_sizes_needs_a_bucket_of_about_42000_tokens_for_the_burst() {
    let needs: Vec<f64> = (1..=SEEDS).flat_map(|seed| needed(seed, even_chat())).collect();
    let most = needs.iter().copied().fold(0.0, f64::max);
    within(needs.iter().sum::<f64>() / needs.len() as f64, 38_000.0..44_000.0, "mean");
    within(most, 38_000.0..44_000.0, "most");
}

#[test]
fn row_10_poisson_chat_needs_a_bucket_of_15_to_20_s_for_the_burst() {
    let mut needs: Vec<f64> = (1..=SEEDS).flat_map(|seed| needed(seed, reference::tenants(BURST))).collect();
    needs.sort_by(f64::total_cmp);
    let in_seconds = |tokens: f64| tokens / (200_000.0 / 60.0);
    within(in_seconds(needs.iter().sum::<f64>() / needs.len() as f64), 13.5..16.0, "mean");
    within(in_seconds(needs[needs.len() * 9 / 10]), 18.0..21.0, "90th percentile");
}

#[test]
fn rows_13_to_15_600k_tokens_a_minute_keep_chat_fast_and_leave_three_quarters_of_the_hardware_unused() {
    let limited = runs(HEAVY, Order::Fifo, |_| tokens(600_000, 10));
    within(mean(&limited, |figures| figures.interactive_started_2s), 0.999..1.001, "started in 2 s");
    assert!(limited.iter().all(|figures| figures.wait.p95 == Micros::ZERO));
    within(mean(&limited, |figures| figures.utilisation), 0.35..0.40, "utilisation");
    let lane = runs(HEAVY, Order::Lanes, none);
    within(mean(&limited, batch) / mean(&lane, batch), 0.24..0.28, "part of the hardware");
}

#[test]
fn row_16_the_lane_gives_batch_5050_and_starts_99_percent_of_chat_in_2_s() {
    let runs = runs(HEAVY, Order::Lanes, none);
    within(mean(&runs, batch), 5_050.0..5_300.0, "batch");
    within(mean(&runs, |figures| figures.interactive_started_2s), 0.99..1.001, "started in 2 s");
}

#[test]
fn row_17_on_seed_1_no_bucket_and_token_limit_gives_batch_5000_and_starts_99_percent_of_chat_in_2_s() {
    for burst_secs in [1, 4, 6, 8, 15, 30] {
        for thousand_per_minute in [1_600, 2_000, 2_300, 2_400, 2_600, 3_000, 4_000] {
            let limits = |_: usize| tokens(thousand_per_minute * 1_000, burst_secs);
            let figures = run(HEAVY, 1, Order::Fifo, limits);
            assert!(
                batch(&figures) < 5_000.0 || figures.interactive_started_2s < 0.99,
                "{burst_secs} s, {thousand_per_minute}k: {} tokens/s at {}",
                batch(&figures),
                figures.interactive_started_2s
            );
        }
    }
    let lane = run(HEAVY, 1, Order::Lanes, none);
    near(batch(&lane), 5_135.0, 10.0, "batch by the lane");
    assert_eq!(lane.interactive_started_2s, 1.0);
}

#[test]
fn rows_18_and_19_1400k_tokens_a_minute_with_the_lane_keep_chat_fast_and_batch_takes_the_spare() {
    let runs = runs(FULL_HOUSE, Order::Lanes, |_| tokens(1_400_000, 10));
    within(mean(&runs, |figures| figures.interactive_started_2s), 0.999..1.001, "started in 2 s");
    near(mean(&runs, |figures| figures.wait.p95.as_secs_f64()), 0.39, 0.1, "p95 wait");
    within(mean(&runs, batch), 2_600.0..3_000.0, "batch");
    within(mean(&runs, |figures| figures.utilisation), 0.94..1.0, "utilisation");
}

#[test]
fn time_to_first_token_and_between_tokens_are_those_of_the_model() {
    // Seconds to the first token at p50 and p95, milliseconds between tokens at p50 and p95.
    let given = [
        (runs(NORMAL, Order::Fifo, none), [0.07, 0.81], [12.0, 15.0]),
        (runs(WITH_AGENT, Order::Fifo, none), [0.90, 8.88], [30.0, 45.0]),
        (runs(WITH_AGENT, Order::Fifo, |_| tokens(800_000, 10)), [0.07, 0.97], [15.0, 21.0]),
    ];
    for (runs, first, between) in given {
        let seconds = |pick: fn(&Figures) -> Micros| mean(&runs, |figures| pick(figures).as_secs_f64());
        near(seconds(|figures| figures.time_to_first_token.p50), first[0], first[0] * 0.25, "first, p50");
        near(seconds(|figures| figures.time_to_first_token.p95), first[1], first[1] * 0.1, "first, p95");
        let millis = |pick: fn(&Figures) -> Micros| 1_000.0 * seconds(pick);
        near(millis(|figures| figures.time_per_output_token.p50), between[0], 1.0, "between, p50");
        near(millis(|figures| figures.time_per_output_token.p95), between[1], 2.0, "between, p95");
    }
}

#[test]
fn seeds_1_to_3_give_the_self_check_figures_through_the_gate() {
    // Share started in 2 s, 95th percentile of the wait (s), batch output (tokens/s).
    let given = [
        (1, 0.675_912, 7.930_834, 1_882.116_7),
        (2, 0.696_255, 7.750_717, 1_900.108_3),
        (3, 0.700_138, 7.708_949, 1_937.6),
    ];
    for (seed, started, p95, output) in given {
        let figures = run(WITH_AGENT, seed, Order::Fifo, none);
        near(figures.interactive_started_2s, started, 5e-7, "started in 2 s");
        near(figures.wait.p95.as_secs_f64(), p95, 1.5e-6, "p95 wait");
        near(batch(&figures), output, 5e-5, "batch");
    }
}

#[test]
fn rows_11_and_12_are_arithmetic() {
    let tenants = reference::tenants(FULL_HOUSE);
    let mean_of = |size: Size, after_secs: f64| match size {
        Size::Spread { mean, .. } => mean,
        Size::Growing { from, by, over } => from + by * after_secs / over.as_secs_f64(),
    };
    let (chat, agent) = (&tenants[0], &tenants[AGENT]);
    let chat_prompt = mean_of(chat.prompt, 0.0);
    assert_eq!(chat.rate * (chat_prompt + mean_of(chat.output, 0.0)), 1_725.0);
    assert_eq!(chat.rate * (chat_prompt + chat.max_tokens.0 as f64), 2_886.0);
    let agent_tokens = mean_of(agent.prompt, 60.0) + mean_of(agent.output, 60.0);
    assert_eq!(agent.rate * agent_tokens * 60.0, 1_920_000.0);
}

fn none(_: usize) -> Limits {
    Limits::default()
}

fn tokens(per_minute: u64, burst_secs: u64) -> Limits {
    reference::tokens_per_minute(per_minute, Micros::from_secs(burst_secs)).unwrap()
}

fn runs(switches: Switches, order: Order, limits: impl Fn(usize) -> Limits + Copy) -> Vec<Figures> {
    (1..=SEEDS).map(|seed| run(switches, seed, order, limits)).collect()
}

fn run(switches: Switches, seed: u64, order: Order, limits: impl Fn(usize) -> Limits) -> Figures {
    let policy = fairlane_core::policy::Policy { order, ..reference::policy(limits) };
    world::run(reference::setup(switches, seed, Arc::new(policy))).unwrap().figures
}

/// What each chat tenant would have needed of a bucket that refills with 200,000 tokens a minute.
fn needed(seed: u64, tenants: Vec<Tenant>) -> Vec<f64> {
    let policy =
        reference::policy(|tenant| if tenant < BATCH { tokens(200_000, 3_600) } else { none(tenant) });
    let mut setup = reference::setup(BURST, seed, Arc::new(policy));
    setup.offers =
        Traffic::seeded(tenants, seed, Moment(reference::LENGTH.0)).map(world::Offer::of).collect();
    let figures = world::run(setup).unwrap().figures;
    figures.tenants[..BATCH].iter().map(|tenant| tenant.deepest_draw_tokens as f64).collect()
}

fn even_chat() -> Vec<Tenant> {
    let mut tenants = reference::tenants(BURST);
    for tenant in &mut tenants[..BATCH] {
        tenant.pattern = Pattern::Even { block: 1 };
        tenant.prompt = Size::Spread { mean: 900.0, low: 1.0, high: 1.0 };
        tenant.output = Size::Spread { mean: 250.0, low: 1.0, high: 1.0 };
    }
    tenants
}

fn batch(figures: &Figures) -> f64 {
    figures.tenants[BATCH].output_tokens_per_s
}

fn mean(runs: &[Figures], pick: impl Fn(&Figures) -> f64) -> f64 {
    runs.iter().map(pick).sum::<f64>() / runs.len() as f64
}

fn within(got: f64, range: std::ops::Range<f64>, what: &str) {
    assert!(range.contains(&got), "{what}: {got} for {range:?}");
}

fn near(got: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((got - expected).abs() <= tolerance, "{what}: {got} for {expected}");
}

const NORMAL: Switches = Switches { batch: Batch::Normal, agent: false, burst: false };
const WITH_AGENT: Switches = Switches { agent: true, ..NORMAL };
const BURST: Switches = Switches { burst: true, ..NORMAL };
const HEAVY: Switches = Switches { batch: Batch::Heavy, ..NORMAL };
const FULL_HOUSE: Switches = Switches { batch: Batch::Heavy, agent: true, burst: true };
const BURST_10_S: Micros = Micros::from_secs(10);
const SEEDS: u64 = 20;
