//! Requests that a limit refuses and that wait in their place for its budget to return: first in, first out, for at most the `hold`
//! of the limit.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::arrive::{refusal, shutdown};
use super::waiting::beyond;
use super::{Account, Effect, Gate, Report, Request, RequestId, Stage, UsageSource};
use crate::charge::Used;
use crate::ledger::{CellId, Charge, Reservation, Shortage};
use crate::policy::{Limits, Policy, RATED};
use crate::refusal::{Reason, Refusal, Retry};
use crate::scope::{Limit, Owner};
use crate::units::{Amount, Micros, Moment, Tokens};

/// Who waits for which budget.
#[derive(Debug, Default)]
pub(super) struct Holding {
    lines: BTreeMap<CellId, Line>,
    /// When the first in each line is asked for again.
    due: BTreeSet<(Moment, CellId)>,
}

/// The requests that wait for one budget. The store is asked for the first of them alone.
#[derive(Debug, Default)]
struct Line {
    requests: VecDeque<RequestId>,
    due: Moment,
    amount: Amount,
}

impl Holding {
    pub(super) fn due(&self) -> Option<Moment> {
        self.due.first().map(|(moment, _)| *moment)
    }

    pub(super) fn has(&self, cell: CellId) -> bool {
        self.lines.contains_key(&cell)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    fn is_first(&self, cell: CellId, id: RequestId) -> bool {
        self.lines.get(&cell).is_some_and(|line| line.requests.front() == Some(&id))
    }

    fn join(&mut self, cell: CellId, id: RequestId, amount: Amount) {
        let line = self.lines.entry(cell).or_default();
        line.requests.push_back(id);
        line.amount += amount;
    }

    fn leave(&mut self, cell: CellId, id: RequestId, amount: Amount) {
        let Some(line) = self.lines.get_mut(&cell) else { return };
        let Some(place) = line.requests.iter().position(|other| *other == id) else { return };
        line.requests.remove(place);
        line.amount -= amount;
        if place == 0 {
            self.due.remove(&(line.due, cell));
        }
        if line.requests.is_empty() {
            self.lines.remove(&cell);
        }
    }

    /// The store is asked for the first: when it is due is not waited for.
    fn asked(&mut self, cell: CellId) {
        if let Some(line) = self.lines.get(&cell) {
            self.due.remove(&(line.due, cell));
        }
    }

    fn set_due(&mut self, cell: CellId, moment: Moment) {
        if let Some(line) = self.lines.get_mut(&cell) {
            self.due.remove(&(line.due, cell));
            line.due = moment;
            self.due.insert((moment, cell));
        }
    }
}

impl Gate {
    /// A request arrives while others wait for one of its budgets: it joins them, or is refused if its turn comes too late. False if
    /// none wait, so that the store is to be asked.
    pub(super) fn joins_held(&mut self, id: RequestId, now: Moment) -> bool {
        if self.holding.is_empty() {
            return false;
        }
        let Some(request) = self.requests.get(&id) else { return false };
        let charges = request.admission.charges.iter().filter(|charge| !charge.shadow);
        let Some((charge, line)) = charges
            .filter_map(|charge| Some((*charge, self.holding.lines.get(&charge.cell)?)))
            .find(|(charge, _)| charge.reserved > Amount::ZERO)
        else {
            return false;
        };
        let first = line.requests.front().and_then(|first| self.requests.get(first));
        let first_amount = first.map_or(Amount::ZERO, |first| first.amount_of(charge.cell));
        let behind = (line.amount - first_amount + charge.reserved).0.unsigned_abs();
        let due = line.due.max(now).after(Micros(charge.shape.rate.span_of(behind)));
        if request.input_least.is_some() {
            self.forget_asking(id, now);
            self.effects.push_back(Effect::Count { request: id });
        } else if beyond(due, self.hold_until(request, &charge.limit)).is_some() {
            let refusal = self.told_refusal(&charge, due.since(now), now);
            self.forget_asking(id, now);
            self.refuse(id, refusal);
        } else {
            self.hold(id, &charge, now);
        }
        true
    }

    /// The store refused a request. Returns whether it waits in its place for the budget to return.
    pub(super) fn holds(&mut self, id: RequestId, shortage: &Shortage, now: Moment) -> bool {
        let Some(request) = self.requests.get(&id) else { return false };
        let charge = request.admission.charges[shortage.charge];
        let Some(wait) = shortage.wait.filter(|_| !request.gone && !self.draining) else { return false };
        let due = now.after(wait);
        if hold(&self.policy, &charge.limit) == Micros::ZERO
            || beyond(due, self.hold_until(request, &charge.limit)).is_some()
        {
            return false;
        }
        if request.input_least.is_some() {
            self.forget_asking(id, now);
            self.effects.push_back(Effect::Count { request: id });
            return true;
        }
        if self.holding.is_first(charge.cell, id) {
            self.set_held(id, charge.cell);
        } else {
            self.leave_line(id);
            self.hold(id, &charge, now);
        }
        if self.holding.is_first(charge.cell, id) {
            self.holding.set_due(charge.cell, due);
        }
        true
    }

    /// The store has decided on a request for good: whoever waited behind it is next.
    pub(super) fn leave_line(&mut self, id: RequestId) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let Some(cell) = request.held_for.take() else { return };
        let (amount, class, pool) = (request.amount_of(cell), request.arrival.class, request.pool);
        let (tokens, until) = (request.need.total(), request.held_until);
        let was_first = self.holding.is_first(cell, id);
        self.holding.leave(cell, id, amount);
        self.waits.remove(&(until, id));
        self.pool_mut(pool).schedule.unhold(class, tokens);
        if was_first {
            self.ask_again(cell);
        }
    }

    /// Asks the store for the first of those that wait for a budget: it may have returned.
    pub(super) fn ask_again(&mut self, cell: CellId) {
        let Some(id) = self.holding.lines.get(&cell).and_then(|line| line.requests.front()).copied() else {
            return;
        };
        if self.requests.get(&id).is_none_or(|request| request.stage != Stage::Held) {
            return;
        }
        self.holding.asked(cell);
        let reservation = self.reservation_id(id);
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.stage = Stage::Ruling;
        request.admission.id = reservation;
        self.effects.push_back(Effect::Reserve(Reservation {
            id: reservation,
            charges: request.admission.charges.clone(),
            tokens: request.need.total(),
        }));
    }

    /// Asks for those whose budget should have returned.
    pub(super) fn ask_due(&mut self, now: Moment) {
        while let Some((moment, cell)) = self.holding.due.first().copied().filter(|due| due.0 <= now) {
            self.holding.due.remove(&(moment, cell));
            self.ask_again(cell);
        }
    }

    /// Takes on a changed policy for those that wait: what they are charged, and what may have become enough.
    pub(super) fn replan_held(&mut self, now: Moment) {
        let held: Vec<RequestId> = self.held_requests();
        let mut refused = Vec::new();
        for id in held {
            let Some(request) = self.requests.get(&id) else { continue };
            let begins_run = self.begins_run(&request.places);
            match self.plan(&request.arrival, &request.places, begins_run) {
                Ok(plan) => self.replan(id, plan),
                Err(refusal) => refused.push((id, refusal)),
            }
        }
        // From the back: whoever moves up to the front of a line is asked for, and must not be one that is refused next.
        for (id, refusal) in refused.into_iter().rev() {
            self.refuse_held(id, refusal, now);
        }
        let cells: Vec<CellId> = self.holding.lines.keys().copied().collect();
        for cell in cells {
            self.ask_again(cell);
        }
    }

    pub(super) fn refuse_all_held(&mut self, now: Moment) {
        // From the back: whoever moves up to the front of a line is asked for.
        for id in self.held_requests().into_iter().rev() {
            self.refuse_held(id, shutdown(), now);
        }
    }

    /// The budget has not returned in time.
    pub(super) fn hold_is_over(&mut self, id: RequestId, now: Moment) {
        let Some(request) = self.requests.get(&id) else { return };
        // While the store is asked, its answer decides.
        let Some(cell) = request.held_for.filter(|_| request.stage == Stage::Held) else { return };
        let charge = request.admission.charges.iter().find(|charge| charge.cell == cell).copied();
        let due = self.holding.lines.get(&cell).map_or(now, |line| line.due);
        let refusal = match charge {
            Some(charge) => self.told_refusal(&charge, due.since(now).max(Micros(1)), now),
            None => Refusal::plain(Reason::LimitExhausted, Retry::After(RETRY_USUAL)),
        };
        self.refuse_held(id, refusal, now);
    }

    /// A client left while its request waited for a budget: nothing was taken.
    pub(super) fn leave_hold(&mut self, id: RequestId, report: &Report, now: Moment) {
        let Some(request) = self.forget_asking(id, now) else { return };
        self.effects.push_back(Effect::Finished(Account {
            request: id,
            tenant: request.arrival.tenant,
            backend: None,
            outcome: report.outcome,
            used: Used::default(),
            source: UsageSource::None,
            reserved: Tokens::ZERO,
            charged: Tokens::ZERO,
            work_millis: 0,
            queued: now.since(request.arrived),
            attempts: 0,
        }));
    }

    fn refuse_held(&mut self, id: RequestId, refusal: Refusal, now: Moment) {
        if self.forget_asking(id, now).is_some() {
            self.refuse(id, refusal);
        }
    }

    /// Forgets a request that holds no reservation.
    fn forget_asking(&mut self, id: RequestId, now: Moment) -> Option<Box<Request>> {
        self.leave_line(id);
        let request = self.requests.remove(&id)?;
        self.reservations.remove(&request.admission.id);
        self.leave_places(&request.places, now);
        Some(request)
    }

    fn hold(&mut self, id: RequestId, charge: &Charge, now: Moment) {
        let Some(request) = self.requests.get(&id) else { return };
        let until = self.hold_until(request, &charge.limit);
        let (class_id, pool, tokens) = (request.arrival.class, request.pool, request.need.total());
        let class = &self.policy.classes[class_id.0 as usize];
        let (requests_max, tokens_max) = (class.queue_requests_max, class.queue_tokens_max);
        self.holding.join(charge.cell, id, charge.reserved);
        self.waits.insert((until, id));
        self.set_held(id, charge.cell);
        if let Some(request) = self.requests.get_mut(&id) {
            request.held_until = until;
        }
        let state = self.pool_mut(pool);
        state.schedule.hold(class_id, tokens);
        let size = state.schedule.size(class_id);
        if size.requests > requests_max || size.tokens > tokens_max {
            let wait = state.drain.wait(u64::from(size.requests), now);
            self.refuse_held(id, Refusal::plain(Reason::QueueFull, Retry::After(wait)), now);
        }
    }

    fn set_held(&mut self, id: RequestId, cell: CellId) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.stage = Stage::Held;
        request.held_for = Some(cell);
        self.reservations.remove(&request.admission.id);
    }

    fn hold_until(&self, request: &Request, limit: &Limit) -> Moment {
        request.arrived.after(hold(&self.policy, limit)).min(request.wait_until)
    }

    fn held_requests(&self) -> Vec<RequestId> {
        let lines = self.holding.lines.values().flat_map(|line| &line.requests).copied();
        lines.filter(|id| self.requests.get(id).is_some_and(|request| request.stage == Stage::Held)).collect()
    }

    fn replan(&mut self, id: RequestId, plan: super::arrive::Plan) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let cell = request.held_for;
        let before = cell.map_or(Amount::ZERO, |cell| request.amount_of(cell));
        request.admission.charges = plan.charges;
        request.admission.cached_weight_millis = plan.cached_weight_millis;
        let after = cell.map_or(Amount::ZERO, |cell| request.amount_of(cell));
        if let Some(line) = cell.and_then(|cell| self.holding.lines.get_mut(&cell)) {
            line.amount += after - before;
        }
    }

    fn told_refusal(&mut self, charge: &Charge, exact: Micros, now: Moment) -> Refusal {
        let wait = if charge.limit.owner.is_shared() {
            exact
        } else {
            self.promises.tell(charge.cell, &charge.shape, charge.reserved, exact, now)
        };
        refusal(Reason::LimitExhausted, Retry::After(wait), charge, Amount::ZERO)
    }
}

impl Request {
    fn amount_of(&self, cell: CellId) -> Amount {
        let charge = self.admission.charges.iter().find(|charge| charge.cell == cell);
        charge.map_or(Amount::ZERO, |charge| charge.reserved)
    }
}

/// How long a request may wait for this limit's budget.
fn hold(policy: &Policy, limit: &Limit) -> Micros {
    if !RATED.contains(&limit.dimension) {
        return Micros::ZERO;
    }
    let tenant = |id: crate::policy::TenantId| policy.tenants.get(id.0 as usize);
    let scope = match limit.owner {
        Owner::Service => return policy.service.hold,
        // What is in the queue waits for these anyway.
        Owner::Pool(_) | Owner::Backend(_) => return Micros::ZERO,
        Owner::Team(id) => policy.teams.get(id.0 as usize).map(|team| &team.limits),
        Owner::Tenant(id) => tenant(id).map(|tenant| &tenant.limits),
        Owner::Key(id, key) => {
            tenant(id).and_then(|tenant| tenant.keys.get(key.0 as usize)).map(|key| &key.limits)
        }
        Owner::EndUser(id) => tenant(id).and_then(|tenant| tenant.end_users.as_ref()),
        Owner::Run(id) => tenant(id).and_then(|tenant| tenant.runs.as_ref()).map(|runs| &runs.limits),
    };
    let block: Option<&Limits> = scope.and_then(|scope| match limit.model {
        None => Some(&scope.all),
        Some(model) => scope.models.get(&model),
    });
    block.map_or(Micros::ZERO, |block| block.hold)
}

const RETRY_USUAL: Micros = Micros::from_secs(1);
