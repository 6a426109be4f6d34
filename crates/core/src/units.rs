//! Units as types: moments, spans of time, tokens, and the micro-units kept in buckets.

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// A moment in microseconds since an epoch that the driver picks. It never comes from a clock in this crate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

/// A span of time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

/// A number of whole tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tokens(pub u64);

/// What a bucket holds, in millionths of a token (or of a request, a step, a slot). Negative is debt.
///
/// Policies keep every capacity and debt at or below [`Amount::WHOLE_MAX`] units, so that amounts stay below 2^53 and a
/// store that computes in doubles agrees with this crate to the bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(pub i64);

impl Moment {
    /// The moment `span` later, at the latest the end of time.
    #[must_use]
    pub const fn after(self, span: Micros) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The span since `earlier`; zero if `earlier` is later (a clock that stepped back).
    #[must_use]
    pub const fn since(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}

impl Micros {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// Whole seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Whole milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// Milliseconds, rounded up: a wait is never told shorter than it is.
    #[must_use]
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// Seconds, rounded up.
    #[must_use]
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// Seconds as a number for display; never on a decision path.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "display only")]
    pub const fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1_000_000.0
    }
}

impl Tokens {
    /// No tokens.
    pub const ZERO: Self = Self(0);

    /// The sum, at most `u64::MAX`.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least zero.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `self` times `factor`, at most `u64::MAX`.
    #[must_use]
    pub const fn times(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }

    /// As an amount; a count above [`Amount::WHOLE_MAX`] is cut to it, which no bucket can hold.
    #[must_use]
    pub const fn amount(self) -> Amount {
        Amount::whole(self.0)
    }
}

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// One whole unit: a token, a request, a step, a slot.
    pub const ONE: Self = Self(1_000_000);
    /// The most whole units that an amount expresses: 4.5 billion, above the largest bucket a policy may have.
    pub const WHOLE_MAX: u64 = 4_500_000_000;

    /// `units` whole units, cut to [`Self::WHOLE_MAX`].
    #[must_use]
    pub const fn whole(units: u64) -> Self {
        let units = if units > Self::WHOLE_MAX { Self::WHOLE_MAX } else { units };
        Self(units as i64 * 1_000_000)
    }

    /// Whole units, rounded towards the floor; negative for debt.
    #[must_use]
    pub const fn floor_units(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// Whole units, rounded up; negative for debt.
    #[must_use]
    pub const fn ceil_units(self) -> i64 {
        -(-self.0).div_euclid(1_000_000)
    }
}

impl Add for Amount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Amount {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl SubAssign for Amount {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
