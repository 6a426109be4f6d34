//! From the queue to a backend: who goes next, where to, and what becomes of a backend's refusal.

use alloc::vec::Vec;

use super::arrive::{no_backend, shutdown};
use super::{Effect, Gate, Held, Report, RequestId, Stage};
use crate::backends::{self, BackendState, NoPlace};
use crate::charge::{Need, ONE_MILLIS};
use crate::ledger::{CellId, Charge, Reservation, Verdict};
use crate::policy::{BackendId, Charging, PoolId};
use crate::refusal::{Reason, Refusal, Retry};
use crate::scope::Owner;
use crate::units::{Micros, Moment, Tokens};

impl Gate {
    /// Sends what can be sent, in order; stops at the first request that fits nowhere.
    pub(super) fn dispatch(&mut self, pool: PoolId, now: Moment) {
        while let Some(id) = self.pools[pool.0 as usize].queue.first() {
            let Some(request) = self.requests.get(&id) else { return };
            if let Some(cell) = self.full_slot(&request.slots) {
                self.park(id, cell);
                continue;
            }
            let state = &self.pools[pool.0 as usize];
            if state.limited_until > now || state.ruling.is_some() {
                return;
            }
            match backends::place(&state.backends, &request.tried, now) {
                Ok(index) => self.send(id, BackendId { pool, index }, now),
                Err(NoPlace::AllTried) if request.has_answer => self.abandon(id, now),
                // Those that are alive can never hold its cost; the one that could is not there.
                Err(NoPlace::AllTried) => self.refuse_queued(id, no_backend(), now),
                Err(NoPlace::Busy | NoPlace::NoneAlive) => return,
            }
        }
    }

    pub(super) fn ruled_dispatch(
        &mut self,
        id: RequestId,
        backend: BackendId,
        verdict: Verdict,
        now: Moment,
    ) {
        self.pool_mut(backend.pool).ruling = None;
        self.wake(backend.pool);
        let Some(request) = self.requests.get_mut(&id) else { return };
        match verdict {
            Verdict::Granted { shadowed } => {
                if let Some(held) = &mut request.dispatch {
                    held.forget(&shadowed);
                }
                if request.gone {
                    return self.close(id, &Report::client_gone(), now);
                }
                self.start(id, backend, now);
            }
            Verdict::Refused(shortage) => {
                let Some(held) = request.dispatch.take() else { return };
                self.reservations.remove(&held.id);
                self.pause(backend, &held.charges[shortage.charge], shortage.wait, id, now);
                self.release(id);
                if self.requests.get(&id).is_some_and(|request| request.gone) {
                    return self.close(id, &Report::client_gone(), now);
                }
                if self.draining {
                    return self.refuse_queued(id, shutdown(), now);
                }
                self.requeue(id);
            }
        }
    }

    pub(super) fn bounced(&mut self, id: RequestId, retry_after: Option<Micros>, now: Moment) {
        let Some((backend, wait_until)) = self.running(id) else { return };
        if let Some(state) = self.pool_mut(backend.pool).backends.get_mut(backend.index as usize) {
            state.bounce(retry_after, now);
        }
        self.hand_back(id);
        if wait_until <= now || self.draining {
            return self.abandon(id, now);
        }
        self.requeue(id);
    }

    pub(super) fn failed(&mut self, id: RequestId, now: Moment) {
        let Some((backend, _)) = self.running(id) else { return };
        self.hand_back(id);
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.tried.push(backend.index);
        let states = &self.pools[backend.pool.0 as usize].backends;
        let another =
            (0..).zip(states).any(|(index, state)| state.usable() && !request.tried.contains(&index));
        if request.tried.len() > RETRIES_MAX || !another || self.draining {
            return self.abandon(id, now);
        }
        self.requeue(id);
    }

    pub(super) fn produced(&mut self, id: RequestId, output: Tokens) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let tenant = &self.policy.tenants[request.arrival.tenant.0 as usize];
        if tenant.charging != Charging::Postpay || output <= request.drawn {
            return;
        }
        let drawn = Need { input: Tokens::ZERO, output: output.minus(request.drawn) };
        request.drawn = output;
        let work = self.policy.pools[request.pool.0 as usize].work;
        let mut charges = Vec::new();
        for charge in &mut request.admission.charges {
            if charge.limit.dimension.counts_output() {
                let amount = drawn.amount(charge.limit.dimension, &work);
                charge.reserved += amount;
                charges.push(Charge { reserved: amount, ..*charge });
            }
        }
        self.effects.push_back(Effect::Draw { reservation: request.admission.id, charges });
    }

    /// The wait of a queued request is over.
    pub(super) fn wait_is_over(&mut self, id: RequestId, now: Moment) {
        let Some(request) = self.requests.get(&id) else { return };
        if !matches!(request.stage, Stage::Queued { .. }) {
            return;
        }
        if request.has_answer {
            return self.abandon(id, now);
        }
        let state = &self.pools[request.pool.0 as usize];
        let alive = state.backends.iter().any(BackendState::usable);
        let reason = if alive { Reason::WaitTooLong } else { Reason::NoBackend };
        let wait = state.drain.wait(state.queue.len() as u64, now);
        self.refuse_queued(id, Refusal::plain(reason, Retry::After(wait)), now);
    }

    /// Refuses a request that waits; its reservation comes back whole.
    pub(super) fn refuse_queued(&mut self, id: RequestId, refusal: Refusal, now: Moment) {
        self.give_back(id, now);
        self.refuse(id, refusal);
    }

    pub(super) fn unpark_all(&mut self, pool: usize) {
        let parked: Vec<CellId> = self
            .requests
            .values()
            .filter(|request| request.pool.0 as usize == pool)
            .filter_map(|request| request.waiting().parked)
            .collect();
        for cell in parked {
            self.unpark(PoolId(pool as u32), cell);
        }
    }

    /// Gives back the slots that a request holds: its backend's and those of its concurrency limits.
    pub(super) fn release(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let held = core::mem::take(&mut request.slots_held);
        if let Stage::Dispatching(backend) | Stage::Running(backend) = request.stage {
            request.stage = Stage::Ruling;
            let state = &mut self.pools[backend.pool.0 as usize];
            if let Some(state) = state.backends.get_mut(backend.index as usize) {
                state.in_flight = state.in_flight.saturating_sub(1);
            }
        }
        for cell in held {
            if let Some(used) = self.slots_used.get_mut(&cell) {
                *used = used.saturating_sub(1);
                if *used == 0 {
                    self.slots_used.remove(&cell);
                }
            }
            self.unpark_one(cell);
        }
    }

    /// A slot of `cell` may be free: the longest waiting request of each pool is looked at again.
    pub(super) fn unpark_one(&mut self, cell: CellId) {
        for pool in 0..self.pools.len() {
            self.unpark(PoolId(pool as u32), cell);
        }
    }

    fn send(&mut self, id: RequestId, backend: BackendId, now: Moment) {
        let Some(request) = self.requests.get(&id) else { return };
        let (waiting, need, wait_until) = (request.waiting(), request.need, request.wait_until);
        let slots: Vec<CellId> = request.slots.iter().map(|(cell, _)| *cell).collect();
        let charges: Vec<Charge> = self.dispatch_plan(backend, &need).collect();
        let state = self.pool_mut(backend.pool);
        state.queue.remove(&waiting);
        state.backends[backend.index as usize].in_flight += 1;
        self.waits.remove(&(wait_until, id));
        for cell in &slots {
            *self.slots_used.entry(*cell).or_default() += 1;
        }
        let dispatch = (!charges.is_empty()).then(|| Held {
            id: self.reservation_id(id),
            cached_weight_millis: charges.iter().map(|_| ONE_MILLIS).collect(),
            charges,
            tokens: None,
        });
        self.wake_others(backend.pool, id);
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.slots_held = slots;
        request.backend = Some(backend);
        request.stage = Stage::Dispatching(backend);
        request.dispatch = dispatch;
        match &request.dispatch {
            Some(held) => {
                let reservation =
                    Reservation { id: held.id, charges: held.charges.clone(), tokens: Tokens::ZERO };
                self.effects.push_back(Effect::Reserve(reservation));
                self.pool_mut(backend.pool).ruling = Some(id);
            }
            None => self.start(id, backend, now),
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

    fn start(&mut self, id: RequestId, backend: BackendId, now: Moment) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.stage = Stage::Running(backend);
        request.started.get_or_insert(now);
        request.attempts += 1;
        let tenant = &self.policy.tenants[request.arrival.tenant.0 as usize];
        let wants_output = tenant.charging == Charging::Postpay;
        self.effects.push_back(Effect::Start { request: id, backend, wants_output });
    }

    /// The backend's or the pool's own limit is used up: nothing goes there before it has refilled.
    fn pause(
        &mut self,
        backend: BackendId,
        charge: &Charge,
        wait: Option<Micros>,
        id: RequestId,
        now: Moment,
    ) {
        let pool = self.pool_mut(backend.pool);
        match (wait, charge.limit.owner) {
            (Some(wait), Owner::Pool(_)) => pool.limited_until = now.after(wait),
            (Some(wait), _) => {
                if let Some(state) = pool.backends.get_mut(backend.index as usize) {
                    state.limited_until = now.after(wait);
                }
            }
            // This backend can never hold the cost; another one can, or the request would not have come so far.
            (None, _) => {
                if let Some(request) = self.requests.get_mut(&id) {
                    request.tried.push(backend.index);
                }
            }
        }
    }

    /// Takes a running request off its backend, which did none of its work.
    fn hand_back(&mut self, id: RequestId) {
        self.settle_dispatch(id, &Report::failed());
        self.release(id);
        if let Some(request) = self.requests.get_mut(&id) {
            request.has_answer = true;
        }
    }

    /// Back to its place in the queue.
    fn requeue(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.stage = Stage::Queued { parked: None };
        let (waiting, pool, wait_until) = (request.waiting(), request.pool, request.wait_until);
        self.pool_mut(pool).queue.push(&waiting);
        self.waits.insert((wait_until, id));
        self.wake(pool);
    }

    fn abandon(&mut self, id: RequestId, now: Moment) {
        self.effects.push_back(Effect::Abandon { request: id });
        self.close(id, &Report::failed(), now);
    }

    fn running(&self, id: RequestId) -> Option<(BackendId, Moment)> {
        let request = self.requests.get(&id)?;
        match request.stage {
            Stage::Running(backend) => Some((backend, request.wait_until)),
            Stage::Ruling | Stage::Queued { .. } | Stage::Dispatching(_) => None,
        }
    }

    fn full_slot(&self, slots: &[(CellId, u32)]) -> Option<CellId> {
        slots.iter().find(|(cell, limit)| self.is_full(*cell, *limit)).map(|(cell, _)| *cell)
    }

    fn is_full(&self, cell: CellId, limit: u32) -> bool {
        self.slots_used.get(&cell).copied().unwrap_or(0) >= limit
    }

    fn unpark(&mut self, pool: PoolId, cell: CellId) {
        if let Some(id) = self.pool_mut(pool).queue.unpark(cell) {
            self.set_stage(id, Stage::Queued { parked: None });
            self.wake(pool);
        }
    }

    /// Sets a request aside until `cell` has a slot; a free slot of another limit that was offered to it goes to the next one.
    fn park(&mut self, id: RequestId, cell: CellId) {
        let Some(request) = self.requests.get(&id) else { return };
        let (waiting, pool) = (request.waiting(), request.pool);
        let open = |(slot, limit): &&(CellId, u32)| *slot != cell && !self.is_full(*slot, *limit);
        let others: Vec<CellId> = request.slots.iter().filter(open).map(|(slot, _)| *slot).collect();
        self.pool_mut(pool).queue.park(&waiting, cell);
        self.set_stage(id, Stage::Queued { parked: Some(cell) });
        for other in others {
            self.unpark_one(other);
        }
    }

    fn set_stage(&mut self, id: RequestId, stage: Stage) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.stage = stage;
        }
    }
}

/// Tries on another backend after the first one failed.
const RETRIES_MAX: usize = 1;
