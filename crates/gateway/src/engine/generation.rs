//! One request from its plan to its record: whatever happens to it, the log tells what was produced.

use std::sync::Arc;

use http::StatusCode;

use super::driver::{Progress, Refusal, Ticket};
use super::headers::HeaderFacts;
use super::log::Record;
use super::plan::Plan;
use super::problem::Problem;
use super::request::Fields;
use super::server::Engine;

/// A request that runs, or is about to. Dropping it cancels its sequences and writes its record.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) plan: Plan,
    pub(super) record: Record,
    engine: Arc<Engine>,
    ticket: Option<Ticket>,
}

impl Generation {
    pub(super) fn of(plan: Plan, fields: Fields<'_>, headers: HeaderFacts, engine: &Arc<Engine>) -> Self {
        let record = Record {
            id: engine.next_request(),
            endpoint: String::from(plan.endpoint.path()),
            model: plan.model.clone(),
            stream: plan.stream,
            prompt: plan.prompt,
            cached: plan.cached,
            choices: plan.shown,
            fault: plan.fault.to_string(),
            max_tokens: plan.bound,
            priority: plan
                .choices
                .first()
                .map(|choice| choice.job.priority)
                .filter(|priority| *priority != 0),
            include_usage: plan.include_usage,
            credential: headers.credential,
            request_id: headers.request_id,
            headers: headers.names,
            fields: fields.names(FIELDS_MAX),
            ..Record::default()
        };
        Self { plan, record, engine: Arc::clone(engine), ticket: None }
    }

    /// Hands the sequences to the replica.
    pub(super) fn begin(&mut self) -> Result<(), Problem> {
        if self.ticket.is_none() {
            let ticket = self.engine.driver.start(&self.plan.jobs()).map_err(problem)?;
            self.ticket = Some(ticket);
        }
        Ok(())
    }

    /// How far the sequences are; nothing before [`Generation::begin`].
    pub(super) fn progress(&mut self) -> Vec<Progress> {
        self.ticket.as_mut().map(Ticket::progress).unwrap_or_default()
    }

    /// Waits for a token or an end.
    pub(super) async fn changed(&mut self) {
        if let Some(ticket) = &mut self.ticket {
            ticket.changed().await;
        }
    }

    /// Waits until every sequence is finished.
    pub(super) async fn finished(&mut self) {
        if let Some(ticket) = &mut self.ticket {
            ticket.finished().await;
        }
    }

    pub(super) fn answered(&mut self, status: StatusCode) {
        self.record.status = Some(status.as_u16());
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        let never_ran = self.record.status.is_none();
        let (produced, cut) = self.ticket.take().map_or((0, never_ran), |mut ticket| ticket.stop());
        self.record.produced = produced;
        self.record.cancelled |= cut;
        self.engine.outcomes.count(&self.plan, &self.record);
        self.engine.log.write(std::mem::take(&mut self.record));
    }
}

fn problem(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::QueueFull => Problem::of(
            StatusCode::SERVICE_UNAVAILABLE,
            "The engine's queue is full. Please try again later.",
        ),
        Refusal::NeverFits { needed, kv } => Problem::bad_request(format!(
            "The request needs {needed} tokens of the key-value cache, which holds {kv}. Please reduce its length."
        )),
    }
}

const FIELDS_MAX: usize = 64;
