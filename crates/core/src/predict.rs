//! What outputs are likely: the recent ones of a tenant for a model and a size of output bound.

mod recent;

use alloc::collections::BTreeMap;
use core::ops::Bound;

use self::recent::Recent;
use crate::policy::{ModelId, TenantId};
use crate::units::{Micros, Tokens};

pub use self::recent::SAMPLES;

/// Recent outputs. Bounded: at most [`GROUPS_MAX`] groups of [`SAMPLES`] outputs.
#[derive(Clone, Debug, Default)]
pub struct Predictor {
    groups: BTreeMap<Group, Known>,
    /// The group that is looked at first when another one has to make room.
    hand: Option<Group>,
    models: BTreeMap<ModelId, Mean>,
    /// Microseconds for each token of one choice, by model, and over all of them.
    paces: BTreeMap<ModelId, Mean>,
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
struct Known {
    recent: Recent,
    /// It has learned something since the hand passed.
    is_fresh: bool,
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
            self.make_room();
        }
        let known = self.groups.entry(group).or_default();
        known.recent.push(u32::try_from(output.0).unwrap_or(u32::MAX));
        known.is_fresh = true;
        self.models.entry(model).or_default().add(output.0);
        if output.0 > 0 && elapsed > Micros::ZERO {
            self.paces.entry(model).or_default().add(elapsed.0 / output.0);
            self.pace.add(elapsed.0 / output.0);
        }
    }

    /// The mean of recent outputs, at most `bound`.
    #[must_use]
    pub fn mean(&self, tenant: TenantId, model: ModelId, bound: Tokens) -> Tokens {
        self.likely(tenant, model, bound, Recent::mean)
    }

    /// The median of recent outputs, at most `bound`.
    #[must_use]
    pub fn p50(&self, tenant: TenantId, model: ModelId, bound: Tokens) -> Tokens {
        self.likely(tenant, model, bound, |recent| recent.quantile_percent(50))
    }

    /// The 90th percentile of recent outputs, at most `bound`.
    #[must_use]
    pub fn p90(&self, tenant: TenantId, model: ModelId, bound: Tokens) -> Tokens {
        self.likely(tenant, model, bound, |recent| recent.quantile_percent(90))
    }

    /// The 99th percentile of recent outputs, at most `bound`.
    #[must_use]
    pub fn p99(&self, tenant: TenantId, model: ModelId, bound: Tokens) -> Tokens {
        self.likely(tenant, model, bound, |recent| recent.quantile_percent(99))
    }

    /// Output tokens that a choice of this model has made after `elapsed`, by the pace measured from dispatch to end; by that of
    /// all models before one of this was measured, `None` before any was.
    #[must_use]
    pub fn made_in(&self, model: ModelId, elapsed: Micros) -> Option<Tokens> {
        let pace = self.paces.get(&model).unwrap_or(&self.pace);
        (pace.samples > 0).then(|| Tokens(elapsed.0.saturating_mul(1_000) / pace.millis.max(1)))
    }

    fn likely(&self, tenant: TenantId, model: ModelId, bound: Tokens, of: impl Fn(&Recent) -> u64) -> Tokens {
        let known = self.groups.get(&Group::new(tenant, model, bound));
        match known.filter(|known| known.recent.is_warm()) {
            Some(known) => Tokens(of(&known.recent)).min(bound),
            None => self.cold(model, bound),
        }
    }

    /// Forgets a group that has learned nothing for long: the first one that the hand finds so, going round.
    fn make_room(&mut self) {
        for _ in 0..STEPS_MAX {
            let from = self.hand.map_or(Bound::Unbounded, Bound::Excluded);
            let next = self.groups.range_mut((from, Bound::Unbounded)).next();
            let Some((group, known)) = next else {
                self.hand = None;
                continue;
            };
            self.hand = Some(*group);
            if !core::mem::take(&mut known.is_fresh) {
                break;
            }
        }
        if let Some(group) = self.hand.take() {
            self.groups.remove(&group);
            self.hand = Some(group);
        } else {
            self.groups.pop_first();
        }
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
const MEAN_WINDOW: u64 = 64;
/// Groups remembered.
pub const GROUPS_MAX: usize = 100_000;
/// Groups that are looked at to find one to forget: bounds the work of one call.
const STEPS_MAX: usize = 64;
