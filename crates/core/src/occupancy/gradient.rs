//! How many requests a backend without metrics takes at the same time, learned from its time to first token.
//!
//! Gradient2 of Netflix's concurrency-limits: new = limit · gradient + 4, gradient = 1.5 · usual time ÷ this time, between ½ and
//! 1; the limit moves a fifth of the way.

use crate::units::Micros;

/// A limit that adapts, from [`LIMIT_MIN`] to the backend's slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gradient {
    limit_millis: u64,
    usual_micros: u64,
    samples: u64,
}

impl Gradient {
    /// It begins with all slots: hosted providers refuse what is too much, and what queues instead shows in the times.
    pub(super) fn new(slots: u32) -> Self {
        Self { limit_millis: u64::from(slots) * 1_000, usual_micros: 0, samples: 0 }
    }

    pub(super) fn limit(&self, slots: u32) -> u32 {
        let limit = u32::try_from(self.limit_millis / 1_000).unwrap_or(u32::MAX);
        limit.max(LIMIT_MIN).min(slots)
    }

    /// A first token came after `elapsed`, with `in_flight` requests at the backend.
    pub(super) fn sample(&mut self, elapsed: Micros, in_flight: usize, slots: u32) {
        let now = elapsed.0.clamp(NOTICED.0, LONGEST.0);
        self.samples = (self.samples + 1).min(WINDOW);
        let usual = self.usual_micros;
        self.usual_micros = if now >= usual {
            usual + (now - usual) / self.samples
        } else {
            usual - (usual - now) / self.samples
        };
        if self.usual_micros > now * 2 {
            // It was slow for long and is quick again.
            self.usual_micros -= self.usual_micros / 20;
        }
        if (in_flight as u64) * 2_000 < self.limit_millis {
            return;
        }
        let gradient = (TOLERANCE_MILLIS * self.usual_micros / now).clamp(500, 1_000);
        let target = self.limit_millis * gradient / 1_000 + QUEUE_MILLIS;
        self.limit_millis = (self.limit_millis * 4 + target) / 5;
        self.bound(slots);
    }

    /// The backend refused for want of room.
    pub(super) fn cut(&mut self, slots: u32) {
        self.limit_millis = self.limit_millis.min(u64::from(slots) * 1_000) * 9 / 10;
        self.bound(slots);
    }

    fn bound(&mut self, slots: u32) {
        let most = u64::from(slots) * 1_000;
        self.limit_millis = self.limit_millis.max(u64::from(LIMIT_MIN) * 1_000).min(most);
    }
}

/// Requests that are let through whatever the times say.
const LIMIT_MIN: u32 = 4;
const TOLERANCE_MILLIS: u64 = 1_500;
const QUEUE_MILLIS: u64 = 4_000;
const WINDOW: u64 = 600;
/// Shorter times say nothing about a queue.
const NOTICED: Micros = Micros::from_millis(250);
const LONGEST: Micros = Micros::from_secs(600);
