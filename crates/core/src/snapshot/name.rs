//! The name of a cell that stays the same when the configuration is written in another order.

use alloc::string::String;

use crate::policy::{Dimension, Policy, TenantId, WithoutRunId};
use crate::scope::{Limit, Owner};
use crate::subjects::Place;

/// The name of a cell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellName {
    /// Whose.
    pub owner: OwnerName,
    /// For one model only.
    pub model: Option<String>,
    /// Of what.
    pub dimension: Dimension,
}

/// Who a cell belongs to, by the names of the configuration and the edge's hashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnerName {
    /// All traffic.
    Service,
    /// A team.
    Team(String),
    /// A tenant.
    Tenant(String),
    /// A key of a tenant.
    Key(String, String),
    /// A pool.
    Pool(String),
    /// A backend of a pool.
    Backend(String, String),
    /// A run of a tenant, by its hash.
    Run(String, u128),
    /// The run that requests of a tenant's key without a run's id share; of the tenant's requests without a key, if there is none.
    KeyRun(String, Option<String>),
    /// An end user of a tenant, by its hash.
    EndUser(String, u128),
    /// The end users of a tenant that share one set of limits.
    OtherEndUsers(String),
}

impl CellName {
    /// The name of a limit's cell; of an end user's or a run's, with its place. `None` if the policy does not know the owner.
    #[must_use]
    pub fn of(policy: &Policy, limit: &Limit, place: Option<&Place>) -> Option<Self> {
        let owner = match place {
            Some(place) => OwnerName::of_place(policy, place)?,
            None => OwnerName::of(policy, limit.owner)?,
        };
        let model = match limit.model {
            Some(id) => Some(policy.models.get(id.0 as usize)?.name.clone()),
            None => None,
        };
        Some(Self { owner, model, dimension: limit.dimension })
    }
}

impl OwnerName {
    fn of(policy: &Policy, owner: Owner) -> Option<Self> {
        Some(match owner {
            Owner::Service => Self::Service,
            Owner::Team(id) => Self::Team(policy.teams.get(id.0 as usize)?.name.clone()),
            Owner::Tenant(id) => Self::Tenant(tenant_name(policy, id)?),
            Owner::Key(id, key) => {
                let keys = &policy.tenants.get(id.0 as usize)?.keys;
                Self::Key(tenant_name(policy, id)?, keys.get(key.0 as usize)?.name.clone())
            }
            Owner::Pool(id) => Self::Pool(policy.pools.get(id.0 as usize)?.name.clone()),
            Owner::Backend(id) => {
                let pool = policy.pools.get(id.pool.0 as usize)?;
                Self::Backend(pool.name.clone(), pool.backends.get(id.index as usize)?.name.clone())
            }
            // They are many, and told apart by their place.
            Owner::EndUser(_) | Owner::Run(_) => return None,
        })
    }

    /// The name of an end user or a run.
    pub(super) fn of_place(policy: &Policy, place: &Place) -> Option<Self> {
        let tenant = policy.tenants.get(place.tenant().0 as usize)?;
        let name = tenant.name.clone();
        Some(match place {
            Place::Run(_, run) if !is_hash(*run) && shares_by_key(policy, place.tenant()) => {
                let key = usize::try_from(*run).ok().and_then(|place| tenant.keys.get(place));
                Self::KeyRun(name, key.map(|key| key.name.clone()))
            }
            Place::Run(_, run) => Self::Run(name, *run),
            Place::EndUser(_, user) => Self::EndUser(name, *user),
            Place::OtherEndUsers(_) => Self::OtherEndUsers(name),
        })
    }

    /// The tenant whose end user or run it is.
    pub(super) fn subject_of(&self) -> Option<&str> {
        match self {
            Self::Run(tenant, _)
            | Self::KeyRun(tenant, _)
            | Self::EndUser(tenant, _)
            | Self::OtherEndUsers(tenant) => Some(tenant),
            Self::Service
            | Self::Team(_)
            | Self::Tenant(_)
            | Self::Key(..)
            | Self::Pool(_)
            | Self::Backend(..) => None,
        }
    }

    /// The place of an end user or a run of `tenant`, whose name this one has.
    pub(super) fn place(&self, policy: &Policy, tenant: TenantId) -> Option<Place> {
        match self {
            Self::Run(_, run) => Some(Place::Run(tenant, *run)),
            Self::KeyRun(_, None) => Some(Place::Run(tenant, u128::from(u32::MAX))),
            Self::KeyRun(_, Some(name)) => {
                let keys = &policy.tenants.get(tenant.0 as usize)?.keys;
                let key = keys.iter().position(|key| key.name == *name)?;
                Some(Place::Run(tenant, key as u128))
            }
            Self::EndUser(_, user) => Some(Place::EndUser(tenant, *user)),
            Self::OtherEndUsers(_) => Some(Place::OtherEndUsers(tenant)),
            Self::Service
            | Self::Team(_)
            | Self::Tenant(_)
            | Self::Key(..)
            | Self::Pool(_)
            | Self::Backend(..) => None,
        }
    }
}

/// Hashes of ids keep their highest bit set; smaller numbers stand for keys, and for nobody.
const fn is_hash(run: u128) -> bool {
    run >> 127 == 1
}

fn shares_by_key(policy: &Policy, tenant: TenantId) -> bool {
    let runs = policy.tenants.get(tenant.0 as usize).and_then(|tenant| tenant.runs.as_ref());
    runs.is_none_or(|runs| runs.without_id == WithoutRunId::Shared)
}

fn tenant_name(policy: &Policy, id: TenantId) -> Option<String> {
    policy.tenants.get(id.0 as usize).map(|tenant| tenant.name.clone())
}
