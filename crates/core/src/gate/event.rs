//! What the gate is told and what it asks for: plain data.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::bucket::Shape;
use crate::charge::Used;
use crate::ledger::{CellId, Charge, Reservation, ReservationId, Settlement, Shortage, Verdict};
use crate::occupancy::{Allowance, Reading};
use crate::policy::{BackendId, ClassId, KeyId, ModelId, Policy, TenantId};
use crate::refusal::Refusal;
use crate::units::{Amount, Micros, Tokens};

/// A request, by a number that the driver never uses twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A request arrived.
    Arrive(Arrival),
    /// A request arrived whose input is estimated: `input` is the most that it can be. Where the decision would differ, or where
    /// what an estimate holds too much would refuse others, it is answered with [`Effect::Count`].
    ArriveEstimated {
        /// The request.
        arrival: Arrival,
        /// The least that its input can be.
        input_least: Tokens,
    },
    /// The store answered.
    Ruled {
        /// Which reservation.
        reservation: ReservationId,
        /// Its answer.
        verdict: Verdict,
    },
    /// A running request has made output: so many tokens in all.
    Produced {
        /// Which request.
        request: RequestId,
        /// Output tokens so far, all choices together.
        output: Tokens,
    },
    /// The backend is too busy for the request and has not begun it: it goes back to its place in the queue, uncharged.
    Bounced {
        /// Which request.
        request: RequestId,
        /// The pause that the backend asked for.
        retry_after: Option<Micros>,
    },
    /// The backend failed before its first byte: one retry on another one.
    Failed {
        /// Which request.
        request: RequestId,
        /// How.
        failure: Failure,
    },
    /// What was drawn for a reservation was not covered: one of its limits is below zero, or its debt is at its bound.
    Overdrawn {
        /// Which reservation.
        reservation: ReservationId,
        /// The limit, by its place among the charges drawn.
        shortage: Shortage,
    },
    /// The edge has cut a request as [`Effect::Evict`] asks.
    Evicted {
        /// Which request.
        request: RequestId,
    },
    /// A request ended, or its client left, whatever stage it was in.
    Ended {
        /// Which request.
        request: RequestId,
        /// How, and with what usage.
        report: Report,
    },
    /// The first token of a streamed answer came. Backends without metrics are paced by the time that it took.
    FirstToken {
        /// Which request.
        request: RequestId,
    },
    /// A provider told what is left of its own limits, in the head of its answer to a request.
    Provider {
        /// Which request.
        request: RequestId,
        /// Of tokens.
        tokens: Option<Allowance>,
        /// Of requests.
        requests: Option<Allowance>,
    },
    /// An engine's own metrics were read.
    Scraped {
        /// Which backend.
        backend: BackendId,
        /// What they say.
        reading: Reading,
    },
    /// A backend answers again.
    BackendUp(BackendId),
    /// A backend does not answer.
    BackendDown(BackendId),
    /// The configuration changed. Ids keep their meaning: see [`Policy::aligned_to`].
    Reload(Arc<Policy>),
    /// An operator raises a run's budget.
    Raise {
        /// Whose run.
        tenant: TenantId,
        /// The run.
        run: u128,
        /// By how much.
        tokens: Tokens,
    },
    /// The gateway is shutting down: what waits is refused, what runs may finish.
    Drain,
    /// Time has passed.
    Tick,
}

/// What to do.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Ask the store, and answer with [`Event::Ruled`].
    Reserve(Reservation),
    /// Take more for an open reservation, and answer with [`Event::Overdrawn`] where it is not covered.
    Draw {
        /// Which one.
        reservation: ReservationId,
        /// What to take.
        charges: Vec<Charge>,
    },
    /// Close a reservation.
    Settle(Settlement),
    /// Change a cell's shape; its balance stays.
    Reshape(CellId, Shape),
    /// Change a cell's shape and add to its balance.
    Grant(CellId, Shape, Amount),
    /// Send the request to a backend.
    Start {
        /// Which request.
        request: RequestId,
        /// Where to.
        backend: BackendId,
        /// The gate wants [`Event::Produced`] each time that so much more has streamed; absent: not at all.
        output_step: Option<Tokens>,
    },
    /// Cut the request at its backend if nothing of its answer has been passed on, and say so with [`Event::Evicted`]; else let it
    /// be. It goes back to its place in the queue.
    Evict {
        /// Which request.
        request: RequestId,
    },
    /// Refuse the request.
    Refuse {
        /// Which request.
        request: RequestId,
        /// Why.
        refusal: Refusal,
    },
    /// The decision depends on the exact input: nothing was taken, and the request is forgotten. Let it arrive again, counted.
    Count {
        /// Which request.
        request: RequestId,
    },
    /// A budget is used up in the middle of an answer: cut it, and end the request with [`Outcome::BudgetEnd`].
    Stop {
        /// Which request.
        request: RequestId,
        /// The limit that is used up, and when it is worth coming back.
        refusal: Refusal,
    },
    /// No further try: pass on the last answer of a backend.
    Abandon {
        /// Which request.
        request: RequestId,
    },
    /// A request that was admitted is over: its account.
    Finished(Account),
}

/// A request as the gate sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// Its number.
    pub request: RequestId,
    /// Who is charged.
    pub tenant: TenantId,
    /// By which credential.
    pub key: Option<KeyId>,
    /// In which class.
    pub class: ClassId,
    /// For which model.
    pub model: ModelId,
    /// Hash of the agent run's id.
    pub run: Option<u128>,
    /// Hash of the end user's id.
    pub end_user: Option<u128>,
    /// Input tokens: counted, or the upper end of an estimate.
    pub input: Tokens,
    /// Output bound of one choice.
    pub output_bound: Tokens,
    /// Choices to make, over all prompts.
    pub choices: u32,
    /// How long the client will wait.
    pub wait_max: Option<Micros>,
}

/// How a backend failed before its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// With an error, or without being reached: nothing is charged.
    Error,
    /// It has the request and gave no answer in time: it may have worked on it all the while, and is charged for that time.
    TimedOut,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The ending's name.
    pub outcome: Outcome,
    /// What the backend gave.
    pub answer: Answer,
    /// Usage that the backend reported.
    pub reported: Reported,
    /// Output tokens counted from what passed through.
    pub counted_output: Tokens,
}

/// What a backend gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing, or a failure of its own: no token is charged and the request unit comes back.
    Nothing,
    /// It refused the request (a status from 400 to 499): no token is charged, the request unit stays.
    Rejected,
    /// Content, or work whose content has not been seen.
    Content,
}

/// Usage as a backend reported it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// All input tokens.
    pub input: Option<Tokens>,
    /// The part of them that came from a cache.
    pub cached: Tokens,
    /// Output tokens.
    pub output: Option<Tokens>,
    /// A running count of a stream that was cut, not the final block.
    pub partial: bool,
}

/// The ending's name, as in the usage log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The answer is complete.
    Completed,
    /// Cut by the backend.
    Interrupted,
    /// Failed before the first byte.
    UpstreamError,
    /// An error event in the middle of a stream.
    UpstreamErrorMidStream,
    /// Success without content.
    UpstreamEmpty,
    /// The backend took too long.
    UpstreamTimeout,
    /// The client left.
    ClientGone,
    /// Cut because a budget was used up.
    BudgetEnd,
    /// Cut by the gateway's own end.
    Shutdown,
    /// Refused.
    Refused,
}

/// Where the charged usage comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsageSource {
    /// A final usage block.
    Reported,
    /// The last running usage of a stream that was cut.
    ReportedPartial,
    /// Input reported, output counted.
    Mixed,
    /// Nothing was reported.
    Estimated,
    /// Nothing ran.
    None,
}

/// The account of a request that was admitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// Which request.
    pub request: RequestId,
    /// Who is charged.
    pub tenant: TenantId,
    /// The backend that ran it last.
    pub backend: Option<BackendId>,
    /// The ending's name.
    pub outcome: Outcome,
    /// Tokens used.
    pub used: Used,
    /// Where `used` comes from.
    pub source: UsageSource,
    /// Tokens reserved at admission.
    pub reserved: Tokens,
    /// Tokens charged: `used` with cached input at its weight.
    pub charged: Tokens,
    /// Work in the pool's weights, in thousandths of a token.
    pub work_millis: u64,
    /// Time from arrival to the first dispatch, or to the end if it never was dispatched.
    pub queued: Micros,
    /// Dispatches to a backend.
    pub attempts: u32,
}

impl Outcome {
    /// The name in the usage log and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Interrupted => "interrupted",
            Self::UpstreamError => "upstream_error",
            Self::UpstreamErrorMidStream => "upstream_error_mid_stream",
            Self::UpstreamEmpty => "upstream_empty",
            Self::UpstreamTimeout => "upstream_timeout",
            Self::ClientGone => "client_gone",
            Self::BudgetEnd => "budget_end",
            Self::Shutdown => "shutdown",
            Self::Refused => "refused",
        }
    }
}

impl UsageSource {
    /// The name in the usage log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::ReportedPartial => "reported_partial",
            Self::Mixed => "mixed",
            Self::Estimated => "estimated",
            Self::None => "none",
        }
    }
}
