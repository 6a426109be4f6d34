//! A refusal as a value: which limit bound, what was asked, what was left, and when to come back.

use crate::scope::Limit;
use crate::units::{Micros, Tokens};

/// Why a request was refused, and whether coming back helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// The limit that bound, where one did.
    pub limit: Option<Limit>,
    /// What the request asked of that limit, in whole units.
    pub asked: u64,
    /// What was left there, in whole units; never below zero.
    pub left: u64,
    /// When to come back.
    pub retry: Retry,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The input is above the cap of a request.
    InputTooLarge,
    /// The output asked for is above the cap, and the policy refuses instead of lowering.
    OutputTooLarge,
    /// The cost is above what a bucket can ever hold.
    NeverFits,
    /// A limit is used up for the moment.
    LimitExhausted,
    /// An agent run has used its tokens.
    RunBudgetSpent,
    /// An agent run has made its steps.
    RunStepsSpent,
    /// The tenant has as many live runs as it may.
    TooManyRuns,
    /// The tenant's requests must name their run.
    RunIdMissing,
    /// The queue is full.
    QueueFull,
    /// The wait in the queue was too long.
    WaitTooLong,
    /// No backend is alive.
    NoBackend,
    /// The gateway is shutting down.
    Shutdown,
}

/// When to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Never: the same request would be refused again.
    Never,
    /// After this long. Where the limit is shared between tenants, the edge adds jitter upwards.
    After(Micros),
}

impl Refusal {
    /// A refusal that no limit's level decided.
    #[must_use]
    pub const fn plain(reason: Reason, retry: Retry) -> Self {
        Self { reason, limit: None, asked: 0, left: 0, retry }
    }

    /// A refusal by a bound of `cap` on one request that asked for `asked`.
    #[must_use]
    pub const fn over_cap(reason: Reason, asked: Tokens, cap: Tokens) -> Self {
        Self { reason, limit: None, asked: asked.0, left: cap.0, retry: Retry::Never }
    }
}

impl Reason {
    /// The name in metrics and in the admin API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InputTooLarge => "input_too_large",
            Self::OutputTooLarge => "output_too_large",
            Self::NeverFits => "never_fits",
            Self::LimitExhausted => "limit_exhausted",
            Self::RunBudgetSpent => "run_budget_spent",
            Self::RunStepsSpent => "run_steps_spent",
            Self::TooManyRuns => "too_many_runs",
            Self::RunIdMissing => "run_id_missing",
            Self::QueueFull => "queue_full",
            Self::WaitTooLong => "wait_too_long",
            Self::NoBackend => "no_backend",
            Self::Shutdown => "shutdown",
        }
    }
}
