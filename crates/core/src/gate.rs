//! The life of a request: the only place where limits, queue and backends meet.
//!
//! Three verbs on one state machine, plain data in and out. [`Gate::handle`] takes what happened, [`Gate::poll`] gives what to
//! do until it answers `None`, [`Gate::deadline`] says when to send [`Event::Tick`] if nothing else happens. The limit store is
//! called through [`Effect::Reserve`] and answers with [`Event::Ruled`]: at once, later, or never.

mod arrive;
mod dispatch;
mod ending;
mod event;
mod view;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::backends::{self, BackendState};
use crate::charge::Need;
use crate::directory::Directory;
use crate::drain::Drain;
use crate::ledger::{CellId, Charge, ReservationId};
use crate::policy::{BackendId, Dimension, ModelId, Policy, PoolId, TenantId};
use crate::predict::Predictor;
use crate::promises::Promises;
use crate::queue::{Queue, Turn, Waiting};
use crate::subjects::Place;
use crate::units::{Moment, Tokens};

pub use event::{Account, Answer, Arrival, Effect, Event, Outcome, Report, Reported, RequestId, UsageSource};
pub use view::{LimitView, PoolView, RunView};

/// All requests, queues, and what is known of the backends.
#[derive(Debug)]
pub struct Gate {
    policy: Arc<Policy>,
    directory: Directory,
    requests: BTreeMap<RequestId, Request>,
    reservations: BTreeMap<ReservationId, RequestId>,
    pools: Vec<PoolState>,
    /// Slots in use under concurrency limits that queue.
    slots_used: BTreeMap<CellId, u32>,
    promises: Promises,
    predictor: Predictor,
    effects: VecDeque<Effect>,
    waits: BTreeSet<(Moment, RequestId)>,
    next_reservation: u64,
    next_turn: u64,
    draining: bool,
    /// Pools where something may go that could not before.
    awake: BTreeSet<PoolId>,
}

#[derive(Debug, Default)]
struct PoolState {
    queue: Queue,
    backends: Vec<BackendState>,
    drain: Drain,
    /// Nothing is sent before this moment: a limit of the pool is used up.
    limited_until: Moment,
    /// A dispatch that the store is thinking about: nothing overtakes it.
    ruling: Option<RequestId>,
}

#[derive(Debug)]
struct Request {
    arrival: Arrival,
    pool: PoolId,
    need: Need,
    places: Vec<Place>,
    admission: Held,
    dispatch: Option<Held>,
    /// Concurrency limits that queue: cell and limit.
    slots: Vec<(CellId, u32)>,
    slots_held: Vec<CellId>,
    stage: Stage,
    turn: Turn,
    arrived: Moment,
    wait_until: Moment,
    started: Option<Moment>,
    backend: Option<BackendId>,
    tried: Vec<u32>,
    attempts: u32,
    /// A backend has answered, in a way that another try may mend.
    has_answer: bool,
    /// Output tokens drawn as they streamed.
    drawn: Tokens,
    /// The client left while the store was thinking.
    gone: bool,
}

/// An open reservation.
#[derive(Debug)]
struct Held {
    id: ReservationId,
    charges: Vec<Charge>,
    cached_weight_millis: Vec<u32>,
    /// What it stands for in the first ledger law; absent for a dispatch, whose tokens the admission has counted.
    tokens: Option<Tokens>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Ruling,
    Queued { parked: Option<CellId> },
    Dispatching(BackendId),
    Running(BackendId),
}

impl Gate {
    /// A gate with nothing in it; every backend counts as alive until the driver says otherwise.
    #[must_use]
    pub fn new(policy: Arc<Policy>) -> Self {
        let mut gate = Self {
            policy: Arc::clone(&policy),
            directory: Directory::default(),
            requests: BTreeMap::new(),
            reservations: BTreeMap::new(),
            pools: Vec::new(),
            slots_used: BTreeMap::new(),
            promises: Promises::default(),
            predictor: Predictor::default(),
            effects: VecDeque::new(),
            waits: BTreeSet::new(),
            next_reservation: 0,
            next_turn: 0,
            draining: false,
            awake: BTreeSet::new(),
        };
        gate.take_on(policy);
        gate
    }

    /// Takes in what happened at `now`. Effects may be waiting afterwards.
    pub fn handle(&mut self, event: Event, now: Moment) {
        match event {
            Event::Arrive(arrival) => self.arrive(arrival, now),
            Event::Ruled { reservation, verdict } => self.ruled(reservation, verdict, now),
            Event::Produced { request, output } => self.produced(request, output),
            Event::Bounced { request, retry_after } => self.bounced(request, retry_after, now),
            Event::Failed { request } => self.failed(request, now),
            Event::Ended { request, report } => self.ended(request, &report, now),
            Event::BackendUp(backend) => self.set_alive(backend, true),
            Event::BackendDown(backend) => self.set_alive(backend, false),
            Event::Reload(policy) => self.reload(policy, now),
            Event::Raise { tenant, run, tokens } => self.raise(tenant, run, tokens),
            Event::Drain => self.drain(now),
            Event::Tick => self.tick(now),
        }
        while let Some(pool) = self.awake.pop_first() {
            self.dispatch(pool, now);
        }
    }

    /// The next thing to do; call until `None` after each [`handle`](Self::handle).
    pub fn poll(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to send [`Event::Tick`] if nothing else happens. Further ticks are harmless.
    #[must_use]
    pub fn deadline(&self) -> Option<Moment> {
        let wait = self.waits.first().map(|(moment, _)| *moment);
        self.pools.iter().filter_map(|pool| self.opening(pool)).chain(wait).min()
    }

    /// The policy in force.
    #[must_use]
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// When the next request of a pool can go to a backend that has room, but is paused.
    fn opening(&self, pool: &PoolState) -> Option<Moment> {
        let next = self.requests.get(&pool.queue.first()?)?;
        if pool.ruling.is_some() {
            return None;
        }
        (0..)
            .zip(&pool.backends)
            .filter(|(index, backend)| backend.has_slot() && !next.tried.contains(index))
            .map(|(_, backend)| backend.closed_until().max(pool.limited_until))
            .min()
    }

    fn take_on(&mut self, policy: Arc<Policy>) {
        self.directory.reload(&policy);
        while self.pools.len() < policy.pools.len() {
            self.pools.push(PoolState::default());
        }
        for (state, pool) in self.pools.iter_mut().zip(&policy.pools) {
            state.limited_until = Moment::default();
            backends::reload(&mut state.backends, pool);
        }
        self.policy = policy;
    }

    fn reload(&mut self, policy: Arc<Policy>, now: Moment) {
        self.take_on(policy);
        let subjects = self.directory.reload_subjects(&self.policy, now);
        for line in self.directory.lines().chain(&subjects).filter(|line| !line.queues) {
            self.effects.push_back(Effect::Reshape(line.cell, line.shape));
        }
        let ids: Vec<RequestId> = self.requests.keys().copied().collect();
        for id in ids {
            let Some(request) = self.requests.get(&id) else {
                continue;
            };
            let slots = self.slots_of(&request.arrival, request.pool, &request.places);
            if let Some(request) = self.requests.get_mut(&id) {
                request.slots = slots;
            }
        }
        for pool in 0..self.pools.len() {
            self.unpark_all(pool);
            self.wake(PoolId(pool as u32));
        }
    }

    fn set_alive(&mut self, backend: BackendId, alive: bool) {
        let pool = self.pools.get_mut(backend.pool.0 as usize);
        if let Some(state) = pool.and_then(|pool| pool.backends.get_mut(backend.index as usize)) {
            state.alive = alive;
            self.wake(backend.pool);
        }
    }

    fn raise(&mut self, tenant: TenantId, run: u128, tokens: Tokens) {
        let place = Place::Run(tenant, run);
        if !self.directory.subjects.raise(&place, tokens.amount()) {
            return;
        }
        let lines = self.directory.subject_lines(&self.policy, &place, ModelId(u32::MAX));
        for line in lines.iter().filter(|line| line.limit.dimension == Dimension::RunBudget) {
            self.effects.push_back(Effect::Grant(line.cell, line.shape, tokens.amount()));
        }
    }

    fn drain(&mut self, now: Moment) {
        self.draining = true;
        let queued: Vec<RequestId> = self
            .requests
            .iter()
            .filter(|(_, request)| matches!(request.stage, Stage::Queued { .. }))
            .map(|(id, _)| *id)
            .collect();
        for id in queued {
            self.refuse_queued(id, arrive::shutdown(), now);
        }
    }

    fn tick(&mut self, now: Moment) {
        while let Some((moment, id)) = self.waits.first().copied() {
            if moment > now {
                break;
            }
            self.waits.remove(&(moment, id));
            self.wait_is_over(id, now);
        }
        self.directory.subjects.expire(now);
        for pool in 0..self.pools.len() {
            self.wake(PoolId(pool as u32));
        }
    }

    fn reservation_id(&mut self, request: RequestId) -> ReservationId {
        self.next_reservation += 1;
        let id = ReservationId(self.next_reservation);
        self.reservations.insert(id, request);
        id
    }

    fn wake(&mut self, pool: PoolId) {
        self.awake.insert(pool);
    }

    fn pool_mut(&mut self, pool: PoolId) -> &mut PoolState {
        &mut self.pools[pool.0 as usize]
    }
}

impl Request {
    fn waiting(&self) -> Waiting {
        let parked = match self.stage {
            Stage::Queued { parked } => parked,
            Stage::Ruling | Stage::Dispatching(_) | Stage::Running(_) => None,
        };
        Waiting {
            request: self.arrival.request,
            turn: self.turn,
            class: self.arrival.class,
            tokens: self.need.total(),
            parked,
        }
    }
}
