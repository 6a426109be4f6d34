//! Choices that follow from a seed and a place alone.

#![cfg(test)]

use std::time::Duration;

use fairlane_lab::Stream;

/// One stream of choices.
#[derive(Clone, Debug)]
pub(super) struct Dice(Stream);

impl Dice {
    /// The choices at a place of a seed; `kind` keeps requests, weather and settings apart.
    pub(super) fn of(seed: u64, kind: u64, place: u64) -> Self {
        Self(Stream::seeded(seed.wrapping_mul(KINDS).wrapping_add(kind), place))
    }

    /// From 0 to below `count`.
    pub(super) fn below(&mut self, count: u64) -> u64 {
        self.0.integer() % count.max(1)
    }

    /// From `least` to `most`, both included.
    pub(super) fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True in so many of a hundred.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub(super) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// A time between these many milliseconds.
    pub(super) fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.within(least, most))
    }
}

pub(super) const REQUESTS: u64 = 0;
pub(super) const WEATHER: u64 = 1;
pub(super) const SETTINGS: u64 = 2;
const KINDS: u64 = 4;
