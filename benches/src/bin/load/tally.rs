//! What came of the requests: counts and distributions of time.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Counts and times.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) ok: u64,
    pub(crate) limited: u64,
    pub(crate) bad: u64,
    pub(crate) broken: u64,
    /// Streams that ended without their end mark.
    pub(crate) unfinished: u64,
    /// Events that came together with an earlier one of the same stream.
    pub(crate) joined: u64,
    pub(crate) events: u64,
    /// The begin of the first answer that was no success.
    pub(crate) sample: Option<String>,
    latency: Histogram<u64>,
    first: Histogram<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        let empty = || Histogram::new_with_bounds(1, NANOS_MAX, 3).expect("these bounds make a histogram");
        Self {
            ok: 0,
            limited: 0,
            bad: 0,
            broken: 0,
            unfinished: 0,
            joined: 0,
            events: 0,
            sample: None,
            latency: empty(),
            first: empty(),
        }
    }
}

impl Tally {
    /// Counts an answer that came whole.
    pub(crate) fn answered(&mut self, status: u16, latency: Duration, first: Duration) {
        match status {
            200 => self.ok += 1,
            429 => self.limited += 1,
            _ => self.bad += 1,
        }
        self.latency.saturating_record(nanos(latency));
        self.first.saturating_record(nanos(first));
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.ok += other.ok;
        self.limited += other.limited;
        self.bad += other.bad;
        self.broken += other.broken;
        self.unfinished += other.unfinished;
        self.joined += other.joined;
        self.events += other.events;
        if self.sample.is_none() {
            self.sample.clone_from(&other.sample);
        }
        self.latency.add(&other.latency).expect("all histograms have the same bounds");
        self.first.add(&other.first).expect("all histograms have the same bounds");
    }

    /// As JSON; times in microseconds.
    pub(crate) fn told(&self, elapsed: Duration) -> Value {
        json!({
            "ok": self.ok,
            "limited": self.limited,
            "bad": self.bad,
            "broken": self.broken,
            "unfinished": self.unfinished,
            "joined": self.joined,
            "events": self.events,
            "sample": self.sample,
            "seconds": elapsed.as_secs_f64(),
            "per_second": self.ok as f64 / elapsed.as_secs_f64(),
            "latency_us": told(&self.latency),
            "first_us": told(&self.first),
        })
    }
}

fn told(times: &Histogram<u64>) -> Value {
    let at = |quantile: f64| times.value_at_quantile(quantile) as f64 / 1_000.0;
    json!({"p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p999": at(0.999), "max": at(1.0)})
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(NANOS_MAX)
}

const NANOS_MAX: u64 = 120_000_000_000;
