//! The figures as a table, one column for each policy.

use std::io::{self, Write};

use fairlane_lab::{Spread, Summary};

/// Prints one scenario.
pub(super) fn print(
    name: &str,
    seeds: &[u64],
    policies: &[(String, Summary)],
    out: &mut impl Write,
) -> io::Result<()> {
    let seeds = match seeds {
        [one] => format!("seed {one}"),
        [first, .., last] => format!("seeds {first} to {last}, mean [least..greatest]"),
        [] => "no seed".to_owned(),
    };
    writeln!(out, "{name}\n{seeds}\n")?;
    let rows = rows(policies);
    let first = rows.iter().map(|row| row.0.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..policies.len())
        .map(|column| {
            let cells = rows.iter().map(|row| row.1[column].chars().count());
            cells.chain([policies[column].0.chars().count()]).max().unwrap_or(0)
        })
        .collect();
    write!(out, "{:first$}", "")?;
    for ((name, _), width) in policies.iter().zip(&widths) {
        write!(out, "  {name:>width$}")?;
    }
    writeln!(out)?;
    for (label, cells) in rows {
        write!(out, "{label:first$}")?;
        for (cell, width) in cells.iter().zip(&widths) {
            write!(out, "  {cell:>width$}")?;
        }
        writeln!(out)?;
    }
    writeln!(out)
}

type Row = (String, Vec<String>);

fn rows(policies: &[(String, Summary)]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = |label: &str, cell: &dyn Fn(&Summary) -> String| {
        rows.push((label.to_owned(), policies.iter().map(|(_, summary)| cell(summary)).collect()));
    };
    row("interactive started within 2 s", &|summary| percent(summary.interactive_started_2s));
    for (index, name) in ["p50", "p95", "p99"].into_iter().enumerate() {
        row(&format!("interactive wait {name}, s"), &|summary| seconds(summary.wait_ms[index]));
    }
    for (index, name) in ["p50", "p95"].into_iter().enumerate() {
        row(&format!("time to first token {name}, s"), &|summary| seconds(summary.ttft_ms[index]));
    }
    for (index, name) in ["p50", "p95"].into_iter().enumerate() {
        row(&format!("time per output token {name}, ms"), &|summary| plain(summary.tpot_ms[index], 1));
    }
    row("backend use", &|summary| percent(summary.utilisation));
    row("KV cache, mean", &|summary| percent(summary.kv_mean));
    row("KV cache, peak", &|summary| percent(summary.kv_peak));
    row("fairness gap, tokens of work", &|summary| plain(summary.fairness_gap, 0));
    row("amplification", &|summary| plain(summary.amplification, 2));
    let Some((_, first)) = policies.first() else { return rows };
    let mut row = |label: String, cell: &dyn Fn(&Summary) -> String| {
        rows.push((label, policies.iter().map(|(_, summary)| cell(summary)).collect()));
    };
    for (index, class) in first.classes.iter().enumerate() {
        row(format!("refused, class {}", class.name), &|summary| percent(summary.classes[index].refused));
        row(format!("wait p95, class {}, s", class.name), &|summary| {
            seconds(summary.classes[index].wait_p95_ms)
        });
    }
    let shown = first.tenants.len().min(TENANTS_SHOWN_MAX);
    for (index, tenant) in first.tenants.iter().enumerate().take(shown) {
        row(format!("{}: refused", tenant.name), &|summary| percent(summary.tenants[index].refused));
        row(format!("{}: output tokens/s", tenant.name), &|summary| {
            plain(summary.tenants[index].output_tokens_per_s, 0)
        });
        row(format!("{}: share of work", tenant.name), &|summary| percent(summary.tenants[index].work_share));
    }
    rows
}

fn percent(spread: Spread) -> String {
    let times = |number: f64| number * 100.0;
    let spread = Spread { mean: times(spread.mean), min: times(spread.min), max: times(spread.max) };
    format!("{} %", plain(spread, 1))
}

fn seconds(spread: Spread) -> String {
    let over = |number: f64| number / 1_000.0;
    plain(Spread { mean: over(spread.mean), min: over(spread.min), max: over(spread.max) }, 2)
}

fn plain(spread: Spread, decimals: usize) -> String {
    let number = |number: f64| format!("{number:.decimals$}");
    let (mean, min, max) = (number(spread.mean), number(spread.min), number(spread.max));
    if min == max { mean } else { format!("{mean} [{min}..{max}]") }
}

/// Beyond these the JSON has them all.
const TENANTS_SHOWN_MAX: usize = 24;
