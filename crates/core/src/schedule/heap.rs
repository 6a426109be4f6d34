//! A heap with four children to a place that knows where each of its members stands, so that any of them can move or leave.

use alloc::vec::Vec;

use super::node::NodeId;
use crate::schedule::Turn;

/// Where a member stands in an order: least first, equals by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    pub(super) key: i64,
    pub(super) turn: Turn,
}

/// Members in order. Where each stands is kept outside, in one [`Places`] for all heaps of a kind: a node is in one of them at most.
#[derive(Debug, Default)]
pub(super) struct Heap {
    items: Vec<(Rank, NodeId)>,
}

/// The place of each node in its heap.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<u32>);

impl Places {
    pub(super) fn holds(&self, node: NodeId) -> bool {
        self.of(node).is_some()
    }

    fn of(&self, node: NodeId) -> Option<usize> {
        self.0.get(node.index()).filter(|place| **place != NOWHERE).map(|place| *place as usize)
    }

    fn set(&mut self, node: NodeId, place: usize) {
        if node.index() >= self.0.len() {
            self.0.resize(node.index() + 1, NOWHERE);
        }
        self.0[node.index()] = place as u32;
    }
}

impl Heap {
    pub(super) const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn first(&self) -> Option<(Rank, NodeId)> {
        self.items.first().copied()
    }

    /// The members at places `4 × place + 1` and the three after it stand behind the one at `place`.
    pub(super) fn at(&self, place: usize) -> Option<(Rank, NodeId)> {
        self.items.get(place).copied()
    }

    pub(super) fn push(&mut self, node: NodeId, rank: Rank, places: &mut Places) {
        self.items.push((rank, node));
        self.rise(self.items.len() - 1, places);
    }

    /// Gives a member another rank.
    pub(super) fn shift(&mut self, node: NodeId, rank: Rank, places: &mut Places) {
        let Some(place) = places.of(node) else { return };
        let before = core::mem::replace(&mut self.items[place].0, rank);
        if rank < before {
            self.rise(place, places);
        } else if rank > before {
            self.sink(place, places);
        }
    }

    pub(super) fn remove(&mut self, node: NodeId, places: &mut Places) {
        let Some(place) = places.of(node) else { return };
        places.set(node, NOWHERE as usize);
        self.items.swap_remove(place);
        if place < self.items.len() {
            let moved = self.items[place].1;
            places.set(moved, place);
            self.rise(place, places);
            self.sink(place, places);
        }
    }

    /// Takes `amount` off every key: the order stays.
    pub(super) fn lower_all(&mut self, amount: i64) {
        for (rank, _) in &mut self.items {
            rank.key = rank.key.saturating_sub(amount);
        }
    }

    fn rise(&mut self, mut place: usize, places: &mut Places) {
        let item = self.items[place];
        while place > 0 {
            let above = (place - 1) / CHILDREN;
            if self.items[above].0 <= item.0 {
                break;
            }
            self.put(place, self.items[above], places);
            place = above;
        }
        self.put(place, item, places);
    }

    fn sink(&mut self, mut place: usize, places: &mut Places) {
        let item = self.items[place];
        loop {
            let first = place * CHILDREN + 1;
            let below = first..self.items.len().min(first + CHILDREN);
            let Some(least) = below.min_by_key(|child| self.items[*child].0) else { break };
            if self.items[least].0 >= item.0 {
                break;
            }
            self.put(place, self.items[least], places);
            place = least;
        }
        self.put(place, item, places);
    }

    fn put(&mut self, place: usize, item: (Rank, NodeId), places: &mut Places) {
        self.items[place] = item;
        places.set(item.1, place);
    }
}

pub(super) const CHILDREN: usize = 4;
const NOWHERE: u32 = u32::MAX;
