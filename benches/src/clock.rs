//! The clock of the bench.

use std::time::Instant;

/// The moment.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "a bench measures time; no product code reads this")]
pub fn moment() -> Instant {
    Instant::now()
}
