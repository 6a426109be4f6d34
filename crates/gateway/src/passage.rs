//! A request on its way: whatever ends it, its account is settled, counted and logged here, exactly once.

use std::sync::Arc;

use fairlane_core::gate::{Account, Answer, Outcome, Report, Reported, UsageSource};
use fairlane_core::policy::{Asker, BackendId};
use fairlane_core::refusal::Refusal;
use fairlane_core::units::{Moment, Tokens};
use fairlane_wire::count::InputEstimate;
use fairlane_wire::late;
use fairlane_wire::stream::{Outcome as WireOutcome, Summary};

use crate::clock;
use crate::cutting::Cut;
use crate::driver::Ticket;
use crate::gateway::Gateway;
use crate::live::Live;
use crate::metrics::Kind;
use crate::problem;
use crate::provider;
use crate::tallies::Tally;
use crate::usage_log::Record;

/// A request that was handed to the gate. Dropping it ends the request as one whose client left.
#[derive(Debug)]
pub struct Passage {
    gateway: Arc<Gateway>,
    live: Arc<Live>,
    /// The gate's ticket.
    pub ticket: Ticket,
    record: Record,
    kind: Kind,
    arrived: Moment,
    first_token: Option<Moment>,
    /// What the input was thought to be, to learn from what it was.
    estimate: InputEstimate,
    /// A backend may be working on it.
    sent: bool,
    finished: bool,
}

/// How a passage ended, as the edge saw it.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// For the gate.
    pub report: Report,
    /// Input tokens written to a cache.
    pub cache_write: u64,
}

impl Passage {
    /// Begins with what is known at arrival.
    #[must_use]
    pub fn new(
        gateway: Arc<Gateway>,
        live: Arc<Live>,
        ticket: Ticket,
        record: Record,
        (kind, arrived, estimate): (Kind, Moment, InputEstimate),
    ) -> Self {
        Self {
            gateway,
            live,
            ticket,
            record,
            kind,
            arrived,
            first_token: None,
            estimate,
            sent: false,
            finished: false,
        }
    }

    /// It goes to a backend now.
    pub fn sent_to(&mut self, backend: BackendId) {
        self.sent = true;
        self.record.backend = self.live.names.backend(backend).cloned();
    }

    /// Its backend did none of its work.
    pub const fn came_back(&mut self) {
        self.sent = false;
    }

    /// The status that the client gets.
    pub const fn answered(&mut self, status: u16) {
        self.record.status = status;
    }

    /// The first token passes.
    pub fn first_token(&mut self) {
        self.first_token = Some(self.gateway.driver.clock().now());
        if self.live.pool(self.kind.pool).is_some_and(|pool| provider::is_hosted(pool.engine)) {
            self.ticket.first_token();
        }
    }

    /// The gateway that it passes.
    #[must_use]
    pub const fn gateway(&self) -> &Arc<Gateway> {
        &self.gateway
    }

    /// Milliseconds since it arrived.
    #[must_use]
    pub fn age_ms(&self) -> u64 {
        self.gateway.driver.clock().now().since(self.arrived).0 / 1_000
    }

    /// The last event of its stream, which is cut because a budget is used up.
    #[must_use]
    pub fn cut_event(&self, cut: &Cut) -> String {
        let Kind { tenant, class, model, .. } = self.kind;
        let asker = Asker { tenant, key: None, class, model };
        let problem = problem::refused(cut.refusal, &self.live.policy, &asker);
        late::cut_event(cut.endpoint, &problem, &self.record.id.to_string(), cut.events)
    }

    /// It was refused.
    pub fn refused(&mut self, refusal: &Refusal, status: u16) {
        self.record.refusal = Some(match refusal.limit {
            Some(limit) => format!("{} {}", refusal.reason.name(), limit.name(&self.live.policy)),
            None => refusal.reason.name().to_owned(),
        });
        self.gateway.metrics.refused(&self.live.policy, self.kind.tenant, &self.record.class, refusal);
        self.answered(status);
        self.finish(&Ending::nothing(Outcome::Refused));
    }

    /// It is over. Only the first ending counts.
    pub fn finish(&mut self, ending: &Ending) {
        if self.finished {
            return;
        }
        self.finished = true;
        let account = self.ticket.end(ending.report);
        let now = self.gateway.driver.clock().now();
        let mut record = std::mem::take(&mut self.record);
        record.time_ms = clock::unix_millis();
        record.usage_source = UsageSource::None.name();
        record.total_ms = now.since(self.arrived).0 / 1_000;
        record.ttft_ms = self.first_token.map(|first| first.since(self.arrived).0 / 1_000);
        record.cache_write = ending.cache_write;
        let mut outcome = ending.report.outcome;
        if let Some(account) = &account {
            // What the edge alone knows: which refusal it was, and that a backend failed by taking too long.
            let known = record.refusal.is_some() || outcome == Outcome::UpstreamTimeout;
            outcome = if known { outcome } else { account.outcome };
            self.take_account(&mut record, account);
            self.gateway.metrics.finished(&self.live, &self.kind, account);
            self.observe_pace(account.used.output, outcome, now);
        }
        record.outcome = outcome.name();
        let whose = (self.kind.tenant, self.kind.class);
        let sums = self.live.meters.sums(&self.gateway.tallies, &self.live.policy, self.kind.tenant);
        sums.add(&Tally {
            requests: 1,
            refused: u64::from(record.refusal.is_some()),
            input: record.input,
            cached: record.cached,
            output: record.output,
            work_millis: account.as_ref().map_or(0, |account| account.work_millis),
        });
        self.gateway.metrics.ended(&self.live, whose, outcome);
        self.gateway.usage.add(record);
    }

    fn take_account(&self, record: &mut Record, account: &Account) {
        record.input = account.used.input.0;
        record.cached = account.used.cached.0;
        record.output = account.used.output.0;
        record.usage_source = account.source.name();
        record.reserved = account.reserved.0;
        record.charged = account.charged.0;
        record.queue_ms = account.queued.0 / 1_000;
        record.attempts = account.attempts;
        if matches!(account.source, UsageSource::Reported | UsageSource::Mixed)
            && let Some(counter) = self.live.counter(self.kind.pool)
        {
            counter.learn(&record.model, self.estimate, record.input);
        }
    }

    /// Time per output token: from the first one to the end, over all but the first.
    fn observe_pace(&self, output: Tokens, outcome: Outcome, now: Moment) {
        let Some(first) = self.first_token else { return };
        self.gateway.metrics.first_token(&self.live, &self.kind, first.since(self.arrived));
        if output.0 > 1 && outcome == Outcome::Completed {
            let per_token = now.since(first).as_secs_f64() / (output.0 - 1) as f64;
            self.gateway.metrics.output_pace(&self.live, &self.kind, per_token);
        }
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // A panic is the gateway's doing, as a shutdown is.
        let is_cut = self.gateway.is_cut() || std::thread::panicking();
        let outcome = if is_cut { Outcome::Shutdown } else { Outcome::ClientGone };
        // A backend that has not answered may have worked on it all the time: the gate charges by the time that it ran.
        let answer = if self.sent { Answer::Content } else { Answer::Nothing };
        let report = Report { answer, ..Ending::nothing(outcome).report };
        self.finish(&Ending { report, cache_write: 0 });
    }
}

impl Ending {
    /// Nothing is charged.
    #[must_use]
    pub fn nothing(outcome: Outcome) -> Self {
        Self {
            report: Report {
                outcome,
                answer: Answer::Nothing,
                reported: Reported::default(),
                counted_output: Tokens::ZERO,
            },
            cache_write: 0,
        }
    }

    /// From what was read of a successful answer. `counted_exactly` is the output by the exact tokenizer, where there is one.
    #[must_use]
    pub fn read(summary: &Summary, outcome: Outcome, counted_exactly: Option<u64>) -> Self {
        let usage = &summary.usage;
        let has_output = matches!(summary.source, UsageSource::Reported | UsageSource::ReportedPartial);
        let counted = counted_exactly.unwrap_or_else(|| usage.output.unwrap_or(summary.counted_output));
        Self {
            report: Report {
                outcome,
                answer: match (outcome, summary.source) {
                    (Outcome::UpstreamError, _) => Answer::Nothing,
                    // A token count, say: a complete answer for which nothing ran.
                    (Outcome::Completed, UsageSource::None) => Answer::Rejected,
                    _ => Answer::Content,
                },
                reported: Reported {
                    input: usage.input.map(Tokens),
                    cached: Tokens(usage.cached.unwrap_or(0)),
                    output: usage.output.filter(|_| has_output).map(Tokens),
                    partial: summary.source == UsageSource::ReportedPartial,
                },
                counted_output: Tokens(counted),
            },
            cache_write: usage.cache_write.unwrap_or(0),
        }
    }
}

/// The gate's name for what the bytes told.
#[must_use]
pub const fn outcome(wire: WireOutcome) -> Outcome {
    match wire {
        WireOutcome::Completed => Outcome::Completed,
        WireOutcome::Interrupted => Outcome::Interrupted,
        WireOutcome::UpstreamError => Outcome::UpstreamError,
        WireOutcome::UpstreamErrorMidStream => Outcome::UpstreamErrorMidStream,
        WireOutcome::UpstreamEmpty => Outcome::UpstreamEmpty,
    }
}
