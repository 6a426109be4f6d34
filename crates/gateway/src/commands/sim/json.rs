//! The figures as JSON.

use fairlane_lab::{Spread, Summary};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// One object for one scenario, a list for several.
pub(super) fn text(
    results: &[(String, Vec<(String, Summary)>)],
    seeds: &[u64],
) -> Result<String, serde_json::Error> {
    let mut all: Vec<Value> =
        results.iter().map(|(name, policies)| scenario(name, policies, seeds)).collect();
    match all.len() {
        1 => serde_json::to_string_pretty(&all.remove(0)),
        _ => serde_json::to_string_pretty(&all),
    }
}

fn scenario(name: &str, policies: &[(String, Summary)], seeds: &[u64]) -> Value {
    let policies: Vec<Value> = policies.iter().map(|(name, summary)| policy(name, summary)).collect();
    json!({"scenario": name, "seeds": seeds, "policies": policies})
}

fn policy(name: &str, summary: &Summary) -> Value {
    let percentiles = |spreads: &[Spread; 3]| {
        let [p50, p95, p99] = spreads.map(figure);
        json!({"p50": p50, "p95": p95, "p99": p99})
    };
    let by_tenant = |pick: fn(&fairlane_lab::TenantSummary) -> Spread| {
        let entries = summary.tenants.iter().map(|tenant| (tenant.name.clone(), json!(figure(pick(tenant)))));
        Value::Object(entries.collect::<Map<String, Value>>())
    };
    let by_class = summary.classes.iter().map(|class| (class.name.to_owned(), json!(figure(class.refused))));
    json!({
        "policy": name,
        "interactive_started_2s": figure(summary.interactive_started_2s),
        "wait_ms": percentiles(&summary.wait_ms),
        "ttft_ms": percentiles(&summary.ttft_ms),
        "tpot_ms": percentiles(&summary.tpot_ms),
        "refused": by_tenant(|tenant| tenant.refused),
        "refused_by_class": Value::Object(by_class.collect()),
        "output_tokens_per_s": by_tenant(|tenant| tenant.output_tokens_per_s),
        "utilisation": figure(summary.utilisation),
        "kv_mean": figure(summary.kv_mean),
        "kv_peak": figure(summary.kv_peak),
        "work_share": by_tenant(|tenant| tenant.work_share),
        "fairness_gap": figure(summary.fairness_gap),
        "amplification": figure(summary.amplification),
    })
}

/// A figure over the seeds.
#[derive(Serialize)]
struct Figure {
    mean: f64,
    min: f64,
    max: f64,
}

fn figure(spread: Spread) -> Figure {
    Figure { mean: spread.mean, min: spread.min, max: spread.max }
}
