//! How much work a pool does while it is full, for estimates of waits.

use crate::units::{Micros, Moment};

/// A moving mean of the work done per second, in thousandths; measured only while something waits that fits nowhere, because less
/// is done when less is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    per_second_millis: u64,
    measured: Micros,
    since: Option<Moment>,
    done_millis: u64,
}

impl Pace {
    /// Something waits that fits nowhere.
    pub(crate) fn full(&mut self, now: Moment) {
        if self.since.is_none() {
            self.since = Some(now);
            self.done_millis = 0;
        }
    }

    /// All that could be sent has been sent.
    pub(crate) fn idle(&mut self, now: Moment) {
        self.take(now, SPAN_MIN);
        self.since = None;
    }

    /// Work was finished.
    pub(crate) fn done(&mut self, work_millis: u64, now: Moment) {
        if self.since.is_some() {
            self.done_millis = self.done_millis.saturating_add(work_millis);
            self.take(now, SPAN_USUAL);
        }
    }

    /// The time that so much work takes; `None` until enough has been seen.
    pub(crate) fn time_for(&self, work_millis: u64) -> Option<Micros> {
        if self.measured < MEASURED_MIN || self.per_second_millis == 0 {
            return None;
        }
        let micros = u128::from(work_millis) * 1_000_000 / u128::from(self.per_second_millis);
        Some(Micros(u64::try_from(micros).unwrap_or(u64::MAX)))
    }

    /// Takes a sample into the mean, weighed with its span against [`MEMORY`].
    fn take(&mut self, now: Moment, span_min: Micros) {
        let Some(since) = self.since else { return };
        let span = now.since(since);
        if span < span_min {
            return;
        }
        let sample = u128::from(self.done_millis) * 1_000_000 / u128::from(span.0);
        let (known, span) = (u128::from(self.measured.min(MEMORY).0), u128::from(span.min(MEMORY).0));
        let mean = (u128::from(self.per_second_millis) * known + sample * span) / (known + span);
        self.per_second_millis = u64::try_from(mean).unwrap_or(u64::MAX);
        self.measured = Micros(self.measured.0.saturating_add(span as u64));
        self.since = Some(now);
        self.done_millis = 0;
    }
}

/// How long a sample counts for, about.
const MEMORY: Micros = Micros::from_secs(10);
/// Nothing is estimated before that much has been seen.
const MEASURED_MIN: Micros = Micros::from_secs(2);
const SPAN_USUAL: Micros = Micros::from_millis(250);
const SPAN_MIN: Micros = Micros::from_millis(50);
