//! A run in numbers: for each ending what was charged and what the engine made.

#![cfg(test)]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::accounts::lie;
use super::joined::Joined;

/// Sums of one ending.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    requests: u64,
    charged_input: u64,
    charged_output: u64,
    read: u64,
    made: u64,
    lied: u64,
    sent: u64,
    got: u64,
    unmatched: u64,
    earlier: u64,
}

/// The table of a run.
pub(super) fn table(joined: &[Joined<'_>]) -> String {
    let mut endings: BTreeMap<(&str, &str), Sums> = BTreeMap::new();
    for one in joined {
        let record = one.record;
        let sums = endings.entry((record.outcome, record.usage_source)).or_default();
        sums.requests += 1;
        sums.charged_input += record.input;
        sums.charged_output += record.output;
        sums.got += one.seen.tokens;
        sums.earlier += one.earlier.iter().map(|earlier| earlier.record.produced).sum::<u64>();
        match one.last {
            Some(last) => {
                sums.read += last.record.prompt;
                sums.made += last.record.produced;
                sums.sent += last.record.sent;
                sums.lied += if record.usage_source == "reported" { lie(&last.record) } else { 0 };
            }
            None => sums.unmatched += 1,
        }
    }
    let mut text = String::from(
        "ending                     source            requests  in charged     in read  out charged    out made        lies    out sent  client got  no engine  earlier tries\n",
    );
    for ((outcome, source), sums) in &endings {
        let Sums { requests, charged_input, charged_output, read, made, lied, sent, got, unmatched, earlier } =
            sums;
        let _ = writeln!(
            text,
            "{outcome:<26} {source:<16} {requests:>9} {charged_input:>11} {read:>11} {charged_output:>12} {made:>11} {lied:>11} {sent:>11} {got:>11} {unmatched:>10} {earlier:>14}"
        );
    }
    text
}

/// What bound those that were refused: limits by their dimension, and reasons.
pub(super) fn refusals(joined: &[Joined<'_>]) -> BTreeMap<String, usize> {
    let mut refusals = BTreeMap::new();
    for why in joined.iter().filter_map(|one| one.record.refusal.as_deref()) {
        *refusals.entry(why.to_owned()).or_default() += 1;
    }
    refusals
}

/// How many requests ended in each way.
pub(super) fn endings(joined: &[Joined<'_>]) -> BTreeMap<&'static str, usize> {
    let mut endings = BTreeMap::new();
    for one in joined {
        *endings.entry(one.record.outcome).or_default() += 1;
    }
    endings
}
