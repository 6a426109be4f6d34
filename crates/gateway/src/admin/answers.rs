//! The state and a tenant as JSON. Integers are tokens and milliseconds.

use fairlane_core::gate::{LimitView, PoolView};
use fairlane_core::policy::{Policy, TenantId};
use fairlane_core::scope::Owner;
use serde_json::{Map, Value, json};

use crate::driver::Level;
use crate::gateway::Gateway;
use crate::live::Live;
use crate::usage_log::SubjectTag;

/// `GET /api/v1/state`.
#[must_use]
pub fn state(gateway: &Gateway) -> Value {
    let live = gateway.live();
    let policy = &live.policy;
    let pools = gateway.driver.pools();
    let totals = gateway.driver.totals();
    json!({
        "store": { "kind": "memory", "up": true },
        "draining": gateway.is_draining.load(std::sync::atomic::Ordering::Relaxed),
        "pools": pools.iter().filter_map(|pool| pool_json(&live, pool)).collect::<Vec<_>>(),
        "classes": classes(policy, &pools),
        "backends": pools.iter().flat_map(|pool| backends(&live, pool)).collect::<Vec<_>>(),
        "tenants": live_tenants(&live).map(|(id, name)| tenant_short(gateway, &live, id, name)).collect::<Vec<_>>(),
        "ledger": {
            "reserved": totals.reserved,
            "settled": totals.settled,
            "refunded": totals.refunded,
            "expired": totals.expired,
            "outstanding": totals.outstanding,
            "overrun": totals.overrun,
            "forgiven": totals.forgiven,
        },
        "requests_live": gateway.driver.live(),
        "end_users_and_runs": gateway.driver.subjects(),
    })
}

/// `GET /api/v1/tenants/{name}`; `None` if no tenant has that name.
#[must_use]
pub fn tenant(gateway: &Gateway, name: &str) -> Option<Value> {
    let live = gateway.live();
    let id = tenant_id(gateway, name)?;
    let policy = &live.policy;
    let limits: Vec<Value> =
        gateway.driver.limits(id).iter().map(|level| level_json(policy, level)).collect();
    let runs: Vec<Value> = gateway
        .driver
        .runs(id, RUNS_SHOWN)
        .into_iter()
        .map(|(run, levels)| {
            json!({
                "run": SubjectTag(run.run),
                "requests": run.live,
                "limits": levels.iter().map(|level| level_json(policy, level)).collect::<Vec<_>>(),
            })
        })
        .collect();
    let totals = gateway.tallies.of(name);
    Some(json!({
        "name": name,
        "class": policy.classes[policy.tenants[id.0 as usize].class.0 as usize].name,
        "limits": limits,
        "reserved": gateway.driver.reserved(id).0,
        "totals": {
            "requests": totals.requests,
            "refused": totals.refused,
            "input_tokens": totals.input,
            "cached_tokens": totals.cached,
            "output_tokens": totals.output,
            "work": totals.work_millis / 1_000,
        },
        "runs": runs,
    }))
}

/// The tenant of that name, unless a reload has taken it out.
#[must_use]
pub(super) fn tenant_id(gateway: &Gateway, name: &str) -> Option<TenantId> {
    let policy = &gateway.live().policy;
    policy.tenants.iter().position(|tenant| tenant.name == name).map(|place| TenantId(place as u32))
}

fn live_tenants(live: &Live) -> impl Iterator<Item = (TenantId, &str)> {
    (0..).map(TenantId).zip(live.policy.tenants.iter().map(|tenant| tenant.name.as_str())).take(TENANTS_SHOWN)
}

fn tenant_short(gateway: &Gateway, live: &Live, id: TenantId, name: &str) -> Value {
    let totals = gateway.tallies.of(name);
    json!({
        "name": name,
        "class": live.policy.classes[live.policy.tenants[id.0 as usize].class.0 as usize].name,
        "requests": totals.requests,
        "refused": totals.refused,
        "input_tokens": totals.input,
        "output_tokens": totals.output,
    })
}

fn pool_json(live: &Live, pool: &PoolView) -> Option<Value> {
    let policy = &live.policy;
    let name = &policy.pools.get(pool.pool.0 as usize)?.name;
    live.pool(pool.pool)?;
    Some(json!({
        "name": name,
        "queued": pool.classes.iter().map(|(_, queued, ..)| queued).sum::<u32>(),
        "running": pool.classes.iter().map(|(_, _, running, _)| running).sum::<u32>(),
    }))
}

fn classes(policy: &Policy, pools: &[PoolView]) -> Vec<Value> {
    (0..)
        .zip(&policy.classes)
        .map(|(place, class)| {
            let mine = || pools.iter().flat_map(|pool| &pool.classes).filter(|(id, ..)| id.0 == place);
            json!({
                "name": class.name,
                "queued": mine().map(|(_, queued, ..)| queued).sum::<u32>(),
                "queued_tokens": mine().map(|(.., tokens)| tokens.0).sum::<u64>(),
                "running": mine().map(|(_, _, running, _)| running).sum::<u32>(),
                "max_wait_ms": class.wait_max.as_millis_ceil(),
            })
        })
        .collect()
}

fn backends(live: &Live, pool: &PoolView) -> Vec<Value> {
    pool.backends
        .iter()
        .filter_map(|view| {
            let (edge, backend) = live.backend(view.backend)?;
            (backend.is_there() || view.in_flight > 0).then_some(())?;
            Some(json!({
                "pool": edge.name,
                "name": backend.name,
                "in_flight": view.in_flight,
                "slots": view.slots,
                "kv_tokens": view.occupied.0,
                "kv_capacity": view.kv_tokens.map(|tokens| tokens.0),
                "kv_factor": f64::from(view.factor_ppm) / 1e6,
                "alive": view.is_alive,
            }))
        })
        .collect()
}

fn level_json(policy: &Policy, level: &Level) -> Value {
    let LimitView { limit, shape, .. } = level.view;
    let mut members = Map::new();
    members.insert("scope".to_owned(), json!(limit.owner.scope()));
    members.insert("name".to_owned(), json!(limit.name(policy)));
    members.insert("dimension".to_owned(), json!(limit.dimension.name()));
    members.insert("capacity".to_owned(), json!(shape.capacity.floor_units()));
    members.insert("level".to_owned(), json!(level.level.floor_units()));
    members.insert("refill_per_minute".to_owned(), json!(shape.rate.units_per_minute()));
    if let Some(model) = limit.model.and_then(|id| policy.models.get(id.0 as usize)) {
        members.insert("model".to_owned(), json!(model.name));
    }
    if let Owner::Key(tenant, key) = limit.owner {
        let key = policy.tenants.get(tenant.0 as usize).and_then(|tenant| tenant.keys.get(key.0 as usize));
        members.insert("key".to_owned(), json!(key.map(|key| &key.name)));
    }
    Value::Object(members)
}

const RUNS_SHOWN: usize = 1_000;
const TENANTS_SHOWN: usize = 1_000;
