//! A configuration in use: the policy with stable ids, and what the edge looks up per request.

use std::collections::HashMap;
use std::sync::Arc;

use fairlane_core::policy::{BackendId, ClassId, ModelId, Policy, PoolId, TenantId};

use crate::config::{Config, Edge, EdgeBackend, EdgePool, PriorityUse};
use crate::counter::Counter;
use crate::metrics::Meters;
use crate::names::Names;
use crate::upstream::Door;

/// A configuration in use. It is replaced whole by a reload; requests in flight keep the one they began with.
#[derive(Debug)]
pub struct Live {
    /// What the gate decides by.
    pub policy: Arc<Policy>,
    /// The rest.
    pub edge: Edge,
    models: HashMap<String, ModelId>,
    pools: HashMap<PoolId, usize>,
    backends: HashMap<BackendId, (usize, usize)>,
    doors: Vec<Vec<Door>>,
    counters: Vec<Arc<Counter>>,
    /// The names of all parts.
    pub names: Names,
    /// Handles of metrics.
    pub meters: Meters,
}

impl Live {
    /// Takes on a resolved configuration after `before`, whose ids it keeps.
    ///
    /// # Errors
    /// A vocabulary cannot be read, or a backend's credential cannot be sent: the message says which and why.
    pub fn new(config: Config, before: Option<&Self>) -> Result<Self, String> {
        let Config { policy: fresh, mut edge, .. } = config;
        let names: Vec<String> = fresh.models.iter().map(|model| model.name.clone()).collect();
        let backend_counts: Vec<usize> = fresh.pools.iter().map(|pool| pool.backends.len()).collect();
        let (policy, moved) = match before {
            Some(before) => fresh.aligned_to(&before.policy),
            None => fresh.aligned_to(&Policy::default()),
        };
        edge.keys.renumber(&moved);
        let models = (0..).zip(names).map(|(id, name)| (name, moved.model(ModelId(id)))).collect();
        let pools: HashMap<PoolId, usize> =
            (0..edge.pools.len()).map(|place| (moved.pool(PoolId(place as u32)), place)).collect();
        let mut backends = HashMap::new();
        for (place, count) in backend_counts.into_iter().enumerate() {
            for index in 0..count {
                let id =
                    BackendId { pool: moved.pool(PoolId(place as u32)), index: moved.backends[place][index] };
                backends.insert(id, (place, index));
            }
        }
        let counters = edge
            .pools
            .iter()
            .map(|pool| match before.and_then(|before| before.counter_like(pool)) {
                Some(counter) => Ok(counter),
                None => Counter::new(pool).map(Arc::new),
            })
            .collect::<Result<_, _>>()?;
        let doors = edge
            .pools
            .iter()
            .map(|pool| pool.backends.iter().map(Door::new).collect())
            .collect::<Result<_, String>>()?;
        let (names, meters) = (Names::new(&policy), Meters::new(&policy));
        let policy = Arc::new(policy);
        Ok(Self { policy, edge, models, pools, backends, doors, counters, names, meters })
    }

    /// The model of that name.
    #[must_use]
    pub fn model(&self, name: &str) -> Option<ModelId> {
        self.models.get(name).copied()
    }

    /// Names of all models, in no order.
    pub fn model_names(&self) -> impl Iterator<Item = (&str, ModelId)> {
        self.models.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// The class that a request runs in: the asked one, unless the tenant may only use lower ones.
    #[must_use]
    pub fn class(&self, tenant: TenantId, asked: Option<&str>) -> ClassId {
        let own = self.policy.tenants[tenant.0 as usize].class;
        let asked = asked.and_then(|name| self.policy.classes.iter().position(|class| class.name == name));
        asked.map_or(own, |place| ClassId(place as u32).max(own))
    }

    /// The edge's side of a pool; `None` if a reload has taken it out.
    #[must_use]
    pub fn pool(&self, id: PoolId) -> Option<&EdgePool> {
        self.pools.get(&id).map(|place| &self.edge.pools[*place])
    }

    /// Whether requests of a pool tell the engine their class: there is no use in it where there is one class.
    #[must_use]
    pub fn stamps_priority(&self, id: PoolId) -> bool {
        self.policy.classes.len() > 1 && self.pool(id).is_some_and(|pool| pool.priority == PriorityUse::Stamp)
    }

    /// How a pool counts input.
    #[must_use]
    pub fn counter(&self, id: PoolId) -> Option<&Arc<Counter>> {
        self.pools.get(&id).map(|place| &self.counters[*place])
    }

    /// The edge's side of a backend; `None` if a reload has taken it out.
    #[must_use]
    pub fn backend(&self, id: BackendId) -> Option<(&EdgePool, &EdgeBackend)> {
        let (pool, index) = self.backends.get(&id)?;
        let pool = &self.edge.pools[*pool];
        Some((pool, &pool.backends[*index]))
    }

    /// A backend and the way it is addressed; `None` if a reload has taken it out.
    #[must_use]
    pub fn door(&self, id: BackendId) -> Option<(&EdgeBackend, &Door)> {
        let (pool, index) = *self.backends.get(&id)?;
        Some((&self.edge.pools[pool].backends[index], &self.doors[pool][index]))
    }

    /// All backends that have an address.
    pub fn backends(&self) -> impl Iterator<Item = (BackendId, &EdgePool, &EdgeBackend)> {
        let all = self.backends.iter().map(|(id, (pool, index))| {
            let pool = &self.edge.pools[*pool];
            (*id, pool, &pool.backends[*index])
        });
        all.filter(|(.., backend)| backend.is_there())
    }

    /// The backend of these names, of its pool and its own; `None` if a reload has taken it out.
    #[must_use]
    pub fn backend_named(&self, pool: &str, backend: &str) -> Option<BackendId> {
        let place = self.policy.pools.iter().position(|one| one.name == pool)?;
        let index = self.policy.pools[place].backends.iter().position(|one| one.name == backend)?;
        let id = BackendId { pool: PoolId(place as u32), index: index as u32 };
        self.backends.contains_key(&id).then_some(id)
    }

    /// The counter of the same pool with the same rules: what it has learned stays.
    fn counter_like(&self, pool: &EdgePool) -> Option<Arc<Counter>> {
        let place = self.edge.pools.iter().position(|old| {
            old.name == pool.name && old.tokenizer == pool.tokenizer && old.images == pool.images
        })?;
        Some(Arc::clone(&self.counters[place]))
    }
}
