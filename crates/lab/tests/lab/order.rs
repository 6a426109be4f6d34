//! Scheduling in the lab's scenarios X, Y and Z: what the product's defaults promise, and what simpler orders do.

use std::sync::Arc;

use fairlane_core::occupancy::Headroom;
use fairlane_core::policy::{ALPHA_PERMILLE, ClassId, Order, Placing, Policy};
use fairlane_core::units::Moment;
use fairlane_lab::reference::{self, AGENT, BATCH, Batch, Switches};
use fairlane_lab::world::{self, Figures, Offer};
use fairlane_lab::{Tenant, Traffic};

#[test]
fn b4_in_the_full_house_the_defaults_start_chat_give_batch_110_percent_of_fifo_and_the_agent_its_share() {
    let fifo = runs(SEEDS, Scenario::X, &plain(Order::Fifo));
    let lanes = runs(SEEDS, Scenario::X, &plain(Order::Lanes));
    let defaults = runs(SEEDS, Scenario::X, &product());
    let worst = |runs: &[Figures]| runs.iter().map(started).fold(1.0, f64::min);
    assert!(worst(&defaults) >= 0.999, "{}", worst(&defaults));
    assert!(mean(&defaults, batch) >= 1.10 * mean(&fifo, batch));
    for figures in &defaults {
        (0..WINDOWS).for_each(|window| assert!(has_its_share(figures, window), "window {window}"));
    }
    assert!(worst(&fifo) < 0.1 && worst(&lanes) < 0.98, "{} {}", worst(&fifo), worst(&lanes));
    let starves = |figures: &Figures| !(2..WINDOWS).all(|window| has_its_share(figures, window));
    assert!(lanes.iter().all(starves), "strict lanes starve the agent");
}

#[test]
fn with_the_reference_placement_the_default_shares_and_headroom_give_the_models_figures() {
    let policy = Policy { pools: plain(Order::Fifo).pools, ..product() };
    let runs = runs(SEEDS, Scenario::X, &policy);
    assert!(runs.iter().all(|figures| started(figures) == 1.0));
    near(mean(&runs, batch), 4_435.0, 45.0, "batch");
}

#[test]
fn scenario_x_strict_lanes_starve_the_agent_and_fair_queueing_alone_halves_batch() {
    let given = [
        (Order::Fifo, 0.06, 3_915.0, 993.0),
        (Order::Lanes, 0.996, 4_591.0, 165.0),
        (Order::Fair, 0.994, 2_557.0, 1_335.0),
    ];
    for (order, in_time, batch_rate, agent_rate) in given {
        let runs = runs(FEW_SEEDS, Scenario::X, &plain(order));
        near(mean(&runs, started), in_time, 0.02, "started in 2 s");
        near(mean(&runs, batch), batch_rate, batch_rate * 0.03, "batch");
        near(mean(&runs, agent), agent_rate, agent_rate * 0.1, "agent");
    }
}

#[test]
fn scenario_y_a_chat_surge_is_served_by_lanes_and_throttled_by_fairness_alone() {
    for (policy, in_time, tolerance) in [
        (plain(Order::Fifo), 0.23, 0.05),
        (plain(Order::Lanes), 0.999, 0.005),
        (plain(Order::Fair), 0.40, 0.06),
        (product(), 0.956, 0.04),
    ] {
        let runs = runs(FEW_SEEDS, Scenario::Y, &policy);
        near(mean(&runs, started), in_time, tolerance, "started in 2 s");
    }
}

#[test]
fn scenario_z_beside_an_agent_that_is_tagged_interactive_fairness_keeps_chat_fast() {
    for (policy, in_time, tolerance) in [
        (plain(Order::Fifo), 0.08, 0.04),
        (plain(Order::Lanes), 0.984, 0.02),
        (plain(Order::Fair), 0.992, 0.01),
        (product(), 1.0, 0.002),
    ] {
        let runs = runs(FEW_SEEDS, Scenario::Z, &policy);
        near(mean(&runs, started), in_time, tolerance, "started in 2 s");
    }
}

#[derive(Clone, Copy)]
enum Scenario {
    /// Heavy batch, agent and burst.
    X,
    /// Normal batch, chat at 5.5 times its rate for a minute.
    Y,
    /// Heavy batch, and an agent that is taken for interactive.
    Z,
}

fn runs(seeds: u64, scenario: Scenario, policy: &Policy) -> Vec<Figures> {
    (1_001..1_001 + seeds).map(|seed| run(scenario, policy, seed)).collect()
}

fn run(scenario: Scenario, policy: &Policy, seed: u64) -> Figures {
    let mut policy = policy.clone();
    let switches = match scenario {
        Scenario::X => Switches { batch: Batch::Heavy, agent: true, burst: true },
        Scenario::Y => Switches::default(),
        Scenario::Z => Switches { batch: Batch::Heavy, agent: true, burst: false },
    };
    if matches!(scenario, Scenario::Z) {
        policy.tenants[AGENT].class = ClassId(0);
    }
    let mut setup = reference::setup(switches, seed, Arc::new(policy));
    if matches!(scenario, Scenario::Y) {
        let surge = Traffic::seeded(surging(), seed, Moment(reference::LENGTH.0));
        setup.offers = surge.map(Offer::of).collect();
    }
    world::run(setup).unwrap().figures
}

fn surging() -> Vec<Tenant> {
    let mut tenants = reference::tenants(Switches::default());
    for tenant in &mut tenants[..BATCH] {
        let surge = tenant.rate * 5.5;
        tenant.rate_changes = vec![(Moment(30_000_000), surge), (Moment(90_000_000), tenant.rate)];
    }
    tenants
}

/// The reference policy in this order: no headroom, no share.
fn plain(order: Order) -> Policy {
    Policy { order, ..reference::policy(|_| Default::default()) }
}

/// The product's defaults, with waits and queues as good as unbounded.
fn product() -> Policy {
    let mut policy = Policy { alpha_permille: ALPHA_PERMILLE, ..plain(Order::LanesFair) };
    let defaults = [(0, 0), (50_000, 50_000), (20_000, 100_000)];
    for (class, (share_ppm, headroom_ppm)) in policy.classes.iter_mut().zip(defaults) {
        class.min_share_ppm = share_ppm;
        class.headroom = Headroom::ppm(headroom_ppm);
    }
    policy.pools[0].placing = Placing::default();
    policy
}

/// The agent's work in a window of 30 s is its minimum share, less one request.
fn has_its_share(figures: &Figures, window: usize) -> bool {
    let seconds = &figures.timeline.work_millis[window * 30..window * 30 + 30];
    let agent: u64 = seconds.iter().map(|second| second[AGENT]).sum();
    let all: u64 = seconds.iter().flatten().sum();
    // The largest request: 24,000 tokens read and 1,020 written.
    let request = 24_000_000 + 1_020 * u64::from(reference::WORK.output_millis);
    agent + request >= all / 50
}

fn started(figures: &Figures) -> f64 {
    figures.interactive_started_2s
}

fn batch(figures: &Figures) -> f64 {
    figures.tenants[BATCH].output_tokens_per_s
}

fn agent(figures: &Figures) -> f64 {
    figures.tenants[AGENT].output_tokens_per_s
}

fn mean(runs: &[Figures], pick: impl Fn(&Figures) -> f64) -> f64 {
    runs.iter().map(pick).sum::<f64>() / runs.len() as f64
}

fn near(got: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((got - expected).abs() <= tolerance, "{what}: {got} for {expected}");
}

const SEEDS: u64 = 20;
const FEW_SEEDS: u64 = 8;
/// Of 30 s.
const WINDOWS: usize = 4;
