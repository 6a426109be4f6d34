//! Teams, tiers and tenants.

use std::collections::HashMap;

use fairlane_core::bucket::{Rate, Shape};
use fairlane_core::policy::{
    Charging, ClassId, ModelId, OnBudgetEnd, OnClientGone, Runs, ScopeLimits, Team, TeamId, Tenant, TenantId,
    WEIGHT_ONE_MILLIS, WithoutRunId,
};
use fairlane_core::units::{Amount, Micros};

use super::limits::{Models, tokens};
use super::{Resolver, Spot};
use crate::config::edge::OPEN_TENANT;
use crate::config::keys::KeyTable;
use crate::config::raw;
use crate::config::scalars::{Count, Name, TimeSpan};

/// The teams with their numbers by name.
pub(super) struct Teams {
    pub(super) list: Vec<Team>,
    pub(super) ids: HashMap<String, u32>,
}

/// The tenants with their keys.
pub(super) struct Tenants {
    pub(super) list: Vec<Tenant>,
    pub(super) keys: KeyTable,
}

/// What tenants may refer to.
pub(super) struct Known<'b> {
    pub(super) classes: &'b HashMap<String, u32>,
    pub(super) teams: &'b HashMap<String, u32>,
    pub(super) models: &'b HashMap<String, u32>,
    /// Backends may come to list further models.
    pub(super) more_models: bool,
}

impl<'a> Resolver<'a> {
    pub(super) fn teams(&mut self, models: &Models) -> Teams {
        let entries = self.listed("teams", &self.source.document.teams, |part| &part.teams);
        let ids = self.numbered("team", entries.iter().map(|(spot, team)| (spot.key("name"), &team.name)));
        let nothing = HashMap::new();
        let known =
            Known { classes: &nothing, teams: &nothing, models: &models.ids, more_models: models.may_grow };
        let mut list = Vec::new();
        for (spot, team) in entries {
            self.check_limits(&spot.key("limits"), team.limits.as_ref());
            list.push(Team {
                name: team.name.0.clone(),
                weight_millis: self.weight(&spot, team.weight),
                limits: self.scope_limits(&spot, team.limits.as_ref(), &team.models, &known),
            });
        }
        Teams { list, ids }
    }

    pub(super) fn tenants(&mut self, known: &Known<'_>) -> Tenants {
        let entries = self.listed("tenants", &self.source.document.tenants, |part| &part.tenants);
        let ids =
            self.numbered("tenant", entries.iter().map(|(spot, tenant)| (spot.key("name"), &tenant.name)));
        let open = self.open_tenant(&ids);
        let tiers = self.tiers(known);
        let mut filed = self.filed_keys(&ids);
        if entries.is_empty() {
            return Tenants { list: vec![open_tenant()], keys: KeyTable::open(TenantId(0)) };
        }
        let mut keys = KeyTable::closed(open);
        let mut list = Vec::new();
        for (index, (spot, written)) in entries.iter().enumerate() {
            let id = TenantId(index as u32);
            let own =
                written.keys.iter().enumerate().map(|(index, key)| (spot.key("keys").index(index), &key.0));
            let all: Vec<_> = own.chain(filed.remove(&id.0).unwrap_or_default()).collect();
            if all.is_empty() && open != Some(id) {
                self.warn(&spot.key("name"), "the tenant has no key, so that nobody can use it");
            }
            let tenant_keys = self.keys_of(id, &all, &mut keys, known);
            let tier = self.tier_of(spot, written, &tiers);
            list.push(Tenant { keys: tenant_keys, ..self.tenant(spot, written, tier, known) });
        }
        Tenants { list, keys }
    }

    fn open_tenant(&mut self, ids: &HashMap<String, u32>) -> Option<TenantId> {
        let name = self.source.document.open_tenant.as_ref()?;
        self.reference(&Spot::of("open_tenant"), "tenant", name, ids).map(TenantId)
    }

    /// The tiers by name, each checked once here and not again in every tenant that has it.
    fn tiers(&mut self, known: &Known<'_>) -> HashMap<&'a str, (Spot, &'a raw::Tier)> {
        let parts = self.source.parts.iter().map(|(file, part)| (*file, &part.tiers));
        let all = std::iter::once((0, &self.source.document.tiers)).chain(parts);
        let entries: Vec<(Spot, &'a Name, &'a raw::Tier)> = all
            .flat_map(|(file, tiers)| {
                tiers.iter().map(move |(name, tier)| {
                    let spot = Spot { file, path: crate::config::path::Path::of("tiers").key(&name.0) };
                    (spot, name, tier)
                })
            })
            .collect();
        self.numbered("tier", entries.iter().map(|(spot, name, _)| (spot.clone(), *name)));
        for (spot, _, tier) in &entries {
            self.check_limits(&spot.key("limits"), tier.limits.as_ref());
            if let Some(class) = &tier.class {
                self.reference(&spot.key("class"), "class", class, known.classes);
            }
            self.check_runs(&spot.key("runs"), tier.runs.as_ref());
            self.check_end_users(&spot.key("end_users"), tier.end_users.as_ref());
        }
        entries.into_iter().map(|(spot, name, tier)| (name.0.as_str(), (spot, tier))).collect()
    }

    fn tier_of(
        &mut self,
        spot: &Spot,
        written: &raw::Tenant,
        tiers: &HashMap<&'a str, (Spot, &'a raw::Tier)>,
    ) -> Option<&'a raw::Tier> {
        let name = written.tier.as_ref()?;
        let found = tiers.get(name.0.as_str()).map(|(_, tier)| *tier);
        if found.is_none() {
            let message = super::unknown("tier", &name.0, tiers.keys().copied());
            self.problem(&spot.key("tier"), message);
        }
        found
    }

    fn tenant(
        &mut self,
        spot: &Spot,
        written: &raw::Tenant,
        tier: Option<&raw::Tier>,
        known: &Known<'_>,
    ) -> Tenant {
        let nothing = raw::Tier::default();
        let tier = tier.unwrap_or(&nothing);
        self.check_limits(&spot.key("limits"), written.limits.as_ref());
        self.check_runs(&spot.key("runs"), written.runs.as_ref());
        self.check_end_users(&spot.key("end_users"), written.end_users.as_ref());
        let limits = over(written.limits.as_ref(), tier.limits.as_ref(), raw::Limits::over);
        let runs = over(written.runs.as_ref(), tier.runs.as_ref(), raw::Runs::over);
        let end_users = over(written.end_users.as_ref(), tier.end_users.as_ref(), raw::EndUsers::over);
        let charging = match written.charging.or(tier.charging) {
            None | Some(raw::Charging::Reserve) => Charging::Reserve,
            Some(raw::Charging::Quantile) => Charging::Quantile,
            Some(raw::Charging::Postpay) => Charging::Postpay,
        };
        let on_client_gone = match written.on_client_gone.or(tier.on_client_gone) {
            None | Some(raw::OnClientGone::Cancel) => OnClientGone::Cancel,
            Some(raw::OnClientGone::Drain) => OnClientGone::Drain,
        };
        let on_budget_end = match written.on_budget_end.or(tier.on_budget_end) {
            None | Some(raw::OnBudgetEnd::Finish) => OnBudgetEnd::Finish,
            Some(raw::OnBudgetEnd::Stop) => OnBudgetEnd::Stop,
        };
        if charging != Charging::Postpay {
            limits.iter().for_each(|limits| self.check_buckets(&spot.key("limits"), limits));
            end_users.iter().for_each(|users| self.check_buckets(&spot.key("end_users"), &users.limits()));
        }
        let team = written
            .team
            .as_ref()
            .and_then(|team| self.reference(&spot.key("team"), "team", team, known.teams))
            .map(TeamId);
        let class = match &written.class {
            Some(class) => self.reference(&spot.key("class"), "class", class, known.classes),
            None => tier.class.as_ref().and_then(|class| known.classes.get(&class.0).copied()),
        };
        Tenant {
            name: written.name.0.clone(),
            team,
            class: ClassId(class.unwrap_or(0)),
            weight_millis: self.weight(spot, written.weight),
            limits: self.scope_limits(spot, limits.as_ref(), &written.models, known),
            charging,
            on_client_gone,
            on_budget_end,
            allowed_models: self.allowed_models(spot, written, known),
            keys: Vec::new(),
            runs: runs.map(|runs| self.runs(&spot.key("runs"), &runs, known)),
            end_users: end_users.map(|users| {
                self.scope_limits(&spot.key("end_users"), Some(&users.limits()), &users.models, known)
            }),
        }
    }

    fn allowed_models(
        &mut self,
        spot: &Spot,
        written: &raw::Tenant,
        known: &Known<'_>,
    ) -> Option<Vec<ModelId>> {
        let names = written.allowed_models.as_ref()?;
        let spot = spot.key("allowed_models");
        let found = names
            .iter()
            .enumerate()
            .filter_map(|(index, name)| self.model(&spot.index(index), &name.0, known));
        Some(found.collect())
    }

    fn check_end_users(&mut self, spot: &Spot, written: Option<&raw::EndUsers>) {
        let Some(written) = written else { return };
        self.check_cached_weight(spot, written.cached_input_weight);
    }

    fn check_runs(&mut self, spot: &Spot, written: Option<&raw::Runs>) {
        let Some(written) = written else { return };
        self.check_cached_weight(spot, written.cached_input_weight);
        let span = |secs: u64| TimeSpan(Micros::from_secs(secs));
        self.bounded(
            &spot.key("idle_expiry"),
            written.idle_expiry,
            IDLE_EXPIRY_DEFAULT,
            (span(1)..=span(366 * 86_400), "1s to 366d"),
        );
        self.bounded(
            &spot.key("max_live"),
            written.max_live,
            LIVE_DEFAULT,
            (Count(1)..=Count(1_000_000), "1 to 1,000,000"),
        );
    }

    fn runs(&mut self, spot: &Spot, written: &raw::Runs, known: &Known<'_>) -> Runs {
        let new_per_minute = u64::from(written.new_per_minute.unwrap_or(NEW_PER_MINUTE_DEFAULT).0);
        Runs {
            token_budget: written.token_budget.map(tokens),
            max_steps: written.max_steps.map(|steps| steps.0),
            limits: self.scope_limits(spot, Some(&written.limits()), &written.models, known),
            idle_expiry: written.idle_expiry.unwrap_or(IDLE_EXPIRY_DEFAULT).0,
            max_live: written.max_live.unwrap_or(LIVE_DEFAULT).0,
            new_runs: Rate::new(new_per_minute, 60).map(|rate| Shape {
                rate,
                capacity: Amount::whole(new_per_minute),
                debt_max: Amount::ZERO,
            }),
            without_id: match written.without_id {
                None | Some(raw::WithoutId::Shared) => WithoutRunId::Shared,
                Some(raw::WithoutId::EndUser) => WithoutRunId::EndUser,
                Some(raw::WithoutId::Refuse) => WithoutRunId::Refuse,
            },
        }
    }
}

/// The tenant that everybody is where no tenant is configured.
fn open_tenant() -> Tenant {
    Tenant {
        name: OPEN_TENANT.to_owned(),
        team: None,
        class: ClassId(0),
        weight_millis: WEIGHT_ONE_MILLIS,
        limits: ScopeLimits::default(),
        charging: Charging::Reserve,
        on_client_gone: OnClientGone::Cancel,
        on_budget_end: OnBudgetEnd::Finish,
        allowed_models: None,
        keys: Vec::new(),
        runs: None,
        end_users: None,
    }
}

/// One block over the other where there are two, else the one there is.
fn over<T: Clone>(own: Option<&T>, base: Option<&T>, merge: impl Fn(&T, &T) -> T) -> Option<T> {
    match (own, base) {
        (Some(own), Some(base)) => Some(merge(own, base)),
        (one, other) => one.or(other).cloned(),
    }
}

const IDLE_EXPIRY_DEFAULT: TimeSpan = TimeSpan(Micros::from_secs(30 * 60));
const LIVE_DEFAULT: Count = Count(1_000);
const NEW_PER_MINUTE_DEFAULT: Count = Count(60);
