//! One bucket's arithmetic: a level that refills with time, exact to the microsecond and the micro-token.

use crate::units::{Amount, Micros, Moment};

/// A refill rate as a reduced fraction: `numerator / denominator` micro-units per microsecond.
///
/// 200,000 tokens a minute is 10,000/3 micro-tokens per microsecond, which is not whole: the bucket carries the remainder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    numerator: u64,
    denominator: u64,
}

impl Rate {
    /// Nothing ever comes back: budgets, step caps and counts of slots.
    pub const NEVER: Self = Self { numerator: 0, denominator: 1 };

    /// `units` whole units per `period_secs` seconds. `None` if the period is zero or above a day, or the rate above 4 billion
    /// units a second.
    #[must_use]
    pub const fn new(units: u64, period_secs: u64) -> Option<Self> {
        if period_secs == 0 || period_secs > SECS_PER_DAY || units / period_secs > RATE_UNITS_PER_SEC_MAX {
            return None;
        }
        if units == 0 {
            return Some(Self::NEVER);
        }
        let divisor = greatest_common_divisor(units, period_secs);
        Some(Self { numerator: units / divisor, denominator: period_secs / divisor })
    }

    /// Whole units that refill in a minute, rounded down.
    #[must_use]
    pub const fn units_per_minute(self) -> u64 {
        ((self.numerator as u128 * 60) / self.denominator as u128) as u64
    }

    /// Units and the seconds that they take, as [`Rate::new`] takes them.
    #[must_use]
    pub const fn parts(self) -> (u64, u64) {
        (self.numerator, self.denominator)
    }

    /// Whether nothing ever comes back.
    #[must_use]
    pub const fn is_never(self) -> bool {
        self.numerator == 0
    }

    /// `rate × span` in whole units, rounded down, at most [`Amount::WHOLE_MAX`].
    #[must_use]
    pub fn units_over(self, span: Micros) -> u64 {
        let units =
            u128::from(self.numerator) * u128::from(span.0) / (u128::from(self.denominator) * 1_000_000);
        u64::try_from(units).unwrap_or(u64::MAX).min(Amount::WHOLE_MAX)
    }

    /// The span in microseconds that `micro_units` take to refill, rounded up; the end of time if they never do.
    #[must_use]
    pub fn span_of(self, micro_units: u64) -> u64 {
        if micro_units == 0 {
            return 0;
        }
        if self.is_never() {
            return u64::MAX;
        }
        // Real amounts and rates fit 64 bits; only the extremes of both need the wide and slow division.
        if let Some(scaled) = micro_units.checked_mul(self.denominator) {
            return scaled.div_ceil(self.numerator);
        }
        let span =
            (u128::from(micro_units) * u128::from(self.denominator)).div_ceil(u128::from(self.numerator));
        u64::try_from(span).unwrap_or(u64::MAX)
    }

    /// The least span that yields `amount`, given `remainder` already earned (in 1/denominator micro-units).
    fn span_for(self, amount: Amount, remainder: u64) -> Option<Micros> {
        if amount.0 <= 0 {
            return Some(Micros::ZERO);
        }
        if self.is_never() {
            return None;
        }
        let amount = amount.0.unsigned_abs();
        if let Some(missing) = amount.checked_mul(self.denominator) {
            return Some(Micros((missing - remainder).div_ceil(self.numerator)));
        }
        let missing = u128::from(amount) * u128::from(self.denominator) - u128::from(remainder);
        let span = missing.div_ceil(u128::from(self.numerator));
        Some(Micros(u64::try_from(span).unwrap_or(u64::MAX)))
    }

    /// What `span` yields on top of `remainder`: whole micro-units and the next remainder.
    fn earned(self, span: Micros, remainder: u64) -> (i64, u64) {
        // Real spans and rates fit 64 bits; only the extremes of both need the wide and slow division.
        let narrow = span.0.checked_mul(self.numerator).and_then(|earned| earned.checked_add(remainder));
        if let Some(earned) = narrow {
            return ((earned / self.denominator) as i64, earned % self.denominator);
        }
        let earned = u128::from(span.0) * u128::from(self.numerator) + u128::from(remainder);
        let denominator = u128::from(self.denominator);
        ((earned / denominator) as i64, (earned % denominator) as u64)
    }
}

/// What a bucket may be: fixed by policy, handed in at each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How fast it refills.
    pub rate: Rate,
    /// The brim: what it holds at most.
    pub capacity: Amount,
    /// How far below zero an overrun may push it.
    pub debt_max: Amount,
}

/// A bucket's content at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    level: Amount,
    time: Moment,
    remainder: u64,
}

/// What a debit beyond the level did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debited {
    /// Taken from the level.
    pub taken: Amount,
    /// Not taken, because the debt would have passed its bound.
    pub forgiven: Amount,
}

impl Bucket {
    /// A full bucket.
    #[must_use]
    pub const fn full(shape: &Shape, now: Moment) -> Self {
        Self { level: shape.capacity, time: now, remainder: 0 }
    }

    /// A bucket that holds `level` at `now`, and has earned `remainder` of the next micro-unit.
    #[must_use]
    pub const fn holding(level: Amount, remainder: u64, now: Moment) -> Self {
        Self { level, time: now, remainder }
    }

    /// What has been earned of the next micro-unit, in parts of the rate's [period](Rate::parts).
    #[must_use]
    pub const fn remainder(&self) -> u64 {
        self.remainder
    }

    /// The level at the moment of the last refill; negative is debt.
    #[must_use]
    pub const fn level(&self) -> Amount {
        self.level
    }

    /// The level that the bucket has at `now`, without touching it.
    #[must_use]
    pub fn level_at(&self, shape: &Shape, now: Moment) -> Amount {
        let mut copy = *self;
        copy.refill(shape, now);
        copy.level
    }

    /// Adds what has been earned since the last refill. A `now` in the past adds nothing and moves nothing.
    pub fn refill(&mut self, shape: &Shape, now: Moment) {
        let elapsed = now.since(self.time);
        if elapsed == Micros::ZERO {
            return;
        }
        self.time = now;
        if shape.rate.is_never() {
            return;
        }
        if self.level >= shape.capacity {
            self.remainder = 0;
            return;
        }
        let to_full = shape.rate.span_for(shape.capacity - self.level, self.remainder).unwrap_or(elapsed);
        if elapsed >= to_full {
            self.level = shape.capacity;
            self.remainder = 0;
            return;
        }
        let (earned, remainder) = shape.rate.earned(elapsed, self.remainder);
        self.level += Amount(earned);
        self.remainder = remainder;
    }

    /// The exact wait until `cost` is covered: zero if it is covered, `None` if waiting never helps.
    ///
    /// One microsecond earlier the cost is not covered.
    #[must_use]
    pub fn wait_for(&self, shape: &Shape, cost: Amount) -> Option<Micros> {
        if self.level >= cost {
            return Some(Micros::ZERO);
        }
        if cost > shape.capacity {
            return None;
        }
        shape.rate.span_for(cost - self.level, self.remainder)
    }

    /// Takes `cost`, which the caller has seen covered (or meant to overdraw by a policy that admits at a level).
    pub fn debit(&mut self, shape: &Shape, cost: Amount) -> Debited {
        let floor = Amount(-shape.debt_max.0);
        let wanted = self.level - cost;
        let reached = wanted.max(floor.min(self.level));
        let taken = self.level - reached;
        self.level = reached;
        Debited { taken, forgiven: cost - taken }
    }

    /// Gives `amount` back, never above the brim; returns what went over the brim.
    pub fn credit(&mut self, shape: &Shape, amount: Amount) -> Amount {
        let wanted = self.level + amount;
        // A brim that was lowered while the bucket was fuller never takes anything away here.
        let reached = wanted.min(shape.capacity.max(self.level));
        self.level = reached;
        if self.level >= shape.capacity {
            self.remainder = 0;
        }
        wanted - reached
    }

    /// Takes on another shape: the balance stays (never above the brim), what was earned under the old rate counts. Of a count that
    /// never refills (a budget, steps, slots) what is used stays, so that a changed bound holds for those that hold some of it.
    pub fn reshape(&mut self, old: &Shape, new: &Shape, now: Moment) {
        self.refill(old, now);
        if old == new {
            return;
        }
        if old.rate.is_never() && new.rate.is_never() {
            self.level += new.capacity - old.capacity;
        }
        self.level = self.level.min(new.capacity).max(Amount(-new.debt_max.0));
        self.remainder = 0;
    }
}

const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

const SECS_PER_DAY: u64 = 86_400;
const RATE_UNITS_PER_SEC_MAX: u64 = 4_000_000_000;
