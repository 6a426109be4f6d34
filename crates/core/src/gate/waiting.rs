//! The place in line: who waits with whom, the bound of the queue, and waits that can be foreseen.

use super::{Arrival, Gate, Report, Request, RequestId, Stage};
use crate::charge::Used;
use crate::policy::{PoolId, Work};
use crate::refusal::{Reason, Refusal, Retry};
use crate::schedule::{EntryId, Flow, Waiting};
use crate::subjects::Place;
use crate::units::{Micros, Moment, Tokens};

impl Gate {
    /// Puts an admitted request in line. It is refused at once where the queue of its class is full, and where its wait is
    /// foreseen to be longer than it may be.
    pub(super) fn enqueue(&mut self, id: RequestId, now: Moment) {
        let Some((pool, entry)) = self.line_up(id) else { return };
        if self.may_go(pool, entry, now) {
            self.dispatch(pool, now);
        }
        let Some(request) = self.requests.get(&id) else { return };
        if request.stage != Stage::Queued(entry) {
            return;
        }
        let (class_id, wait_until) = (request.arrival.class, request.wait_until);
        let class = &self.policy.classes[class_id.0 as usize];
        let state = &self.pools[pool.0 as usize];
        let size = state.schedule.size(class_id);
        if size.requests > class.queue_requests_max || size.tokens > class.queue_tokens_max {
            let wait = state.drain.wait(u64::from(size.requests), now);
            return self.refuse_queued(id, Refusal::plain(Reason::QueueFull, Retry::After(wait)), now);
        }
        let foreseen = state.pace.time_for(state.schedule.ahead_millis(entry));
        self.waits.insert((wait_until, id));
        self.watch_wait(id);
        if let Some(excess) = foreseen.and_then(|wait| beyond(now.after(wait), wait_until))
            && !self.rescue(id)
        {
            let wait = excess.clamp(EXCESS_MIN, EXCESS_MAX);
            self.refuse_queued(id, Refusal::plain(Reason::WaitTooLong, Retry::After(wait)), now);
        }
    }

    /// Whether anything can be sent that could not before this one came.
    fn may_go(&mut self, pool: PoolId, entry: EntryId, now: Moment) -> bool {
        let is_awake = self.awake.contains(&pool);
        let state = self.pool_mut(pool);
        let opens = state.opening.is_some_and(|opening| opening <= now);
        is_awake || opens || !state.is_stuck || state.schedule.is_front(entry)
    }

    /// Back to its place in line.
    pub(super) fn requeue(&mut self, id: RequestId) {
        let Some((pool, _)) = self.line_up(id) else { return };
        if let Some(request) = self.requests.get(&id) {
            self.waits.insert((request.wait_until, id));
        }
        self.watch_wait(id);
        self.wake(pool);
    }

    /// Closes what a request was charged in the order, with what it used.
    pub(super) fn close_tab(&mut self, id: RequestId, used: &Used) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let Some(tab) = request.tab.take() else { return };
        let pool = request.pool;
        let work = self.policy.pools[pool.0 as usize].work;
        self.pool_mut(pool).schedule.end(&tab, used_millis(used, &work));
    }

    /// Closes what a request was charged in the order for a try that came to nothing.
    pub(super) fn close_tab_as(&mut self, id: RequestId, report: &Report, now: Moment) {
        let Some(request) = self.requests.get(&id) else { return };
        let (used, _) = self.usage(request, report, now);
        self.close_tab(id, &used);
    }

    fn line_up(&mut self, id: RequestId) -> Option<(PoolId, EntryId)> {
        let waiting = self.waiting(self.requests.get(&id)?);
        let flow = self.requests.get(&id).map(|request| flow(&request.arrival, &request.places))?;
        let Self { pools, requests, policy, .. } = self;
        let request = requests.get_mut(&id)?;
        let entry =
            pools[request.pool.0 as usize].schedule.push(policy, (request.arrival.tenant, flow), waiting);
        request.stage = Stage::Queued(entry);
        Some((request.pool, entry))
    }

    fn waiting(&self, request: &Request) -> Waiting {
        let arrival = &request.arrival;
        let work = self.policy.pools[request.pool.0 as usize].work;
        let likely = self.predictor.mean(arrival.tenant, arrival.model, arrival.output_bound);
        let output = likely.times(u64::from(arrival.choices));
        Waiting {
            request: arrival.request,
            turn: request.turn,
            class: arrival.class,
            tokens: request.need.total(),
            input_millis: millis(arrival.input, work.input_millis),
            output_millis: output_millis(output, &work),
            arrived: request.arrived,
        }
    }
}

/// The work of output, in thousandths.
pub(super) const fn output_millis(output: Tokens, work: &Work) -> u64 {
    millis(output, work.output_millis)
}

/// All work, in thousandths: as it was charged on the way, so that a limit's bounds on amounts do not apply.
fn used_millis(used: &Used, work: &Work) -> u64 {
    let cached = used.cached.min(used.input);
    [
        millis(used.input.minus(cached), work.input_millis),
        millis(cached, work.cached_input_millis),
        output_millis(used.output, work),
    ]
    .into_iter()
    .fold(0, u64::saturating_add)
}

const fn millis(tokens: Tokens, weight_millis: u32) -> u64 {
    tokens.0.saturating_mul(weight_millis as u64)
}

/// A tenant's requests are told apart by run, where they name none by end user, and else by key.
fn flow(arrival: &Arrival, places: &[Place]) -> Flow {
    let run = places.iter().find_map(|place| match place {
        Place::Run(_, run) => Some(*run),
        Place::EndUser(..) | Place::OtherEndUsers(_) => None,
    });
    match (run.or(arrival.run), arrival.end_user) {
        (Some(run), _) => Flow::Run(run),
        (None, Some(user)) => Flow::EndUser(user),
        (None, None) => Flow::Key(arrival.key.map_or(NO_KEY, |key| key.0)),
    }
}

/// By how much a moment is later than it may be.
pub(super) fn beyond(moment: Moment, latest: Moment) -> Option<Micros> {
    (moment > latest).then(|| moment.since(latest))
}

const EXCESS_MIN: Micros = Micros::from_secs(1);
const EXCESS_MAX: Micros = Micros::from_secs(60);
const NO_KEY: u32 = u32::MAX - 1;
