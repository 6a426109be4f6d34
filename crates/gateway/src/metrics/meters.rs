//! The metrics that every request touches, each looked up by its labels once per configuration.

use std::sync::{Arc, OnceLock};

use fairlane_core::gate::Outcome;
use fairlane_core::policy::{ClassId, ModelId, Policy, PoolId, TenantId};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

use super::{
    AttemptLabels, ClassModelLabels, FloatCounter, Metrics, PoolClassLabels, RequestLabels, TENANTS_MAX,
    TokenLabels, WorkLabels, tenant_label,
};
use crate::tallies::{Sums, Tallies};

/// Handles into [`Metrics`] and [`Tallies`] for the ids of one policy, made at their first use.
#[derive(Debug)]
pub struct Meters {
    tenants: Vec<OnceLock<Box<TenantMeters>>>,
    sums: Vec<OnceLock<Arc<Sums>>>,
    classes: Vec<ClassMeters>,
}

#[derive(Debug)]
struct TenantMeters {
    attempts: [Counter; 2],
    outcomes: Vec<[OnceLock<Counter>; OUTCOMES]>,
    tokens: Vec<OnceLock<[Counter; 3]>>,
    work: Vec<OnceLock<FloatCounter>>,
}

#[derive(Debug)]
struct ClassMeters {
    queue_wait: Vec<OnceLock<Histogram>>,
    first_token: Vec<OnceLock<Histogram>>,
    output_pace: Vec<OnceLock<Histogram>>,
}

impl Meters {
    /// Room for the handles of a policy.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        let classes = policy.classes.iter().map(|_| ClassMeters {
            queue_wait: empty(policy.pools.len()),
            first_token: empty(policy.models.len()),
            output_pace: empty(policy.models.len()),
        });
        Self {
            // Those beyond share the last place, as they share a label.
            tenants: empty(policy.tenants.len().min(TENANTS_MAX + 1)),
            sums: empty(policy.tenants.len()),
            classes: classes.collect(),
        }
    }

    /// The sums of a tenant.
    pub fn sums(&self, tallies: &Tallies, policy: &Policy, tenant: TenantId) -> &Sums {
        let id = tenant.0 as usize;
        self.sums[id].get_or_init(|| tallies.sums(&policy.tenants[id].name))
    }

    pub(super) fn attempts(&self, metrics: &Metrics, policy: &Policy, tenant: TenantId) -> &[Counter; 2] {
        &self.tenant(metrics, policy, tenant).attempts
    }

    pub(super) fn outcome(
        &self,
        metrics: &Metrics,
        policy: &Policy,
        (tenant, class): (TenantId, ClassId),
        outcome: Outcome,
    ) -> &Counter {
        self.tenant(metrics, policy, tenant).outcomes[class.0 as usize][outcome as usize].get_or_init(|| {
            let labels = RequestLabels {
                tenant: tenant_label(policy, tenant),
                class: policy.classes[class.0 as usize].name.clone(),
                outcome: outcome.name().to_owned(),
            };
            metrics.requests.get_or_create(&labels).clone()
        })
    }

    /// Uncached input, cached input, output.
    pub(super) fn tokens(
        &self,
        metrics: &Metrics,
        policy: &Policy,
        tenant: TenantId,
        model: ModelId,
    ) -> &[Counter; 3] {
        self.tenant(metrics, policy, tenant).tokens[model.0 as usize].get_or_init(|| {
            ["uncached", "cached", "output"].map(|kind| {
                let labels = TokenLabels {
                    tenant: tenant_label(policy, tenant),
                    model: policy.models[model.0 as usize].name.clone(),
                    kind: kind.to_owned(),
                };
                metrics.tokens.get_or_create(&labels).clone()
            })
        })
    }

    pub(super) fn work(
        &self,
        metrics: &Metrics,
        policy: &Policy,
        tenant: TenantId,
        pool: PoolId,
    ) -> &FloatCounter {
        self.tenant(metrics, policy, tenant).work[pool.0 as usize].get_or_init(|| {
            let pool = policy.pools[pool.0 as usize].name.clone();
            let labels = WorkLabels { tenant: tenant_label(policy, tenant), pool };
            metrics.work.get_or_create(&labels).clone()
        })
    }

    pub(super) fn queue_wait(
        &self,
        metrics: &Metrics,
        policy: &Policy,
        class: ClassId,
        pool: PoolId,
    ) -> &Histogram {
        self.classes[class.0 as usize].queue_wait[pool.0 as usize].get_or_init(|| {
            let class = policy.classes[class.0 as usize].name.clone();
            let labels = PoolClassLabels { pool: policy.pools[pool.0 as usize].name.clone(), class };
            metrics.queue_wait.get_or_create(&labels).clone()
        })
    }

    pub(super) fn first_token(
        &self,
        metrics: &Metrics,
        policy: &Policy,
        class: ClassId,
        model: ModelId,
    ) -> &Histogram {
        self.classes[class.0 as usize].first_token[model.0 as usize]
            .get_or_init(|| metrics.first_token.get_or_create(&class_model(policy, class, model)).clone())
    }

    pub(super) fn output_pace(
        &self,
        metrics: &Metrics,
        policy: &Policy,
        class: ClassId,
        model: ModelId,
    ) -> &Histogram {
        self.classes[class.0 as usize].output_pace[model.0 as usize]
            .get_or_init(|| metrics.output_pace.get_or_create(&class_model(policy, class, model)).clone())
    }

    fn tenant(&self, metrics: &Metrics, policy: &Policy, tenant: TenantId) -> &TenantMeters {
        self.tenants[(tenant.0 as usize).min(TENANTS_MAX)].get_or_init(|| {
            let attempts = ["first", "retry"].map(|kind| {
                let labels = AttemptLabels { tenant: tenant_label(policy, tenant), kind: kind.to_owned() };
                metrics.attempts.get_or_create(&labels).clone()
            });
            Box::new(TenantMeters {
                attempts,
                outcomes: policy.classes.iter().map(|_| std::array::from_fn(|_| OnceLock::new())).collect(),
                tokens: empty(policy.models.len()),
                work: empty(policy.pools.len()),
            })
        })
    }
}

fn class_model(policy: &Policy, class: ClassId, model: ModelId) -> ClassModelLabels {
    ClassModelLabels {
        class: policy.classes[class.0 as usize].name.clone(),
        model: policy.models[model.0 as usize].name.clone(),
    }
}

fn empty<T>(count: usize) -> Vec<OnceLock<T>> {
    (0..count).map(|_| OnceLock::new()).collect()
}

/// Room for every kind of ending.
const OUTCOMES: usize = 16;
