//! From arrival to the queue: caps, what never fits, the reservation, and refusals with their told waits.

use alloc::vec::Vec;

use super::{Arrival, Effect, Gate, Held, Report, Request, RequestId, Stage};
use crate::backends::BackendState;
use crate::charge::{Need, ONE_MILLIS};
use crate::directory::Line;
use crate::ledger::{CellId, Charge, Reservation, ReservationId, Shortage, Verdict};
use crate::policy::{Asker, BackendId, Charging, Dimension, PoolId, WithoutRunId};
use crate::queue::Turn;
use crate::refusal::{Reason, Refusal, Retry};
use crate::subjects::Place;
use crate::units::{Amount, Micros, Moment, Tokens};

/// What a request will be asked to pay, before anything is taken.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) need: Need,
    pub(super) charges: Vec<Charge>,
    pub(super) cached_weight_millis: Vec<u32>,
    pub(super) slots: Vec<(CellId, u32)>,
}

impl Gate {
    pub(super) fn arrive(&mut self, arrival: Arrival, now: Moment) {
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
            Ok(plan) => self.reserve(arrival, plan, places, now),
            Err(refusal) => {
                self.leave_places(&places, now);
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
            Stage::Queued { .. } | Stage::Running(_) => {}
        }
    }

    fn ruled_admission(&mut self, id: RequestId, verdict: Verdict, now: Moment) {
        match verdict {
            Verdict::Granted { shadowed } => self.granted(id, &shadowed, now),
            Verdict::Refused(shortage) => {
                let Some(request) = self.requests.remove(&id) else {
                    return;
                };
                self.reservations.remove(&request.admission.id);
                let refusal = self.refusal_of(&request.admission.charges, &shortage, request.pool, now);
                self.leave_places(&request.places, now);
                self.refuse(id, refusal);
            }
        }
    }

    fn granted(&mut self, id: RequestId, shadowed: &[usize], now: Moment) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.admission.forget(shadowed);
        let cells: Vec<CellId> = request.admission.charges.iter().map(|charge| charge.cell).collect();
        for cell in cells {
            self.promises.keep(cell, now);
        }
        for place in &request.places {
            self.directory.subjects.granted(place);
        }
        if request.gone {
            return self.close(id, &Report::client_gone(), now);
        }
        if self.draining {
            return self.refuse_queued(id, shutdown(), now);
        }
        self.enqueue(id, now);
    }

    fn enqueue(&mut self, id: RequestId, now: Moment) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        request.stage = Stage::Queued { parked: None };
        let (waiting, pool, wait_until) = (request.waiting(), request.pool, request.wait_until);
        self.pool_mut(pool).queue.push(&waiting);
        self.dispatch(pool, now);
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        if !matches!(request.stage, Stage::Queued { .. }) {
            return;
        }
        let class = &self.policy.classes[waiting.class.0 as usize];
        let size = self.pools[pool.0 as usize].queue.size(waiting.class);
        if size.requests > class.queue_requests_max || size.tokens > class.queue_tokens_max {
            let wait = self.pools[pool.0 as usize].drain.wait(u64::from(size.requests), now);
            return self.refuse_queued(id, Refusal::plain(Reason::QueueFull, Retry::After(wait)), now);
        }
        self.waits.insert((wait_until, id));
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

    fn begins_run(&self, places: &[Place]) -> bool {
        // Until one of its requests is granted, each of them asks to begin it: else the second one would come in past a refusal
        // of the first.
        places
            .iter()
            .any(|place| matches!(place, Place::Run(..)) && !self.directory.subjects.has_begun(place))
    }

    /// Every charge of a request; a refusal where it can never pass, or where nobody is there to serve it.
    fn plan(&self, arrival: &Arrival, places: &[Place], begins_run: bool) -> Result<Plan, Refusal> {
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
        for line in self.lines(arrival, places, begins_run) {
            if line.queues {
                plan.slots.push((line.cell, line.shape.capacity.floor_units() as u32));
                continue;
            }
            plan.add(&line, need.amount(line.limit.dimension, &work));
        }
        plan.slots.extend(self.pool_slots(pool));
        if let Some(charge) =
            plan.charges.iter().find(|charge| !charge.shadow && charge.reserved > charge.shape.capacity)
        {
            return Err(never_fits(charge));
        }
        self.fits_some_backend(pool, &need)?;
        if !self.pools[pool.0 as usize].backends.iter().any(BackendState::usable) {
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

    pub(super) fn lines(&self, arrival: &Arrival, places: &[Place], begins_run: bool) -> Vec<Line> {
        let mut lines = Vec::new();
        for place in places {
            lines.extend(self.directory.subject_lines(&self.policy, place, arrival.model));
        }
        if begins_run {
            lines.extend_from_slice(self.directory.new_runs(arrival.tenant));
        }
        lines.extend(self.directory.fixed(&self.policy, arrival.tenant, arrival.key, arrival.model));
        lines
    }

    /// Concurrency limits that queue.
    pub(super) fn slots_of(&self, arrival: &Arrival, pool: PoolId, places: &[Place]) -> Vec<(CellId, u32)> {
        self.lines(arrival, places, false)
            .iter()
            .filter(|line| line.queues)
            .map(|line| (line.cell, line.shape.capacity.floor_units() as u32))
            .chain(self.pool_slots(pool))
            .collect()
    }

    fn pool_slots(&self, pool: PoolId) -> impl Iterator<Item = (CellId, u32)> {
        self.directory
            .pool(pool)
            .iter()
            .filter(|line| line.queues)
            .map(|line| (line.cell, line.shape.capacity.floor_units() as u32))
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

    fn reserve(&mut self, arrival: Arrival, plan: Plan, places: Vec<Place>, now: Moment) {
        let request = arrival.request;
        let id = self.reservation_id(request);
        let tokens = plan.need.total();
        self.effects.push_back(Effect::Reserve(Reservation { id, charges: plan.charges.clone(), tokens }));
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
            places,
            admission: held,
            dispatch: None,
            slots: plan.slots,
            slots_held: Vec::new(),
            stage: Stage::Ruling,
            turn: Turn(self.next_turn),
            arrived: now,
            wait_until: now.after(wait),
            started: None,
            backend: None,
            tried: Vec::new(),
            attempts: 0,
            has_answer: false,
            drawn: Tokens::ZERO,
            gone: false,
            arrival,
        };
        let before = self.requests.insert(request, entry);
        assert!(before.is_none(), "a request's number is used once");
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

fn refusal(reason: Reason, retry: Retry, charge: &Charge, level: Amount) -> Refusal {
    Refusal {
        reason,
        limit: Some(charge.limit),
        asked: charge.reserved.ceil_units().unsigned_abs(),
        left: u64::try_from(level.floor_units()).unwrap_or(0),
        retry,
    }
}

/// The end user of requests that name nobody. Hashes never give it: they keep their highest bit set.
const NOBODY: u128 = 0;
const NO_BACKEND_WAIT: Micros = Micros::from_secs(5);
const SHUTDOWN_WAIT: Micros = Micros::from_secs(1);
