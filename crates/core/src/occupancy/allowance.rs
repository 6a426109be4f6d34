//! What a hosted provider says is left of its own limit.

use crate::units::{Micros, Moment};

/// What is left of a limit and when it will be full again, as a provider's headers tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The whole limit, where it is told.
    pub limit: Option<u64>,
    /// What is left of it.
    pub left: u64,
    /// The span until it is whole again.
    pub full_in: Micros,
}

/// The last allowance that was told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    allowance: Allowance,
    at: Moment,
}

impl Told {
    pub(super) const fn new(allowance: Allowance, at: Moment) -> Self {
        Self { allowance, at }
    }

    /// When `cost` fits, `uncounted` being what was sent and the provider had not counted when it told; `None` if only another
    /// word of it can tell. The limit refills evenly until it is full; where the whole is not told, nothing is known of the time
    /// after that.
    pub(super) fn fits_at(&self, cost: u64, uncounted: u64) -> Option<Moment> {
        let Allowance { limit, left, full_in } = self.allowance;
        let full_in = full_in.min(WAIT_MAX);
        let Some(limit) = limit else {
            let fits = cost.saturating_add(uncounted) <= left;
            return Some(self.at.after(if fits { Micros::ZERO } else { full_in }));
        };
        // What is larger than the whole goes when it is full and nothing else is on its way.
        let needed = cost.min(limit).saturating_add(uncounted);
        if needed > limit {
            return None;
        }
        let missing = needed.saturating_sub(left);
        if missing == 0 {
            return Some(self.at);
        }
        let wait = (u128::from(missing) * u128::from(full_in.0)).div_ceil(u128::from(limit - left));
        Some(self.at.after(Micros(u64::try_from(wait).unwrap_or(u64::MAX))))
    }
}

/// No word of a provider holds longer than that: a wrong header must not stop a backend for ever.
const WAIT_MAX: Micros = Micros::from_secs(120);
