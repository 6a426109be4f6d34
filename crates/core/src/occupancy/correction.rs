//! What an engine's own metrics say against the prediction: how far it is trusted, and what others run there.

use crate::units::{Micros, Moment, Tokens};

/// One reading of an engine's metrics; what it does not export is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Requests that wait inside the engine.
    pub waiting: Option<u64>,
    /// Requests that were preempted since it began.
    pub preemptions: Option<u64>,
    /// The part of the KV cache in use, in millionths.
    pub memory_used_ppm: Option<u32>,
    /// Tokens that the KV cache holds.
    pub memory: Option<Tokens>,
}

/// How far the prediction is trusted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Correction {
    factor_ppm: u32,
    preemptions: Option<u64>,
    /// Readings in a row with requests waiting in the engine.
    waited: u32,
    refused_at: Option<Moment>,
    foreign: u64,
}

impl Default for Correction {
    fn default() -> Self {
        Self { factor_ppm: 1_000_000, preemptions: None, waited: 0, refused_at: None, foreign: 0 }
    }
}

impl Correction {
    /// What the predicted peak may reach of the KV cache, in millionths.
    pub(super) const fn factor_ppm(&self) -> u32 {
        self.factor_ppm
    }

    /// Tokens that others hold in the KV cache.
    pub(super) const fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Takes in a reading, `occupied` tokens being ours and `is_used` telling whether the prediction was put to the test.
    pub(super) fn read(&mut self, reading: &Reading, memory: u64, occupied: u64, is_used: bool) {
        let used = reading.memory_used_ppm.map_or(0, |ppm| memory.saturating_mul(u64::from(ppm)) / 1_000_000);
        self.foreign = used.saturating_sub(occupied.saturating_add(memory / NOISE));
        // A count that fell is an engine that began anew.
        let has_preempted = match (self.preemptions, reading.preemptions) {
            (Some(before), Some(after)) => after > before,
            (None, _) | (_, None) => false,
        };
        self.preemptions = reading.preemptions.or(self.preemptions);
        self.waited = if reading.waiting.is_some_and(|waiting| waiting > 0) { self.waited + 1 } else { 0 };
        if has_preempted || self.waited >= WAITED_CUT {
            self.waited = 0;
            self.cut();
        } else if self.waited == 0 && (is_used || self.factor_ppm < 1_000_000) {
            self.factor_ppm = (self.factor_ppm + STEP_PPM).min(FACTOR_MAX_PPM);
        }
    }

    /// The engine refused a request for want of room; refusals at the same time count once.
    pub(super) fn refused(&mut self, now: Moment) -> Refused {
        if self.refused_at.is_some_and(|before| now.since(before) < REFUSALS_APART) {
            return Refused::Known;
        }
        self.refused_at = Some(now);
        self.cut();
        Refused::Cut
    }

    fn cut(&mut self) {
        self.factor_ppm = (self.factor_ppm / 10 * 9).max(FACTOR_MIN_PPM);
    }
}

/// What a refusal of the engine changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is trusted with less.
    Cut,
    /// Nothing: it came with another one.
    Known,
}

/// The least part of the KV cache that is filled, however often the engine complains, in millionths.
pub const FACTOR_MIN_PPM: u32 = 600_000;
/// The most that the predicted peak may reach of the KV cache, in millionths.
pub const FACTOR_MAX_PPM: u32 = 1_100_000;
const STEP_PPM: u32 = 10_000;
/// Readings in a row with requests waiting that lower the factor.
const WAITED_CUT: u32 = 2;
const REFUSALS_APART: Micros = Micros::from_secs(1);
/// Engines round to blocks and count a little later than we: a fiftieth of the cache is not taken for somebody else's.
const NOISE: u64 = 50;
