//! Sums over the usage log.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::DataError;
use super::file::DataFile;
use crate::usage_log::Record;

/// By what records are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// By tenant.
    Tenant,
    /// By team.
    Team,
    /// By tenant and key.
    Key,
    /// By tenant and run, as its hash.
    Run,
    /// By model.
    Model,
    /// By day, in UTC.
    Day,
}

/// Which records, and how they are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// By what.
    pub by: By,
    /// The earliest end of a request, in milliseconds since 1970.
    pub from_ms: u64,
}

/// Sums over the usage log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// By what.
    pub by: By,
    /// The first end of a request among them, in milliseconds since 1970; 0 without any.
    pub from_ms: u64,
    /// The last one.
    pub to_ms: u64,
    /// The sums, the most charged first; by day the last one first.
    pub rows: Vec<Sum>,
}

/// One line of sums.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sum {
    /// Whose; `None` for requests that have none, such as those of tenants without a team.
    pub name: Option<String>,
    /// Requests that ended, refused ones included.
    pub requests: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Input tokens, cached ones included.
    pub input: u64,
    /// Cached input tokens.
    pub cached: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// Output tokens.
    pub output: u64,
    /// Tokens charged.
    pub charged: u64,
}

/// The part of a record that sums need.
#[derive(Debug, Deserialize)]
struct Line<'a> {
    time_ms: u64,
    #[serde(borrow)]
    tenant: Cow<'a, str>,
    team: Option<Cow<'a, str>>,
    key: Option<Cow<'a, str>>,
    #[serde(borrow)]
    model: Cow<'a, str>,
    run: Option<Cow<'a, str>>,
    input: u64,
    cached: u64,
    cache_write: u64,
    output: u64,
    charged: u64,
    #[serde(borrow)]
    outcome: Cow<'a, str>,
}

#[derive(Debug)]
struct Adder {
    query: Query,
    span_ms: Option<(u64, u64)>,
    rows: BTreeMap<Option<String>, Sum>,
}

/// Sums over the records in a file.
pub(super) fn sum(file: &DataFile, query: &Query) -> Result<Usage, DataError> {
    let mut adder = Adder::new(query);
    file.for_each_record(query.from_ms, |record| {
        let line = serde_json::from_slice(record).map_err(|error| error.to_string())?;
        adder.add(&line);
        Ok(())
    })?;
    Ok(adder.finish())
}

impl Usage {
    /// Sums over the records in a file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of_file(file: &DataFile, query: &Query) -> Result<Self, DataError> {
        sum(file, query)
    }

    /// Sums over these records.
    pub fn of_records<'a>(records: impl IntoIterator<Item = &'a Record>, query: &Query) -> Self {
        let mut adder = Adder::new(query);
        for record in records.into_iter().filter(|record| record.time_ms >= query.from_ms) {
            let run = record.run.map(|run| run.to_string());
            adder.add(&Line {
                time_ms: record.time_ms,
                tenant: Cow::Borrowed(&record.tenant),
                team: record.team.as_deref().map(Cow::Borrowed),
                key: record.key.as_deref().map(Cow::Borrowed),
                model: Cow::Borrowed(&record.model),
                run: run.map(Cow::Owned),
                input: record.input,
                cached: record.cached,
                cache_write: record.cache_write,
                output: record.output,
                charged: record.charged,
                outcome: Cow::Borrowed(record.outcome),
            });
        }
        adder.finish()
    }
}

impl Adder {
    const fn new(query: &Query) -> Self {
        Self { query: *query, span_ms: None, rows: BTreeMap::new() }
    }

    fn add(&mut self, line: &Line<'_>) {
        let (from, to) = self.span_ms.unwrap_or((line.time_ms, line.time_ms));
        self.span_ms = Some((from.min(line.time_ms), to.max(line.time_ms)));
        let own = |part: &Option<Cow<'_, str>>| part.as_ref().map(|part| format!("{}/{part}", line.tenant));
        let mut name = match self.query.by {
            By::Tenant => Some(line.tenant.to_string()),
            By::Team => line.team.as_ref().map(ToString::to_string),
            By::Key => own(&line.key),
            By::Run => own(&line.run),
            By::Model => Some(line.model.to_string()),
            By::Day => Some(day(line.time_ms)),
        };
        if self.rows.len() >= ROWS_MAX && !self.rows.contains_key(&name) {
            name = Some(OTHERS.to_owned());
        }
        let sum = self.rows.entry(name).or_default();
        sum.requests += 1;
        sum.refused += u64::from(line.outcome == "refused");
        sum.input += line.input;
        sum.cached += line.cached;
        sum.cache_write += line.cache_write;
        sum.output += line.output;
        sum.charged += line.charged;
    }

    fn finish(self) -> Usage {
        let mut rows: Vec<Sum> = self.rows.into_iter().map(|(name, sum)| Sum { name, ..sum }).collect();
        match self.query.by {
            By::Day => rows.reverse(),
            By::Tenant | By::Team | By::Key | By::Run | By::Model => {
                rows.sort_by(|one, other| other.charged.cmp(&one.charged).then(one.name.cmp(&other.name)));
            }
        }
        let (from_ms, to_ms) = self.span_ms.unwrap_or_default();
        Usage { by: self.query.by, from_ms, to_ms, rows }
    }
}

/// The day in UTC, as `2026-12-01`: days are counted from the first of March of year 0, so that a leap day ends its year.
fn day(unix_ms: u64) -> String {
    let days = unix_ms / 86_400_000 + DAYS_TO_1970;
    let era = days / DAYS_IN_400_YEARS;
    let of_era = days % DAYS_IN_400_YEARS;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Lines of one answer; what is more is put together in one.
const ROWS_MAX: usize = 100_000;
const OTHERS: &str = "(others)";
/// From the first of March of year 0.
const DAYS_TO_1970: u64 = 719_468;
const DAYS_IN_400_YEARS: u64 = 146_097;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        let known = [
            (0, "1970-01-01"),
            (951_782_400_000, "2000-02-29"),
            (951_868_800_000, "2000-03-01"),
            (1_798_761_599_999, "2026-12-31"),
            (1_798_761_600_000, "2027-01-01"),
            (4_107_542_400_000, "2100-03-01"),
        ];
        for (unix_ms, name) in known {
            assert_eq!(day(unix_ms), name);
        }
    }

    #[test]
    fn sums_are_put_together_and_the_most_charged_comes_first() {
        let record = |tenant: &str, team: Option<&str>, charged: u64| Record {
            time_ms: 1_798_761_600_000,
            tenant: tenant.into(),
            team: team.map(Into::into),
            input: charged - 1,
            output: 1,
            charged,
            outcome: "completed",
            ..Record::default()
        };
        let refused = Record { outcome: "refused", ..record("b", Some("x"), 1) };
        let records = [record("a", None, 10), record("b", Some("x"), 20), record("b", Some("x"), 5), refused];
        let usage = Usage::of_records(&records, &Query { by: By::Tenant, from_ms: 0 });
        let shown: Vec<_> = usage
            .rows
            .iter()
            .map(|row| (row.name.as_deref(), row.requests, row.refused, row.charged))
            .collect();
        assert_eq!(shown, [(Some("b"), 3, 1, 26), (Some("a"), 1, 0, 10)]);
        let usage = Usage::of_records(&records, &Query { by: By::Team, from_ms: 0 });
        assert_eq!(usage.rows.iter().map(|row| row.name.as_deref()).collect::<Vec<_>>(), [Some("x"), None]);
        let late = Query { by: By::Day, from_ms: 1_798_761_600_001 };
        assert_eq!(Usage::of_records(&records, &late).rows, []);
    }
}
