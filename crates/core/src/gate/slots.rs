//! Concurrency limits that queue: whose slots are full, who is set aside for one, and who gets it when it is free.

use alloc::vec::Vec;

use super::{Gate, RequestId, Stage};
use crate::directory::Line;
use crate::ledger::CellId;
use crate::policy::PoolId;
use crate::schedule::{EntryId, Level};
use crate::scope::Owner;

/// A concurrency limit that a request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) cell: CellId,
    limit: u32,
    level: Level,
}

impl Slot {
    pub(super) fn of(line: &Line) -> Self {
        let level = match line.limit.owner {
            Owner::Service | Owner::Pool(_) | Owner::Backend(_) => Level::All,
            Owner::Team(_) if line.limit.model.is_none() => Level::Team,
            Owner::Tenant(_) if line.limit.model.is_none() => Level::Tenant,
            Owner::Team(_) | Owner::Tenant(_) | Owner::Key(..) | Owner::EndUser(_) | Owner::Run(_) => {
                Level::Some
            }
        };
        Self { cell: line.cell, limit: line.shape.capacity.floor_units() as u32, level }
    }
}

impl Gate {
    /// Sets aside what full limits hold up, until the front of each lane may go. False if a limit over everything is full.
    pub(super) fn clear_fronts(&mut self, pool: PoolId) -> bool {
        for lane in 0..self.pools[pool.0 as usize].schedule.lanes() {
            while let Some(entry) = self.pool_mut(pool).schedule.front(lane) {
                let Some((id, slot)) = self.held_up(pool, entry) else { break };
                if slot.level == Level::All {
                    return false;
                }
                self.hold_up(pool, (id, entry), &slot);
            }
        }
        true
    }

    /// The request of an entry and the full limit that holds it up.
    pub(super) fn held_up(&self, pool: PoolId, entry: EntryId) -> Option<(RequestId, Slot)> {
        let id = self.pools[pool.0 as usize].schedule.request(entry);
        let slot = self.full_slot(&self.requests.get(&id)?.slots)?;
        Some((id, slot))
    }

    /// Takes the slots of a request that goes to a backend.
    pub(super) fn take_slots(&mut self, pool: PoolId, id: RequestId) {
        let Self { requests, slots_used, .. } = self;
        let Some(request) = requests.get_mut(&id) else { return };
        for slot in &request.slots {
            *slots_used.entry(slot.cell).or_default() += 1;
        }
        request.slots_held = request.slots.iter().map(|slot| slot.cell).collect();
        self.wake_others(pool, id);
    }

    /// Gives back the slots that a request holds: its backend's and those of its concurrency limits.
    pub(super) fn release(&mut self, id: RequestId) {
        self.spare(id);
        let Some(request) = self.requests.get_mut(&id) else { return };
        let held = core::mem::take(&mut request.slots_held);
        if let Stage::Running(backend) = request.stage {
            self.pools[backend.pool.0 as usize].running[request.arrival.class.0 as usize] -= 1;
        }
        if let Stage::Dispatching(backend) | Stage::Running(backend) = request.stage {
            request.stage = Stage::Ruling;
            self.pools[backend.pool.0 as usize].backends.leave(backend.index, id);
        }
        for cell in held {
            if let Some(used) = self.slots_used.get_mut(&cell) {
                *used = used.saturating_sub(1);
                if *used == 0 {
                    self.slots_used.remove(&cell);
                }
            }
            self.freed(id, cell);
        }
    }

    /// Offers the open slots of a request that does not take them to the next ones that wait for them.
    pub(super) fn offer_slots(&mut self, slots: &[Slot]) {
        for slot in slots {
            if slot.level != Level::Some || self.is_full(slot) {
                continue;
            }
            for pool in 0..self.pools.len() as u32 {
                if self.pools[pool as usize].schedule.offer(slot.cell) {
                    self.awake.insert(PoolId(pool));
                }
            }
        }
    }

    fn hold_up(&mut self, pool: PoolId, (id, entry): (RequestId, EntryId), full: &Slot) {
        self.pool_mut(pool).schedule.hold_up(entry, full.cell, full.level);
        if full.level != Level::Some {
            return;
        }
        let Some(request) = self.requests.get(&id) else { return };
        let others: Vec<Slot> = request.slots.iter().filter(|slot| slot.cell != full.cell).copied().collect();
        self.offer_slots(&others);
    }

    /// A slot of `cell` is free: in each pool those that it held up are looked at again.
    fn freed(&mut self, id: RequestId, cell: CellId) {
        let is_over_all = self.requests.get(&id).is_some_and(|request| {
            request.slots.iter().any(|slot| slot.cell == cell && slot.level == Level::All)
        });
        for pool in 0..self.pools.len() as u32 {
            if self.pools[pool as usize].schedule.freed(cell) || is_over_all {
                self.wake(PoolId(pool));
            }
        }
    }

    /// The last slot of a limit is taken: in another pool it may hold the first in line, and those behind may go.
    fn wake_others(&mut self, pool: PoolId, id: RequestId) {
        let Some(request) = self.requests.get(&id) else { return };
        if self.pools.len() > 1 && self.full_slot(&request.slots).is_some() {
            let others = (0..self.pools.len() as u32).map(PoolId).filter(|other| *other != pool);
            self.awake.extend(others);
        }
    }

    fn full_slot(&self, slots: &[Slot]) -> Option<Slot> {
        slots.iter().find(|slot| self.is_full(slot)).copied()
    }

    fn is_full(&self, slot: &Slot) -> bool {
        self.slots_used.get(&slot.cell).copied().unwrap_or(0) >= slot.limit
    }
}
