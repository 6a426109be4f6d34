//! What the admin API shows: read-only pictures of the gate.

use alloc::vec::Vec;

use super::{Arrival, Gate, RequestId, Stage};
use crate::bucket::Shape;
use crate::directory::Line;
use crate::ledger::{CellId, Charge};
use crate::policy::{BackendId, ClassId, KeyId, ModelId, PoolId, TenantId};
use crate::scope::{Limit, Owner};
use crate::subjects::Place;
use crate::units::{Moment, Tokens};

/// A limit and where its level is kept.
#[derive(Clone, Copy, Debug)]
pub struct LimitView {
    /// Whose, and of what.
    pub limit: Limit,
    /// Its cell in the ledger.
    pub cell: CellId,
    /// Rate and capacity.
    pub shape: Shape,
    /// Slots in use, where the limit is one of concurrency that queues.
    pub slots_used: Option<u32>,
}

/// A run and its limits.
#[derive(Clone, Debug)]
pub struct RunView {
    /// Hash of its id.
    pub run: u128,
    /// Requests queued or running.
    pub live: u32,
    /// Its limits.
    pub limits: Vec<LimitView>,
}

/// A pool's backends and queue.
#[derive(Clone, Debug)]
pub struct PoolView {
    /// Which pool.
    pub pool: PoolId,
    /// Requests queued and running, and reserved tokens queued, per class.
    pub classes: Vec<(ClassId, u32, u32, Tokens)>,
    /// Its backends.
    pub backends: Vec<BackendView>,
}

/// What a tenant has received, as the fair order counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareView {
    /// In which class.
    pub class: ClassId,
    /// Who.
    pub tenant: TenantId,
    /// Work received, divided by the tenant's weight, in thousandths. Only differences between tenants of one class and team count:
    /// whoever comes back is lifted to the others.
    pub received_millis: i64,
    /// It has something to send that no limit of its own holds up.
    pub is_ready: bool,
}

/// A backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendView {
    /// Which one.
    pub backend: BackendId,
    /// Whether it is there and answers.
    pub is_alive: bool,
    /// Requests in flight.
    pub in_flight: u32,
    /// Requests that it may run at the same time.
    pub slots: u32,
    /// Tokens that the requests in flight hold of its KV cache, as far as is known.
    pub occupied: Tokens,
    /// Tokens that its KV cache holds, where that is known.
    pub kv_tokens: Option<Tokens>,
    /// What the predicted peak may reach of the KV cache, in millionths.
    pub factor_ppm: u32,
}

impl Gate {
    /// The pools.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolView> {
        (0..).zip(&self.pools).map(|(index, _)| self.pool_view(PoolId(index))).collect()
    }

    /// What the tenants of a pool have received in its order, in each class that they have waited in. Without lanes everything
    /// counts as the first class.
    #[must_use]
    pub fn shares(&self, pool: PoolId) -> Vec<ShareView> {
        self.pools.get(pool.0 as usize).map_or_else(Vec::new, |state| state.schedule.shares())
    }

    /// The fixed limits of a tenant: its own, its keys', its team's, and the service's.
    #[must_use]
    pub fn limits(&self, tenant: TenantId) -> Vec<LimitView> {
        let team = self.policy.tenants.get(tenant.0 as usize).and_then(|tenant| tenant.team);
        self.directory
            .lines()
            .filter(|line| match line.limit.owner {
                Owner::Tenant(id) | Owner::Key(id, _) => id == tenant,
                Owner::Team(id) => Some(id) == team,
                Owner::Service => true,
                Owner::EndUser(_) | Owner::Run(_) | Owner::Pool(_) | Owner::Backend(_) => false,
            })
            .map(|line| self.limit_view(line))
            .collect()
    }

    /// The limits that a request meets at admission.
    #[must_use]
    pub fn limits_met(&self, arrival: &Arrival, now: Moment) -> Vec<LimitView> {
        let places = self.places(arrival, now).unwrap_or_default();
        let mut views = Vec::new();
        self.for_each_line(arrival, &places, false, |line| views.push(self.limit_view(line)));
        views
    }

    /// What an admitted request holds of the limits that it met; `None` if it is not known.
    #[must_use]
    pub fn admission(&self, request: RequestId) -> Option<&[Charge]> {
        self.requests.get(&request).map(|request| request.admission.charges.as_slice())
    }

    /// The fixed limits that every request of a key meets, whatever its model.
    #[must_use]
    pub fn limits_of(&self, tenant: TenantId, key: Option<KeyId>) -> Vec<LimitView> {
        let lines = self.directory.fixed(&self.policy, tenant, key, ModelId(u32::MAX));
        lines.map(|line| self.limit_view(line)).collect()
    }

    /// Every fixed limit.
    #[must_use]
    pub fn all_limits(&self) -> Vec<LimitView> {
        self.directory.lines().map(|line| self.limit_view(line)).collect()
    }

    /// The runs of a tenant that are known, at most `limit` of them.
    #[must_use]
    pub fn runs(&self, tenant: TenantId, limit: usize) -> Vec<RunView> {
        self.directory
            .subjects
            .runs(tenant)
            .take(limit)
            .filter_map(|(place, live)| match place {
                Place::Run(_, run) => Some(RunView { run, live, limits: self.run_limits(&place) }),
                Place::EndUser(..) | Place::OtherEndUsers(_) => None,
            })
            .collect()
    }

    /// Tokens that a tenant's requests hold in open reservations.
    #[must_use]
    pub fn reserved(&self, tenant: TenantId) -> Tokens {
        self.requests
            .values()
            .filter(|request| {
                request.arrival.tenant == tenant && !matches!(request.stage, Stage::Ruling | Stage::Held)
            })
            .fold(Tokens::ZERO, |sum, request| sum.plus(request.need.total()))
    }

    /// Requests queued or running.
    #[must_use]
    pub fn live(&self) -> usize {
        self.requests.len()
    }

    /// End users and runs that are known.
    #[must_use]
    pub fn subjects(&self) -> usize {
        self.directory.subjects.len()
    }

    fn run_limits(&self, place: &Place) -> Vec<LimitView> {
        let lines = self.directory.subject_lines(&self.policy, place, ModelId(u32::MAX));
        lines.iter().map(|line| self.limit_view(line)).collect()
    }

    pub(super) fn limit_view(&self, line: &Line) -> LimitView {
        let slots_used = line.queues.then(|| self.slots_used.get(&line.cell).copied().unwrap_or(0));
        LimitView { limit: line.limit, cell: line.cell, shape: line.shape, slots_used }
    }

    fn pool_view(&self, pool: PoolId) -> PoolView {
        let state = &self.pools[pool.0 as usize];
        let classes = (0..self.policy.classes.len() as u32)
            .map(|class| {
                let class = ClassId(class);
                let size = state.schedule.size(class);
                let running = state.running.get(class.0 as usize).copied().unwrap_or(0);
                (class, size.requests, running, size.tokens)
            })
            .collect();
        let backends = (0..)
            .zip(state.backends.backends())
            .filter(|(_, backend)| !backend.is_removed())
            .map(|(index, backend)| BackendView {
                backend: BackendId { pool, index },
                is_alive: backend.is_alive(),
                in_flight: backend.in_flight(),
                slots: backend.slots(),
                occupied: backend.occupied(),
                kv_tokens: backend.kv_tokens(),
                factor_ppm: backend.factor_ppm(),
            })
            .collect();
        PoolView { pool, classes, backends }
    }
}
