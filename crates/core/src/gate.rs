//! The life of a request: the only place where limits, queue and backends meet.
//!
//! Three verbs on one state machine, plain data in and out. [`Gate::handle`] takes what happened, [`Gate::poll`] gives what to
//! do until it answers `None`, [`Gate::deadline`] says when to send [`Event::Tick`] if nothing else happens. The limit store is
//! called through [`Effect::Reserve`] and answers with [`Event::Ruled`]: at once, later, or never.

mod arrive;
mod dispatch;
mod drawing;
mod ending;
mod event;
mod evicting;
mod holding;
mod keeping;
mod reading;
mod slots;
mod view;
mod waiting;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::charge::Need;
use crate::directory::Directory;
use crate::drain::Drain;
use crate::ledger::{CellId, Charge, ReservationId};
use crate::occupancy::{Liveness, Occupancy};
use crate::policy::{BackendId, Dimension, ModelId, Policy, PoolId, TenantId};
use crate::predict::Predictor;
use crate::promises::Promises;
use crate::schedule::{EntryId, Pace, Schedule, Tab, Turn};
use crate::subjects::Place;
use crate::table::{Numbered, Table};
use crate::units::{Moment, Tokens};

use evicting::Evicting;
use holding::Holding;
use slots::Slot;

pub use event::{
    Account, Answer, Arrival, Effect, Event, Failure, Outcome, Report, Reported, RequestId, UsageSource,
};
pub use view::{BackendView, LimitView, PoolView, RunView, ShareView};

/// All requests, queues, and what is known of the backends.
#[derive(Debug)]
pub struct Gate {
    policy: Arc<Policy>,
    directory: Directory,
    requests: Table<RequestId, Box<Request>>,
    reservations: Table<ReservationId, RequestId>,
    pools: Vec<PoolState>,
    /// Slots in use under concurrency limits that queue.
    slots_used: BTreeMap<CellId, u32>,
    promises: Promises,
    predictor: Predictor,
    effects: VecDeque<Effect>,
    waits: BTreeSet<(Moment, RequestId)>,
    /// A class may be evicted.
    evicts: bool,
    /// When room is looked for, for those that wait.
    rescues: BTreeSet<(Moment, RequestId)>,
    /// Requests that wait for a budget to return.
    holding: Holding,
    next_reservation: u64,
    next_turn: u64,
    draining: bool,
    /// Pools where something may go that could not before.
    awake: BTreeSet<PoolId>,
}

#[derive(Debug, Default)]
struct PoolState {
    schedule: Schedule,
    backends: Occupancy,
    drain: Drain,
    pace: Pace,
    evicting: Evicting,
    /// Requests on backends, per class.
    running: Vec<u32>,
    /// Nothing is sent before this moment: a limit of the pool is used up.
    limited_until: Moment,
    /// A dispatch that the store is thinking about: nothing overtakes it.
    ruling: Option<RequestId>,
    /// When the request that held up the last dispatch can go, though nothing else happens.
    opening: Option<Moment>,
    /// The last dispatch left fronts that fit nowhere: who comes behind them changes nothing.
    is_stuck: bool,
}

#[derive(Debug)]
struct Request {
    arrival: Arrival,
    pool: PoolId,
    need: Need,
    /// The least that its input can be, where it is estimated and the store has not answered.
    input_least: Option<Tokens>,
    places: Vec<Place>,
    admission: Held,
    dispatch: Option<Held>,
    /// Concurrency limits that queue.
    slots: Vec<Slot>,
    slots_held: Vec<CellId>,
    stage: Stage,
    /// What it has been charged in the order, while it is in flight.
    tab: Option<Tab>,
    turn: Turn,
    arrived: Moment,
    wait_until: Moment,
    /// The cell whose budget it waits for before it is admitted, and until when it may.
    held_for: Option<CellId>,
    held_until: Moment,
    started: Option<Moment>,
    /// The last time that it went to a backend.
    sent: Option<Moment>,
    backend: Option<BackendId>,
    tried: Vec<u32>,
    attempts: u32,
    /// A backend has answered, in a way that another try may mend.
    has_answer: bool,
    /// Output tokens that are covered: reserved, or drawn as they streamed.
    drawn: Tokens,
    /// The last draw, as it was asked of the store.
    last_draw: Vec<Charge>,
    /// It was taken off a backend once to make room.
    was_evicted: bool,
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
    /// The store refused it; it is asked again when the budget has returned.
    Held,
    Queued(EntryId),
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
            requests: Table::default(),
            reservations: Table::default(),
            pools: Vec::new(),
            slots_used: BTreeMap::new(),
            promises: Promises::default(),
            predictor: Predictor::default(),
            effects: VecDeque::new(),
            waits: BTreeSet::new(),
            evicts: false,
            rescues: BTreeSet::new(),
            holding: Holding::default(),
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
        self.handle_all([event], now);
    }

    /// Takes in what happened at the same moment: nothing goes to a backend because of one before all are known.
    pub fn handle_all(&mut self, events: impl IntoIterator<Item = Event>, now: Moment) {
        for event in events {
            self.take_in(event, now);
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
        let opening = self.pools.iter().filter_map(|pool| pool.opening);
        let rescue = self.rescues.first().map(|(moment, _)| *moment);
        opening.chain(wait).chain(rescue).chain(self.holding.due()).min()
    }

    /// The policy in force.
    #[must_use]
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    fn take_in(&mut self, event: Event, now: Moment) {
        match event {
            Event::Arrive(arrival) => self.arrive(arrival, None, now),
            Event::ArriveEstimated { arrival, input_least } => {
                self.arrive(arrival, Some(input_least), now);
            }
            Event::Ruled { reservation, verdict } => self.ruled(reservation, verdict, now),
            Event::Produced { request, output } => self.produced(request, output),
            Event::Bounced { request, retry_after } => self.bounced(request, retry_after, now),
            Event::Failed { request, failure } => self.failed(request, failure, now),
            Event::Overdrawn { reservation, shortage } => self.overdrawn(reservation, &shortage),
            Event::Evicted { request } => self.evicted(request, now),
            Event::Ended { request, report } => self.ended(request, &report, now),
            Event::FirstToken { request } => self.first_token(request, now),
            Event::Provider { request, tokens, requests } => {
                self.provider_told(request, (tokens, requests), now);
            }
            Event::Scraped { backend, reading } => self.scraped(backend, &reading, now),
            Event::BackendUp(backend) => self.set_alive(backend, Liveness::Up, now),
            Event::BackendDown(backend) => self.set_alive(backend, Liveness::Down, now),
            Event::Reload(policy) => self.reload(policy, now),
            Event::Raise { tenant, run, tokens } => self.raise(tenant, run, tokens),
            Event::Drain => self.drain(now),
            Event::Tick => self.tick(now),
        }
    }

    fn take_on(&mut self, policy: Arc<Policy>) {
        self.directory.reload(&policy);
        self.evicts = policy.classes.iter().any(|class| class.is_evictable);
        while self.pools.len() < policy.pools.len() {
            self.pools.push(PoolState::default());
        }
        for (state, pool) in self.pools.iter_mut().zip(&policy.pools) {
            state.limited_until = Moment::default();
            state.backends.reload(pool);
            state.schedule.reload(&policy, pool);
            state.running.resize(policy.classes.len().max(state.running.len()), 0);
        }
        self.policy = policy;
    }

    fn reload(&mut self, policy: Arc<Policy>, now: Moment) {
        self.take_on(policy);
        let subjects = self.directory.reload_subjects(&self.policy, now);
        for line in self.directory.lines().chain(&subjects).filter(|line| !line.queues) {
            self.effects.push_back(Effect::Reshape(line.cell, line.shape));
        }
        for id in self.requests.keys() {
            let Some(request) = self.requests.get(&id) else {
                continue;
            };
            let slots = self.slots_of(&request.arrival, request.pool, &request.places);
            if let Some(request) = self.requests.get_mut(&id) {
                request.slots = slots;
            }
        }
        self.replan_held(now);
        self.wake_all();
    }

    fn set_alive(&mut self, backend: BackendId, liveness: Liveness, now: Moment) {
        if let Some(pool) = self.pools.get_mut(backend.pool.0 as usize) {
            pool.backends.set_alive(backend.index, liveness, now);
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
        for id in self.requests.keys() {
            if self.requests.get(&id).is_some_and(|request| matches!(request.stage, Stage::Queued(_))) {
                self.refuse_queued(id, arrive::shutdown(), now);
            }
        }
        self.refuse_all_held(now);
    }

    fn tick(&mut self, now: Moment) {
        // What is due at the end of its wait is still in time.
        self.ask_due(now);
        self.rescue_due(now);
        while let Some((moment, id)) = self.waits.first().copied() {
            if moment > now {
                break;
            }
            self.waits.remove(&(moment, id));
            self.wait_is_over(id, now);
        }
        self.directory.subjects.expire(now);
        self.wake_all();
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

    fn wake_all(&mut self) {
        self.awake.extend((0..self.pools.len() as u32).map(PoolId));
    }

    fn pool_mut(&mut self, pool: PoolId) -> &mut PoolState {
        &mut self.pools[pool.0 as usize]
    }
}

impl Numbered for RequestId {
    fn number(self) -> u64 {
        self.0
    }

    fn of(number: u64) -> Self {
        Self(number)
    }
}

impl Numbered for ReservationId {
    fn number(self) -> u64 {
        self.0
    }

    fn of(number: u64) -> Self {
        Self(number)
    }
}
