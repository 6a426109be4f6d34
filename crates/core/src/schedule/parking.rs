//! Who waits for a slot under a concurrency limit: flows as a whole under limits of their own, else single requests.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::line::EntryId;
use super::node::NodeId;
use crate::ledger::CellId;
use crate::schedule::Turn;

/// What waits for a slot of each limit.
#[derive(Debug, Default)]
pub(super) struct Parking {
    flows: BTreeMap<CellId, Vec<NodeId>>,
    requests: BTreeMap<CellId, Parked>,
}

/// Requests that wait for one limit, by run, each run's in order of arrival.
pub(super) type Parked = BTreeMap<NodeId, BTreeSet<(Turn, EntryId)>>;

impl Parking {
    pub(super) fn block(&mut self, cell: CellId, flow: NodeId) {
        self.flows.entry(cell).or_default().push(flow);
    }

    /// The flows that waited for a slot of this limit.
    pub(super) fn unblock(&mut self, cell: CellId) -> Vec<NodeId> {
        self.flows.remove(&cell).unwrap_or_default()
    }

    pub(super) fn park(&mut self, cell: CellId, run: NodeId, (turn, request): (Turn, EntryId)) {
        self.requests.entry(cell).or_default().entry(run).or_default().insert((turn, request));
    }

    pub(super) fn unpark(&mut self, cell: CellId, run: NodeId, (turn, request): (Turn, EntryId)) {
        let Some(parked) = self.requests.get_mut(&cell) else { return };
        if let Some(line) = parked.get_mut(&run) {
            line.remove(&(turn, request));
            if line.is_empty() {
                parked.remove(&run);
            }
        }
        if parked.is_empty() {
            self.requests.remove(&cell);
        }
    }

    /// The requests that wait for a slot of this limit.
    pub(super) fn of(&self, cell: CellId) -> Option<&Parked> {
        self.requests.get(&cell)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flows.is_empty() && self.requests.is_empty()
    }

    /// Every limit that something waits for.
    pub(super) fn cells(&self) -> BTreeSet<CellId> {
        self.flows.keys().chain(self.requests.keys()).copied().collect()
    }
}
