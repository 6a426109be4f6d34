//! Who a limit belongs to, and the name it goes by in refusals and metrics.

use alloc::string::{String, ToString};
use core::fmt::Write;

use crate::policy::{BackendId, Dimension, KeyId, ModelId, Policy, PoolId, TeamId, TenantId};

/// Who a limit belongs to. End users and runs are named by their tenant alone: their ids stay inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// Each end user of a tenant.
    EndUser(TenantId),
    /// Each agent run of a tenant.
    Run(TenantId),
    /// A key.
    Key(TenantId, KeyId),
    /// A tenant.
    Tenant(TenantId),
    /// A team.
    Team(TeamId),
    /// A pool.
    Pool(PoolId),
    /// A backend.
    Backend(BackendId),
    /// All traffic.
    Service,
}

/// A limit: whose, of what, and for which model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limit {
    /// Whose.
    pub owner: Owner,
    /// For one model only.
    pub model: Option<ModelId>,
    /// Of what.
    pub dimension: Dimension,
}

impl Owner {
    /// Whether tenants share it, so that one tenant's waits must not be promised to another.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Team(_) | Self::Pool(_) | Self::Backend(_) | Self::Service)
    }

    /// The scope's name in the configuration.
    #[must_use]
    pub const fn scope(self) -> &'static str {
        match self {
            Self::EndUser(_) => "end_user",
            Self::Run(_) => "run",
            Self::Key(..) => "key",
            Self::Tenant(_) => "tenant",
            Self::Team(_) => "team",
            Self::Pool(_) => "pool",
            Self::Backend(_) => "backend",
            Self::Service => "service",
        }
    }
}

impl Limit {
    /// The name in `x-fairlane-limit`: `tenant/shop-chat/tokens`, `key/shop-chat/web/requests`, `service/tokens`; a limit for one
    /// model puts `model=NAME` before the dimension.
    #[must_use]
    pub fn name(&self, policy: &Policy) -> String {
        let mut name = self.owner.scope().to_string();
        let tenant = |tenant: TenantId| policy.tenants.get(tenant.0 as usize);
        let parts: [Option<&str>; 2] = match self.owner {
            Owner::EndUser(id) | Owner::Run(id) | Owner::Tenant(id) => {
                [tenant(id).map(|t| t.name.as_str()), None]
            }
            Owner::Key(id, key) => [
                tenant(id).map(|t| t.name.as_str()),
                tenant(id).and_then(|t| t.keys.get(key.0 as usize)).map(|key| key.name.as_str()),
            ],
            Owner::Team(id) => [policy.teams.get(id.0 as usize).map(|team| team.name.as_str()), None],
            Owner::Pool(id) => [policy.pools.get(id.0 as usize).map(|pool| pool.name.as_str()), None],
            Owner::Backend(id) => {
                let pool = policy.pools.get(id.pool.0 as usize);
                [
                    pool.map(|pool| pool.name.as_str()),
                    pool.and_then(|pool| pool.backends.get(id.index as usize))
                        .map(|backend| backend.name.as_str()),
                ]
            }
            Owner::Service => [None, None],
        };
        for part in parts.into_iter().flatten() {
            name.push('/');
            name.push_str(part);
        }
        if let Some(model) = self.model.and_then(|id| policy.models.get(id.0 as usize)) {
            // Writing to a string cannot fail.
            let _ = write!(name, "/model={}", model.name);
        }
        name.push('/');
        name.push_str(self.dimension.name());
        name
    }
}
