//! The gate's driver: one lock around the deciding core and the in-memory ledger, and the waking of whoever waits for a decision.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairlane_core::gate::{
    Account, Answer, Arrival, Effect, Event, Gate, LimitView, Outcome, PoolView, Report, Reported, RequestId,
    RunView,
};
use fairlane_core::ledger::{Charge, Ledger, Totals, Verdict};
use fairlane_core::policy::{BackendId, KeyId, Policy, TenantId};
use fairlane_core::refusal::Refusal;
use fairlane_core::units::{Amount, Micros, Moment, Tokens};
use fairlane_wire::budget::Budget;
use tokio::sync::{Notify, oneshot};

use crate::clock::Clock;

/// Decisions for the whole process.
#[derive(Debug)]
pub struct Driver {
    clock: Clock,
    state: Mutex<State>,
    earlier: Notify,
}

#[derive(Debug)]
struct State {
    gate: Gate,
    ledger: Ledger,
    callers: HashMap<RequestId, oneshot::Sender<Decision>>,
    accounts: HashMap<RequestId, Account>,
    next_request: u64,
    /// The moment that the ticking task sleeps until.
    sleeps_until: Option<Moment>,
}

/// What the gate decided for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Send it to this backend.
    Start {
        /// Where to.
        backend: BackendId,
        /// The gate wants to hear of output as it streams.
        wants_output: bool,
    },
    /// Refuse it.
    Refused(Refusal),
    /// Pass on the last answer of a backend.
    Abandoned,
}

/// A level of a limit, for the admin API.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    /// The limit.
    pub view: LimitView,
    /// What it holds.
    pub level: Amount,
}

/// A request that the gate knows of. Dropping it ends the request, whatever stage it is in: that is how a client that left is
/// noticed at every point of the way.
#[derive(Debug)]
pub struct Ticket {
    driver: Arc<Driver>,
    id: RequestId,
    decision: Option<oneshot::Receiver<Decision>>,
    budgets: Vec<Budget>,
    ended: bool,
}

impl Driver {
    /// A driver for this policy, with full buckets.
    #[must_use]
    pub fn new(policy: Arc<Policy>) -> Self {
        let state = State {
            gate: Gate::new(policy),
            ledger: Ledger::new(),
            callers: HashMap::new(),
            accounts: HashMap::new(),
            next_request: 0,
            sleeps_until: None,
        };
        Self { clock: Clock::start(), state: Mutex::new(state), earlier: Notify::new() }
    }

    /// The gate's clock.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// Hands a request to the gate; `arrival.request` is filled in.
    #[must_use]
    pub fn arrive(self: &Arc<Self>, mut arrival: Arrival) -> Ticket {
        let (caller, decision) = oneshot::channel();
        let now = self.clock.now();
        let (id, budgets) = self.with(|state| {
            state.next_request += 1;
            let id = RequestId(state.next_request);
            arrival.request = id;
            state.callers.insert(id, caller);
            state.handle(Event::Arrive(arrival.clone()), now);
            (id, state.budgets(&arrival, now))
        });
        Ticket { driver: Arc::clone(self), id, decision: Some(decision), budgets, ended: false }
    }

    /// Whether the store would grant what this arrival asks, and which limit would bind; nothing is changed.
    ///
    /// # Errors
    /// The refusal that needs no store.
    pub fn preview(&self, arrival: &Arrival) -> Result<(Vec<Charge>, Verdict), Refusal> {
        let now = self.clock.now();
        self.with(|state| {
            let charges = state.gate.preview(arrival, now)?;
            let verdict = state.ledger.peek(&charges, now);
            Ok((charges, verdict))
        })
    }

    /// Tells the gate something that concerns no single request.
    pub fn tell(&self, event: Event) {
        let now = self.clock.now();
        self.with(|state| state.handle(event, now));
    }

    /// Sends [`Event::Tick`] when the gate asks for it, for ever.
    pub async fn tick_on_time(&self) {
        loop {
            let deadline = self.with(|state| {
                state.sleeps_until = state.gate.deadline();
                state.sleeps_until
            });
            match deadline {
                Some(moment) => {
                    let at = tokio::time::Instant::from_std(self.clock.instant(moment));
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => self.tell(Event::Tick),
                        () = self.earlier.notified() => {}
                    }
                }
                None => self.earlier.notified().await,
            }
        }
    }

    /// The sums of the first ledger law.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.with(|state| *state.ledger.totals())
    }

    /// Requests queued or running.
    #[must_use]
    pub fn live(&self) -> usize {
        self.with(|state| state.gate.live())
    }

    /// End users and runs that are known.
    #[must_use]
    pub fn subjects(&self) -> usize {
        self.with(|state| state.gate.subjects())
    }

    /// Queues and backends.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolView> {
        self.with(|state| state.gate.pools())
    }

    /// The limits that concern a tenant, with their levels.
    #[must_use]
    pub fn limits(&self, tenant: TenantId) -> Vec<Level> {
        let now = self.clock.now();
        self.with(|state| state.gate.limits(tenant).into_iter().map(|view| state.level(view, now)).collect())
    }

    /// The budgets that a request of this key meets whatever it asks for; for answers that no decision was needed for.
    #[must_use]
    pub fn budgets(&self, tenant: TenantId, key: Option<KeyId>) -> Vec<Budget> {
        let now = self.clock.now();
        self.with(|state| {
            let views = state.gate.limits_of(tenant, key).into_iter();
            views
                .filter(|view| view.slots_used.is_none())
                .map(|view| budget(&state.level(view, now)))
                .collect()
        })
    }

    /// Every fixed limit with its level.
    #[must_use]
    pub fn all_limits(&self) -> Vec<Level> {
        let now = self.clock.now();
        self.with(|state| state.gate.all_limits().into_iter().map(|view| state.level(view, now)).collect())
    }

    /// At most `limit` runs of a tenant, with the levels of their limits.
    #[must_use]
    pub fn runs(&self, tenant: TenantId, limit: usize) -> Vec<(RunView, Vec<Level>)> {
        let now = self.clock.now();
        self.with(|state| {
            let runs = state.gate.runs(tenant, limit);
            runs.into_iter()
                .map(|run| {
                    let levels = run.limits.iter().map(|view| state.level(*view, now)).collect();
                    (run, levels)
                })
                .collect()
        })
    }

    /// Tokens that a tenant's open reservations hold.
    #[must_use]
    pub fn reserved(&self, tenant: TenantId) -> Tokens {
        self.with(|state| state.gate.reserved(tenant))
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = act(&mut state);
        let deadline = state.gate.deadline();
        let is_earlier = match (deadline, state.sleeps_until) {
            (Some(deadline), Some(sleeps_until)) => deadline < sleeps_until,
            (Some(_), None) => true,
            (None, _) => false,
        };
        drop(state);
        if is_earlier {
            self.earlier.notify_one();
        }
        result
    }

    /// A panic inside the gate is a broken invariant: its state stays usable for what is in flight, and the panic is reported.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn handle(&mut self, event: Event, now: Moment) {
        self.gate.handle(event, now);
        while let Some(effect) = self.gate.poll() {
            self.act(effect, now);
        }
    }

    fn act(&mut self, effect: Effect, now: Moment) {
        match effect {
            Effect::Reserve(reservation) => {
                let verdict = self.ledger.reserve(&reservation, now);
                self.gate.handle(Event::Ruled { reservation: reservation.id, verdict }, now);
            }
            Effect::Draw { reservation, charges } => self.ledger.draw(reservation, &charges, now),
            Effect::Settle(settlement) => {
                self.ledger.settle(&settlement, now);
            }
            Effect::Reshape(cell, shape) => self.ledger.reshape(cell, shape, now),
            Effect::Grant(cell, shape, amount) => self.ledger.grant(cell, shape, amount, now),
            Effect::Start { request, backend, wants_output } => {
                self.answer(request, Decision::Start { backend, wants_output });
            }
            Effect::Refuse { request, refusal } => self.answer(request, Decision::Refused(refusal)),
            Effect::Abandon { request } => self.answer(request, Decision::Abandoned),
            Effect::Finished(account) => {
                self.accounts.insert(account.request, account);
            }
        }
    }

    /// Tells the caller; one that is gone has dropped its ticket, or is about to.
    fn answer(&mut self, request: RequestId, decision: Decision) {
        if let Some(caller) = self.callers.remove(&request) {
            let _ = caller.send(decision);
        }
    }

    /// The limits that a request met, as they stand after the decision.
    fn budgets(&self, arrival: &Arrival, now: Moment) -> Vec<Budget> {
        let met = self.gate.limits_met(arrival, now).into_iter();
        met.filter(|view| view.slots_used.is_none()).map(|view| budget(&self.level(view, now))).collect()
    }

    fn level(&self, view: LimitView, now: Moment) -> Level {
        let level = match view.slots_used {
            Some(used) => view.shape.capacity - Amount::whole(u64::from(used)),
            None => self.ledger.level(view.cell, &view.shape, now),
        };
        Level { view, level }
    }
}

impl Ticket {
    /// The request's number.
    #[must_use]
    pub const fn id(&self) -> RequestId {
        self.id
    }

    /// The limits that the request met, as they stood after the gate's first decision.
    #[must_use]
    pub fn budgets(&self) -> &[Budget] {
        &self.budgets
    }

    /// The gate's next decision for this request.
    pub async fn decision(&mut self) -> Decision {
        match self.decision.take() {
            Some(decision) => decision.await.unwrap_or(Decision::Abandoned),
            None => Decision::Abandoned,
        }
    }

    /// The backend is too busy and has not begun: the request goes back to its place in the queue.
    pub fn bounced(&mut self, retry_after: Option<Micros>) {
        self.again(Event::Bounced { request: self.id, retry_after });
    }

    /// The backend failed before its first byte.
    pub fn failed(&mut self) {
        self.again(Event::Failed { request: self.id });
    }

    /// Output tokens that have been streamed so far.
    pub fn produced(&self, output: Tokens) {
        self.driver.tell(Event::Produced { request: self.id, output });
    }

    /// Ends the request; its account, if it was admitted and has not been closed without one.
    pub fn end(&mut self, report: Report) -> Option<Account> {
        self.ended = true;
        let now = self.driver.clock.now();
        self.driver.with(|state| {
            state.callers.remove(&self.id);
            state.handle(Event::Ended { request: self.id, report }, now);
            state.accounts.remove(&self.id)
        })
    }

    fn again(&mut self, event: Event) {
        let (caller, decision) = oneshot::channel();
        self.decision = Some(decision);
        let now = self.driver.clock.now();
        self.driver.with(|state| {
            state.callers.insert(self.id, caller);
            state.handle(event, now);
        });
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.ended {
            self.end(Report {
                outcome: Outcome::ClientGone,
                answer: Answer::Nothing,
                reported: Reported::default(),
                counted_output: Tokens::ZERO,
            });
        }
    }
}

fn budget(level: &Level) -> Budget {
    let limit = &level.view.limit;
    let shape = &level.view.shape;
    let missing = (shape.capacity - level.level).0.max(0).unsigned_abs();
    let to_next = (Amount((level.level.floor_units().max(0) + 1) * Amount::ONE.0) - level.level)
        .0
        .max(0)
        .unsigned_abs();
    Budget {
        scope: limit.owner.scope(),
        dimension: limit.dimension,
        capacity: u64::try_from(shape.capacity.floor_units()).unwrap_or(0),
        remaining: u64::try_from(level.level.floor_units()).unwrap_or(0),
        until_full: span(shape.rate.span_of(missing)),
        until_more: if missing == 0 { Micros::ZERO } else { span(shape.rate.span_of(to_next)) },
        window: span(shape.rate.span_of(shape.capacity.0.unsigned_abs())),
    }
}

/// A span, or none where nothing ever comes back.
fn span(micros: u64) -> Micros {
    if micros == u64::MAX { Micros::ZERO } else { Micros(micros) }
}
