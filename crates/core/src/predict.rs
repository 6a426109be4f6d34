//! What outputs are likely: the recent ones of a tenant for a model and a size of output bound.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::policy::{ModelId, TenantId};
use crate::units::{Micros, Tokens};

/// Recent outputs. Bounded: at most [`GROUPS_MAX`] groups of [`SAMPLES`] outputs.
#[derive(Clone, Debug, Default)]
pub struct Predictor {
    groups: BTreeMap<Group, Ring>,
    models: BTreeMap<ModelId, Mean>,
    pace: Mean,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    tenant: TenantId,
    model: ModelId,
    /// Power of two of the output bound: a request for 16 tokens says nothing about one for 4,096.
    bound_class: u32,
}

#[derive(Clone, Debug, Default)]
struct Ring {
    outputs: Vec<u32>,
    next: usize,
}

/// A moving mean in thousandths.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    millis: u64,
    samples: u64,
}

impl Predictor {
    /// Takes note of a finished choice: `output` tokens under `bound`, made in `elapsed`.
    pub fn learn(
        &mut self,
        tenant: TenantId,
        model: ModelId,
        bound: Tokens,
        output: Tokens,
        elapsed: Micros,
    ) {
        let group = Group::new(tenant, model, bound);
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&group) {
            self.groups.pop_first();
        }
        self.groups.entry(group).or_default().push(u32::try_from(output.0).unwrap_or(u32::MAX));
        self.models.entry(model).or_default().add(output.0);
        if output.0 > 0 && elapsed > Micros::ZERO {
            self.pace.add(elapsed.0 / output.0);
        }
    }

    /// The mean of recent outputs, at most `bound`.
    #[must_use]
    pub fn mean(&self, tenant: TenantId, model: ModelId, bound: Tokens) -> Tokens {
        match self.warm(tenant, model, bound) {
            Some(ring) => Tokens(ring.mean()).min(bound),
            None => self.cold(model, bound),
        }
    }

    /// The 90th percentile of recent outputs, at most `bound`.
    #[must_use]
    pub fn p90(&self, tenant: TenantId, model: ModelId, bound: Tokens) -> Tokens {
        match self.warm(tenant, model, bound) {
            Some(ring) => Tokens(ring.quantile_percent(90)).min(bound),
            None => self.cold(model, bound),
        }
    }

    /// Output tokens that a stream makes in `elapsed`, by the pace measured; `None` before any was measured.
    #[must_use]
    pub fn made_in(&self, elapsed: Micros) -> Option<Tokens> {
        (self.pace.samples > 0).then(|| Tokens(elapsed.0.saturating_mul(1_000) / self.pace.millis.max(1)))
    }

    fn warm(&self, tenant: TenantId, model: ModelId, bound: Tokens) -> Option<&Ring> {
        self.groups.get(&Group::new(tenant, model, bound)).filter(|ring| ring.outputs.len() >= SAMPLES_WARM)
    }

    /// Before enough samples: min(bound, the model's mean, 512).
    fn cold(&self, model: ModelId, bound: Tokens) -> Tokens {
        let mean = self
            .models
            .get(&model)
            .filter(|mean| mean.samples > 0)
            .map_or(COLD, |mean| Tokens(mean.millis / 1_000));
        bound.min(mean).min(COLD)
    }
}

impl Group {
    fn new(tenant: TenantId, model: ModelId, bound: Tokens) -> Self {
        Self { tenant, model, bound_class: bound.0.checked_ilog2().map_or(0, |log| log + 1) }
    }
}

impl Ring {
    fn push(&mut self, output: u32) {
        if self.outputs.len() < SAMPLES {
            self.outputs.push(output);
        } else {
            self.outputs[self.next] = output;
        }
        self.next = (self.next + 1) % SAMPLES;
    }

    fn mean(&self) -> u64 {
        let sum: u64 = self.outputs.iter().map(|output| u64::from(*output)).sum();
        sum.div_ceil(self.outputs.len() as u64)
    }

    fn quantile_percent(&self, percent: usize) -> u64 {
        let mut sorted = self.outputs.clone();
        sorted.sort_unstable();
        let place = (sorted.len() * percent).div_ceil(100).max(1) - 1;
        u64::from(sorted[place])
    }
}

impl Mean {
    /// Weighs the newest sample with 1/64, or with 1/n while there are fewer.
    fn add(&mut self, sample: u64) {
        self.samples = self.samples.saturating_add(1);
        let weight = self.samples.min(MEAN_WINDOW);
        let sample_millis = sample.saturating_mul(1_000);
        if sample_millis >= self.millis {
            self.millis += (sample_millis - self.millis) / weight;
        } else {
            self.millis -= (self.millis - sample_millis) / weight;
        }
    }
}

const COLD: Tokens = Tokens(512);
const SAMPLES_WARM: usize = 8;
const MEAN_WINDOW: u64 = 64;
/// Outputs remembered per group.
pub const SAMPLES: usize = 64;
/// Groups remembered.
pub const GROUPS_MAX: usize = 100_000;
