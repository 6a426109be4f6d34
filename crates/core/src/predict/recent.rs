//! The last outputs of one group: their mean and quantiles at no cost when they are asked for.

use alloc::vec::Vec;

/// At most [`SAMPLES`] outputs; the oldest makes room for the newest.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    /// In order of arrival, as a ring that begins at `next`.
    outputs: Vec<u32>,
    sorted: Vec<u32>,
    sum: u64,
    next: usize,
}

impl Recent {
    pub(super) fn push(&mut self, output: u32) {
        if self.outputs.len() < SAMPLES {
            self.outputs.push(output);
        } else {
            let oldest = core::mem::replace(&mut self.outputs[self.next], output);
            let place = self.sorted.partition_point(|other| *other < oldest);
            self.sorted.remove(place);
            self.sum -= u64::from(oldest);
        }
        self.next = (self.next + 1) % SAMPLES;
        self.sum += u64::from(output);
        let place = self.sorted.partition_point(|other| *other < output);
        self.sorted.insert(place, output);
    }

    /// Whether there are enough of them to tell anything.
    pub(super) fn is_warm(&self) -> bool {
        self.outputs.len() >= SAMPLES_WARM
    }

    /// Their mean, rounded up.
    pub(super) fn mean(&self) -> u64 {
        self.sum.div_ceil(self.outputs.len().max(1) as u64)
    }

    /// The least output that `percent` of them do not pass.
    pub(super) fn quantile_percent(&self, percent: usize) -> u64 {
        let place = (self.sorted.len() * percent).div_ceil(100).max(1) - 1;
        self.sorted.get(place).copied().map_or(0, u64::from)
    }
}

/// Outputs remembered per group.
pub const SAMPLES: usize = 64;
const SAMPLES_WARM: usize = 8;
