//! How fast something empties: the pace of the last completions, for waits that no bucket can tell.

use alloc::collections::VecDeque;

use crate::units::{Micros, Moment};

/// Moments of the last completions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain {
    moments: VecDeque<Moment>,
}

impl Drain {
    pub(crate) fn completed(&mut self, now: Moment) {
        if self.moments.len() == MOMENTS {
            self.moments.pop_front();
        }
        self.moments.push_back(now);
    }

    /// The wait until `ahead` more have completed, at the pace of the last ones: from one second to one minute.
    pub(crate) fn wait(&self, ahead: u64, now: Moment) -> Micros {
        let (Some(first), true) = (self.moments.front(), self.moments.len() >= 2) else {
            return WAIT_MIN;
        };
        let per_completion = now.since(*first).0 / (self.moments.len() as u64 - 1);
        Micros(per_completion.saturating_mul(ahead.max(1))).clamp(WAIT_MIN, WAIT_MAX)
    }
}

const MOMENTS: usize = 32;
const WAIT_MIN: Micros = Micros::from_secs(1);
const WAIT_MAX: Micros = Micros::from_secs(60);
