//! Blocks of limits. Their values are checked when they are read, so that nothing here can fail.

use std::collections::{BTreeMap, HashMap};

use fairlane_core::policy::{
    Concurrency, DEFAULT_MAX_OUTPUT, Dimension, Limits, ModelId, OnExcess, OnOutputExcess, RateLimit,
    ScopeLimits,
};
use fairlane_core::units::{Micros, Tokens};

use super::tenants::Known;
use super::{Resolver, Spot, unknown};
use crate::config::raw;
use crate::config::scalars::{Count, Decimal, TimeSpan};

impl Resolver<'_> {
    pub(super) fn service(&mut self) -> Limits {
        let Some(written) = &self.source.document.service else { return Limits::default() };
        let spot = Spot::of("service");
        self.shared_limits(&spot, written)
    }

    /// Limits that tenants share.
    pub(super) fn shared_limits(&mut self, spot: &Spot, written: &raw::SharedLimits) -> Limits {
        self.check_hold(spot, written.hold);
        self.check_cached_weight(spot, written.cached_input_weight);
        limits(&written.into())
    }

    /// Limits of one asker, with those for single models besides.
    pub(super) fn scope_limits(
        &mut self,
        spot: &Spot,
        written: Option<&raw::Limits>,
        models: &raw::ModelLimitsMap,
        known: &Known<'_>,
    ) -> ScopeLimits {
        let all = written.map(limits).unwrap_or_default();
        let mut by_model = BTreeMap::new();
        for (name, entry) in models {
            let at = spot.key("models").key(&name.0);
            self.check_limits(&at.key("limits"), entry.limits.as_ref());
            if let Some(model) = self.model(&at, &name.0, known) {
                by_model.insert(model, entry.limits.as_ref().map(limits).unwrap_or_default());
            }
        }
        ScopeLimits { all, models: by_model }
    }

    /// The model of that name. Unknown is an error, unless a backend may come to list it.
    pub(super) fn model(&mut self, spot: &Spot, name: &str, known: &Known<'_>) -> Option<ModelId> {
        let found = known.models.get(name).copied();
        if found.is_none() {
            let message = unknown("model", name, known.models.keys().map(String::as_str));
            if known.more_models {
                self.warn(spot, format!("{message} (no backend lists it yet)"));
            } else {
                self.problem(spot, message);
            }
        }
        found.map(ModelId)
    }

    /// What a block asks for that this version has not.
    pub(super) fn check_limits(&mut self, spot: &Spot, written: Option<&raw::Limits>) {
        let Some(written) = written else { return };
        self.check_hold(spot, written.hold);
        self.check_cached_weight(spot, written.cached_input_weight);
    }

    /// A bucket too small for a usual answer refuses for ever what its rate would allow.
    pub(super) fn check_buckets(&mut self, spot: &Spot, written: &raw::Limits) {
        let output = written.default_max_output_tokens.map_or(DEFAULT_MAX_OUTPUT, tokens);
        let output = written.max_output_tokens.map_or(output, |cap| output.min(tokens(cap)));
        for (key, rate) in [("tokens", written.tokens), ("output_tokens", written.output_tokens)] {
            let Some(rate) = rate.filter(|rate| !rate.shape.rate.is_never()) else { continue };
            let capacity = rate.shape.capacity.floor_units().unsigned_abs();
            if capacity < output.0 {
                self.warn(
                    &spot.key(key),
                    format!("the bucket holds {capacity} tokens, less than the {output} that an answer reserves unless it asks for less: give a longer burst or a lower default_max_output_tokens"),
                );
            }
        }
    }

    pub(super) fn check_cached_weight(&mut self, spot: &Spot, weight: Option<Decimal>) {
        if weight.is_some_and(|weight| weight.millis > 1_000) {
            self.problem(&spot.key("cached_input_weight"), "a cached token weighs from 0 to 1");
        }
    }

    fn check_hold(&mut self, spot: &Spot, hold: Option<TimeSpan>) {
        let Some(hold) = hold.filter(|hold| hold.0 > Micros::ZERO) else { return };
        let spot = spot.key("hold");
        self.bounded(&spot, Some(hold), hold, (TimeSpan(Micros::ZERO)..=TimeSpan(HOLD_MAX), "0s to 1h"));
    }
}

/// A block as the core has it.
pub(super) fn limits(written: &raw::Limits) -> Limits {
    let shadow = written.shadow.unwrap_or(false);
    let rates: Vec<RateLimit> = [
        (Dimension::Requests, written.requests),
        (Dimension::Tokens, written.tokens),
        (Dimension::InputTokens, written.input_tokens),
        (Dimension::OutputTokens, written.output_tokens),
        (Dimension::Work, written.work),
    ]
    .into_iter()
    .filter_map(|(dimension, rate)| rate.map(|rate| rate.limit(dimension, shadow)))
    .collect();
    Limits {
        rates,
        concurrency: written.concurrent_requests.map(|limit| Concurrency {
            limit: limit.0,
            on_excess: match written.on_concurrency_excess {
                Some(raw::OnExcess::Reject) => OnExcess::Reject,
                Some(raw::OnExcess::Queue) | None => OnExcess::Queue,
            },
            shadow,
        }),
        max_input: written.max_input_tokens.map(tokens),
        max_output: written.max_output_tokens.map(tokens),
        default_max_output: written.default_max_output_tokens.map(tokens),
        on_output_excess: match written.on_output_excess {
            Some(raw::OnOutputExcess::Reject) => OnOutputExcess::Reject,
            Some(raw::OnOutputExcess::Clamp) | None => OnOutputExcess::Clamp,
        },
        hold: written.hold.map_or(Micros::ZERO, |hold| hold.0),
        cached_input_weight_millis: written.cached_input_weight.map(|weight| weight.millis),
    }
}

pub(super) fn tokens(count: Count) -> Tokens {
    Tokens(u64::from(count.0))
}

/// The models with their numbers by name.
pub(super) struct Models {
    pub(super) list: Vec<fairlane_core::policy::Model>,
    pub(super) ids: HashMap<String, u32>,
    /// A pool takes whatever its backends list.
    pub(super) may_grow: bool,
}

const HOLD_MAX: Micros = Micros::from_secs(3_600);
