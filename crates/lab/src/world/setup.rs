//! What a run is made of: who sends what, through which policy, to which backends, and what goes wrong.

use std::sync::Arc;

use fairlane_core::policy::{BackendId, KeyId, ModelId, Policy, TenantId};
use fairlane_core::units::{Micros, Moment, Tokens};

use super::driver::Store;
use super::fault::Fault;
use crate::shape::Shape;
use crate::traffic::{Arrival, Class};

/// A run of the world.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Who sends; a request's `arrival.tenant` is a place in this list.
    pub senders: Vec<Sender>,
    /// The requests that clients send by themselves, in the order of time.
    pub offers: Vec<Offer>,
    /// Requests come before this span is over, and rates are taken over it.
    pub length: Micros,
    /// The world ends at the latest after this span; without it, when nothing happens any more.
    pub ends: Option<Micros>,
    /// The backends, each named by its pool and place in the policy.
    pub backends: Vec<(BackendId, Shape)>,
    /// What decides.
    pub policy: Arc<Policy>,
    /// When its limit store answers.
    pub store: Store,
    /// What goes wrong, in the order of time.
    pub faults: Vec<(Moment, Fault)>,
    /// What the gateway's edge does by itself.
    pub edge: Edge,
    /// Whether the laws of the house are watched.
    pub watch: Watch,
    /// Seed of what clients and stores do by chance; the traffic has its own.
    pub seed: u64,
}

/// A tenant's clients.
#[derive(Clone, Debug)]
pub struct Sender {
    /// The tenant's name.
    pub name: String,
    /// What its requests are for, whatever class the policy puts them in.
    pub class: Class,
    /// The tenant in the policy.
    pub tenant: TenantId,
    /// What a refused client does.
    pub comeback: Comeback,
    /// A client that has no first token after this span leaves; without it, it stays.
    pub patience: Option<Micros>,
}

/// What a refused client does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Comeback {
    /// It gives up.
    #[default]
    GivesUp,
    /// It tries again after this span, whatever it was told.
    After {
        /// The span.
        wait: Micros,
        /// Retries, at most.
        tries_max: u32,
    },
    /// It tries again after the wait that it was told, and up to so many per cent of it more.
    AsTold {
        /// Jitter in per cent.
        jitter_percent: u32,
        /// Retries, at most.
        tries_max: u32,
    },
}

/// A request that a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// When, whose, and how large.
    pub arrival: Arrival,
    /// For which model.
    pub model: ModelId,
    /// With which credential.
    pub key: Option<KeyId>,
    /// Of which agent run.
    pub run: Option<u128>,
    /// Of which end user.
    pub end_user: Option<u128>,
    /// Choices that it asks for; its output is that of all of them.
    pub choices: u32,
    /// What the gateway takes its input for before it counts: the least and the most.
    pub estimate: Option<(Tokens, Tokens)>,
}

/// What the gateway's edge does by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    /// A backend that sends nothing for this span is given up; without it, never.
    pub quiet_max: Option<Micros>,
    /// How long it takes until a backend's death, or return, is noticed.
    pub health_check: Micros,
}

/// Whether the laws of the house are watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watch {
    /// No: the run is as fast as can be.
    #[default]
    Nothing,
    /// Both ledger laws after every event, and at the end that nothing is left.
    Laws,
}

impl Offer {
    /// A plain request for the first model.
    #[must_use]
    pub const fn of(arrival: Arrival) -> Self {
        Self { arrival, model: ModelId(0), key: None, run: None, end_user: None, choices: 1, estimate: None }
    }
}
