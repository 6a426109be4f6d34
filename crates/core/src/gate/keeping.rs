//! What the keeping of balances over a restart must know of the gate.

use alloc::vec::Vec;

use super::{Gate, LimitView, RequestId};
use crate::ledger::{CellId, ReservationId};
use crate::subjects::Place;
use crate::units::{Amount, Micros, Moment};

impl Gate {
    /// The request that an open reservation is for.
    #[must_use]
    pub fn request_of(&self, reservation: ReservationId) -> Option<RequestId> {
        self.reservations.get(&reservation).copied()
    }

    pub(crate) fn track_subjects(&mut self) {
        self.directory.subjects.track();
    }

    /// The end user or run that a cell belongs to.
    pub(crate) fn place_of(&self, cell: CellId) -> Option<Place> {
        self.directory.subjects.owner_of(cell)
    }

    /// What an operator added to a run's budget, and how long after its last use its cells are kept.
    pub(crate) fn memory_of(&self, place: &Place) -> (Amount, Micros) {
        self.directory.subjects.memory_of(place)
    }

    pub(crate) fn is_in_use(&self, place: &Place) -> bool {
        self.directory.subjects.is_in_use(place)
    }

    /// Cells whose end users or runs were forgotten since the last call.
    pub(crate) fn take_forgotten(&mut self) -> Vec<CellId> {
        self.directory.subjects.take_forgotten()
    }

    /// Makes an end user or a run known that had begun before the process did. Returns its limits; `None` if the policy has none
    /// for it, or no more can be kept.
    pub(crate) fn restore_subject(
        &mut self,
        place: Place,
        raised: Amount,
        idle: Micros,
        now: Moment,
    ) -> Option<Vec<LimitView>> {
        let policy = self.policy.clone();
        let lines = self.directory.restore_subject(&policy, (place, raised), idle, now)?;
        Some(lines.iter().map(|line| self.limit_view(line)).collect())
    }
}
