//! The options about how requests end.

use std::time::Duration;

use fairlane_core::policy::{OnBudgetEnd, OnClientGone};

use super::*;

#[test]
fn the_switches_of_endings_are_the_tenants_own_else_those_of_its_tier_else_the_gentle_ones() {
    let text = "tiers: {hard: {on_client_gone: drain, on_budget_end: stop}}\ntenants:\n  - {name: a, keys: [key-of-a-0123456789]}\n  \
                - {name: b, tier: hard, keys: [key-of-b-0123456789]}\n  \
                - {name: c, tier: hard, on_budget_end: finish, keys: [key-of-c-0123456789]}\n";
    let config = resolve(text).unwrap();
    let switches: Vec<_> =
        config.policy.tenants.iter().map(|tenant| (tenant.on_client_gone, tenant.on_budget_end)).collect();
    let expected = [
        (OnClientGone::Cancel, OnBudgetEnd::Finish),
        (OnClientGone::Drain, OnBudgetEnd::Stop),
        (OnClientGone::Drain, OnBudgetEnd::Finish),
    ];
    assert_eq!(switches, expected);
}

#[test]
fn a_heartbeat_is_off_unless_it_has_a_span_within_its_bound() {
    assert_eq!(resolve("").unwrap().edge.queue_heartbeat, None);
    assert_eq!(resolve("queue_heartbeat: off").unwrap().edge.queue_heartbeat, None);
    let every = resolve("queue_heartbeat: 15s").unwrap().edge.queue_heartbeat;
    assert_eq!(every, Some(Duration::from_secs(15)));
    for text in ["queue_heartbeat: 99ms", "queue_heartbeat: 2h"] {
        let problem = resolve(text).unwrap_err().to_string();
        assert!(problem.contains("1:18") && problem.contains("100ms to 1h"), "{problem}");
    }
}

#[test]
fn the_bounds_of_what_is_read_on_and_of_an_ending_gateway_have_defaults() {
    let edge = resolve("").unwrap().edge;
    assert_eq!(edge.timeouts.client_gone, Duration::from_secs(300));
    assert_eq!(edge.timeouts.shutdown_notice, Duration::ZERO);
    assert_eq!(edge.bounds.drained_answer_bytes_max, 16 << 20);
    for text in [
        "timeouts: {client_gone: 1ms}",
        "timeouts: {shutdown_notice: 11m}",
        "bounds: {max_drained_answer: 100}",
    ] {
        resolve(text).unwrap_err();
    }
}
