//! The names of a configuration's parts, shared by all records that mention them.

use std::sync::Arc;

use fairlane_core::policy::{BackendId, ClassId, KeyId, ModelId, Policy, PoolId, TenantId};

/// A name that many hold.
pub type Name = Arc<str>;

/// All names of a policy, by its ids.
#[derive(Debug)]
pub struct Names {
    tenants: Vec<Tenant>,
    classes: Vec<Name>,
    models: Vec<Name>,
    pools: Vec<(Name, Vec<Name>)>,
}

#[derive(Debug)]
struct Tenant {
    name: Name,
    team: Option<Name>,
    keys: Vec<Name>,
}

impl Names {
    /// The names in a policy.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        let teams: Vec<Name> = policy.teams.iter().map(|team| team.name.as_str().into()).collect();
        Self {
            tenants: policy
                .tenants
                .iter()
                .map(|tenant| Tenant {
                    name: tenant.name.as_str().into(),
                    team: tenant.team.map(|team| Arc::clone(&teams[team.0 as usize])),
                    keys: tenant.keys.iter().map(|key| key.name.as_str().into()).collect(),
                })
                .collect(),
            classes: policy.classes.iter().map(|class| class.name.as_str().into()).collect(),
            models: policy.models.iter().map(|model| model.name.as_str().into()).collect(),
            pools: policy
                .pools
                .iter()
                .map(|pool| {
                    let backends = pool.backends.iter().map(|backend| backend.name.as_str().into());
                    (pool.name.as_str().into(), backends.collect())
                })
                .collect(),
        }
    }

    /// A tenant's.
    #[must_use]
    pub fn tenant(&self, id: TenantId) -> &Name {
        &self.tenants[id.0 as usize].name
    }

    /// That of a tenant's team.
    #[must_use]
    pub fn team(&self, id: TenantId) -> Option<&Name> {
        self.tenants[id.0 as usize].team.as_ref()
    }

    /// A key's.
    #[must_use]
    pub fn key(&self, tenant: TenantId, key: KeyId) -> Option<&Name> {
        self.tenants[tenant.0 as usize].keys.get(key.0 as usize)
    }

    /// A class's.
    #[must_use]
    pub fn class(&self, id: ClassId) -> &Name {
        &self.classes[id.0 as usize]
    }

    /// A model's.
    #[must_use]
    pub fn model(&self, id: ModelId) -> &Name {
        &self.models[id.0 as usize]
    }

    /// A pool's.
    #[must_use]
    pub fn pool(&self, id: PoolId) -> &Name {
        &self.pools[id.0 as usize].0
    }

    /// A backend's.
    #[must_use]
    pub fn backend(&self, id: BackendId) -> Option<&Name> {
        self.pools.get(id.pool.0 as usize)?.1.get(id.index as usize)
    }
}
