//! What clients do: they send, wait, lose patience, and come back when they were refused.

use fairlane_core::gate::{Answer, Arrival, Event, Outcome, Report, Reported, RequestId};
use fairlane_core::policy::Asker;
use fairlane_core::refusal::Retry;
use fairlane_core::units::{Micros, Moment, Tokens};

use super::setup::Comeback;
use super::{Broken, Call, Occurrence, Offer, Stage, Try, World};

impl World {
    pub(super) fn take_offer(&mut self) -> Result<(), Broken> {
        let offer = self.next_offer;
        self.next_offer += 1;
        let call = self.calls.len();
        let sender = self.setup.offers[offer].arrival.tenant;
        self.calls.push(Call { offer, tries: 0, latest: RequestId(0), has_started: false, is_over: false });
        self.tally.offered(sender);
        if let Some(patience) = self.setup.senders[sender].patience {
            self.plan(self.now.after(patience), Occurrence::RunsOutOfPatience { call });
        }
        self.send(call)
    }

    pub(super) fn come_back(&mut self, call: usize) -> Result<(), Broken> {
        if self.calls[call].is_over {
            return Ok(());
        }
        self.tally.came_back();
        self.send(call)
    }

    pub(super) fn run_out_of_patience(&mut self, call: usize) -> Result<(), Broken> {
        let latest = self.calls[call].latest;
        let has_token = self.tries[latest.0 as usize].produced > 0;
        if self.calls[call].is_over || has_token { Ok(()) } else { self.leave(call) }
    }

    /// The client is gone, whatever its request is at.
    pub(super) fn leave(&mut self, call: usize) -> Result<(), Broken> {
        if std::mem::replace(&mut self.calls[call].is_over, true) {
            return Ok(());
        }
        let request = self.calls[call].latest;
        let attempt = self.tries[request.0 as usize];
        let report = Report {
            outcome: Outcome::ClientGone,
            // A backend that has not answered may have worked on it all the time.
            answer: if attempt.stage == Stage::Waiting { Answer::Nothing } else { Answer::Content },
            reported: Reported::default(),
            counted_output: Tokens(attempt.produced),
        };
        match attempt.stage {
            Stage::Over => Ok(()),
            Stage::Waiting | Stage::Running(_) => self.end(request, report),
        }
    }

    /// The gate lets the request go without an answer of ours: refused with a told wait, or given up after its backends failed.
    pub(super) fn turned_away(&mut self, request: RequestId, retry: Option<Retry>) -> Result<(), Broken> {
        let attempt = self.tries[request.0 as usize];
        if attempt.stage == Stage::Over {
            return Ok(());
        }
        if retry.is_some() {
            *self.endings.entry(Outcome::Refused).or_default() += 1;
        }
        self.tries[request.0 as usize].stage = Stage::Over;
        self.tally.waits_no_more(attempt.sender);
        self.tally.turned_away(self.now);
        let wait = match retry {
            Some(Retry::Never) => None,
            Some(Retry::After(wait)) => Some(wait),
            None => Some(FAILURE_WAIT),
        };
        match wait.and_then(|wait| self.comes_back_after(attempt, wait)) {
            Some(wait) => self.plan(self.now.after(wait), Occurrence::ComesBack { call: attempt.call }),
            None => {
                self.calls[attempt.call].is_over = true;
                self.tally.refused_at_last(attempt.sender);
            }
        }
        Ok(())
    }

    /// The input was estimated and must be counted: it arrives again, as another request of the gate.
    pub(super) fn count(&mut self, request: RequestId) -> Result<(), Broken> {
        let attempt = &mut self.tries[request.0 as usize];
        if attempt.stage == Stage::Over {
            return Ok(());
        }
        attempt.stage = Stage::Over;
        let call = attempt.call;
        self.tally.waits_no_more(attempt.sender);
        self.arrive(call, None)
    }

    fn send(&mut self, call: usize) -> Result<(), Broken> {
        self.calls[call].tries += 1;
        let estimate = self.offer(call).estimate;
        self.arrive(call, estimate)
    }

    fn arrive(&mut self, call: usize, estimate: Option<(Tokens, Tokens)>) -> Result<(), Broken> {
        let offer = *self.offer(call);
        let sender = offer.arrival.tenant;
        let policy = self.driver.gate.policy();
        let tenant = self.setup.senders[sender].tenant;
        let class = policy.tenants[tenant.0 as usize].class;
        let asker = Asker { tenant, key: offer.key, class, model: offer.model };
        let bound = policy.output_bound(&asker, Some(offer.arrival.max_tokens));
        let request = RequestId(self.tries.len() as u64);
        let output_bound = bound.map_or(Tokens::ZERO, |bound| bound.per_choice);
        self.tries.push(attempt(call, sender, output_bound));
        self.calls[call].latest = request;
        self.tally.waits(sender);
        if bound.is_err() {
            return self.turned_away(request, Some(Retry::Never));
        }
        let arrival = Arrival {
            request,
            tenant,
            key: offer.key,
            class,
            model: offer.model,
            run: offer.run,
            end_user: offer.end_user,
            input: estimate.map_or(offer.arrival.prompt, |(_, most)| most),
            output_bound,
            choices: offer.choices,
            wait_max: None,
        };
        self.tell(match estimate {
            Some((input_least, _)) => Event::ArriveEstimated { arrival, input_least },
            None => Event::Arrive(arrival),
        })
    }

    fn comes_back_after(&mut self, attempt: Try, told: Micros) -> Option<Micros> {
        let tries = self.calls[attempt.call].tries;
        match self.setup.senders[attempt.sender].comeback {
            Comeback::GivesUp => None,
            Comeback::After { wait, tries_max } => (tries <= tries_max).then_some(wait),
            Comeback::AsTold { jitter_percent, tries_max } => (tries <= tries_max).then(|| {
                let jitter = self.chance.unit() * told.0 as f64 * f64::from(jitter_percent) / 100.0;
                Micros(told.0.saturating_add(jitter.round() as u64))
            }),
        }
    }

    pub(super) fn offer(&self, call: usize) -> &Offer {
        &self.setup.offers[self.calls[call].offer]
    }
}

const fn attempt(call: usize, sender: usize, output_bound: Tokens) -> Try {
    Try {
        call,
        sender,
        stage: Stage::Waiting,
        sent: 0,
        sent_at: Moment(0),
        output_step: None,
        output_bound,
        produced: 0,
        first_token: Moment(0),
        last_token: Moment(0),
        due: None,
    }
}

/// How long a client of ours waits after a failure that told no wait.
const FAILURE_WAIT: Micros = Micros::from_secs(1);
