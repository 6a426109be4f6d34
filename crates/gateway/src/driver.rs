//! The gate's driver: one lock around the deciding core and the in-memory ledger, and the waking of whoever waits for a decision.

mod keeping;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fairlane_core::bucket::Shape;
use fairlane_core::gate::{
    Account, Answer, Arrival, Effect, Event, Failure, Gate, LimitView, Outcome, PoolView, Report, Reported,
    RequestId, RunView,
};
use fairlane_core::ledger::{Charge, Ledger, Totals, Verdict};
use fairlane_core::policy::{BackendId, KeyId, Policy, TenantId};
use fairlane_core::refusal::Refusal;
use fairlane_core::scope::Limit;
use fairlane_core::snapshot::Batch;
use fairlane_core::units::{Amount, Micros, Moment, Tokens};
use fairlane_wire::budget::Budget;
use fairlane_wire::provider::Allowances;
use tokio::sync::{Notify, oneshot, watch};

use crate::clock::Clock;
use crate::witness::Witness;

/// Decisions for the whole process.
#[derive(Debug)]
pub struct Driver {
    clock: Clock,
    state: Mutex<State>,
    earlier: Notify,
    /// The batch of rows that is sure.
    durable: watch::Sender<Batch>,
    wall: OnceLock<keeping::Wall>,
}

#[derive(Debug)]
struct State {
    gate: Gate,
    ledger: Ledger,
    /// Those who wait for a decision.
    callers: HashMap<RequestId, oneshot::Sender<Told>>,
    /// Who is told that a request is to be cut to make room.
    evictions: HashMap<RequestId, oneshot::Sender<()>>,
    /// Of requests that the gate closed by itself, until their tickets end.
    accounts: HashMap<RequestId, Account>,
    next_request: u64,
    /// The request that is being handled, and what the gate said of it at once.
    at_hand: Option<(RequestId, AtOnce)>,
    /// The moment that the ticking task sleeps until.
    sleeps_until: Option<Moment>,
    /// Checks the ledger from outside.
    witness: Option<Witness>,
    /// What is written down, if anything is.
    keeping: Option<keeping::Keeping>,
}

/// What the gate says while it handles an event, which is nearly always all.
#[derive(Debug, Default)]
struct AtOnce {
    decision: Option<Told>,
    account: Option<Account>,
    stop: Option<Refusal>,
}

/// What the gate decided for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Send it to this backend.
    Start {
        /// Where to.
        backend: BackendId,
        /// The gate wants to hear of output each time that so much more has streamed; absent: not at all.
        output_step: Option<Tokens>,
    },
    /// Refuse it.
    Refused(Refusal),
    /// Pass on the last answer of a backend.
    Abandoned,
    /// Count the input exactly and let it arrive again.
    Count,
}

/// A decision on its way to the caller.
#[derive(Clone, Copy, Debug)]
struct Told {
    decision: Decision,
    /// What it takes from the limits may be used when this batch is sure.
    sure_with: Option<Batch>,
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
    next: Next,
    budgets: Vec<Budget>,
    ended: bool,
}

/// The gate's next decision.
#[derive(Debug)]
enum Next {
    Known(Told),
    Awaited(oneshot::Receiver<Told>),
}

impl Driver {
    /// A driver for this policy, with full buckets.
    #[must_use]
    pub fn new(policy: Arc<Policy>) -> Self {
        let state = State {
            gate: Gate::new(policy),
            ledger: Ledger::new(),
            callers: HashMap::new(),
            evictions: HashMap::new(),
            accounts: HashMap::new(),
            next_request: 0,
            at_hand: None,
            sleeps_until: None,
            witness: None,
            keeping: None,
        };
        Self {
            clock: Clock::start(),
            state: Mutex::new(state),
            earlier: Notify::new(),
            durable: watch::Sender::default(),
            wall: OnceLock::new(),
        }
    }

    /// The gate's clock.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// Hands a request to the gate; `arrival.request` is filled in. Where its input is estimated, `input_least` says how little it
    /// may be.
    #[must_use]
    pub fn arrive(self: &Arc<Self>, mut arrival: Arrival, input_least: Option<Tokens>) -> Ticket {
        let now = self.clock.now();
        let (id, next, budgets) = self.with(|state| {
            state.next_request += 1;
            let id = RequestId(state.next_request);
            arrival.request = id;
            let event = match input_least {
                Some(input_least) => Event::ArriveEstimated { arrival: arrival.clone(), input_least },
                None => Event::Arrive(arrival.clone()),
            };
            let next = state.ask(id, event, now);
            (id, next, state.budgets(&arrival, now))
        });
        Ticket { driver: Arc::clone(self), id, next, budgets, ended: false }
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

    /// Shows every effect on the ledger to `witness` from here on.
    pub fn witnessed_by(&self, witness: Witness) {
        self.with(|state| state.witness = Some(witness));
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

    /// Callers that wait for a decision, and accounts that nobody has fetched: none where no request lives.
    #[must_use]
    pub fn unfetched(&self) -> usize {
        self.with(|state| state.callers.len() + state.accounts.len())
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
            views.filter(|view| view.slots_used.is_none()).map(|view| state.budget(view, now)).collect()
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
    /// Handles an event of a request whose caller waits for a decision.
    fn ask(&mut self, id: RequestId, event: Event, now: Moment) -> Next {
        let AtOnce { decision, account, .. } = self.handle_of(id, event, now);
        if let Some(account) = account {
            self.accounts.insert(id, account);
        }
        match decision {
            Some(told) => Next::Known(told),
            None => {
                let (caller, decision) = oneshot::channel();
                self.callers.insert(id, caller);
                Next::Awaited(decision)
            }
        }
    }

    fn handle_of(&mut self, id: RequestId, event: Event, now: Moment) -> AtOnce {
        self.at_hand = Some((id, AtOnce::default()));
        self.handle(event, now);
        self.at_hand.take().map(|(_, at_once)| at_once).unwrap_or_default()
    }

    fn at_hand(&mut self, request: RequestId) -> Option<&mut AtOnce> {
        self.at_hand.as_mut().filter(|(id, _)| *id == request).map(|(_, at_once)| at_once)
    }

    fn handle(&mut self, event: Event, now: Moment) {
        let reloads = matches!(event, Event::Reload(_));
        self.gate.handle(event, now);
        while let Some(effect) = self.gate.poll() {
            self.act(effect, now);
        }
        if reloads {
            self.restore_unknown(now);
        }
    }

    fn act(&mut self, effect: Effect, now: Moment) {
        let seen = self.witness.is_some().then(|| effect.clone());
        let mut ruled = None;
        match effect {
            Effect::Reserve(reservation) => {
                let verdict = self.ledger.reserve(&reservation, now);
                ruled = seen.is_some().then(|| verdict.clone());
                if matches!(verdict, Verdict::Granted { .. }) {
                    self.reserved(&reservation, now);
                }
                self.gate.handle(Event::Ruled { reservation: reservation.id, verdict }, now);
            }
            Effect::Draw { reservation, charges } => {
                let shortage = self.ledger.draw(reservation, &charges, now);
                self.moved(&charges, now);
                if let Some(shortage) = shortage {
                    self.gate.handle(Event::Overdrawn { reservation, shortage }, now);
                }
            }
            Effect::Settle(settlement) => {
                self.ledger.settle(&settlement, now);
                self.moved(&settlement.charges, now);
            }
            Effect::Reshape(cell, shape) => {
                self.ledger.reshape(cell, shape, now);
                self.reshaped(cell);
            }
            Effect::Grant(cell, shape, amount) => {
                self.ledger.grant(cell, shape, amount, now);
                self.reshaped(cell);
            }
            Effect::Start { request, backend, output_step } => {
                self.answer(request, Decision::Start { backend, output_step });
            }
            Effect::Refuse { request, refusal } => self.answer(request, Decision::Refused(refusal)),
            Effect::Stop { request, refusal } => {
                // It is told to the one who told of the output, and nobody else waits for it.
                if let Some(at_once) = self.at_hand(request) {
                    at_once.stop = Some(refusal);
                }
            }
            Effect::Evict { request } => {
                if let Some(watcher) = self.evictions.remove(&request) {
                    let _ = watcher.send(());
                }
            }
            Effect::Abandon { request } => self.answer(request, Decision::Abandoned),
            Effect::Count { request } => self.answer(request, Decision::Count),
            Effect::Finished(account) => match self.at_hand(account.request) {
                Some(at_once) => at_once.account = Some(account),
                None => {
                    self.accounts.insert(account.request, account);
                }
            },
        }
        if let (Some(witness), Some(effect)) = (&mut self.witness, &seen) {
            witness.see(effect, ruled.as_ref(), &self.ledger, now);
        }
    }

    /// Tells the caller; one that is gone has dropped its ticket, or is about to.
    fn answer(&mut self, request: RequestId, decision: Decision) {
        let told = Told { decision, sure_with: self.sure_with(request) };
        if let Some(at_once) = self.at_hand(request) {
            at_once.decision = Some(told);
        } else if let Some(caller) = self.callers.remove(&request) {
            let _ = caller.send(told);
        }
    }

    /// The limits that a request met, as they stand after the decision.
    fn budgets(&self, arrival: &Arrival, now: Moment) -> Vec<Budget> {
        if let Some(charges) = self.gate.admission(arrival.request) {
            let shown = charges.iter().filter(|charge| !charge.shadow);
            return shown
                .map(|charge| {
                    let level = self.ledger.level(charge.cell, &charge.shape, now);
                    budget(&charge.limit, &charge.shape, level)
                })
                .collect();
        }
        let met = self.gate.limits_met(arrival, now).into_iter();
        met.filter(|view| view.slots_used.is_none()).map(|view| self.budget(view, now)).collect()
    }

    fn budget(&self, view: LimitView, now: Moment) -> Budget {
        budget(&view.limit, &view.shape, self.level(view, now).level)
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
    /// The first token of a streamed answer has come.
    pub fn first_token(&self) {
        self.driver.tell(Event::FirstToken { request: self.id });
    }

    /// The provider has told what is left of its limits.
    pub fn provider_told(&self, told: Allowances) {
        let Allowances { tokens, requests } = told;
        self.driver.tell(Event::Provider { request: self.id, tokens, requests });
    }

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
        let told = match std::mem::replace(&mut self.next, Next::Known(ABANDONED)) {
            Next::Known(told) => told,
            Next::Awaited(told) => told.await.unwrap_or(ABANDONED),
        };
        if let (Decision::Start { .. }, Some(batch)) = (told.decision, told.sure_with) {
            self.driver.sure(batch).await;
        }
        told.decision
    }

    /// The backend is too busy and has not begun: the request goes back to its place in the queue.
    pub fn bounced(&mut self, retry_after: Option<Micros>) {
        self.again(Event::Bounced { request: self.id, retry_after });
    }

    /// The backend failed before its first byte.
    pub fn failed(&mut self, failure: Failure) {
        self.again(Event::Failed { request: self.id, failure });
    }

    /// Ends when the gate wants the request cut to make room for another one; else never.
    pub fn eviction(&self) -> impl Future<Output = ()> + use<> {
        let (watcher, asked) = oneshot::channel();
        self.driver.with(|state| state.evictions.insert(self.id, watcher));
        async move {
            if asked.await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// The request has been cut to make room, before anything of its answer: it goes back to its place in the queue.
    pub fn evicted(&mut self) {
        self.again(Event::Evicted { request: self.id });
    }

    /// Output tokens that have been streamed so far; why the stream is to be cut, if it is.
    #[must_use]
    pub fn produced(&self, output: Tokens) -> Option<Refusal> {
        let now = self.driver.clock.now();
        let event = Event::Produced { request: self.id, output };
        self.driver.with(|state| state.handle_of(self.id, event, now)).stop
    }

    /// Ends the request; its account, if it was admitted and has not been closed without one.
    pub fn end(&mut self, report: Report) -> Option<Account> {
        self.ended = true;
        let now = self.driver.clock.now();
        self.driver.with(|state| {
            state.callers.remove(&self.id);
            state.evictions.remove(&self.id);
            state.sure_with(self.id);
            let at_once = state.handle_of(self.id, Event::Ended { request: self.id, report }, now);
            at_once.account.or_else(|| state.accounts.remove(&self.id))
        })
    }

    fn again(&mut self, event: Event) {
        let now = self.driver.clock.now();
        self.next = self.driver.with(|state| state.ask(self.id, event, now));
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

fn budget(limit: &Limit, shape: &Shape, level: Amount) -> Budget {
    let missing = (shape.capacity - level).0.max(0).unsigned_abs();
    let next = Amount((level.floor_units().max(0) + 1) * Amount::ONE.0);
    let to_next = (next - level).0.max(0).unsigned_abs();
    Budget {
        scope: limit.owner.scope(),
        dimension: limit.dimension,
        capacity: u64::try_from(shape.capacity.floor_units()).unwrap_or(0),
        remaining: u64::try_from(level.floor_units()).unwrap_or(0),
        until_full: span(shape.rate.span_of(missing)),
        until_more: if missing == 0 { Micros::ZERO } else { span(shape.rate.span_of(to_next)) },
        window: span(shape.rate.span_of(shape.capacity.0.unsigned_abs())),
    }
}

/// A span, or none where nothing ever comes back.
fn span(micros: u64) -> Micros {
    if micros == u64::MAX { Micros::ZERO } else { Micros(micros) }
}

/// What a caller is told whose decision was dropped.
const ABANDONED: Told = Told { decision: Decision::Abandoned, sure_with: None };
