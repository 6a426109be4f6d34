//! A changed configuration while requests are in flight: balances stay, changes hold at once, ids keep their meaning.

use fairlane_core::gate::Arrival;
use fairlane_core::policy::{
    Dimension, Key, Limits, ModelId, OnExcess, Policy, PoolId, Runs, ScopeLimits, TeamId, TenantId,
};
use fairlane_core::refusal::Reason;
use fairlane_core::scope::Owner;
use fairlane_core::units::Micros;
use proptest::prelude::*;

use crate::many;
use crate::policies::{
    at_once, backend, key, model, policy, pool, rates, run_budget, scope, slow, team, tenant, tokens,
    with_concurrency,
};
use crate::world::{ONE, State, T, TWO, World, ask, nothing};

#[test]
fn b11_reloading_the_same_configuration_refills_nothing() {
    let mut world = World::new(limited(tokens(100, 20)));
    world.arrive(ask(2_000, 0));
    for _ in 0..10 {
        world.advance(Micros::from_millis(100));
        world.reload(limited(tokens(100, 20)));
    }
    assert_eq!(world.tokens(), 100);
}

#[test]
fn b12_a_changed_rate_holds_at_once_and_zero_is_nobody() {
    let mut world = World::new(limited(tokens(30, 10)));
    world.arrive(ask(300, 0));
    world.reload(limited(tokens(0, 10)));
    let nobody = world.arrive(ask(1, 0));
    assert_eq!(world.reason(nobody), Reason::NeverFits);
    world.advance_secs(100);
    let still = world.arrive(ask(1, 0));
    assert!(world.is_refused(still));
    world.reload(limited(tokens(150, 10)));
    assert_eq!(world.tokens(), 0, "no refill by the reload");
    let told = world.arrive(ask(150, 0));
    assert_eq!(world.told(told), Micros::from_secs(1));
    world.advance_secs(1);
    assert!(admitted(&mut world, ask(150, 0)));
}

#[test]
fn b12_the_same_for_the_bucket_of_an_end_user_and_of_a_run() {
    let users = |rate: u64| {
        let mut first = tenant("T", Limits::default());
        first.end_users = Some(scope(tokens(rate, 10)));
        first.runs = Some(Runs { limits: scope(tokens(rate, 10)), ..Runs::default() });
        policy(vec![first])
    };
    let of = |cost: u64| Arrival { end_user: Some(1), run: Some(1), ..ask(cost, 0) };
    let mut world = World::new(users(300));
    let first = world.arrive(of(3_000));
    world.complete(first, 3_000, 0);
    world.reload(users(30));
    world.advance_secs(5);
    assert!(!admitted(&mut world, of(151)), "the slower rate holds from the reload on");
    assert!(admitted(&mut world, of(150)));
    world.reload(users(3));
    // Under the rate before it would have been full, and forgotten, after ten seconds.
    world.advance_secs(20);
    assert!(!admitted(&mut world, of(61)) && world.gate.subjects() == 2);
}

#[test]
fn a_lowered_capacity_cuts_the_level_and_a_raised_one_does_not_fill_it() {
    let mut world = World::new(limited(tokens(100, 20)));
    let running = world.arrive(ask(500, 0));
    world.reload(limited(tokens(10, 20)));
    assert_eq!(world.tokens(), 200);
    world.end(running, nothing());
    assert_eq!(world.tokens(), 200, "a refund never lifts above the brim that is in force");
    world.reload(limited(tokens(100, 20)));
    assert_eq!(world.tokens(), 200);
}

#[test]
fn a_limit_that_is_removed_and_comes_back_has_its_balance() {
    let mut world = World::new(limited(rates(&[slow(Dimension::Tokens, 1_000)])));
    let running = world.arrive(ask(900, 0));
    world.reload(limited(Limits::default()));
    assert!(admitted(&mut world, ask(50_000, 0)));
    world.complete(running, 850, 0);
    world.reload(limited(rates(&[slow(Dimension::Tokens, 1_000)])));
    assert_eq!(world.tokens(), 150);
}

#[test]
fn a_rejecting_concurrency_limit_counts_those_in_flight_under_its_changed_number() {
    let of = |limit: u32| limited(with_concurrency(Limits::default(), limit, OnExcess::Reject));
    let mut world = World::new(of(3));
    let running: Vec<_> = (0..3).map(|_| world.arrive(ask(1, 1))).collect();
    world.reload(of(1));
    world.end(running[0], nothing());
    assert!(!admitted(&mut world, ask(1, 1)), "two still run");
    world.end(running[1], nothing());
    assert!(!admitted(&mut world, ask(1, 1)), "one still runs");
    world.reload(of(4));
    for _ in 0..3 {
        assert!(admitted(&mut world, ask(1, 1)), "four at the same time");
    }
    assert!(!admitted(&mut world, ask(1, 1)));
    world.wind_up();
}

#[test]
fn a_queueing_concurrency_limit_counts_those_in_flight_under_its_changed_number() {
    let mut world = World::new(limited(at_once(1)));
    let running = world.arrive(ask(1, 1));
    let waiting: Vec<_> = (0..4).map(|_| world.arrive(ask(1, 1))).collect();
    world.reload(limited(at_once(3)));
    assert!(world.is_running(waiting[0]) && world.is_running(waiting[1]) && world.is_waiting(waiting[2]));
    world.reload(limited(at_once(2)));
    world.complete(running, 1, 1);
    assert!(world.is_waiting(waiting[2]), "two run");
    world.reload(limited(Limits::default()));
    assert!(world.is_running(waiting[2]) && world.is_running(waiting[3]));
    world.wind_up();
}

#[test]
fn a_concurrency_limit_that_comes_while_runs_wait_is_each_runs_own() {
    let of = |limits: Limits| {
        let mut first = tenant("T", Limits::default());
        first.runs = Some(Runs { limits: scope(limits), ..run_budget(1_000) });
        let mut policy = policy(vec![first]);
        policy.pools[0].backends = vec![backend("one", 1)];
        policy
    };
    let mut world = World::new(of(Limits::default()));
    world.arrive(Arrival { run: Some(9), ..ask(1, 1) });
    let waiting: Vec<_> = [1, 1, 2].map(|run| world.arrive(Arrival { run: Some(run), ..ask(1, 1) })).into();
    let mut roomy = of(at_once(1));
    roomy.pools[0].backends[0].slots = 10;
    world.reload(roomy);
    assert!(world.is_running(waiting[0]) && world.is_running(waiting[2]));
    assert!(world.is_waiting(waiting[1]), "the second step of the same run");
    world.wind_up();
}

#[test]
fn a_run_keeps_what_it_has_used_under_a_changed_budget() {
    let of = |budget: u64, steps: u32| {
        let mut first = tenant("T", Limits::default());
        first.runs = Some(Runs { max_steps: Some(steps), ..run_budget(budget) });
        policy(vec![first])
    };
    let step = || Arrival { run: Some(1), ..ask(100, 0) };
    let mut world = World::new(of(300, 10));
    for _ in 0..3 {
        assert!(admitted(&mut world, step()));
    }
    world.reload(of(400, 10));
    assert!(admitted(&mut world, step()), "the hundred that the budget grew by");
    assert!(!admitted(&mut world, step()));
    world.reload(of(10_000, 5));
    assert!(admitted(&mut world, step()));
    let sixth = world.arrive(step());
    assert_eq!(world.reason(sixth), Reason::RunStepsSpent);
}

#[test]
fn a_raised_limit_of_the_pool_opens_it_at_once() {
    let of = |capacity: u64| {
        let mut policy = limited(Limits::default());
        policy.pools[0].limits = rates(&[slow(Dimension::Tokens, capacity)]);
        policy
    };
    let mut world = World::new(of(100));
    world.arrive(ask(100, 0));
    let waiting = world.arrive(ask(50, 0));
    assert!(world.is_waiting(waiting));
    let mut wide = of(100);
    wide.pools[0].limits = tokens(1_000_000, 1);
    world.reload(wide);
    world.advance(Micros::from_millis(1));
    assert!(world.is_running(waiting));
}

#[test]
fn a_backend_that_is_taken_out_finishes_what_it_runs_and_gets_nothing() {
    let of = |backends: &[&str]| {
        let mut policy = limited(Limits::default());
        policy.pools[0].backends = backends.iter().map(|name| backend(name, 2)).collect();
        policy
    };
    let mut world = World::new(of(&["one", "two"]));
    let first = world.arrive(ask(1, 1));
    world.reload(of(&["two", "three"]));
    for _ in 0..4 {
        assert!(admitted(&mut world, ask(1, 1)));
    }
    let on_one = world.states.values().filter(|state| **state == State::Running(ONE)).count();
    let on_two = world.states.values().filter(|state| **state == State::Running(TWO)).count();
    assert_eq!((on_one, on_two), (1, 2), "its id keeps its meaning");
    world.complete(first, 1, 1);
    let next = world.arrive(ask(1, 1));
    assert!(world.is_waiting(next));
    world.wind_up();
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn aligning_keeps_every_id_and_every_part_of_the_fresh_policy(
        before in names_policy(), fresh in names_policy(), later in names_policy()
    ) {
        let (once, _) = fresh.clone().aligned_to(&before);
        check_aligned(&fresh, &before, &once);
        let (same, moved) = once.clone().aligned_to(&once);
        prop_assert_eq!(&same, &once, "aligning to itself changes nothing");
        prop_assert!(moved.tenants.iter().copied().eq(0..once.tenants.len() as u32));
        let (twice, _) = later.clone().aligned_to(&once);
        check_aligned(&later, &once, &twice);
    }
}

/// Names of `before` keep their places; every fresh part is where its renumbering says, with its links translated.
fn check_aligned(fresh: &Policy, before: &Policy, aligned: &Policy) {
    let (_, moved) = fresh.clone().aligned_to(before);
    for (old, place) in before.tenants.iter().zip(&aligned.tenants) {
        assert_eq!(old.name, place.name);
        assert!(old.keys.iter().zip(&place.keys).all(|(old, key)| old.name == key.name));
    }
    assert!(before.models.iter().zip(&aligned.models).all(|(old, place)| old.name == place.name));
    assert!(before.teams.iter().zip(&aligned.teams).all(|(old, place)| old.name == place.name));
    for (old, place) in before.pools.iter().zip(&aligned.pools) {
        assert_eq!(old.name, place.name);
        for (old, backend) in old.backends.iter().zip(&place.backends) {
            let still = fresh.pools.iter().any(|pool| {
                pool.name == place.name && pool.backends.iter().any(|kept| kept.name == old.name)
            });
            assert_eq!((old.name.as_str(), backend.slots > 0), (backend.name.as_str(), still));
        }
    }
    for (tenant, id) in fresh.tenants.iter().zip(0..) {
        let place = &aligned.tenants[moved.tenant(TenantId(id)).0 as usize];
        assert_eq!(place.name, tenant.name);
        let team =
            |policy: &Policy, id: Option<TeamId>| id.map(|id| policy.teams[id.0 as usize].name.clone());
        assert_eq!(team(aligned, place.team), team(fresh, tenant.team));
        assert_eq!(by_name(aligned, &place.limits), by_name(fresh, &tenant.limits));
        for (key, number) in tenant.keys.iter().zip(0..) {
            let number = moved.key(TenantId(id), fairlane_core::policy::KeyId(number));
            let kept = &place.keys[number.0 as usize];
            assert_eq!(kept.name, key.name);
            assert_eq!(by_name(aligned, &kept.limits), by_name(fresh, &key.limits));
        }
        let allowed = |policy: &Policy, models: &Option<Vec<ModelId>>| {
            models.as_ref().map(|models| {
                models.iter().map(|id| policy.models[id.0 as usize].name.clone()).collect::<Vec<_>>()
            })
        };
        assert_eq!(allowed(aligned, &place.allowed_models), allowed(fresh, &tenant.allowed_models));
    }
    for (model, id) in fresh.models.iter().zip(0..) {
        let place = &aligned.models[moved.model(ModelId(id)).0 as usize];
        assert_eq!(place.name, model.name);
        assert_eq!(aligned.pools[place.pool.0 as usize].name, fresh.pools[model.pool.0 as usize].name);
    }
    for (pool, id) in fresh.pools.iter().zip(0..) {
        let place = &aligned.pools[moved.pool(PoolId(id)).0 as usize];
        assert_eq!((&place.name, &place.limits), (&pool.name, &pool.limits));
        assert!(pool.backends.iter().all(|backend| place.backends.contains(backend)));
    }
}

/// A scope's limits with names for ids.
fn by_name(policy: &Policy, scope: &ScopeLimits) -> (Limits, Vec<(String, Limits)>) {
    let mut models: Vec<(String, Limits)> = scope
        .models
        .iter()
        .map(|(id, limits)| (policy.models[id.0 as usize].name.clone(), limits.clone()))
        .collect();
    models.sort_by(|one, other| one.0.cmp(&other.0));
    (scope.all.clone(), models)
}

/// Policies whose parts have names from a short list, in any order.
fn names_policy() -> impl Strategy<Value = Policy> {
    let some = |least: usize| prop::sample::subsequence(vec!["a", "b", "c", "d"], least..=4).prop_shuffle();
    (some(1), some(1), some(1), some(1), some(0), any::<u64>()).prop_map(
        |(pools, models, tenants, teams, keys, seed)| {
            let pick = |salt: u64, many: usize| (seed.rotate_left(salt as u32 * 7) % many as u64) as usize;
            let rate = |salt: u64| tokens(1 + pick(salt, 50) as u64, 10);
            let mut made = policy(Vec::new());
            made.pools = pools
                .iter()
                .zip(0..)
                .map(|(name, salt)| {
                    let backends =
                        keys.iter().skip(pick(salt, 3)).map(|name| backend(name, 1 + pick(salt, 5) as u32));
                    let mut pool = pool(name, backends.collect());
                    pool.limits = rate(salt);
                    pool
                })
                .collect();
            made.models = models
                .iter()
                .zip(0..)
                .map(|(name, salt)| model(name, pick(salt, pools.len()) as u32))
                .collect();
            made.teams = teams.iter().zip(0..).map(|(name, salt)| team(name, rate(salt))).collect();
            made.tenants = tenants
                .iter()
                .zip(0..)
                .map(|(name, salt)| {
                    let mut tenant = tenant(name, rate(salt));
                    tenant.team = Some(TeamId(pick(salt, teams.len()) as u32)).filter(|_| pick(salt, 3) > 0);
                    let only = ModelId(pick(salt + 1, models.len()) as u32);
                    tenant.limits.models.insert(only, rate(salt + 2));
                    tenant.allowed_models = Some(vec![only]).filter(|_| pick(salt, 2) > 0);
                    tenant.keys = keys.iter().map(|name| special_key(name, only, rate(salt + 3))).collect();
                    tenant
                })
                .collect();
            made
        },
    )
}

fn special_key(name: &str, only: ModelId, limits: Limits) -> Key {
    let mut key = key(name, Limits::default());
    key.limits.models.insert(only, limits);
    key
}

fn admitted(world: &mut World, arrival: Arrival) -> bool {
    let request = world.arrive(arrival);
    world.is_running(request)
}

fn limited(limits: Limits) -> Policy {
    policy(vec![tenant("T", limits)])
}

#[test]
fn levels_are_read_by_owner_after_a_reload() {
    let mut world = World::new(limited(tokens(10, 10)));
    world.arrive(ask(40, 0));
    let mut more = limited(tokens(10, 10));
    more.tenants.insert(0, tenant("before", tokens(5, 5)));
    world.reload(more);
    assert_eq!(world.level(T, Dimension::Tokens), 60, "the first tenant is still the first");
    assert_eq!(world.level(Owner::Tenant(TenantId(1)), Dimension::Tokens), 25);
}
