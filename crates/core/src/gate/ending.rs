//! The one way out: every admitted request is settled here exactly once, whatever happened.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{
    Account, Answer, Effect, Failure, Gate, Held, Outcome, Report, Reported, Request, RequestId, Stage,
    UsageSource,
};
use crate::charge::{ONE_MILLIS, Used};
use crate::ledger::{CellId, Closing, Settlement};
use crate::policy::{BackendId, Dimension, Work};
use crate::subjects::Place;
use crate::units::{Amount, Micros, Moment, Tokens};

impl Gate {
    pub(super) fn ended(&mut self, id: RequestId, report: &Report, now: Moment) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        match request.stage {
            // The store's answer is on its way: what it grants must be given back when it comes.
            Stage::Ruling | Stage::Dispatching(_) => request.gone = true,
            Stage::Held => self.leave_hold(id, report, now),
            Stage::Queued(_) => self.close(id, &Report { answer: Answer::Nothing, ..*report }, now),
            Stage::Running(backend) => {
                self.pools[backend.pool.0 as usize].drain.completed(now);
                if report.answer != Answer::Nothing
                    && let Some(state) = self.pool_mut(backend.pool).backends.backend_mut(backend.index)
                {
                    state.answered();
                }
                self.close(id, report, now);
            }
        }
    }

    /// Settles, frees every slot, and lets the next ones go.
    pub(super) fn close(&mut self, id: RequestId, report: &Report, now: Moment) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let pool = request.pool;
        let (used, source) = self.usage(request, report, now);
        self.learn(id, used, source, now);
        self.settle_dispatch_used(id, &used, report.answer);
        self.close_tab(id, &used);
        let work = self.policy.pools[pool.0 as usize].work;
        self.pool_mut(pool).pace.done(used.work_millis(&work), now);
        self.release(id);
        let Some(request) = self.take_out(id) else {
            return;
        };
        let returned = self.returned(&request.places, report.answer);
        let weight = request.admission.token_weight();
        self.settle(request.admission, &used, returned, &work);
        self.effects.push_back(Effect::Finished(Account {
            request: id,
            tenant: request.arrival.tenant,
            backend: request.backend,
            outcome: report.outcome,
            used,
            source,
            reserved: request.need.total(),
            charged: used.charged(weight),
            work_millis: used.work_millis(&work),
            queued: request.started.unwrap_or(now).since(request.arrived),
            attempts: request.attempts,
        }));
        self.leave_places(&request.places, now);
        self.wake(pool);
    }

    /// Takes a waiting request out and returns its whole reservation.
    pub(super) fn give_back(&mut self, id: RequestId, now: Moment) {
        self.close_tab(id, &Used::default());
        self.release(id);
        let Some(request) = self.take_out(id) else {
            return;
        };
        let work = self.policy.pools[request.pool.0 as usize].work;
        let returned = self.returned(&request.places, Answer::Nothing);
        self.settle(request.admission, &Used::default(), returned, &work);
        self.leave_places(&request.places, now);
        self.wake(request.pool);
    }

    pub(super) fn settle_dispatch(&mut self, id: RequestId, report: &Report, now: Moment) {
        let used = self.requests.get(&id).map_or_else(Used::default, |request| {
            let (used, _) = self.usage(request, report, now);
            used
        });
        self.settle_dispatch_used(id, &used, report.answer);
    }

    fn settle_dispatch_used(&mut self, id: RequestId, used: &Used, answer: Answer) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let Some(held) = request.dispatch.take() else {
            return;
        };
        let backend = request.backend;
        let work = self.policy.pools[request.pool.0 as usize].work;
        let returned = if answer == Answer::Nothing { Returned::Units } else { Returned::Tokens };
        self.settle(held, used, returned, &work);
        self.reopen(backend);
    }

    /// What a dispatch gave back may be enough for the next one: the store is asked again before the wait that it told.
    fn reopen(&mut self, backend: Option<BackendId>) {
        let Some(BackendId { pool, index }) = backend else { return };
        let state = self.pool_mut(pool);
        state.limited_until = Moment::default();
        if let Some(backend) = state.backends.backend_mut(index) {
            backend.limit_until(Moment::default());
        }
        self.wake(pool);
    }

    /// What the end of an admitted request gives back besides tokens that it did not use.
    fn returned(&mut self, places: &[Place], answer: Answer) -> Returned {
        if answer != Answer::Nothing {
            return Returned::Tokens;
        }
        let mut returned = Returned::Units;
        for place in places {
            if self.directory.subjects.undone(place) && matches!(place, Place::Run(..)) {
                returned = Returned::UnitsAndRun;
            }
        }
        returned
    }

    fn settle(&mut self, held: Held, used: &Used, returned: Returned, work: &Work) {
        self.reservations.remove(&held.id);
        let mut charges = held.charges;
        for (charge, weight) in charges.iter_mut().zip(&held.cached_weight_millis) {
            let dimension = charge.limit.dimension;
            let comes_back = match dimension {
                Dimension::Requests | Dimension::RunSteps => returned != Returned::Tokens,
                Dimension::NewRuns => returned == Returned::UnitsAndRun,
                Dimension::Tokens
                | Dimension::InputTokens
                | Dimension::OutputTokens
                | Dimension::Work
                | Dimension::ConcurrentRequests
                | Dimension::RunBudget => false,
            };
            charge.used = if comes_back { Amount::ZERO } else { used.amount(dimension, *weight, work) };
        }
        let tokens = held.tokens.map_or(Tokens::ZERO, |_| used.input.plus(used.output));
        let waited_for: Vec<CellId> =
            charges.iter().map(|charge| charge.cell).filter(|cell| self.holding.has(*cell)).collect();
        self.effects.push_back(Effect::Settle(Settlement {
            id: held.id,
            charges,
            used: tokens,
            closing: Closing::Counted,
        }));
        for cell in waited_for {
            self.ask_again(cell);
        }
    }

    /// What was used: as reported, else as counted, else as predicted from the time that it ran.
    pub(super) fn usage(&self, request: &Request, report: &Report, now: Moment) -> (Used, UsageSource) {
        if report.answer != Answer::Content {
            return (Used::default(), UsageSource::None);
        }
        let Reported { input, cached, output, partial } = report.reported;
        let source = match (input, output) {
            (Some(_), Some(_)) if partial => UsageSource::ReportedPartial,
            (Some(_), Some(_)) => UsageSource::Reported,
            (Some(_), None) => UsageSource::Mixed,
            (None, _) => UsageSource::Estimated,
        };
        // A backend may report any number; the sums of the ledger must survive it.
        let cut = |tokens: Tokens| tokens.min(Tokens(Amount::WHOLE_MAX));
        let input = cut(input.unwrap_or(request.arrival.input));
        let output = cut(output.unwrap_or_else(|| self.output_unreported(request, report, now)));
        (Used { input, cached: cached.min(input), output }, source)
    }

    /// Output that nobody reported: what was counted; where nothing could be counted, min(bound, predicted mean, elapsed ×
    /// measured pace) for each choice. An answer that is complete without content has none.
    fn output_unreported(&self, request: &Request, report: &Report, now: Moment) -> Tokens {
        if report.counted_output > Tokens::ZERO || report.outcome == Outcome::UpstreamEmpty {
            return report.counted_output;
        }
        let arrival = &request.arrival;
        let mean = self.predictor.mean(arrival.tenant, arrival.model, arrival.output_bound);
        let made = self.predictor.made_in(arrival.model, request.ran(now)).unwrap_or(mean);
        mean.min(made).min(arrival.output_bound).times(u64::from(arrival.choices))
    }

    fn learn(&mut self, id: RequestId, used: Used, source: UsageSource, now: Moment) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let arrival = &request.arrival;
        if source != UsageSource::Reported || arrival.output_bound == Tokens::ZERO {
            return;
        }
        let per_choice = Tokens(used.output.0 / u64::from(arrival.choices.max(1)));
        let elapsed = request.ran(now);
        let (tenant, model, bound) = (arrival.tenant, arrival.model, arrival.output_bound);
        self.predictor.learn(tenant, model, bound, per_choice, elapsed);
    }

    fn take_out(&mut self, id: RequestId) -> Option<Box<Request>> {
        self.unwatch_wait(id);
        let request = self.requests.remove(&id)?;
        self.waits.remove(&(request.wait_until, id));
        if let Stage::Queued(entry) = request.stage {
            self.pool_mut(request.pool).schedule.remove(entry);
            // It may have been the one that a free slot was offered to.
            self.offer_slots(&request.slots);
        }
        Some(request)
    }
}

/// What comes back at the end of a request, besides tokens that it did not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Returned {
    /// Nothing more.
    Tokens,
    /// The request unit and the step.
    Units,
    /// And the begun run, which no other request of it needs: else one that leaves at once would begin runs for nothing.
    UnitsAndRun,
}

impl Held {
    /// The weight of a cached token in the first token limit: what "charged" means for this request.
    fn token_weight(&self) -> u32 {
        self.charges
            .iter()
            .zip(&self.cached_weight_millis)
            .find(|(charge, _)| charge.limit.dimension.counts_output())
            .map_or(ONE_MILLIS, |(_, weight)| *weight)
    }
}

impl Request {
    /// How long its last backend has had it.
    fn ran(&self, now: Moment) -> Micros {
        self.sent.map_or(Micros::ZERO, |sent| now.since(sent))
    }
}

impl Report {
    pub(super) const fn failed() -> Self {
        Self::of(Outcome::UpstreamError)
    }

    pub(super) const fn of_failure(failure: Failure) -> Self {
        match failure {
            Failure::Error => Self::failed(),
            Failure::TimedOut => Self { answer: Answer::Content, ..Self::of(Outcome::UpstreamTimeout) },
        }
    }

    pub(super) const fn client_gone() -> Self {
        Self::of(Outcome::ClientGone)
    }

    const fn of(outcome: Outcome) -> Self {
        Self {
            outcome,
            answer: Answer::Nothing,
            reported: Reported { input: None, cached: Tokens::ZERO, output: None, partial: false },
            counted_output: Tokens::ZERO,
        }
    }
}
