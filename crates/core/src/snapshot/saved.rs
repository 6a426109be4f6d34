//! One cell as it is written down, and what is left of it after a time away.

use crate::bucket::{Bucket, Shape};
use crate::policy::Dimension;
use crate::units::{Amount, Micros, Moment};

/// One cell as it is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// What it held at `time`; negative is debt.
    pub level: Amount,
    /// What it had earned of the next micro-unit.
    pub remainder: u64,
    /// How much of that may be spent later without another word: after a crash none of it is there.
    pub claim: Amount,
    /// When, by the wall clock, in microseconds since 1970.
    pub time: Moment,
    /// Rate, capacity and debt at that time.
    pub shape: Shape,
    /// What an operator had added to the run's budget.
    pub raised: Amount,
    /// How long after their last use an end user's or a run's cells are kept; zero for others.
    pub expiry: Micros,
}

impl Saved {
    /// What is left at `wall` (wall clock, as [`Self::time`]) under the shape in force: refilled for the time away, less the whole
    /// claim. It is never above what the cell really held, as long as no more than the claim was spent after `time`: a bucket that
    /// is debited late never holds more than one that is debited by the same at the end.
    ///
    /// A wall clock before `time` refills nothing.
    #[must_use]
    pub fn level_at(&self, shape: &Shape, wall: Moment) -> Amount {
        self.bucket_at(shape, wall, Moment(0)).level()
    }

    /// The bucket with that [level](Self::level_at), for a gate whose clock shows `now`.
    pub(super) fn bucket_at(&self, shape: &Shape, wall: Moment, now: Moment) -> Bucket {
        let away = wall.since(self.time);
        let mut refilled = Bucket::holding(self.level, self.remainder, Moment(0));
        refilled.refill(&self.shape, Moment(away.0));
        // What is below the bound on debt was forgiven, never taken.
        let floor = Amount(-self.shape.debt_max.0).min(refilled.level());
        let left = (refilled.level() - self.claim).max(floor);
        let mut bucket = Bucket::holding(left, refilled.remainder(), now);
        bucket.reshape(&self.shape, shape, now);
        bucket
    }

    /// Whether a cell that nobody has used since is full: forgetting it changes nothing.
    #[must_use]
    pub fn is_full(&self, wall: Moment) -> bool {
        self.level_at(&self.shape, wall) >= self.shape.capacity
    }

    /// Whether an end user or a run was idle for so long that it is forgotten. A cell in use is written down again after an eighth
    /// of its expiry at the latest, so its last use was at most that much after `time`.
    #[must_use]
    pub fn is_expired(&self, wall: Moment) -> bool {
        wall > self.idle_until()
    }

    /// When an end user or a run ends that is not used after the last use that the row can know of.
    pub(super) const fn idle_until(&self) -> Moment {
        self.time.after(self.expiry).after(self.refresh())
    }

    /// The age from which on a cell in use is written down again.
    pub(super) const fn refresh(&self) -> Micros {
        Micros(self.expiry.0 / REFRESHES)
    }
}

/// The claim of a cell that a restart must not refill: a thirty-second of what it holds at most, and at least one unit. `None` for
/// counts of what runs at the moment, and for buckets that fill within [`SLOW_FROM`]: of these only debts are written down.
#[must_use]
pub fn claim_of(dimension: Dimension, shape: &Shape) -> Option<Amount> {
    let counts_live = dimension == Dimension::ConcurrentRequests;
    let fills_soon = shape.rate.span_of(shape.capacity.0.unsigned_abs()) <= SLOW_FROM.0;
    if counts_live || fills_soon {
        return None;
    }
    Some(Amount(shape.capacity.0 / CLAIMS).max(Amount::ONE).min(shape.capacity))
}

/// A bucket that fills within this time from empty starts full.
pub const SLOW_FROM: Micros = Micros::from_secs(60);
const CLAIMS: i64 = 32;
const REFRESHES: u64 = 8;
