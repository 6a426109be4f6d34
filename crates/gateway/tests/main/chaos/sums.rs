//! The sums over a run: the first ledger law, what teams were debited, and what the metrics tell, each from the usage log alone.

#![cfg(test)]

use std::collections::BTreeMap;

use fairlane::usage_log::Record;
use fairlane_core::policy::Dimension;
use fairlane_core::scope::Owner;

use super::settings::{RATE_PER_DAY, TENANTS};
use crate::support::TestGateway;

/// Everything that must agree with the records.
///
/// # Errors
/// The first sum that does not.
pub(super) fn check(gateway: &TestGateway, records: &[Record], elapsed_secs: f64) -> Result<(), String> {
    let driver = &gateway.running.gateway.driver;
    let totals = driver.totals();
    if !totals.law_holds() || totals.outstanding != 0 {
        return Err(format!("the first ledger law: {totals:?}"));
    }
    let used: u64 = records.iter().map(|record| record.input + record.output).sum();
    if totals.settled + totals.overrun != used {
        return Err(format!("records say that {used} tokens were used, the ledger {totals:?}"));
    }
    tenants(gateway, records)?;
    for team in ["left", "right"] {
        let mine: Vec<&Record> =
            records.iter().filter(|record| record.team.as_deref() == Some(team)).collect();
        team_is_debited(gateway, team, &mine, elapsed_secs)?;
    }
    Ok(())
}

fn tenants(gateway: &TestGateway, records: &[Record]) -> Result<(), String> {
    for tenant in &TENANTS {
        let mine = || records.iter().filter(|record| &*record.tenant == tenant.name);
        let told = gateway.running.gateway.tallies.of(tenant.name);
        let sums = (
            mine().count() as u64,
            mine().map(|record| record.input).sum::<u64>(),
            mine().map(|record| record.output).sum::<u64>(),
        );
        if (told.requests, told.input, told.output) != sums {
            return Err(format!("{}: records say {sums:?}, its tally {told:?}", tenant.name));
        }
    }
    Ok(())
}

/// Of buckets that never refuse and hardly refill, every token must be accounted for.
fn team_is_debited(
    gateway: &TestGateway,
    team: &str,
    records: &[&Record],
    elapsed_secs: f64,
) -> Result<(), String> {
    let live = gateway.running.gateway.live();
    let place = live.policy.teams.iter().position(|one| one.name == team).ok_or("no such team")?;
    let levels = gateway.running.gateway.driver.all_limits();
    let mut found = 0;
    for level in levels {
        let limit = level.view.limit;
        if !matches!(limit.owner, Owner::Team(id) if id.0 as usize == place) {
            continue;
        }
        found += 1;
        let debited: f64 = records.iter().map(|record| debit(record, limit.dimension)).sum();
        let left = level.view.shape.capacity.0 as f64 / 1e6 - debited;
        let refill = RATE_PER_DAY as f64 / 86_400.0 * elapsed_secs;
        let level = level.level.0 as f64 / 1e6;
        if level < left - 0.001 || level > left + refill + 0.01 {
            return Err(format!(
                "team {team}, {:?}: {debited} debited by the records, so {left} to {} are left; it holds {level}: {:?}",
                limit.dimension,
                left + refill,
                endings(records)
            ));
        }
    }
    if found == super::settings::COUNTED.len() {
        Ok(())
    } else {
        Err(format!("{found} limits of team {team}"))
    }
}

/// How many records there are of each ending and status.
fn endings(records: &[&Record]) -> BTreeMap<(&'static str, &'static str, u16), usize> {
    let mut endings = BTreeMap::new();
    for record in records {
        *endings.entry((record.outcome, record.usage_source, record.status)).or_default() += 1;
    }
    endings
}

fn debit(record: &Record, dimension: Dimension) -> f64 {
    let (input, cached, output) = (record.input as f64, record.cached as f64, record.output as f64);
    match dimension {
        Dimension::Tokens => input + output,
        Dimension::InputTokens => input,
        Dimension::OutputTokens => output,
        Dimension::Requests => f64::from(u8::from(keeps_unit(record))),
        Dimension::Work if &*record.pool == "main" => (input - cached) + 0.5 * cached + 4.0 * output,
        Dimension::Work => input + output,
        Dimension::ConcurrentRequests | Dimension::RunBudget | Dimension::RunSteps | Dimension::NewRuns => {
            0.0
        }
    }
}

/// The table of `docs/accounting.md`: whose request unit is kept.
fn keeps_unit(record: &Record) -> bool {
    match (record.outcome, record.usage_source) {
        ("refused", _) => false,
        // A refusal by the backend; "busy" is none.
        ("upstream_error", _) => (400..=499).contains(&record.status) && record.status != 429,
        ("completed", _) => true,
        // An answer that came, was read on for a client that had left, and for which nothing ran: a token count, say.
        ("client_gone", "none") => record.status == 200,
        (_, source) => source != "none",
    }
}
