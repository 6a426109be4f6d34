//! A witness of the ledger: shown every effect on it, in order and under the gate's lock, so that an independent recorder can
//! check the levels that it keeps.

use std::fmt;

use fairlane_core::gate::Effect;
use fairlane_core::ledger::{Ledger, Verdict};
use fairlane_core::units::Moment;

/// Sees an effect right after it was done: its verdict where it was a reservation, and the ledger as it then is.
pub struct Witness(Box<See>);

type See = dyn FnMut(&Effect, Option<&Verdict>, &Ledger, Moment) + Send;

impl Witness {
    /// A witness that does `see` for each effect.
    #[must_use]
    pub fn new(see: impl FnMut(&Effect, Option<&Verdict>, &Ledger, Moment) + Send + 'static) -> Self {
        Self(Box::new(see))
    }

    pub(crate) fn see(&mut self, effect: &Effect, verdict: Option<&Verdict>, ledger: &Ledger, now: Moment) {
        (self.0)(effect, verdict, ledger, now);
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witness")
    }
}
