//! Whether backends are alive, and which models they have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fairlane_core::gate::Event;
use fairlane_core::policy::BackendId;

use crate::config::{EdgeBackend, Health};
use crate::gateway::Gateway;
use crate::live::Live;

/// A backend that cannot be connected to is down at once; its next check brings it back.
pub fn suspect(gateway: &Gateway, live: &Live, backend: BackendId) {
    let Some((pool, edge)) = live.backend(backend) else { return };
    if pool.health.is_some() {
        tracing::warn!(
            backend = edge.name,
            "backend cannot be reached; taken out until it answers a health check"
        );
        gateway.driver.tell(Event::BackendDown(backend));
    }
}

/// Checks every backend in turn, for ever. Backends of a reloaded configuration are found at the next round.
pub async fn watch(gateway: Arc<Gateway>) {
    let mut seen: BTreeMap<BackendId, Streak> = BTreeMap::new();
    loop {
        let live = gateway.live();
        let mut checks = Vec::new();
        for (id, pool, backend) in live.backends() {
            let Some(health) = &pool.health else { continue };
            checks.push(check(&gateway, id, backend, health));
        }
        let results = futures_util::future::join_all(checks).await;
        let live = gateway.live();
        for (id, is_alive) in results {
            let Some((pool, backend)) = live.backend(id).filter(|(_, backend)| backend.is_there()) else {
                continue;
            };
            let Some(health) = &pool.health else { continue };
            seen.entry(id).or_default().add(is_alive, health, || tell(&gateway, id, backend, is_alive));
        }
        tokio::time::sleep(interval(&live)).await;
    }
}

/// Results in a row.
#[derive(Debug, Default)]
struct Streak {
    is_alive: bool,
    count: u32,
}

impl Streak {
    fn add(&mut self, is_alive: bool, health: &Health, tell: impl FnOnce()) {
        if self.is_alive != is_alive {
            (self.is_alive, self.count) = (is_alive, 0);
        }
        self.count = self.count.saturating_add(1);
        let enough = if is_alive { health.healthy_after } else { health.unhealthy_after };
        // Told again with every later result: a backend may have been taken out in between.
        if self.count >= enough {
            tell();
        }
    }
}

fn tell(gateway: &Gateway, id: BackendId, backend: &EdgeBackend, is_alive: bool) {
    if is_alive {
        gateway.driver.tell(Event::BackendUp(id));
    } else {
        tracing::warn!(backend = backend.name, "backend fails its health checks");
        gateway.driver.tell(Event::BackendDown(id));
    }
}

async fn check(
    gateway: &Gateway,
    id: BackendId,
    backend: &EdgeBackend,
    health: &Health,
) -> (BackendId, bool) {
    let answer = gateway.upstream.fetch(backend, &health.path, health.timeout).await;
    (id, answer.is_ok_and(|(status, _)| status.as_u16() < 500))
}

/// Asks the backends for their models: those of pools with `models: "*"`, by the pool's name; `None` for a pool where nobody
/// answered.
pub async fn discover(gateway: &Gateway) -> BTreeMap<String, Option<Vec<String>>> {
    let live = gateway.live();
    let models_max = live.edge.bounds.models_max;
    let mut found: BTreeMap<String, Option<Vec<String>>> = BTreeMap::new();
    for pool in &live.edge.pools {
        let mut names: Option<Vec<String>> = None;
        for backend in pool.backends.iter().filter(|backend| backend.is_there()) {
            let answer = gateway.upstream.fetch(backend, "/v1/models", DISCOVERY_WAIT).await;
            let Ok((status, document)) = answer else { continue };
            if !status.is_success() {
                continue;
            }
            if let Ok(listed) = gateway.cards.take(&document, models_max) {
                names.get_or_insert_default().extend(listed);
            }
        }
        if let Some(names) = &mut names {
            names.sort_unstable();
            names.dedup();
            names.truncate(models_max);
        }
        if pool.discovers_models {
            found.insert(pool.name.clone(), names);
        }
    }
    found
}

fn interval(live: &Live) -> Duration {
    let intervals =
        live.edge.pools.iter().filter_map(|pool| pool.health.as_ref()).map(|health| health.interval);
    intervals.min().unwrap_or(NO_CHECKS).max(INTERVAL_MIN)
}

const DISCOVERY_WAIT: Duration = Duration::from_secs(2);
const NO_CHECKS: Duration = Duration::from_secs(5);
const INTERVAL_MIN: Duration = Duration::from_millis(100);
