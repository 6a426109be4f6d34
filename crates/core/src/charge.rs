//! What a request costs: amounts per dimension, and the charge where no usage was reported.

use crate::policy::{Dimension, Work};
use crate::units::{Amount, Tokens};

/// Tokens to reserve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Input tokens.
    pub input: Tokens,
    /// Output tokens over all choices.
    pub output: Tokens,
}

/// Tokens that were used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// All input tokens, the cached ones included.
    pub input: Tokens,
    /// The part of `input` that came from a cache.
    pub cached: Tokens,
    /// Output tokens over all choices.
    pub output: Tokens,
}

impl Need {
    /// Input and output together.
    #[must_use]
    pub const fn total(&self) -> Tokens {
        self.input.plus(self.output)
    }

    /// What to take from a cell of this dimension.
    #[must_use]
    pub fn amount(&self, dimension: Dimension, work: &Work) -> Amount {
        match dimension {
            Dimension::Requests
            | Dimension::ConcurrentRequests
            | Dimension::RunSteps
            | Dimension::NewRuns => Amount::ONE,
            Dimension::Tokens | Dimension::RunBudget => self.total().amount(),
            Dimension::InputTokens => self.input.amount(),
            Dimension::OutputTokens => self.output.amount(),
            Dimension::Work => {
                millis_sum(&[(self.input, work.input_millis), (self.output, work.output_millis)])
            }
        }
    }
}

impl Used {
    /// What a cell of this dimension is charged in the end, cached input weighing `cached_weight_millis` thousandths.
    ///
    /// Slots come back whole; requests, steps and begun runs stay taken (giving them back is the caller's decision).
    #[must_use]
    pub fn amount(&self, dimension: Dimension, cached_weight_millis: u32, work: &Work) -> Amount {
        let cached = self.cached.min(self.input);
        let uncached = self.input.minus(cached);
        match dimension {
            Dimension::ConcurrentRequests => Amount::ZERO,
            Dimension::Requests | Dimension::RunSteps | Dimension::NewRuns => Amount::ONE,
            Dimension::OutputTokens => self.output.amount(),
            Dimension::InputTokens => millis_sum(&[(uncached, ONE_MILLIS), (cached, cached_weight_millis)]),
            Dimension::Tokens | Dimension::RunBudget => millis_sum(&[
                (uncached, ONE_MILLIS),
                (cached, cached_weight_millis),
                (self.output, ONE_MILLIS),
            ]),
            Dimension::Work => millis_sum(&[
                (uncached, work.input_millis),
                (cached, work.cached_input_millis),
                (self.output, work.output_millis),
            ]),
        }
    }

    /// Tokens charged: cached input at its weight, rounded up.
    #[must_use]
    pub fn charged(&self, cached_weight_millis: u32) -> Tokens {
        let amount = self.amount(Dimension::Tokens, cached_weight_millis, &Work::default());
        Tokens(amount.ceil_units().unsigned_abs())
    }

    /// Weighted work in thousandths of a token.
    #[must_use]
    pub fn work_millis(&self, work: &Work) -> u64 {
        self.amount(Dimension::Work, ONE_MILLIS, work).0.unsigned_abs() / 1_000
    }
}

/// Σ tokens × weight, the weights in thousandths; cut to what an amount expresses.
fn millis_sum(parts: &[(Tokens, u32)]) -> Amount {
    let millis = parts.iter().fold(0u128, |sum, (tokens, weight)| {
        sum.saturating_add(u128::from(tokens.0).saturating_mul(u128::from(*weight)))
    });
    let cut = millis.min(u128::from(Amount::WHOLE_MAX) * 1_000);
    Amount(cut as i64 * 1_000)
}

/// The weight of an ordinary token, in thousandths.
pub const ONE_MILLIS: u32 = 1_000;
