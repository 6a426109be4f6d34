//! The second ledger law on a running gateway: a recorder that knows nothing of the ledger's arithmetic follows every effect on
//! it and compares every level.

#![cfg(test)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use fairlane::witness::Witness;
use fairlane_core::gate::Effect;
use fairlane_core::ledger::{Ledger, Verdict};
use fairlane_core::units::Moment;

use crate::recorder::Recorder;

/// What the recorder has seen.
#[derive(Clone, Default)]
pub(super) struct Witnessed(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    recorder: Recorder,
    effects: u64,
    checks: u64,
    complaint: Option<String>,
}

impl Witnessed {
    /// For the driver.
    pub(super) fn witness(&self) -> Witness {
        let state = Arc::clone(&self.0);
        Witness::new(move |effect, verdict, ledger, now| {
            let mut state = state.lock().unwrap();
            if state.complaint.is_some() {
                return;
            }
            // A panic here would end a request instead of the run.
            let seen = catch_unwind(AssertUnwindSafe(|| state.follow(effect, verdict, ledger, now)));
            state.complaint = seen.err().map(|panic| {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| String::from(*text)));
                format!("{} after {effect:?}", text.unwrap_or_default())
            });
        })
    }

    /// What was wrong, if anything; and how many effects and whole checks there were.
    pub(super) fn verdict(&self) -> (Option<String>, u64, u64) {
        let state = self.0.lock().unwrap();
        let left =
            (state.recorder.open() > 0).then(|| format!("{} reservations are open", state.recorder.open()));
        (state.complaint.clone().or(left), state.effects, state.checks)
    }
}

impl State {
    fn follow(&mut self, effect: &Effect, verdict: Option<&Verdict>, ledger: &Ledger, now: Moment) {
        match effect {
            Effect::Reserve(reservation) => {
                let verdict = verdict.expect("a reservation has a verdict");
                self.recorder.reserve(reservation, verdict, now);
            }
            Effect::Draw { reservation, charges } => self.recorder.draw(*reservation, charges, now),
            Effect::Settle(settlement) => self.recorder.settle(settlement, now),
            Effect::Reshape(cell, shape) => self.recorder.reshape(*cell, shape, now),
            Effect::Grant(cell, shape, amount) => self.recorder.grant(*cell, shape, *amount, now),
            Effect::Start { .. }
            | Effect::Stop { .. }
            | Effect::Evict { .. }
            | Effect::Refuse { .. }
            | Effect::Count { .. }
            | Effect::Abandon { .. }
            | Effect::Finished(_) => return,
        }
        self.effects += 1;
        if self.effects.is_multiple_of(CHECK_EVERY) {
            self.checks += 1;
            self.recorder.check(ledger, now);
        }
    }
}

/// Effects between two comparisons of all levels.
const CHECK_EVERY: u64 = 16;
