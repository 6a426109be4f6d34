//! What can go wrong in the simulated world: a script of these is a fault scenario.

use std::sync::Arc;

use fairlane_core::policy::{BackendId, Policy, TenantId};
use fairlane_core::units::{Micros, Tokens};

/// One thing that happens at its moment.
#[derive(Clone, Debug)]
pub enum Fault {
    /// A backend is gone with all that it ran; connections to it are refused.
    Dies(BackendId),
    /// A backend that was gone is there again, empty.
    Returns(BackendId),
    /// A backend stands still for so long; its connections stay open.
    Stalls(BackendId, Micros),
    /// Each step of a backend lasts so many per cent of what it should.
    Slows(BackendId, u32),
    /// A backend answers what it is sent from now on in this way.
    Answers(BackendId, Manner),
    /// What a backend reports as usage from now on.
    Reports(BackendId, Honesty),
    /// Each client of a live request leaves, with this probability in per cent.
    ClientsVanish(u32),
    /// The gate's clock goes forwards by so much, or backwards.
    ClockJumps(i64),
    /// The configuration changes. The ids of tenants and models must mean the same as before.
    Reload(Arc<Policy>),
    /// An operator raises the budget of a run.
    Raise(TenantId, u128, Tokens),
    /// Every engine's own metrics are read.
    Scrape,
    /// The gateway shuts down: what waits is refused, what runs finishes.
    Drain,
}

/// How a backend answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// It does the work.
    #[default]
    Serves,
    /// 429 or 503, at once, with the pause that it asks for.
    IsBusy(Option<Micros>),
    /// 500, at once.
    Fails,
    /// 400, at once.
    Rejects,
    /// 200 without content, at once, and without usage.
    IsEmpty,
    /// An error event in the place of the first token after this one.
    BreaksAfter(u64),
}

/// What a backend reports as usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Honesty {
    /// What it did.
    #[default]
    Honest,
    /// Nothing.
    Silent,
    /// The input, but not the output.
    InputAlone,
    /// So many per cent of what it did.
    Percent(u64),
    /// A number that no request can have.
    Absurd,
}
