//! Requests taken off their backends, once and uncharged, where one of a class above would else not start in time. Off unless a
//! class is evictable.

use alloc::collections::BTreeSet;

use super::{Effect, Gate, Report, Request, RequestId, Stage};
use crate::units::{Micros, Moment};

/// What may be taken off the backends of a pool.
#[derive(Debug, Default)]
pub(super) struct Evicting {
    /// Requests of evictable classes that have delivered nothing, by the time that they were sent.
    candidates: BTreeSet<(Moment, RequestId)>,
    /// Those that the edge was asked to cut.
    asked: BTreeSet<RequestId>,
}

impl Gate {
    /// When one is looked for that could make room for a waiting request; `None` where nothing may be evicted for it.
    pub(super) fn rescue_at(&self, request: &Request) -> Option<Moment> {
        let below = self.policy.classes.iter().skip(request.arrival.class.0 as usize + 1);
        below.clone().any(|class| class.is_evictable).then(|| {
            let wait = request.wait_until.since(request.arrived);
            Moment(request.wait_until.0.saturating_sub(LEAD.0.min(wait.0 / LEAD_PART)))
        })
    }

    /// A waiting request will miss its wait if nothing happens: asks for one below its class to be cut. Returns whether room is on
    /// its way.
    pub(super) fn rescue(&mut self, id: RequestId) -> bool {
        let Some(request) = self.requests.get(&id) else { return false };
        if !self.evicts || !matches!(request.stage, Stage::Queued(_)) || self.rescue_at(request).is_none() {
            return false;
        }
        let (pool, class) = (request.pool, request.arrival.class);
        let evicting = &self.pools[pool.0 as usize].evicting;
        if evicting.asked.len() >= ASKED_MAX {
            return false;
        }
        let goes_before = |other: &&(Moment, RequestId)| {
            self.requests.get(&other.1).is_some_and(|other| other.arrival.class > class)
        };
        let Some((_, victim)) = evicting.candidates.iter().rev().find(goes_before).copied() else {
            return false;
        };
        self.spare(victim);
        self.pool_mut(pool).evicting.asked.insert(victim);
        self.effects.push_back(Effect::Evict { request: victim });
        true
    }

    /// The edge has cut a request that had delivered nothing: it goes back to its place, uncharged.
    pub(super) fn evicted(&mut self, id: RequestId, now: Moment) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        if !matches!(request.stage, Stage::Running(_)) {
            return;
        }
        request.was_evicted = true;
        self.settle_dispatch(id, &Report::failed(), now);
        self.close_tab_as(id, &Report::failed(), now);
        self.release(id);
        if self.draining {
            return self.refuse_queued(id, super::arrive::shutdown(), now);
        }
        self.requeue(id);
    }

    /// A request was sent to a backend.
    pub(super) fn may_be_evicted(&mut self, id: RequestId, now: Moment) {
        let Some(request) = self.requests.get(&id).filter(|_| self.evicts) else { return };
        let class = &self.policy.classes[request.arrival.class.0 as usize];
        if class.is_evictable && !request.was_evicted {
            let pool = request.pool;
            self.pool_mut(pool).evicting.candidates.insert((now, id));
        }
    }

    /// A request is not to be cut: it has delivered something, or is off its backend.
    pub(super) fn spare(&mut self, id: RequestId) {
        if !self.evicts {
            return;
        }
        let Some(request) = self.requests.get(&id) else { return };
        let evicting = &mut self.pools[request.pool.0 as usize].evicting;
        evicting.asked.remove(&id);
        if let Some(sent) = request.sent {
            evicting.candidates.remove(&(sent, id));
        }
    }

    /// Looks for room for those whose wait is nearly over.
    pub(super) fn rescue_due(&mut self, now: Moment) {
        while let Some((moment, id)) = self.rescues.first().copied().filter(|due| due.0 <= now) {
            self.rescues.remove(&(moment, id));
            self.rescue(id);
        }
    }

    pub(super) fn watch_wait(&mut self, id: RequestId) {
        if self.evicts
            && let Some(moment) = self.requests.get(&id).and_then(|request| self.rescue_at(request))
        {
            self.rescues.insert((moment, id));
        }
    }

    pub(super) fn unwatch_wait(&mut self, request: RequestId) {
        if self.evicts
            && let Some(moment) = self.requests.get(&request).and_then(|request| self.rescue_at(request))
        {
            self.rescues.remove(&(moment, request));
        }
    }
}

/// How long before the end of a wait room is looked for: this, or a part of the wait.
const LEAD: Micros = Micros::from_secs(1);
const LEAD_PART: u64 = 4;
/// Requests of a pool that are being cut at the same time.
const ASKED_MAX: usize = 2;
