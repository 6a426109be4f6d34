//! `fairlane check config F`: reads a configuration as `serve` does and prints what it means, or what is wrong with it.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use fairlane_core::bucket::Shape;
use fairlane_core::policy::{
    Charging, Concurrency, Limits, OnExcess, Policy, RateLimit, Runs, ScopeLimits, Tenant,
};
use fairlane_core::units::{Micros, Tokens};

use crate::config::{Config, ConfigError, EdgePool, Source, Surroundings};

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The configuration can be used: exit code 0.
    Good,
    /// It cannot: exit code 1.
    Bad,
}

/// Checks the file with this process's environment and prints the resolved policy, or every problem, to `out`.
///
/// # Errors
/// `out` cannot be written.
pub fn check_config(path: &Path, unix_secs: u64, out: &mut impl Write) -> io::Result<Checked> {
    check_config_in(path, &|name| std::env::var(name).ok(), unix_secs, out)
}

/// As [`check_config`], with the environment as an argument.
///
/// # Errors
/// `out` cannot be written.
pub fn check_config_in(
    path: &Path,
    env: &dyn Fn(&str) -> Option<String>,
    unix_secs: u64,
    out: &mut impl Write,
) -> io::Result<Checked> {
    let around = Surroundings { env, discovered: &BTreeMap::new(), unix_secs };
    match Source::read(path).and_then(|source| source.resolve(&around)) {
        Ok(config) => print(&config, out).map(|()| Checked::Good),
        Err(error) => print_error(&error, out).map(|()| Checked::Bad),
    }
}

fn print_error(error: &ConfigError, out: &mut impl Write) -> io::Result<()> {
    error.problems.iter().try_for_each(|problem| writeln!(out, "error: {problem}"))
}

fn print(config: &Config, out: &mut impl Write) -> io::Result<()> {
    let Config { policy, edge, warnings } = config;
    writeln!(out, "clients  {}", edge.listen)?;
    match edge.admin {
        Some(admin) => writeln!(
            out,
            "admin    {admin}, token {}",
            if edge.admin_token.is_some() { "asked" } else { "not asked" }
        )?,
        None => writeln!(out, "admin    off")?,
    }
    if let Some(data) = &edge.data {
        writeln!(
            out,
            "data     {}, usage log at most {} records of {}",
            data.file.display(),
            grouped(data.records_max),
            span(Micros(u64::try_from(data.keep.as_micros()).unwrap_or(u64::MAX)))
        )?;
    }
    if !is_empty(&policy.service) {
        writeln!(out, "service")?;
        print_limits(&policy.service, "  ", out)?;
    }
    for (pool, edge_pool) in edge.pools.iter().enumerate() {
        print_pool(policy, pool, edge_pool, out)?;
    }
    for class in &policy.classes {
        let cap =
            class.max_output.map(|cap| format!(", output at most {}", grouped(cap.0))).unwrap_or_default();
        writeln!(
            out,
            "class {}: waits at most {}, queue {} requests or {} tokens{cap}",
            class.name,
            span(class.wait_max),
            grouped(u64::from(class.queue_requests_max)),
            grouped(class.queue_tokens_max.0)
        )?;
    }
    for team in &policy.teams {
        writeln!(out, "team {}", team.name)?;
        print_scope(policy, &team.limits, out)?;
    }
    for tenant in &policy.tenants {
        print_tenant(policy, tenant, out)?;
    }
    warnings.iter().try_for_each(|warning| writeln!(out, "warning: {warning}"))?;
    let count =
        |count: usize, one: &str| if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") };
    writeln!(out, "good: {}, {}", count(policy.tenants.len(), "tenant"), count(warnings.len(), "warning"))
}

fn print_pool(policy: &Policy, index: usize, edge: &EdgePool, out: &mut impl Write) -> io::Result<()> {
    let pool = &policy.pools[index];
    let models: Vec<&str> = policy
        .models
        .iter()
        .filter(|model| model.pool.0 as usize == index)
        .map(|model| model.name.as_str())
        .collect();
    let models =
        if edge.discovers_models { "whatever its backends list".to_owned() } else { models.join(", ") };
    writeln!(out, "pool {} ({:?}): {models}", pool.name, edge.engine)?;
    print_limits(&pool.limits, "  ", out)?;
    for (backend, edge) in pool.backends.iter().zip(&edge.backends) {
        let key = if edge.credential.is_some() { ", own credential" } else { "" };
        writeln!(
            out,
            "  backend {} at {}{}: {} slots{key}",
            backend.name,
            edge.target.origin(),
            edge.target.base_path,
            backend.slots
        )?;
        print_limits(&backend.limits, "    ", out)?;
    }
    edge.passthrough
        .iter()
        .try_for_each(|path| writeln!(out, "  path {} costs {} tokens", path.path, grouped(path.cost.0)))
}

fn print_tenant(policy: &Policy, tenant: &Tenant, out: &mut impl Write) -> io::Result<()> {
    let team = tenant
        .team
        .map(|team| format!(" of team {}", policy.teams[team.0 as usize].name))
        .unwrap_or_default();
    let charging = match tenant.charging {
        Charging::Reserve => "reserve",
        Charging::Quantile => "quantile",
        Charging::Postpay => "postpay",
    };
    let class = &policy.classes[tenant.class.0 as usize].name;
    writeln!(out, "tenant {}{team}: class {class}, charging {charging}", tenant.name)?;
    print_scope(policy, &tenant.limits, out)?;
    if let Some(models) = &tenant.allowed_models {
        let names: Vec<&str> =
            models.iter().map(|model| policy.models[model.0 as usize].name.as_str()).collect();
        writeln!(
            out,
            "  may use only: {}",
            if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
        )?;
    }
    for key in &tenant.keys {
        writeln!(out, "  key {}", key.name)?;
        print_limits(&key.limits.all, "    ", out)?;
    }
    if let Some(runs) = &tenant.runs {
        print_runs(runs, out)?;
    }
    if let Some(users) = &tenant.end_users {
        writeln!(out, "  each end user")?;
        print_limits(&users.all, "    ", out)?;
    }
    Ok(())
}

fn print_runs(runs: &Runs, out: &mut impl Write) -> io::Result<()> {
    let none = || "none".to_owned();
    writeln!(
        out,
        "  each run: budget {}, steps {}, ends after {} idle, {} live, {} new a minute",
        runs.token_budget.map_or_else(none, |budget| format!("{} tokens", grouped(budget.0))),
        runs.max_steps.map_or_else(none, |steps| grouped(u64::from(steps))),
        span(runs.idle_expiry),
        grouped(u64::from(runs.max_live)),
        runs.new_runs.map_or_else(none, |shape| grouped(shape.rate.units_per_minute())),
    )?;
    print_limits(&runs.limits.all, "    ", out)
}

fn print_scope(policy: &Policy, scope: &ScopeLimits, out: &mut impl Write) -> io::Result<()> {
    print_limits(&scope.all, "  ", out)?;
    for (model, limits) in &scope.models {
        writeln!(out, "  model {}", policy.models[model.0 as usize].name)?;
        print_limits(limits, "    ", out)?;
    }
    Ok(())
}

fn print_limits(limits: &Limits, margin: &str, out: &mut impl Write) -> io::Result<()> {
    limits.rates.iter().try_for_each(|rate| writeln!(out, "{margin}{}", rate_text(rate)))?;
    if let Some(Concurrency { limit, on_excess, shadow }) = limits.concurrency {
        let excess = match on_excess {
            OnExcess::Queue => "more wait",
            OnExcess::Reject => "more are refused",
        };
        writeln!(
            out,
            "{margin}concurrent_requests {}, {excess}{}",
            grouped(u64::from(limit)),
            shadow_text(shadow)
        )?;
    }
    let caps = [
        ("max_input_tokens", limits.max_input),
        ("max_output_tokens", limits.max_output),
        ("default_max_output_tokens", limits.default_max_output),
    ];
    let caps = caps.into_iter().filter_map(|(name, cap)| cap.map(|Tokens(cap)| (name, cap)));
    caps.into_iter().try_for_each(|(name, cap)| writeln!(out, "{margin}{name} {}", grouped(cap)))
}

fn rate_text(rate: &RateLimit) -> String {
    let Shape { rate: refill, capacity, debt_max } = rate.shape;
    let shadow = shadow_text(rate.shadow);
    if refill.is_never() {
        return format!("{} 0: nobody{shadow}", rate.dimension.name());
    }
    let capacity_units = capacity.floor_units().unsigned_abs();
    // A level of zero is full again after the bucket's size in seconds.
    let seconds = capacity_units as f64 * 60.0 / refill.units_per_minute().max(1) as f64;
    format!(
        "{} {}/min, bucket {} ({seconds:.1} s), debt at most {}{shadow}",
        rate.dimension.name(),
        grouped(refill.units_per_minute()),
        grouped(capacity_units),
        grouped(debt_max.floor_units().unsigned_abs()),
    )
}

const fn shadow_text(shadow: bool) -> &'static str {
    if shadow { " (shadow: refuses nothing)" } else { "" }
}

fn is_empty(limits: &Limits) -> bool {
    *limits == Limits::default()
}

fn span(span: Micros) -> String {
    let units = [(3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1_000, "ms")];
    let found = units.into_iter().find(|(micros, _)| span.0 >= *micros && span.0.is_multiple_of(*micros));
    found.map_or_else(|| format!("{}us", span.0), |(micros, unit)| format!("{}{unit}", span.0 / micros))
}

pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str) -> (Checked, String) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
        let mut out = Vec::new();
        let env = |name: &str| Some(format!("value-of-{name}-0123456789"));
        let checked = check_config_in(&path, &env, 1_800_000_000, &mut out).unwrap();
        (checked, String::from_utf8(out).unwrap())
    }

    #[test]
    fn the_resolved_policy_is_printed_with_buckets_in_tokens_and_seconds() {
        let (checked, text) = check("full.yaml");
        assert_eq!(checked, Checked::Good, "{text}");
        assert!(
            text.contains("  tokens 200,000/min, bucket 66,666 (20.0 s), debt at most 666,660\n"),
            "{text}"
        );
        assert!(
            text.contains("  model llama-3.1-8b\n    tokens 150,000/min, bucket 25,000 (10.0 s)"),
            "{text}"
        );
        assert!(text.contains("each run: budget 500,000 tokens, steps 40, ends after 30m idle"), "{text}");
        assert!(!text.contains("value-of-"), "a secret is printed: {text}");
    }

    #[test]
    fn a_bad_file_is_told_with_its_place() {
        let path = Path::new("no-such-file.yaml");
        let mut out = Vec::new();
        assert_eq!(check_config_in(path, &|_| None, 0, &mut out).unwrap(), Checked::Bad);
        assert!(String::from_utf8(out).unwrap().starts_with("error: no-such-file.yaml: cannot read"));
    }

    #[test]
    fn a_zero_span_is_shown_as_microseconds() {
        assert_eq!(span(Micros::ZERO), "0us");
        assert_eq!(span(Micros::from_secs(90)), "90s");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
