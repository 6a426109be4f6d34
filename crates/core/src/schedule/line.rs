//! Requests that wait, each in the line of its run: first in, first out.

use alloc::vec::Vec;

use super::node::{Node, NodeId};
use super::{Turn, Waiting};
use crate::ledger::CellId;

/// A waiting request, by its place in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryId(u32);

impl EntryId {
    pub(super) const NONE: Self = Self(u32::MAX);

    pub(super) fn exists(self) -> bool {
        self != Self::NONE
    }
}

/// A waiting request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) waiting: Waiting,
    pub(super) leaf: NodeId,
    /// The concurrency limit that it is set aside for.
    pub(super) parked: Option<CellId>,
    before: EntryId,
    after: EntryId,
}

/// All waiting requests.
#[derive(Debug, Default)]
pub(super) struct Entries {
    list: Vec<Entry>,
    free: Vec<EntryId>,
}

impl Entries {
    pub(super) fn add(&mut self, waiting: Waiting, leaf: NodeId) -> EntryId {
        let entry = Entry { waiting, leaf, parked: None, before: EntryId::NONE, after: EntryId::NONE };
        match self.free.pop() {
            Some(id) => {
                self.list[id.0 as usize] = entry;
                id
            }
            None => {
                self.list.push(entry);
                EntryId(self.list.len() as u32 - 1)
            }
        }
    }

    pub(super) fn forget(&mut self, id: EntryId) {
        self.of_mut(id).leaf = NodeId::NONE;
        self.free.push(id);
    }

    /// All of them in order of arrival.
    pub(super) fn all(&self) -> Vec<EntryId> {
        let waiting = (0..self.list.len() as u32).map(EntryId).filter(|id| self.of(*id).leaf.exists());
        let mut all: Vec<EntryId> = waiting.collect();
        all.sort_unstable_by_key(|id| self.turn(*id));
        all
    }

    pub(super) fn len(&self) -> usize {
        self.list.len() - self.free.len()
    }

    pub(super) fn of(&self, id: EntryId) -> &Entry {
        &self.list[id.0 as usize]
    }

    pub(super) fn of_mut(&mut self, id: EntryId) -> &mut Entry {
        &mut self.list[id.0 as usize]
    }

    pub(super) fn turn(&self, id: EntryId) -> Turn {
        self.of(id).waiting.turn
    }

    /// Puts a request in its run's line: newcomers at the end; those that come back, which are among the oldest, near the front.
    pub(super) fn line_up(&mut self, id: EntryId, run: &mut Node) {
        let turn = self.turn(id);
        let is_last = !run.last.exists() || self.turn(run.last) < turn;
        let (mut before, mut after) = (run.last, EntryId::NONE);
        if !is_last {
            (before, after) = (EntryId::NONE, run.first);
            while after.exists() && self.turn(after) < turn {
                (before, after) = (after, self.of(after).after);
            }
        }
        let entry = self.of_mut(id);
        (entry.before, entry.after) = (before, after);
        self.join(before, id, run);
        self.join(id, after, run);
    }

    pub(super) fn step_out(&mut self, id: EntryId, run: &mut Node) {
        let Entry { before, after, .. } = *self.of(id);
        self.join(before, after, run);
    }

    /// Makes `before` and `after` neighbours; an absent one is an end of the line.
    fn join(&mut self, before: EntryId, after: EntryId, run: &mut Node) {
        if before.exists() {
            self.of_mut(before).after = after;
        } else {
            run.first = after;
        }
        if after.exists() {
            self.of_mut(after).before = before;
        } else {
            run.last = before;
        }
    }
}
