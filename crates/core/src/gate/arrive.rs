//! From arrival to the queue: caps, what never fits, the reservation, and refusals with their told waits.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::slots::Slot;
use super::{Arrival, Effect, Gate, Held, Report, Request, RequestId, Stage};
use crate::charge::{Need, ONE_MILLIS};
use crate::directory::Line;
use crate::ledger::{Charge, Reservation, ReservationId, Shortage, Verdict};
use crate::policy::{Asker, BackendId, Charging, Dimension, PoolId, WithoutRunId, Work};
use crate::refusal::{Reason, Refusal, Retry};
use crate::schedule::Turn;
use crate::subjects::Place;
use crate::units::{Amount, Micros, Moment, Tokens};

/// What a request will be asked to pay, before anything is taken.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) need: Need,
    pub(super) charges: Vec<Charge>,
    pub(super) cached_weight_millis: Vec<u32>,
    pub(super) slots: Vec<Slot>,
}

impl Gate {
    pub(super) fn arrive(&mut self, arrival: Arrival, input_least: Option<Tokens>, now: Moment) {
        self.directory.subjects.expire(now);
        let places = match self.places(&arrival, now) {
            Ok(places) => places,
            Err(refusal) => return self.refuse(arrival.request, refusal),
        };
        let begins_run = self.begins_run(&places);
        let policy = self.policy.clone();
        for place in &places {
            self.directory.admit_subject(&policy, *place, now);
        }
        match self.plan(&arrival, &places, begins_run) {
            Ok(plan) => self.reserve((arrival, input_least), plan, places, now),
            Err(refusal) => {
                let may_fit = input_least.is_some_and(|input| {
                    self.plan(&Arrival { input, ..arrival.clone() }, &places, begins_run).is_ok()
                });
                self.leave_places(&places, now);
                if may_fit {
                    return self.effects.push_back(Effect::Count { request: arrival.request });
                }
                self.refuse(arrival.request, refusal);
            }
        }
    }

    pub(super) fn ruled(&mut self, reservation: ReservationId, verdict: Verdict, now: Moment) {
        let Some(id) = self.reservations.get(&reservation).copied() else {
            return;
        };
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        match request.stage {
            Stage::Ruling => self.ruled_admission(id, verdict, now),
            Stage::Dispatching(backend) => self.ruled_dispatch(id, backend, verdict, now),
            Stage::Held | Stage::Queued(_) | Stage::Running(_) => {}
        }
    }

    fn ruled_admission(&mut self, id: RequestId, verdict: Verdict, now: Moment) {
        match verdict {
            Verdict::Granted { shadowed } => self.granted(id, &shadowed, now),
            Verdict::Refused(shortage) => {
                if self.holds(id, &shortage, now) {
                    return;
                }
                self.leave_line(id);
                let Some(request) = self.requests.remove(&id) else {
                    return;
                };
                self.reservations.remove(&request.admission.id);
                if request.may_pass_counted(&shortage, &self.policy.pools[request.pool.0 as usize].work) {
                    self.leave_places(&request.places, now);
                    return self.effects.push_back(Effect::Count { request: id });
                }
                let refusal = self.refusal_of(&request.admission.charges, &shortage, request.pool, now);
                self.leave_places(&request.places, now);
                self.refuse(id, refusal);
            }
        }
    }

    fn granted(&mut self, id: RequestId, shadowed: &[usize], now: Moment) {
        self.leave_line(id);
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.admission.forget(shadowed);
        for place in &request.places {
            self.directory.subjects.granted(place);
        }
        let is_estimated = request.input_least.take().is_some();
        if is_estimated && !request.admission.charges.iter().all(forgives_estimates) {
            self.give_back(id, now);
            return self.effects.push_back(Effect::Count { request: id });
        }
        for charge in &request.admission.charges {
            self.promises.keep(charge.cell, now);
        }
        if request.gone {
            return self.close(id, &Report::client_gone(), now);
        }
        if self.draining {
            return self.refuse_queued(id, shutdown(), now);
        }
        self.enqueue(id, now);
    }

    /// The run and the end user that a request belongs to.
    pub(super) fn places(&self, arrival: &Arrival, now: Moment) -> Result<Vec<Place>, Refusal> {
        let tenant = &self.policy.tenants[arrival.tenant.0 as usize];
        let mut places = Vec::new();
        if tenant.end_users.is_some() {
            // Requests that name nobody share one set of limits, so that leaving the name out is no way around them.
            places.push(self.directory.subjects.end_user(arrival.tenant, arrival.end_user.unwrap_or(NOBODY)));
        }
        let Some(runs) = &tenant.runs else {
            return Ok(places);
        };
        let run = match (arrival.run, runs.without_id) {
            (Some(run), _) => run,
            (None, WithoutRunId::Shared) => u128::from(arrival.key.map_or(u32::MAX, |key| key.0)),
            (None, WithoutRunId::EndUser) => arrival.end_user.unwrap_or(NOBODY),
            (None, WithoutRunId::Refuse) => {
                return Err(Refusal::plain(Reason::RunIdMissing, Retry::Never));
            }
        };
        let place = Place::Run(arrival.tenant, run);
        let subjects = &self.directory.subjects;
        if !subjects.is_known(&place) && subjects.live_runs(arrival.tenant) >= runs.max_live {
            let first = subjects.first_run_expiry(arrival.tenant);
            let wait = first.map_or(runs.idle_expiry, |expiry| expiry.since(now)).max(Micros(1));
            return Err(Refusal::plain(Reason::TooManyRuns, Retry::After(wait)));
        }
        places.push(place);
        Ok(places)
    }

    pub(super) fn begins_run(&self, places: &[Place]) -> bool {
        // Until one of its requests is granted, each of them asks to begin it: else the second one would come in past a refusal
        // of the first.
        places
            .iter()
            .any(|place| matches!(place, Place::Run(..)) && !self.directory.subjects.has_begun(place))
    }

    /// Every charge of a request; a refusal where it can never pass, or where nobody is there to serve it.
    pub(super) fn plan(
        &self,
        arrival: &Arrival,
        places: &[Place],
        begins_run: bool,
    ) -> Result<Plan, Refusal> {
        let policy = &*self.policy;
        let asker =
            Asker { tenant: arrival.tenant, key: arrival.key, class: arrival.class, model: arrival.model };
        if let Some(cap) = policy.input_max(&asker)
            && arrival.input > cap
        {
            return Err(Refusal::over_cap(Reason::InputTooLarge, arrival.input, cap));
        }
        if self.draining {
            return Err(shutdown());
        }
        let pool = policy.models[arrival.model.0 as usize].pool;
        let need = self.need(arrival);
        let mut plan =
            Plan { need, charges: Vec::new(), cached_weight_millis: Vec::new(), slots: Vec::new() };
        let work = policy.pools[pool.0 as usize].work;
        plan.charges.reserve(CHARGES_USUAL);
        plan.cached_weight_millis.reserve(CHARGES_USUAL);
        self.for_each_line(arrival, places, begins_run, |line| {
            if line.queues {
                plan.slots.push(Slot::of(line));
            } else {
                plan.add(line, need.amount(line.limit.dimension, &work));
            }
        });
        plan.slots.extend(self.pool_slots(pool));
        if let Some(charge) =
            plan.charges.iter().find(|charge| !charge.shadow && charge.reserved > charge.shape.capacity)
        {
            return Err(never_fits(charge));
        }
        self.fits_some_backend(pool, &need)?;
        if !self.pools[pool.0 as usize].backends.is_alive() {
            return Err(no_backend());
        }
        Ok(plan)
    }

    /// What [`Event::Arrive`](super::Event::Arrive) would ask of the store, or its refusal; nothing is changed.
    ///
    /// # Errors
    /// The refusal that no store is needed for.
    pub fn preview(&self, arrival: &Arrival, now: Moment) -> Result<Vec<Charge>, Refusal> {
        let places = self.places(arrival, now)?;
        self.plan(arrival, &places, self.begins_run(&places)).map(|plan| plan.charges)
    }

    /// Tokens to take at admission.
    fn need(&self, arrival: &Arrival) -> Need {
        let (tenant, model, bound) = (arrival.tenant, arrival.model, arrival.output_bound);
        let per_choice = match self.policy.tenants[tenant.0 as usize].charging {
            Charging::Reserve => bound,
            Charging::Quantile => self.predictor.p90(tenant, model, bound),
            Charging::Postpay => Tokens::ZERO,
        };
        Need { input: arrival.input, output: per_choice.times(u64::from(arrival.choices)) }
    }

    /// Every limit that a request meets at admission.
    pub(super) fn for_each_line(
        &self,
        arrival: &Arrival,
        places: &[Place],
        begins_run: bool,
        mut each: impl FnMut(&Line),
    ) {
        for place in places {
            self.directory.for_each_subject_line(&self.policy, place, |line| {
                if line.limit.model.is_none_or(|only| only == arrival.model) {
                    each(line);
                }
            });
        }
        if begins_run {
            self.directory.new_runs(arrival.tenant).iter().for_each(&mut each);
        }
        self.directory.fixed(&self.policy, arrival.tenant, arrival.key, arrival.model).for_each(each);
    }

    /// Concurrency limits that queue.
    pub(super) fn slots_of(&self, arrival: &Arrival, pool: PoolId, places: &[Place]) -> Vec<Slot> {
        let mut slots = Vec::new();
        self.for_each_line(arrival, places, false, |line| {
            if line.queues {
                slots.push(Slot::of(line));
            }
        });
        slots.extend(self.pool_slots(pool));
        slots
    }

    fn pool_slots(&self, pool: PoolId) -> impl Iterator<Item = Slot> {
        self.directory.pool(pool).iter().filter(|line| line.queues).map(Slot::of)
    }

    /// At least one backend's own limits, and the pool's, can ever hold the cost.
    fn fits_some_backend(&self, pool: PoolId, need: &Need) -> Result<(), Refusal> {
        let mut refusal = None;
        let backends = &self.policy.pools[pool.0 as usize].backends;
        for index in 0..backends.len() as u32 {
            match self
                .dispatch_plan(BackendId { pool, index }, need)
                .find(|charge| !charge.shadow && charge.reserved > charge.shape.capacity)
            {
                None => return Ok(()),
                Some(charge) => refusal = Some(never_fits(&charge)),
            }
        }
        refusal.map_or(Ok(()), Err)
    }

    /// What a dispatch to this backend is charged.
    pub(super) fn dispatch_plan(&self, backend: BackendId, need: &Need) -> impl Iterator<Item = Charge> {
        let work = self.policy.pools[backend.pool.0 as usize].work;
        let need = *need;
        self.directory
            .dispatch(backend)
            .filter(|line| line.limit.dimension != Dimension::ConcurrentRequests)
            .map(move |line| charge(line, need.amount(line.limit.dimension, &work)))
    }

    fn reserve(
        &mut self,
        (arrival, input_least): (Arrival, Option<Tokens>),
        plan: Plan,
        places: Vec<Place>,
        now: Moment,
    ) {
        let request = arrival.request;
        let id = self.reservation_id(request);
        let tokens = plan.need.total();
        let class_wait = self.policy.classes[arrival.class.0 as usize].wait_max;
        let wait = arrival.wait_max.map_or(class_wait, |own| own.min(class_wait));
        self.next_turn += 1;
        let held = Held {
            id,
            charges: plan.charges,
            cached_weight_millis: plan.cached_weight_millis,
            tokens: Some(tokens),
        };
        let pool = self.policy.models[arrival.model.0 as usize].pool;
        let entry = Request {
            pool,
            need: plan.need,
            input_least,
            places,
            admission: held,
            dispatch: None,
            slots: plan.slots,
            slots_held: Vec::new(),
            stage: Stage::Ruling,
            tab: None,
            turn: Turn(self.next_turn),
            arrived: now,
            wait_until: now.after(wait),
            held_for: None,
            held_until: now,
            started: None,
            sent: None,
            backend: None,
            tried: Vec::new(),
            attempts: 0,
            has_answer: false,
            drawn: plan.need.output,
            last_draw: Vec::new(),
            was_evicted: false,
            gone: false,
            arrival,
        };
        let before = self.requests.insert(request, Box::new(entry));
        assert!(before.is_none(), "a request's number is used once");
        if !self.joins_held(request, now) {
            self.ask_store(request);
        }
    }

    fn ask_store(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id) else { return };
        let (charges, tokens) = (request.admission.charges.clone(), request.need.total());
        self.effects.push_back(Effect::Reserve(Reservation { id: request.admission.id, charges, tokens }));
    }

    fn refusal_of(&mut self, charges: &[Charge], shortage: &Shortage, pool: PoolId, now: Moment) -> Refusal {
        let charge = &charges[shortage.charge];
        let (reason, retry) = match (charge.limit.dimension, shortage.wait) {
            (Dimension::RunBudget, _) => (Reason::RunBudgetSpent, Retry::Never),
            (Dimension::RunSteps, _) => (Reason::RunStepsSpent, Retry::Never),
            (Dimension::ConcurrentRequests, _) => {
                (Reason::LimitExhausted, Retry::After(self.pools[pool.0 as usize].drain.wait(1, now)))
            }
            (_, None) => (Reason::NeverFits, Retry::Never),
            (_, Some(exact)) if charge.limit.owner.is_shared() => {
                (Reason::LimitExhausted, Retry::After(exact))
            }
            (_, Some(exact)) => {
                let told = self.promises.tell(charge.cell, &charge.shape, charge.reserved, exact, now);
                (Reason::LimitExhausted, Retry::After(told))
            }
        };
        refusal(reason, retry, charge, shortage.level)
    }

    pub(super) fn refuse(&mut self, request: RequestId, refusal: Refusal) {
        self.effects.push_back(Effect::Refuse { request, refusal });
    }

    pub(super) fn leave_places(&mut self, places: &[Place], now: Moment) {
        for place in places {
            self.directory.subjects.leave(place, now);
        }
    }
}

impl Plan {
    fn add(&mut self, line: &Line, amount: Amount) {
        self.charges.push(charge(line, amount));
        self.cached_weight_millis.push(line.cached_weight_millis.unwrap_or(ONE_MILLIS));
    }
}

impl Request {
    /// Whether the limit that bound would hold it if its input is the least that it can be.
    fn may_pass_counted(&self, shortage: &Shortage, work: &Work) -> bool {
        let charge = &self.admission.charges[shortage.charge];
        self.input_least.is_some_and(|input| {
            let least = Need { input, ..self.need };
            least.amount(charge.limit.dimension, work) <= shortage.level
        })
    }
}

impl Held {
    /// Takes out the charges that a shadow limit did not take.
    pub(super) fn forget(&mut self, shadowed: &[usize]) {
        for place in shadowed.iter().rev() {
            self.charges.remove(*place);
            self.cached_weight_millis.remove(*place);
        }
    }
}

pub(super) const fn charge(line: &Line, reserved: Amount) -> Charge {
    Charge {
        cell: line.cell,
        limit: line.limit,
        shape: line.shape,
        reserved,
        used: Amount::ZERO,
        shadow: line.shadow,
    }
}

pub(super) const fn shutdown() -> Refusal {
    Refusal::plain(Reason::Shutdown, Retry::After(SHUTDOWN_WAIT))
}

pub(super) const fn no_backend() -> Refusal {
    Refusal::plain(Reason::NoBackend, Retry::After(NO_BACKEND_WAIT))
}

fn never_fits(charge: &Charge) -> Refusal {
    refusal(Reason::NeverFits, Retry::Never, charge, charge.shape.capacity)
}

pub(super) fn refusal(reason: Reason, retry: Retry, charge: &Charge, level: Amount) -> Refusal {
    Refusal {
        reason,
        limit: Some(charge.limit),
        asked: charge.reserved.ceil_units().unsigned_abs(),
        left: u64::try_from(level.floor_units()).unwrap_or(0),
        retry,
    }
}

/// Whether a bucket is so large that what estimates hold of it too much, until they are settled, refuses nobody else. In a small
/// one it would: of ten requests that it holds, the tenth would not pass.
fn forgives_estimates(charge: &Charge) -> bool {
    let dimension = charge.limit.dimension;
    let counts_input = dimension.counts_tokens() && dimension != Dimension::OutputTokens;
    charge.shadow
        || !counts_input
        || charge.reserved.0.saturating_mul(FEW_REQUESTS) <= charge.shape.capacity.0
}

/// A bucket that holds fewer requests than that of one size is debited by exact counts.
const FEW_REQUESTS: i64 = 16;
/// Limits that most requests meet at most.
const CHARGES_USUAL: usize = 12;
/// The end user of requests that name nobody. Hashes never give it: they keep their highest bit set.
const NOBODY: u128 = 0;
const NO_BACKEND_WAIT: Micros = Micros::from_secs(5);
const SHUTDOWN_WAIT: Micros = Micros::from_secs(1);
