//! Requests near the front of a lane, for runs that stay on their backends: whoever is passed over for one of them is passed over by
//! a bounded amount of work.

use alloc::vec::Vec;

use super::Schedule;
use super::heap::{CHILDREN, Rank};
use super::line::EntryId;
use super::node::NodeId;
use super::tree::Tree;

impl Schedule {
    /// The first requests of runs that are behind the front by at most the pool's stickiness at each level, in order; the front is
    /// the first of them. None where runs are not kept on their backends.
    pub(crate) fn near(&mut self, front: EntryId) -> Vec<EntryId> {
        let mut near = Vec::new();
        if self.stickiness_millis > 0 && self.order.is_fair() {
            let root = self.tree.root(self.entries.of(front).leaf);
            let window = i64::try_from(self.stickiness_millis).unwrap_or(i64::MAX);
            self.tree.gather(root, window, &mut near);
        }
        near
    }
}

impl Tree {
    fn gather(&mut self, id: NodeId, window: i64, near: &mut Vec<EntryId>) {
        if self.of(id).branch.is_none() {
            return near.extend(self.of(id).head());
        }
        for child in self.children_within(id, window) {
            if near.len() >= NEAR_MAX {
                return;
            }
            self.gather(child, window, near);
        }
    }

    /// The children whose keys are at most `window` above the least, in order.
    fn children_within(&mut self, id: NodeId, window: i64) -> Vec<NodeId> {
        let Some(first) = self.first_child(id) else { return Vec::new() };
        let most = self.rank(first).key.saturating_add(window);
        let Some(branch) = &self.of(id).branch else { return Vec::new() };
        let mut within: Vec<(Rank, NodeId)> = Vec::new();
        let mut places = Vec::from([0]);
        let mut looked = 0;
        while let Some(place) = places.pop().filter(|_| looked < LOOKS_MAX) {
            looked += 1;
            // A key in the order is never too high: whoever stands behind one that is outside is outside too.
            let Some((rank, child)) = branch.by_key.at(place).filter(|(rank, _)| rank.key <= most) else {
                continue;
            };
            let actual = self.rank(child);
            if actual.key <= most {
                within.push((actual.max(rank), child));
            }
            places.extend((1..=CHILDREN).map(|step| place * CHILDREN + step));
        }
        within.sort_unstable();
        within.into_iter().map(|(_, child)| child).collect()
    }
}

/// Requests that are looked at to keep a run on its backend.
const NEAR_MAX: usize = 8;
const LOOKS_MAX: usize = 64;
