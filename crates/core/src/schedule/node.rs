//! One flow: a run, a tenant, a team or a lane, with what it has received.

use alloc::boxed::Box;

use super::heap::Heap;
use super::line::EntryId;
use super::{Flow, Turn};
use crate::charge::ONE_MILLIS;

/// A flow, by its place in the tree's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeId(pub(super) u32);

impl NodeId {
    pub(super) const NONE: Self = Self(u32::MAX);

    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    pub(super) fn exists(self) -> bool {
        self != Self::NONE
    }
}

/// What is known of a flow. Work is in thousandths of the pool's work.
#[derive(Debug)]
pub(super) struct Node {
    /// Absent for a lane.
    pub(super) parent: NodeId,
    pub(super) weight_millis: u32,
    /// c ÷ ω: the work it has received, divided by its weight.
    pub(super) served: i64,
    /// What the division has left over, below the weight.
    remainder: u32,
    /// R: predicted output work of what is in flight that has not been made yet.
    pub(super) pending: u64,
    /// Predicted work of what waits.
    pub(super) queued: u64,
    /// The arrival of its first request.
    pub(super) turn: Turn,
    /// A limit of its own is full: it waits outside its parent's order.
    pub(super) is_blocked: bool,
    /// Requests that wait or are in flight.
    pub(super) live: u32,
    /// Its requests in line, for a run.
    pub(super) first: EntryId,
    pub(super) last: EntryId,
    /// The backend that it ran on last, for a run.
    pub(super) home: Option<u32>,
    /// Which of its tenant's flows it is, for a run.
    pub(super) flow: Flow,
    /// Counts how often it became idle.
    pub(super) idled: u32,
    /// The flows below it, for all but a run.
    pub(super) branch: Option<Box<Branch>>,
}

/// The flows below a flow that have something to send.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) by_key: Heap,
    pub(super) by_served: Heap,
    /// Sum of their weights.
    pub(super) weights_millis: u64,
    /// The one that left last, and what the last one that was forgotten had received.
    pub(super) last_left: NodeId,
    pub(super) floor: Option<i64>,
    /// The one that was looked up last.
    pub(super) last_run: NodeId,
}

impl Node {
    pub(super) fn new(parent: NodeId, weight_millis: u32, flow: Flow) -> Self {
        Self {
            parent,
            weight_millis: weight_millis.max(1),
            served: 0,
            remainder: 0,
            pending: 0,
            queued: 0,
            turn: Turn(0),
            is_blocked: false,
            live: 0,
            first: EntryId::NONE,
            last: EntryId::NONE,
            home: None,
            flow,
            idled: 0,
            branch: None,
        }
    }

    pub(super) fn branching(self) -> Self {
        Self { branch: Some(Box::default()), ..self }
    }

    /// Adds work received, or takes back what was charged too much.
    pub(super) fn charge(&mut self, work_millis: i64) {
        if self.weight_millis == ONE_MILLIS && self.remainder == 0 {
            self.served = self.served.saturating_add(work_millis.clamp(-WORK_MAX, WORK_MAX));
            return;
        }
        let weight = i64::from(self.weight_millis);
        let scaled =
            work_millis.clamp(-WORK_MAX, WORK_MAX) * i64::from(ONE_MILLIS) + i64::from(self.remainder);
        self.served = self.served.saturating_add(scaled.div_euclid(weight));
        self.remainder = scaled.rem_euclid(weight) as u32;
    }

    /// Never behind what others have received: what was not asked for is not saved up.
    pub(super) fn lift(&mut self, least: i64) {
        if self.served < least {
            self.served = least;
            self.remainder = 0;
        }
    }

    /// (c + α·R) ÷ ω.
    pub(super) fn key(&self, alpha_permille: u32) -> i64 {
        if self.pending == 0 {
            return self.served;
        }
        let rest = match self.pending.checked_mul(u64::from(alpha_permille)) {
            Some(rest) => rest / u64::from(self.weight_millis),
            None => (self.pending / u64::from(self.weight_millis)).saturating_mul(u64::from(alpha_permille)),
        };
        self.served.saturating_add(i64::try_from(rest).unwrap_or(i64::MAX))
    }

    pub(super) fn set_weight(&mut self, weight_millis: u32) {
        self.weight_millis = weight_millis.max(1);
        self.remainder = self.remainder.min(self.weight_millis - 1);
    }

    pub(super) fn has_ready(&self) -> bool {
        match &self.branch {
            Some(branch) => !branch.by_key.is_empty(),
            None => self.first.exists(),
        }
    }
}

impl Default for Branch {
    fn default() -> Self {
        Self {
            by_key: Heap::default(),
            by_served: Heap::default(),
            weights_millis: 0,
            last_left: NodeId::NONE,
            floor: None,
            last_run: NodeId::NONE,
        }
    }
}

/// The most that one charge counts, in thousandths of work: so that counters and sums of them fit 64 bits.
pub(super) const WORK_MAX: i64 = 1 << 50;
