//! A small world: a gate, a ledger, a virtual clock, and the recorder that checks both ledger laws after every event.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fairlane_core::gate::{
    Account, Answer, Arrival, Effect, Event, Gate, LimitView, Outcome, Report, Reported, RequestId,
};
use fairlane_core::ledger::{Ledger, Reservation, ReservationId, Verdict};
use fairlane_core::policy::{BackendId, ClassId, Dimension, KeyId, ModelId, Policy, PoolId, TenantId};
use fairlane_core::refusal::{Reason, Refusal, Retry};
use fairlane_core::scope::Owner;
use fairlane_core::units::{Micros, Moment, Tokens};

use crate::recorder::Recorder;

/// When the store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// At once.
    AtOnce,
    /// It decides at once; its answer comes when the test calls [`World::answer`].
    TellsLate,
    /// It decides and answers when the test calls [`World::answer`].
    DecidesLate,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    /// Before the store, in the queue, or back in it.
    Waiting,
    Running(BackendId),
    Refused(Refusal),
    Finished(Account),
}

pub(crate) struct World {
    pub(crate) gate: Gate,
    pub(crate) ledger: Ledger,
    pub(crate) recorder: Recorder,
    pub(crate) now: Moment,
    pub(crate) store: Store,
    pub(crate) pending: VecDeque<(Reservation, Option<Verdict>)>,
    pub(crate) states: BTreeMap<RequestId, State>,
    pub(crate) arrivals: BTreeMap<RequestId, Arrival>,
    /// Every dispatch: when, who, where.
    pub(crate) starts: Vec<(Moment, RequestId, BackendId)>,
    /// Every refusal: when, who.
    pub(crate) refusals: Vec<(Moment, RequestId)>,
    pub(crate) abandoned: Vec<RequestId>,
    /// Requests that the gate asked to be cut.
    pub(crate) evictions: Vec<RequestId>,
    /// Streams that were to be cut, and why.
    pub(crate) stops: Vec<(RequestId, Refusal)>,
    /// Requests whose input was to be counted: they are forgotten.
    pub(crate) uncounted: Vec<RequestId>,
    /// The reservation that each request asked for at its arrival.
    pub(crate) admissions: BTreeMap<RequestId, ReservationId>,
    arriving: Option<RequestId>,
    next: u64,
}

impl World {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            gate: Gate::new(Arc::new(policy)),
            ledger: Ledger::new(),
            recorder: Recorder::default(),
            now: Moment(1_000_000_000),
            store: Store::AtOnce,
            pending: VecDeque::new(),
            states: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            starts: Vec::new(),
            refusals: Vec::new(),
            abandoned: Vec::new(),
            evictions: Vec::new(),
            stops: Vec::new(),
            uncounted: Vec::new(),
            admissions: BTreeMap::new(),
            arriving: None,
            next: 0,
        }
    }

    pub(crate) fn with_store(policy: Policy, store: Store) -> Self {
        Self { store, ..Self::new(policy) }
    }

    /// Sends a request; its number is filled in.
    pub(crate) fn arrive(&mut self, arrival: Arrival) -> RequestId {
        self.next += 1;
        let request = RequestId(self.next);
        let arrival = Arrival { request, ..arrival };
        self.states.insert(request, State::Waiting);
        self.arrivals.insert(request, arrival.clone());
        self.arriving = Some(request);
        self.handle(Event::Arrive(arrival));
        self.arriving = None;
        request
    }

    /// Sends a request whose input is known to be at least `input_least` and at most what it says; the number under which it is
    /// decided, after a count where the gate asks for one.
    pub(crate) fn arrive_estimated(
        &mut self,
        arrival: Arrival,
        input_least: Tokens,
        input: Tokens,
    ) -> RequestId {
        self.next += 1;
        let request = RequestId(self.next);
        let estimated = Arrival { request, ..arrival.clone() };
        self.states.insert(request, State::Waiting);
        self.arrivals.insert(request, estimated.clone());
        self.handle(Event::ArriveEstimated { arrival: estimated, input_least });
        match self.uncounted.last() {
            Some(last) if *last == request => self.arrive(Arrival { input, ..arrival }),
            _ => request,
        }
    }

    pub(crate) fn handle(&mut self, event: Event) {
        self.gate.handle(event, self.now);
        self.pump();
        self.recorder.check(&self.ledger, self.now);
    }

    /// Lets the store answer its oldest open question.
    pub(crate) fn answer(&mut self) {
        let Some((reservation, verdict)) = self.pending.pop_front() else { return };
        let verdict = verdict.unwrap_or_else(|| self.decide(&reservation));
        self.handle(Event::Ruled { reservation: reservation.id, verdict });
    }

    /// Lets time pass as a driver would: with a tick at every deadline on the way and one at the end.
    pub(crate) fn advance(&mut self, span: Micros) {
        let end = self.now.after(span);
        let mut ticks = 0;
        while let Some(moment) = self.gate.deadline().filter(|moment| *moment <= end) {
            ticks += 1;
            assert!(ticks < 10_000, "the gate asks for ticks without end at {moment:?}");
            self.now = self.now.max(moment);
            self.handle(Event::Tick);
        }
        self.now = end;
        self.handle(Event::Tick);
    }

    pub(crate) fn advance_secs(&mut self, secs: u64) {
        self.advance(Micros::from_secs(secs));
    }

    /// The request ends well with this usage.
    pub(crate) fn complete(&mut self, request: RequestId, input: u64, output: u64) {
        self.end(request, reported(input, output));
    }

    pub(crate) fn end(&mut self, request: RequestId, report: Report) {
        self.handle(Event::Ended { request, report });
    }

    /// The client leaves; what was counted is charged if it ran.
    pub(crate) fn leave(&mut self, request: RequestId, counted: u64) {
        let report = Report {
            outcome: Outcome::ClientGone,
            answer: Answer::Content,
            reported: Reported::default(),
            counted_output: Tokens(counted),
        };
        self.end(request, report);
    }

    pub(crate) fn reload(&mut self, policy: Policy) {
        let (aligned, _) = policy.aligned_to(self.gate.policy());
        self.handle(Event::Reload(Arc::new(aligned)));
    }

    pub(crate) fn state(&self, request: RequestId) -> &State {
        &self.states[&request]
    }

    pub(crate) fn is_running(&self, request: RequestId) -> bool {
        matches!(self.states[&request], State::Running(_))
    }

    pub(crate) fn is_waiting(&self, request: RequestId) -> bool {
        self.states[&request] == State::Waiting
    }

    /// The refusal that this request got.
    pub(crate) fn refusal(&self, request: RequestId) -> Refusal {
        match &self.states[&request] {
            State::Refused(refusal) => *refusal,
            other @ (State::Waiting | State::Running(_) | State::Finished(_)) => {
                panic!("{request:?} is {other:?}")
            }
        }
    }

    pub(crate) fn is_refused(&self, request: RequestId) -> bool {
        matches!(self.states[&request], State::Refused(_))
    }

    /// The wait that this refused request was told.
    pub(crate) fn told(&self, request: RequestId) -> Micros {
        match self.refusal(request).retry {
            Retry::After(wait) => wait,
            Retry::Never => panic!("{request:?} was told never to come back"),
        }
    }

    pub(crate) fn reason(&self, request: RequestId) -> Reason {
        self.refusal(request).reason
    }

    pub(crate) fn account(&self, request: RequestId) -> &Account {
        match &self.states[&request] {
            State::Finished(account) => account,
            other @ (State::Waiting | State::Running(_) | State::Refused(_)) => {
                panic!("{request:?} is {other:?}")
            }
        }
    }

    /// Tokens in the open reservation of this request.
    pub(crate) fn reserved(&self, request: RequestId) -> u64 {
        self.recorder.reserved(self.admissions[&request])
    }

    pub(crate) fn running(&self) -> Vec<RequestId> {
        self.states.keys().copied().filter(|request| self.is_running(*request)).collect()
    }

    pub(crate) fn waiting(&self) -> Vec<RequestId> {
        self.states.keys().copied().filter(|request| self.is_waiting(*request)).collect()
    }

    /// The fixed limit of this owner and dimension, for all models.
    pub(crate) fn limit(&self, owner: Owner, dimension: Dimension) -> LimitView {
        *self
            .gate
            .all_limits()
            .iter()
            .find(|view| {
                view.limit.owner == owner && view.limit.dimension == dimension && view.limit.model.is_none()
            })
            .expect("the policy has this limit")
    }

    /// Whole units that the limit holds; negative for debt.
    pub(crate) fn level(&self, owner: Owner, dimension: Dimension) -> i64 {
        let view = self.limit(owner, dimension);
        self.ledger.level(view.cell, &view.shape, self.now).floor_units()
    }

    /// The token level of the first tenant.
    pub(crate) fn tokens(&self) -> i64 {
        self.level(T, Dimension::Tokens)
    }

    /// Ends everything that lives, and demands that nothing is left: no reservation, no slot, no place in a queue.
    pub(crate) fn wind_up(&mut self) {
        self.store = Store::AtOnce;
        while !self.pending.is_empty() {
            self.answer();
        }
        for request in self.running() {
            self.leave(request, 1);
        }
        for _ in 0..4 {
            self.advance(Micros::from_secs(2 * 3_600));
            for request in self.running() {
                self.leave(request, 1);
            }
        }
        assert_eq!(self.gate.live(), 0, "all requests are over: {:?}", self.states);
        assert_eq!(self.recorder.open(), 0, "every reservation is settled");
        assert_eq!(self.ledger.totals().outstanding, 0);
        for pool in self.gate.pools() {
            for (class, queued, running, tokens) in pool.classes {
                assert_eq!((queued, running, tokens), (0, 0, Tokens(0)), "{class:?}");
            }
            for backend in pool.backends {
                assert_eq!((backend.in_flight, backend.occupied), (0, Tokens(0)), "{backend:?}");
            }
        }
        for view in self.gate.all_limits() {
            if let Some(used) = view.slots_used {
                assert_eq!(used, 0, "slots of {:?}", view.limit);
            } else if view.limit.dimension == Dimension::ConcurrentRequests {
                let level = self.ledger.level(view.cell, &view.shape, self.now);
                assert_eq!(level, view.shape.capacity, "slots of {:?}", view.limit);
            }
        }
        for (request, state) in &self.states {
            assert!(matches!(state, State::Finished(_) | State::Refused(_)), "{request:?} is {state:?}");
        }
    }

    fn decide(&mut self, reservation: &Reservation) -> Verdict {
        let verdict = self.ledger.reserve(reservation, self.now);
        self.recorder.reserve(reservation, &verdict, self.now);
        verdict
    }

    fn pump(&mut self) {
        while let Some(effect) = self.gate.poll() {
            match effect {
                Effect::Reserve(reservation) => self.reserve(reservation),
                Effect::Draw { reservation, charges } => {
                    let shortage = self.ledger.draw(reservation, &charges, self.now);
                    self.recorder.draw(reservation, &charges, self.now);
                    if let Some(shortage) = shortage {
                        self.gate.handle(Event::Overdrawn { reservation, shortage }, self.now);
                    }
                }
                Effect::Settle(settlement) => {
                    assert!(self.ledger.settle(&settlement, self.now), "settled once: {settlement:?}");
                    self.recorder.settle(&settlement, self.now);
                }
                Effect::Reshape(cell, shape) => {
                    self.ledger.reshape(cell, shape, self.now);
                    self.recorder.reshape(cell, &shape, self.now);
                }
                Effect::Grant(cell, shape, amount) => {
                    self.ledger.grant(cell, shape, amount, self.now);
                    self.recorder.grant(cell, &shape, amount, self.now);
                }
                Effect::Start { request, backend, .. } => {
                    self.starts.push((self.now, request, backend));
                    self.set(request, State::Running(backend));
                }
                Effect::Refuse { request, refusal } => {
                    self.refusals.push((self.now, request));
                    self.set(request, State::Refused(refusal));
                }
                Effect::Stop { request, refusal } => self.stops.push((request, refusal)),
                Effect::Abandon { request } => self.abandoned.push(request),
                Effect::Evict { request } => self.evictions.push(request),
                Effect::Count { request } => {
                    self.states.remove(&request);
                    self.uncounted.push(request);
                }
                Effect::Finished(account) => self.set(account.request, State::Finished(account)),
            }
        }
    }

    fn reserve(&mut self, reservation: Reservation) {
        // The first question after an arrival is the newcomer's.
        if let Some(request) = self.arriving.take() {
            self.admissions.insert(request, reservation.id);
        }
        let verdict = match self.store {
            Store::AtOnce | Store::TellsLate => Some(self.decide(&reservation)),
            Store::DecidesLate => None,
        };
        match (self.store, verdict) {
            (Store::AtOnce, Some(verdict)) => {
                self.gate.handle(Event::Ruled { reservation: reservation.id, verdict }, self.now);
            }
            (_, verdict) => self.pending.push_back((reservation, verdict)),
        }
    }

    fn set(&mut self, request: RequestId, state: State) {
        let before = self.states.insert(request, state);
        assert!(
            matches!(before, Some(State::Waiting | State::Running(_))),
            "nothing happens to {request:?} after its end: {before:?}"
        );
    }

    /// The backend bounces or fails the request: it is back in the queue, or over.
    pub(crate) fn hand_back(&mut self, event: Event) {
        if let Event::Bounced { request, .. } | Event::Failed { request, .. } | Event::Evicted { request } =
            event
            && self.is_running(request)
        {
            self.states.insert(request, State::Waiting);
        }
        self.handle(event);
    }
}

/// A request of the first tenant for the first model; the world gives it its number.
pub(crate) fn ask(input: u64, output_bound: u64) -> Arrival {
    Arrival {
        request: RequestId(0),
        tenant: TenantId(0),
        key: Some(KeyId(0)),
        class: ClassId(0),
        model: ModelId(0),
        run: None,
        end_user: None,
        input: Tokens(input),
        output_bound: Tokens(output_bound),
        choices: 1,
        wait_max: None,
    }
}

/// A complete answer with reported usage.
pub(crate) fn reported(input: u64, output: u64) -> Report {
    Report {
        outcome: Outcome::Completed,
        answer: Answer::Content,
        reported: Reported {
            input: Some(Tokens(input)),
            cached: Tokens(0),
            output: Some(Tokens(output)),
            partial: false,
        },
        counted_output: Tokens(output),
    }
}

/// A failure before the first byte.
pub(crate) fn nothing() -> Report {
    Report {
        outcome: Outcome::UpstreamError,
        answer: Answer::Nothing,
        reported: Reported::default(),
        counted_output: Tokens(0),
    }
}

/// The first tenant's.
pub(crate) const T: Owner = Owner::Tenant(TenantId(0));
/// The first backend of the first pool.
pub(crate) const ONE: BackendId = BackendId { pool: PoolId(0), index: 0 };
/// The second backend of the first pool.
pub(crate) const TWO: BackendId = BackendId { pool: PoolId(0), index: 1 };
