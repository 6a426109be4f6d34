//! One pool's queue: first in, first out, with those that wait for a slot of their own set aside.
//!
//! This is the seam for order: the gate asks for the first request that may be looked at, and puts it aside or takes it out.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::gate::RequestId;
use crate::ledger::CellId;
use crate::policy::ClassId;
use crate::units::Tokens;

/// A request's place in line: requests that come back after a refused dispatch keep theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn(pub(crate) u64);

/// Requests waiting for a backend of one pool.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    ready: BTreeMap<Turn, RequestId>,
    parked: BTreeSet<(CellId, Turn, RequestId)>,
    sizes: BTreeMap<ClassId, Size>,
}

/// How much of a class waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) requests: u32,
    pub(crate) tokens: Tokens,
}

/// What the queue needs to know of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) request: RequestId,
    pub(crate) turn: Turn,
    pub(crate) class: ClassId,
    pub(crate) tokens: Tokens,
    /// The concurrency limit that it is set aside for.
    pub(crate) parked: Option<CellId>,
}

impl Queue {
    pub(crate) fn push(&mut self, waiting: &Waiting) {
        let size = self.sizes.entry(waiting.class).or_default();
        size.requests += 1;
        size.tokens = size.tokens.plus(waiting.tokens);
        self.ready.insert(waiting.turn, waiting.request);
    }

    /// The request to look at next.
    pub(crate) fn first(&self) -> Option<RequestId> {
        self.ready.first_key_value().map(|(_, request)| *request)
    }

    /// Sets a request aside until a slot of `cell` is free.
    pub(crate) fn park(&mut self, waiting: &Waiting, cell: CellId) {
        self.ready.remove(&waiting.turn);
        self.parked.insert((cell, waiting.turn, waiting.request));
    }

    /// A slot of `cell` is free: its longest waiting request is looked at again.
    pub(crate) fn unpark(&mut self, cell: CellId) -> Option<RequestId> {
        let first = self.parked.range((cell, Turn(0), RequestId(0))..).next().copied()?;
        (first.0 == cell).then_some(())?;
        self.parked.remove(&first);
        self.ready.insert(first.1, first.2);
        Some(first.2)
    }

    pub(crate) fn remove(&mut self, waiting: &Waiting) {
        match waiting.parked {
            Some(cell) => self.parked.remove(&(cell, waiting.turn, waiting.request)),
            None => self.ready.remove(&waiting.turn).is_some(),
        };
        let size = self.sizes.entry(waiting.class).or_default();
        size.requests = size.requests.saturating_sub(1);
        size.tokens = size.tokens.minus(waiting.tokens);
    }

    pub(crate) fn size(&self, class: ClassId) -> Size {
        self.sizes.get(&class).copied().unwrap_or_default()
    }

    /// All that wait, parked ones included.
    pub(crate) fn len(&self) -> usize {
        self.ready.len() + self.parked.len()
    }
}
