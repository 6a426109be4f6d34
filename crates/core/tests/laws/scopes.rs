//! Every scope times every dimension: the limit binds exactly at its level, and the refusal names it.

use fairlane_core::gate::Arrival;
use fairlane_core::policy::{
    Dimension, KeyId, Limits, ModelId, OnExcess, Policy, RATED, Runs, ScopeLimits, TenantId, Work,
};
use fairlane_core::refusal::{Reason, Retry};
use fairlane_core::units::Tokens;

use crate::policies::{
    backend, in_team, key, policy, rates, run_budget, scope, slow, team, tenant, with_concurrency,
};
use crate::world::{World, ask, nothing};

/// Where a block of limits is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    EndUser,
    Run,
    Key,
    Tenant,
    Team,
    Service,
    Pool,
    Backend,
}

const ADMISSION: [Scope; 6] =
    [Scope::EndUser, Scope::Run, Scope::Key, Scope::Tenant, Scope::Team, Scope::Service];
const DISPATCH: [Scope; 2] = [Scope::Pool, Scope::Backend];

#[test]
fn every_rate_of_every_scope_binds_exactly_at_its_level_and_names_itself() {
    let mut rows = 0;
    for scope in ADMISSION {
        for dimension in RATED {
            for per_model in models(scope).iter().copied() {
                let row = name(scope, dimension, per_model);
                for (capacity, fit) in [(3 * cost(dimension), 3usize), (3 * cost(dimension) - 1, 2)] {
                    let limits = rates(&[slow(dimension, capacity)]);
                    let mut world = World::new(policy_with(scope, limits, per_model));
                    let fitted = (0..4).take_while(|_| admitted(&mut world)).count();
                    assert_eq!(fitted, fit, "{row} with room for {capacity}");
                    let refused = world.arrive(asker());
                    let refusal = world.refusal(refused);
                    assert_eq!(refusal.reason, Reason::LimitExhausted, "{row}");
                    assert_eq!(refusal.limit.unwrap().name(world.gate.policy()), row);
                    assert_eq!(refusal.asked, cost(dimension), "{row}");
                    assert_eq!(refusal.left, capacity - cost(dimension) * fit as u64, "{row}");
                    check_others(&mut world, scope, per_model, &row);
                }
                rows += 1;
            }
        }
    }
    assert_eq!(rows, 5 * (5 * 2 + 1));
}

#[test]
fn every_rate_of_pools_and_backends_binds_at_dispatch_exactly_at_its_level_and_names_itself() {
    for scope in DISPATCH {
        for dimension in RATED {
            let row = name(scope, dimension, false);
            for (capacity, fit) in [(3 * cost(dimension), 3usize), (3 * cost(dimension) - 1, 2)] {
                let limits = rates(&[slow(dimension, capacity)]);
                let mut world = World::new(policy_with(scope, limits, false));
                let requests: Vec<_> = (0..4).map(|_| world.arrive(asker())).collect();
                let started = requests.iter().filter(|request| world.is_running(**request)).count();
                assert_eq!(started, fit, "{row} with room for {capacity}");
                assert!(world.is_waiting(requests[fit]), "{row}: what is over it waits");
                world.end(requests[0], nothing());
                assert!(world.is_running(requests[fit]) || dimension != Dimension::Requests, "{row}");
            }
            // Above what it can ever hold it is named at once.
            let limits = rates(&[slow(dimension, cost(dimension) - 1)]);
            let mut world = World::new(policy_with(scope, limits, false));
            let refused = world.arrive(asker());
            let refusal = world.refusal(refused);
            assert_eq!((refusal.reason, refusal.retry), (Reason::NeverFits, Retry::Never), "{row}");
            assert_eq!(refusal.limit.unwrap().name(world.gate.policy()), row);
        }
    }
}

#[test]
fn concurrency_of_every_scope_refuses_or_queues_exactly_above_its_number() {
    for scope in ADMISSION {
        for per_model in models(scope).iter().copied() {
            let row = name(scope, Dimension::ConcurrentRequests, per_model);
            let limits = with_concurrency(Limits::default(), 3, OnExcess::Reject);
            let mut world = World::new(policy_with(scope, limits, per_model));
            let requests: Vec<_> = (0..4).map(|_| world.arrive(asker())).collect();
            let running = requests.iter().filter(|request| world.is_running(**request)).count();
            assert_eq!(running, 3, "{row}");
            let refusal = world.refusal(requests[3]);
            assert_eq!(refusal.limit.unwrap().name(world.gate.policy()), row);
            assert_eq!((refusal.reason, refusal.left), (Reason::LimitExhausted, 0), "{row}");
            check_others(&mut world, scope, per_model, &row);
            world.complete(requests[0], 1, 1);
            assert!(admitted(&mut world), "{row}: a slot came back");
        }
    }
    for scope in ADMISSION.into_iter().chain(DISPATCH) {
        for per_model in models(scope).iter().copied() {
            let row = name(scope, Dimension::ConcurrentRequests, per_model);
            let limits = with_concurrency(Limits::default(), 3, OnExcess::Queue);
            let mut world = World::new(policy_with(scope, limits, per_model));
            let requests: Vec<_> = (0..4).map(|_| world.arrive(asker())).collect();
            let running = requests.iter().filter(|request| world.is_running(**request)).count();
            assert_eq!(running, 3, "{row}");
            assert!(world.is_waiting(requests[3]), "{row}: it waits");
            check_others(&mut world, scope, per_model, &row);
            world.complete(requests[0], 1, 1);
            assert!(world.is_running(requests[3]), "{row}: a slot came back");
        }
    }
}

#[test]
fn runs_are_bound_by_their_budget_their_steps_and_the_rate_of_beginning_exactly() {
    let rows = [
        ("run/T/token_budget", run_budget(3 * cost(Dimension::Tokens)), Reason::RunBudgetSpent),
        ("run/T/max_steps", Runs { max_steps: Some(3), ..Runs::default() }, Reason::RunStepsSpent),
    ];
    for (row, runs, reason) in rows {
        let mut first = tenant("T", Limits::default());
        first.runs = Some(runs);
        let mut world = World::new(policy(vec![first]));
        let fitted = (0..4).take_while(|_| admitted(&mut world)).count();
        assert_eq!(fitted, 3, "{row}");
        let refused = world.arrive(asker());
        let refusal = world.refusal(refused);
        assert_eq!((refusal.reason, refusal.retry), (reason, Retry::Never), "{row}");
        assert_eq!(refusal.limit.unwrap().name(world.gate.policy()), row);
        check_others(&mut world, Scope::Run, false, row);
    }
    let mut first = tenant("T", Limits::default());
    first.runs = Some(Runs { new_runs: Some(slow(Dimension::NewRuns, 3).shape), ..Runs::default() });
    let mut world = World::new(policy(vec![first]));
    let of = |run: u128| Arrival { run: Some(run), ..asker() };
    for run in 1..=3 {
        let begun = world.arrive(of(run));
        assert!(world.is_running(begun), "tenant/T/new_runs: run {run}");
    }
    let refused = world.arrive(of(4));
    assert_eq!(world.refusal(refused).limit.unwrap().name(world.gate.policy()), "tenant/T/new_runs");
    let known = world.arrive(of(3));
    assert!(world.is_running(known), "tenant/T/new_runs: a run that has begun goes on");
}

/// Limits of someone else, or for another model, are not touched.
fn check_others(world: &mut World, scope: Scope, per_model: bool, row: &str) {
    let other = match scope {
        _ if per_model => Arrival { model: ModelId(1), ..asker() },
        Scope::EndUser => Arrival { end_user: Some(2), ..asker() },
        Scope::Run => Arrival { run: Some(2), ..asker() },
        Scope::Key => Arrival { key: Some(KeyId(1)), ..asker() },
        Scope::Tenant | Scope::Team => Arrival { tenant: TenantId(1), ..asker() },
        Scope::Service | Scope::Pool | Scope::Backend => return,
    };
    let other = world.arrive(other);
    assert!(world.is_running(other), "{row}: somebody else is not bound");
}

fn models(scope: Scope) -> &'static [bool] {
    match scope {
        Scope::Service | Scope::Pool | Scope::Backend => &[false],
        Scope::EndUser | Scope::Run | Scope::Key | Scope::Tenant | Scope::Team => &[false, true],
    }
}

fn policy_with(at: Scope, limits: Limits, per_model: bool) -> Policy {
    let block = if per_model {
        ScopeLimits { all: Limits::default(), models: [(ModelId(0), limits.clone())].into() }
    } else {
        scope(limits.clone())
    };
    let mut first = in_team(tenant("T", Limits::default()));
    first.keys.push(key("app", Limits::default()));
    match at {
        Scope::EndUser => first.end_users = Some(block.clone()),
        Scope::Run => first.runs = Some(Runs { limits: block.clone(), ..Runs::default() }),
        Scope::Key => first.keys[0].limits = block.clone(),
        Scope::Tenant => first.limits = block.clone(),
        Scope::Team | Scope::Service | Scope::Pool | Scope::Backend => {}
    }
    let mut policy = policy(vec![first, tenant("U", Limits::default())]);
    policy.teams = vec![team("shop", Limits::default())];
    policy.pools[0].backends = vec![backend("one", 100)];
    policy.pools[0].work = Work { input_millis: 2_000, cached_input_millis: 1_000, output_millis: 3_000 };
    match at {
        Scope::Team => policy.teams[0].limits = block,
        Scope::Service => policy.service = limits,
        Scope::Pool => policy.pools[0].limits = limits,
        Scope::Backend => policy.pools[0].backends[0].limits = limits,
        Scope::EndUser | Scope::Run | Scope::Key | Scope::Tenant => {}
    }
    policy
}

fn name(scope: Scope, dimension: Dimension, per_model: bool) -> String {
    let owner = match scope {
        Scope::EndUser => "end_user/T",
        Scope::Run => "run/T",
        Scope::Key => "key/T/web",
        Scope::Tenant => "tenant/T",
        Scope::Team => "team/shop",
        Scope::Service => "service",
        Scope::Pool => "pool/main",
        Scope::Backend => "backend/main/one",
    };
    let model = if per_model { "/model=small" } else { "" };
    format!("{owner}{model}/{}", dimension.name())
}

fn admitted(world: &mut World) -> bool {
    let request = world.arrive(asker());
    world.is_running(request)
}

fn asker() -> Arrival {
    Arrival { run: Some(1), end_user: Some(1), ..ask(60, 40) }
}

/// What [`asker`] takes from a limit of this dimension, in whole units.
fn cost(dimension: Dimension) -> u64 {
    match dimension {
        Dimension::Requests | Dimension::ConcurrentRequests | Dimension::RunSteps | Dimension::NewRuns => 1,
        Dimension::Tokens | Dimension::RunBudget => Tokens(60 + 40).0,
        Dimension::InputTokens => 60,
        Dimension::OutputTokens => 40,
        Dimension::Work => 60 * 2 + 40 * 3,
    }
}
