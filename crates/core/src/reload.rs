//! A changed configuration with the ids of the one before, so that cells, queues and reservations keep their owners.

use alloc::string::String;
use alloc::vec::Vec;

use crate::policy::{ClassId, KeyId, ModelId, Policy, PoolId, ScopeLimits, TeamId, TenantId};

/// Where the ids of a fresh policy went when it was aligned: old place in each list to its place in the result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renumbering {
    /// Tenants.
    pub tenants: Vec<u32>,
    /// Keys, per tenant of the fresh policy.
    pub keys: Vec<Vec<u32>>,
    /// Pools.
    pub pools: Vec<u32>,
    /// Backends, per pool of the fresh policy.
    pub backends: Vec<Vec<u32>>,
    /// Models.
    pub models: Vec<u32>,
    /// Teams.
    pub teams: Vec<u32>,
}

impl Renumbering {
    /// The tenant's id in the aligned policy.
    #[must_use]
    pub fn tenant(&self, id: TenantId) -> TenantId {
        TenantId(self.tenants[id.0 as usize])
    }

    /// The key's id in the aligned policy; `tenant` is the fresh policy's.
    #[must_use]
    pub fn key(&self, tenant: TenantId, id: KeyId) -> KeyId {
        KeyId(self.keys[tenant.0 as usize][id.0 as usize])
    }

    /// The pool's id in the aligned policy.
    #[must_use]
    pub fn pool(&self, id: PoolId) -> PoolId {
        PoolId(self.pools[id.0 as usize])
    }

    /// The model's id in the aligned policy.
    #[must_use]
    pub fn model(&self, id: ModelId) -> ModelId {
        ModelId(self.models[id.0 as usize])
    }

    fn scope(&self, scope: &mut ScopeLimits) {
        scope.models = core::mem::take(&mut scope.models)
            .into_iter()
            .map(|(id, limits)| (self.model(id), limits))
            .collect();
    }
}

impl Policy {
    /// This policy with every part that `before` has under the same name in the same place. Parts that are gone keep their
    /// place without anybody pointing to them: backends without slots, tenants without keys.
    ///
    /// Classes are an order and are taken as they are: a request in flight keeps its place in it.
    #[must_use]
    pub fn aligned_to(mut self, before: &Self) -> (Self, Renumbering) {
        let mut moved = Renumbering::default();
        self.classes.extend(before.classes.get(self.classes.len()..).unwrap_or(&[]).to_vec());
        (self.teams, moved.teams) = align(self.teams, &before.teams, |team| &team.name, |team| team.clone());
        for pool in &mut self.pools {
            let old = before
                .pools
                .iter()
                .find(|old| old.name == pool.name)
                .map_or(&[][..], |old| &old.backends[..]);
            let gone =
                |backend: &crate::policy::Backend| crate::policy::Backend { slots: 0, ..backend.clone() };
            let (backends, places) =
                align(core::mem::take(&mut pool.backends), old, |backend| &backend.name, gone);
            pool.backends = backends;
            moved.backends.push(places);
        }
        (self.pools, moved.pools) = align(
            self.pools,
            &before.pools,
            |pool| &pool.name,
            |pool| {
                let mut pool = pool.clone();
                pool.backends.iter_mut().for_each(|backend| backend.slots = 0);
                pool
            },
        );
        for model in &mut self.models {
            if let Some(place) = moved.pools.get(model.pool.0 as usize) {
                model.pool = PoolId(*place);
            }
        }
        // Only after the fresh models point to aligned pools may those of `before` join them.
        (self.models, moved.models) =
            align(self.models, &before.models, |model| &model.name, |model| model.clone());
        self.align_tenants(before, &mut moved);
        (self, moved)
    }

    fn align_tenants(&mut self, before: &Self, moved: &mut Renumbering) {
        for tenant in &mut self.tenants {
            let old = before
                .tenants
                .iter()
                .find(|old| old.name == tenant.name)
                .map_or(&[][..], |old| &old.keys[..]);
            let (keys, places) =
                align(core::mem::take(&mut tenant.keys), old, |key| &key.name, |key| key.clone());
            tenant.keys = keys;
            moved.keys.push(places);
            tenant.team = tenant.team.map(|team| TeamId(moved.teams[team.0 as usize]));
            if let Some(allowed) = &mut tenant.allowed_models {
                allowed.iter_mut().for_each(|id| *id = moved.model(*id));
            }
            moved.scope(&mut tenant.limits);
            tenant.end_users.iter_mut().for_each(|scope| moved.scope(scope));
            tenant.runs.iter_mut().for_each(|runs| moved.scope(&mut runs.limits));
            let named = &moved.keys[moved.keys.len() - 1];
            for place in named {
                moved.scope(&mut tenant.keys[*place as usize].limits);
            }
        }
        for place in &moved.teams {
            moved.scope(&mut self.teams[*place as usize].limits);
        }
        let last = self.classes.len().saturating_sub(1) as u32;
        (self.tenants, moved.tenants) = align(
            core::mem::take(&mut self.tenants),
            &before.tenants,
            |tenant| &tenant.name,
            |tenant| {
                let mut tenant = tenant.clone();
                tenant.class = ClassId(tenant.class.0.min(last));
                tenant
            },
        );
    }
}

/// `fresh` in the places that `before` has for the same names, then the unknown ones; `gone` makes what stands in for parts that
/// are no longer there. Returns also the place of each of `fresh`.
fn align<T>(
    fresh: Vec<T>,
    before: &[T],
    name: impl Fn(&T) -> &String,
    gone: impl Fn(&T) -> T,
) -> (Vec<T>, Vec<u32>) {
    let mut aligned: Vec<T> = before.iter().map(gone).collect();
    let mut places = Vec::new();
    for part in fresh {
        let known = before.iter().position(|old| name(old) == name(&part));
        places.push(known.unwrap_or(aligned.len()) as u32);
        match known {
            Some(place) => aligned[place] = part,
            None => aligned.push(part),
        }
    }
    (aligned, places)
}
