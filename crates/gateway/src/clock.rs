//! The only reader of clocks.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fairlane_core::units::Moment;

/// The gate's clock: steady, in microseconds since it was started, so that no correction of the wall clock moves a bucket.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
}

impl Clock {
    /// A clock that starts at moment zero.
    #[must_use]
    pub fn start() -> Self {
        Self { started: monotonic() }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Moment {
        Moment(u64::try_from(monotonic().duration_since(self.started).as_micros()).unwrap_or(u64::MAX))
    }

    /// The instant of a moment, for timers.
    #[must_use]
    pub fn instant(&self, moment: Moment) -> Instant {
        self.started + Duration::from_micros(moment.0.min(FAR_MICROS))
    }
}

/// The steady clock, which no correction of the wall clock moves.
#[expect(clippy::disallowed_methods, reason = "this file is the one place that reads a clock")]
#[must_use]
pub fn monotonic() -> Instant {
    Instant::now()
}

/// Milliseconds since 1970 by the wall clock: for records, expiry dates and headers that need a date.
#[expect(clippy::disallowed_methods, reason = "this file is the one place that reads a clock")]
#[must_use]
pub fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Seconds since 1970 by the wall clock.
#[must_use]
pub fn unix_secs() -> u64 {
    unix_millis() / 1_000
}

/// Ten years: far enough for every wait, near enough for every platform's instants.
const FAR_MICROS: u64 = 10 * 365 * 86_400 * 1_000_000;
