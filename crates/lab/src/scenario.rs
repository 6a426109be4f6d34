//! A scenario: traffic, backends, what goes wrong, and the policies that are compared on it.

use std::sync::Arc;

use fairlane_core::policy::{BackendId, Policy, PoolId, TenantId};
use fairlane_core::units::{Micros, Moment};

use crate::shape::Shape;
use crate::traffic::{Arrival, Tenant, Traffic};
use crate::world::{self, Broken, Comeback, Edge, Fault, Figures, Offer, Sender, Setup, Store, Watch};

/// A scenario. Its traffic is a function of a seed; every policy sees the same.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it shows, in a line.
    pub name: String,
    /// Who sends.
    pub clients: Vec<Clients>,
    /// Requests come before this span is over.
    pub length: Micros,
    /// How long the run goes on after that, so that waits are not cut off.
    pub drain: Micros,
    /// The replicas of the one pool.
    pub replicas: Vec<Shape>,
    /// What goes wrong, in the order of time.
    pub faults: Vec<(Moment, Fault)>,
    /// A backend that sends nothing for this span is given up; without it, never.
    pub quiet_max: Option<Micros>,
    /// The policies by name; each has a tenant of the name of each of the clients.
    pub policies: Vec<(String, Arc<Policy>)>,
}

/// The clients of one tenant.
#[derive(Clone, Debug)]
pub struct Clients {
    /// What they send.
    pub traffic: Tenant,
    /// What they do when they are refused.
    pub comeback: Comeback,
    /// How long they wait for a first token.
    pub patience: Option<Micros>,
}

impl Scenario {
    /// The requests of a seed.
    pub fn traffic(&self, seed: u64) -> impl Iterator<Item = Arrival> + use<> {
        let tenants = self.clients.iter().map(|clients| clients.traffic.clone()).collect();
        Traffic::seeded(tenants, seed, Moment(self.length.0))
    }

    /// One run.
    #[must_use]
    pub fn setup(&self, policy: &Arc<Policy>, seed: u64) -> Setup {
        let of_name = |name: &str| policy.tenants.iter().position(|tenant| tenant.name == name).unwrap_or(0);
        let senders = self.clients.iter().map(|clients| Sender {
            name: clients.traffic.name.to_string(),
            class: clients.traffic.class,
            tenant: TenantId(of_name(&clients.traffic.name) as u32),
            comeback: clients.comeback,
            patience: clients.patience,
        });
        let replicas = (0..).zip(&self.replicas);
        Setup {
            senders: senders.collect(),
            offers: self.traffic(seed).map(Offer::of).collect(),
            length: self.length,
            ends: Some(Micros(self.length.0.saturating_add(self.drain.0))),
            backends: replicas.map(|(index, shape)| (BackendId { pool: PoolId(0), index }, *shape)).collect(),
            policy: Arc::clone(policy),
            store: Store::AtOnce,
            faults: self.faults.clone(),
            edge: Edge { quiet_max: self.quiet_max, health_check: HEALTH_CHECK },
            watch: Watch::Nothing,
            seed,
        }
    }

    /// Runs one seed under one policy.
    ///
    /// # Errors
    /// The world would never end.
    pub fn run(&self, policy: &Arc<Policy>, seed: u64) -> Result<Figures, Broken> {
        world::run(self.setup(policy, seed)).map(|run| run.figures)
    }
}

/// How long it takes a health check to notice that a backend is gone, or back.
const HEALTH_CHECK: Micros = Micros::from_secs(1);
