//! What a request takes of a backend, and what it asks of one.

use crate::policy::Fit;
use crate::units::Tokens;

/// What a request takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// All input tokens, cached ones included: they are in the KV cache either way.
    pub input: Tokens,
    /// The most output of one choice.
    pub bound: Tokens,
    /// The likely output of one choice: the mean of recent ones.
    pub predicted: Tokens,
    /// Choices that are made at the same time; zero counts as one.
    pub choices: u32,
}

/// What a request asks of the backends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// What it takes.
    pub footprint: Footprint,
    /// What it leaves free; none for work that a minimum share owes.
    pub headroom: Headroom,
    /// Where it would like to go.
    pub preferred: Option<u32>,
    /// Where it does not go again.
    pub tried: &'a [u32],
}

/// A part of a backend that is left free for others, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Headroom(u32);

/// The whole, in millionths.
pub const ONE_PPM: u32 = 1_000_000;

impl Footprint {
    /// The most tokens that it can use: what a provider counts it for.
    #[must_use]
    pub fn cost_max(&self) -> Tokens {
        self.input.plus(self.bound.times(u64::from(self.width())))
    }

    /// Output of one choice that the fit reckons with.
    pub(super) fn expected(&self, fit: Fit) -> Tokens {
        match fit {
            Fit::Predicted => self.predicted.min(self.bound),
            Fit::Reserved => self.bound,
        }
    }

    pub(super) fn width(&self) -> u32 {
        self.choices.max(1)
    }
}

impl Headroom {
    /// Nothing is left free.
    pub const NONE: Self = Self(0);

    /// So many millionths, at most all of it.
    #[must_use]
    pub const fn ppm(ppm: u32) -> Self {
        Self(if ppm > ONE_PPM { ONE_PPM } else { ppm })
    }

    /// What a request with this headroom may fill of `whole`, in millionths of a unit.
    pub(super) const fn usable_ppm(self, whole: u64) -> u64 {
        whole.saturating_mul((ONE_PPM - self.0) as u64)
    }
}
