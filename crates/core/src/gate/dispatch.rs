//! From the queue to a backend: who goes next, where to, and what becomes of a backend's refusal.

use alloc::vec::Vec;

use super::arrive::{no_backend, shutdown};
use super::drawing::draws;
use super::waiting::output_millis;
use super::{Effect, Failure, Gate, Held, Report, Request, RequestId, Stage};
use crate::charge::ONE_MILLIS;
use crate::ledger::{Charge, Reservation, Verdict};
use crate::occupancy::{Ask, Footprint, NoPlace};
use crate::policy::{BackendId, PoolId};
use crate::refusal::{Reason, Refusal, Retry};
use crate::schedule::{Candidate, Otherwise};
use crate::scope::Owner;
use crate::units::{Micros, Moment, Tokens};

impl Gate {
    /// Sends what can be sent, in order; stops at the first request that fits nowhere.
    pub(super) fn dispatch(&mut self, pool: PoolId, now: Moment) {
        let state = self.pool_mut(pool);
        (state.opening, state.is_stuck) = (None, false);
        while self.clear_fronts(pool) {
            let state = self.pool_mut(pool);
            let order = state.schedule.candidates();
            let found = self.first_that_fits(pool, &order, now);
            let state = self.pool_mut(pool);
            let is_empty = order.is_empty();
            state.schedule.ranked(order);
            match found {
                Some((id, Ok(spot))) => self.send(id, (pool, spot), now),
                // Those that are alive can never hold its cost; the one that could is not there.
                Some((id, Err(Hopeless))) => self.give_up(id, now),
                None if is_empty => return state.pace.idle(now),
                None => break,
            }
        }
        self.pool_mut(pool).is_stuck = true;
        self.measure(pool, now);
    }

    /// Something waits that fits nowhere. What backends do is measured while they take work: how little is done in a pause or an
    /// outage tells nothing of the time after it.
    fn measure(&mut self, pool: PoolId, now: Moment) {
        let state = self.pool_mut(pool);
        if state.backends.takes_work(now) { state.pace.full(now) } else { state.pace.idle(now) }
    }

    /// The first request that can be dealt with, and where it goes.
    fn first_that_fits(
        &mut self,
        pool: PoolId,
        order: &[Candidate],
        now: Moment,
    ) -> Option<(RequestId, Result<Spot, Hopeless>)> {
        let state = &mut self.pools[pool.0 as usize];
        if order.is_empty() || state.ruling.is_some() {
            return None;
        }
        if state.limited_until > now {
            state.opening = Some(state.limited_until);
            return None;
        }
        for candidate in order {
            let found = self.place_near(pool, candidate, now);
            match found {
                (id, Ok(spot)) => return Some((id, Ok(spot))),
                (id, Err(NoPlace::AllTried)) => return Some((id, Err(Hopeless))),
                (_, Err(NoPlace::Busy | NoPlace::NoneAlive)) if candidate.otherwise == Otherwise::Stop => {
                    break;
                }
                (_, Err(NoPlace::Busy | NoPlace::NoneAlive)) => {}
            }
        }
        None
    }

    /// Where a candidate goes. If that is not where its run was last, another one near it in the order goes instead that loses
    /// nothing by it.
    fn place_near(
        &mut self,
        pool: PoolId,
        candidate: &Candidate,
        now: Moment,
    ) -> (RequestId, Result<Spot, NoPlace>) {
        let (id, home, place) = self.place(pool, candidate, now);
        let is_at = |home: Option<u32>, place: &Result<Spot, NoPlace>| {
            place.as_ref().is_ok_and(|spot| home.is_none_or(|home| home == spot.backend))
        };
        if place.is_err() || is_at(home, &place) || candidate.otherwise == Otherwise::Pass {
            return (id, place);
        }
        let near = self.pool_mut(pool).schedule.near(candidate.entry);
        for entry in near.into_iter().skip(1) {
            if self.held_up(pool, entry).is_some() {
                continue;
            }
            let (id, home, place) = self.place(pool, &Candidate { entry, ..*candidate }, now);
            if is_at(home, &place) {
                return (id, place);
            }
        }
        (id, place)
    }

    /// A candidate, where its run was last, and where it goes.
    fn place(
        &mut self,
        pool: PoolId,
        candidate: &Candidate,
        now: Moment,
    ) -> (RequestId, Option<u32>, Result<Spot, NoPlace>) {
        let schedule = &self.pools[pool.0 as usize].schedule;
        let (id, home) = (schedule.request(candidate.entry), schedule.home(candidate.entry));
        let Some(request) = self.requests.get(&id) else { return (id, home, Err(NoPlace::Busy)) };
        let footprint = self.footprint(request);
        let ask = Ask { footprint, headroom: candidate.headroom, preferred: home, tried: &request.tried };
        let state = &mut self.pools[pool.0 as usize];
        let place = state.backends.place(&ask, now);
        if place.is_err() {
            let opening = state.backends.opening(&ask, now);
            state.opening = state.opening.into_iter().chain(opening).min();
        }
        (id, home, place.map(|backend| Spot { backend, footprint }))
    }

    /// No backend can take a request any more.
    fn give_up(&mut self, id: RequestId, now: Moment) {
        if self.requests.get(&id).is_some_and(|request| request.has_answer) {
            return self.abandon(id, now);
        }
        self.refuse_queued(id, no_backend(), now);
    }

    /// What a request takes of a backend.
    pub(super) fn footprint(&self, request: &Request) -> Footprint {
        let arrival = &request.arrival;
        let (tenant, model, bound) = (arrival.tenant, arrival.model, arrival.output_bound);
        Footprint {
            input: arrival.input,
            bound,
            predicted: self.predictor.mean(tenant, model, bound),
            choices: arrival.choices,
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
                self.close_tab_as(id, &Report::failed(), now);
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
        self.pool_mut(backend.pool).backends.bounced(backend.index, retry_after, now);
        self.hand_back(id, now);
        if wait_until <= now || self.draining {
            return self.abandon(id, now);
        }
        self.requeue(id);
    }

    pub(super) fn failed(&mut self, id: RequestId, failure: Failure, now: Moment) {
        let Some((backend, _)) = self.running(id) else { return };
        let report = Report::of_failure(failure);
        self.hand_back_charged(id, &report, now);
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.tried.push(backend.index);
        let another = self.pools[backend.pool.0 as usize].backends.has_untried(&request.tried);
        if request.tried.len() > RETRIES_MAX || !another || self.draining {
            return self.abandon_charged(id, &report, now);
        }
        self.requeue(id);
    }

    pub(super) fn produced(&mut self, id: RequestId, output: Tokens) {
        self.spare(id);
        let Some(request) = self.requests.get_mut(&id) else { return };
        if let Stage::Running(backend) = request.stage {
            let state = &mut self.pools[backend.pool.0 as usize];
            state.backends.produced(backend.index, id, output);
            if let Some(tab) = &mut request.tab {
                let work = self.policy.pools[backend.pool.0 as usize].work;
                state.schedule.produced(tab, output_millis(output, &work));
            }
        }
        self.draw(id, output);
    }

    /// The wait of a queued request is over.
    pub(super) fn wait_is_over(&mut self, id: RequestId, now: Moment) {
        let Some(request) = self.requests.get(&id) else { return };
        if request.held_for.is_some() {
            return self.hold_is_over(id, now);
        }
        if !matches!(request.stage, Stage::Queued(_)) {
            return;
        }
        if request.has_answer {
            return self.abandon(id, now);
        }
        let state = &self.pools[request.pool.0 as usize];
        let alive = state.backends.is_alive();
        let reason = if alive { Reason::WaitTooLong } else { Reason::NoBackend };
        let wait = state.drain.wait(state.schedule.len() as u64, now);
        self.refuse_queued(id, Refusal::plain(reason, Retry::After(wait)), now);
    }

    /// Refuses a request that waits; its reservation comes back whole.
    pub(super) fn refuse_queued(&mut self, id: RequestId, refusal: Refusal, now: Moment) {
        self.give_back(id, now);
        self.refuse(id, refusal);
    }

    fn send(&mut self, id: RequestId, (pool, spot): (PoolId, Spot), now: Moment) {
        let Spot { backend: index, footprint } = spot;
        let backend = BackendId { pool, index };
        let Some(request) = self.requests.get(&id) else { return };
        let Stage::Queued(entry) = request.stage else { return };
        let (need, wait_until) = (request.need, request.wait_until);
        let charges: Vec<Charge> = self.dispatch_plan(backend, &need).collect();
        let state = self.pool_mut(backend.pool);
        let tab = state.schedule.begin(entry, backend.index);
        state.backends.enter(backend.index, id, &footprint, now);
        self.waits.remove(&(wait_until, id));
        self.unwatch_wait(id);
        let dispatch = (!charges.is_empty()).then(|| Held {
            id: self.reservation_id(id),
            cached_weight_millis: charges.iter().map(|_| ONE_MILLIS).collect(),
            charges,
            tokens: None,
        });
        self.take_slots(backend.pool, id);
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.tab = Some(tab);
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

    fn start(&mut self, id: RequestId, backend: BackendId, now: Moment) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.stage = Stage::Running(backend);
        self.pools[backend.pool.0 as usize].running[request.arrival.class.0 as usize] += 1;
        request.started.get_or_insert(now);
        request.sent = Some(now);
        request.attempts += 1;
        let tenant = &self.policy.tenants[request.arrival.tenant.0 as usize];
        let fits_by_output = self.pools[backend.pool.0 as usize].backends.wants_output(backend.index);
        let output_step = if draws(tenant) {
            Some(Tokens(1))
        } else {
            (fits_by_output || self.policy.order.is_fair()).then_some(OUTPUT_STEP)
        };
        self.effects.push_back(Effect::Start { request: id, backend, output_step });
        self.may_be_evicted(id, now);
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
                if let Some(state) = pool.backends.backend_mut(backend.index) {
                    state.limit_until(now.after(wait));
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
    fn hand_back(&mut self, id: RequestId, now: Moment) {
        self.hand_back_charged(id, &Report::failed(), now);
    }

    /// Takes a running request off its backend, whose own limits are charged as the report says.
    fn hand_back_charged(&mut self, id: RequestId, report: &Report, now: Moment) {
        self.settle_dispatch(id, report, now);
        self.close_tab_as(id, report, now);
        self.release(id);
        if let Some(request) = self.requests.get_mut(&id) {
            request.has_answer = true;
        }
    }

    fn abandon(&mut self, id: RequestId, now: Moment) {
        self.abandon_charged(id, &Report::failed(), now);
    }

    fn abandon_charged(&mut self, id: RequestId, report: &Report, now: Moment) {
        self.effects.push_back(Effect::Abandon { request: id });
        self.close(id, report, now);
    }

    fn running(&self, id: RequestId) -> Option<(BackendId, Moment)> {
        let request = self.requests.get(&id)?;
        match request.stage {
            Stage::Running(backend) => Some((backend, request.wait_until)),
            Stage::Ruling | Stage::Held | Stage::Queued(_) | Stage::Dispatching(_) => None,
        }
    }
}

/// Where a request goes, and what it takes there.
#[derive(Clone, Copy, Debug)]
struct Spot {
    backend: u32,
    footprint: Footprint,
}

/// Every backend that is alive was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hopeless;

/// How often output is told where nothing is charged by it: so much of a stream may be in the wrong place of the order.
const OUTPUT_STEP: Tokens = Tokens(16);
/// Tries on another backend after the first one failed.
const RETRIES_MAX: usize = 1;
