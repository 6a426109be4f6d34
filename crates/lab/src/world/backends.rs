//! The way to backends and back, as the gateway's edge has it: what an answer means, and how each request ends.

use fairlane_core::gate::{Answer, Event, Failure, Outcome, Report, Reported, RequestId};
use fairlane_core::policy::BackendId;
use fairlane_core::units::{Amount, Tokens};

use super::fault::Manner;
use super::{Broken, Occurrence, Stage, World};
use crate::replica::{Emission, Job, SequenceId};

impl World {
    pub(super) fn start(
        &mut self,
        request: RequestId,
        backend: BackendId,
        output_step: Option<Tokens>,
    ) -> Result<(), Broken> {
        let attempt = self.tries[request.0 as usize];
        if attempt.stage == Stage::Over {
            return Ok(());
        }
        let place = self.places[&backend];
        let attempt = &mut self.tries[request.0 as usize];
        attempt.stage = Stage::Running(place);
        attempt.output_step = output_step;
        attempt.sent += 1;
        attempt.sent_at = self.now;
        let (call, sender, sent) = (attempt.call, attempt.sender, attempt.sent);
        self.tally.waits_no_more(sender);
        if !std::mem::replace(&mut self.calls[call].has_started, true) {
            let wait = self.now.since(self.offer(call).arrival.at);
            self.tally.started(sender, wait);
        }
        if let Some(quiet_max) = self.setup.edge.quiet_max {
            self.plan(self.now.after(quiet_max), Occurrence::LookedAfter { attempt: request, sent });
        }
        if self.fleet[place].is_dead {
            return self.fail(request, Failure::Error);
        }
        match self.fleet[place].manner {
            Manner::Serves | Manner::BreaksAfter(_) => self.submit(request, place),
            Manner::IsBusy(retry_after) => {
                self.goes_back(request);
                self.tell(Event::Bounced { request, retry_after })
            }
            Manner::Fails => self.fail(request, Failure::Error),
            Manner::Rejects => self.end(request, report(Outcome::UpstreamError, Answer::Rejected)),
            Manner::IsEmpty => self.end(request, report(Outcome::UpstreamEmpty, Answer::Content)),
        }
    }

    pub(super) fn step_ends(&mut self, backend: usize, plan: u64) -> Result<(), Broken> {
        let emissions = self.fleet[backend].end_step(plan);
        let mut events = std::mem::take(&mut self.told_together);
        for emission in &emissions {
            self.emitted(backend, emission, &mut events);
        }
        let gate_now = self.gate_now();
        self.driver.handle_all(events.drain(..), gate_now)?;
        self.told_together = events;
        self.tally.gap.look();
        let counters = self.fleet.iter().map(|backend| backend.replica.counters().kv_held.0);
        let held = counters.clone().sum();
        let fullest = counters
            .zip(&self.fleet)
            .map(|(held, backend)| held as f64 / backend.replica.shape().kv.0 as f64);
        let fullest = fullest.fold(0.0, f64::max);
        self.tally.holds(Tokens(held), fullest, self.now);
        Ok(())
    }

    /// The gate wants a request off its backend, which may have shown some of its answer already.
    pub(super) fn evict(&mut self, request: RequestId) -> Result<(), Broken> {
        let attempt = &self.tries[request.0 as usize];
        if !matches!(attempt.stage, Stage::Running(_)) || attempt.produced > 0 {
            return Ok(());
        }
        self.goes_back(request);
        self.tell(Event::Evicted { request })
    }

    /// A budget ran out in the middle of an answer.
    pub(super) fn stop(&mut self, request: RequestId) -> Result<(), Broken> {
        let attempt = self.tries[request.0 as usize];
        let Stage::Running(_) = attempt.stage else { return Ok(()) };
        self.calls[attempt.call].is_over = true;
        self.end(request, counted(Outcome::BudgetEnd, attempt.produced))
    }

    /// A backend is gone: what it had begun is cut, what it had not is tried elsewhere.
    pub(super) fn cut_all(&mut self, backend: usize) -> Result<(), Broken> {
        for place in 0..self.tries.len() {
            let attempt = self.tries[place];
            if attempt.stage != Stage::Running(backend) {
                continue;
            }
            let request = RequestId(place as u64);
            if attempt.produced > 0 {
                self.end(request, counted(Outcome::Interrupted, attempt.produced))?;
            } else {
                self.fail(request, Failure::Error)?;
            }
        }
        Ok(())
    }

    /// Whether a backend has sent nothing for too long.
    pub(super) fn look_after(&mut self, request: RequestId, sent: u32) -> Result<(), Broken> {
        let attempt = self.tries[request.0 as usize];
        let Some(quiet_max) = self.setup.edge.quiet_max else { return Ok(()) };
        let Stage::Running(_) = attempt.stage else { return Ok(()) };
        if attempt.sent != sent {
            return Ok(());
        }
        let heard = if attempt.produced > 0 { attempt.last_token } else { attempt.sent_at };
        let quiet = self.now.since(heard);
        if quiet < quiet_max {
            let again = heard.after(quiet_max);
            self.plan(again, Occurrence::LookedAfter { attempt: request, sent });
            return Ok(());
        }
        if attempt.produced > 0 {
            return self.end(request, counted(Outcome::UpstreamTimeout, attempt.produced));
        }
        self.fail(request, Failure::TimedOut)
    }

    /// The request is over, as the report says.
    pub(super) fn end(&mut self, request: RequestId, report: Report) -> Result<(), Broken> {
        self.over(request, report).map_or(Ok(()), |event| self.tell(event))
    }

    /// What the gate must be told of a request that is over; nothing if it was over before.
    fn over(&mut self, request: RequestId, report: Report) -> Option<Event> {
        let due = self.due(request, &report);
        let attempt = &mut self.tries[request.0 as usize];
        let stage = std::mem::replace(&mut attempt.stage, Stage::Over);
        attempt.due = due;
        let sender = attempt.sender;
        self.calls[attempt.call].is_over = true;
        match stage {
            Stage::Over => return None,
            Stage::Waiting => self.tally.waits_no_more(sender),
            Stage::Running(backend) => {
                self.fleet[backend].replica.cancel(SequenceId(request.0));
            }
        }
        Some(Event::Ended { request, report })
    }

    /// What must be charged, where it is known: everything that was reported, and counts that nothing contradicts.
    fn due(&self, request: RequestId, report: &Report) -> Option<(Tokens, Tokens)> {
        let attempt = &self.tries[request.0 as usize];
        let nothing = (Tokens::ZERO, Tokens::ZERO);
        let (Stage::Running(_), Answer::Content) = (attempt.stage, report.answer) else {
            return Some(nothing);
        };
        if let (Some(input), Some(output)) = (report.reported.input, report.reported.output) {
            let cut = |tokens: Tokens| tokens.min(Tokens(Amount::WHOLE_MAX));
            return Some((cut(input), cut(output)));
        }
        let offer = self.offer(attempt.call);
        // An estimate may have been let in as it was.
        let input = offer.estimate.is_none().then_some(offer.arrival.prompt)?;
        (report.counted_output > Tokens::ZERO).then_some((input, report.counted_output))
    }

    fn submit(&mut self, request: RequestId, place: usize) -> Result<(), Broken> {
        let attempt = &self.tries[request.0 as usize];
        let offer = self.offer(attempt.call);
        let most = attempt.output_bound.times(u64::from(offer.choices));
        let job = Job {
            prompt: offer.arrival.prompt,
            cached: Tokens::ZERO,
            output: offer.arrival.output.min(most),
            priority: 0,
        };
        match self.fleet[place].submit(SequenceId(request.0), job) {
            Ok(()) => Ok(()),
            Err(_) => self.end(request, report(Outcome::UpstreamError, Answer::Rejected)),
        }
    }

    fn emitted(&mut self, backend: usize, emission: &Emission, events: &mut Vec<Event>) {
        let request = RequestId(emission.id.0);
        let attempt = &mut self.tries[request.0 as usize];
        if attempt.stage != Stage::Running(backend) {
            return;
        }
        let (sender, call, output_step) = (attempt.sender, attempt.call, attempt.output_step);
        let is_first = attempt.produced == 0;
        attempt.produced = emission.produced.0;
        attempt.last_token = self.now;
        if is_first {
            attempt.first_token = self.now;
            let arrival = &self.offer(call).arrival;
            let (prompt, waited) = (arrival.prompt, self.now.since(arrival.at));
            self.tally.first_token(sender, prompt, waited, self.now);
            events.push(Event::FirstToken { request });
        }
        self.tally.made(sender, emission.tokens, self.now);
        let before = emission.produced.0.saturating_sub(emission.tokens.0);
        let has_stepped = |step: Tokens| emission.produced.0 / step.0.max(1) > before / step.0.max(1);
        if output_step.is_some_and(has_stepped) {
            events.push(Event::Produced { request, output: emission.produced });
        }
        let manner = self.fleet[backend].manner;
        let report = if emission.finished {
            self.completed(request, backend)
        } else if matches!(manner, Manner::BreaksAfter(tokens) if emission.produced.0 > tokens) {
            counted(Outcome::UpstreamErrorMidStream, emission.produced.0)
        } else {
            return;
        };
        events.extend(self.over(request, report));
    }

    fn completed(&mut self, request: RequestId, backend: usize) -> Report {
        let attempt = self.tries[request.0 as usize];
        let output = Tokens(attempt.produced);
        self.tally.completed(attempt.sender, self.now.since(attempt.first_token), output);
        let reported = self.fleet[backend].usage(self.offer(attempt.call).arrival.prompt, output);
        // Success without content and without a count of it.
        let is_empty = output == Tokens::ZERO && reported.output.is_none();
        let outcome = if is_empty { Outcome::UpstreamEmpty } else { Outcome::Completed };
        Report { outcome, answer: Answer::Content, reported, counted_output: output }
    }

    /// The backend did not begin: the gate may try another one.
    fn fail(&mut self, request: RequestId, failure: Failure) -> Result<(), Broken> {
        self.goes_back(request);
        self.tell(Event::Failed { request, failure })
    }

    fn goes_back(&mut self, request: RequestId) {
        let attempt = &mut self.tries[request.0 as usize];
        let stage = std::mem::replace(&mut attempt.stage, Stage::Waiting);
        attempt.produced = 0;
        let sender = attempt.sender;
        self.tally.waits(sender);
        if let Stage::Running(backend) = stage {
            self.fleet[backend].replica.cancel(SequenceId(request.0));
        }
    }
}

fn report(outcome: Outcome, answer: Answer) -> Report {
    Report { outcome, answer, reported: Reported::default(), counted_output: Tokens::ZERO }
}

fn counted(outcome: Outcome, produced: u64) -> Report {
    Report { counted_output: Tokens(produced), ..report(outcome, Answer::Content) }
}
