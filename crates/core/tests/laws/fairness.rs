//! The fair order: bounds on what tenants, teams and runs receive beside each other, over generated worlds.

use fairlane_core::gate::{Arrival, Event, RequestId};
use fairlane_core::policy::{
    KeyId, Limits, ModelId, Order, Policy, PoolId, Runs, TeamId, TenantId, WEIGHT_ONE_MILLIS, Work,
};
use fairlane_core::units::{Micros, Tokens};
use proptest::prelude::*;

use crate::chance::Chance;
use crate::flows::{Sender, Traffic};
use crate::policies::{at_once, backend, key, policy, scope, team, tenant};
use crate::some;
use crate::world::{ONE, World, ask};

proptest! {
    #![proptest_config(some(400))]

    #[test]
    fn s1_s2_s3_tenants_that_both_wait_stay_within_the_bound_of_each_other(seed: u64) {
        let mut chance = Chance::new(seed);
        let (policy, senders, in_flight) = tenants(&mut chance, Quotas::None);
        let alpha = policy.alpha_permille;
        let mut traffic = Traffic::new(policy, senders, chance);
        let (spread_max, gap_max) = traffic.bounds_millis(in_flight, alpha);
        for _ in 0..250 {
            traffic.step();
            let shares = traffic.world.gate.shares(PoolId(0));
            let ready = || shares.iter().filter(|share| share.is_ready).map(|share| share.received_millis);
            let spread = i128::from(ready().max().unwrap_or(0)) - i128::from(ready().min().unwrap_or(0));
            prop_assert!(spread <= spread_max, "spread {} over {}", spread, spread_max);
        }
        prop_assert!(traffic.widest_gap <= gap_max, "gap {} over {}", traffic.widest_gap, gap_max);
    }

    #[test]
    fn s18_a_tenant_at_its_quota_banks_nothing(seed: u64) {
        let mut chance = Chance::new(seed);
        let (policy, senders, in_flight) = tenants(&mut chance, Quotas::Some);
        let alpha = policy.alpha_permille;
        let mut traffic = Traffic::new(policy, senders, chance);
        let (_, gap_max) = traffic.bounds_millis(in_flight, alpha);
        for _ in 0..250 {
            traffic.step();
        }
        prop_assert!(traffic.widest_gap <= gap_max, "gap {} over {}", traffic.widest_gap, gap_max);
    }

    #[test]
    fn s2_teams_keep_the_same_bound_at_their_level(seed: u64) {
        let mut chance = Chance::new(seed);
        let slots = 1 + chance.below(3) as u32;
        let weights = [1_000, chance.pick(&[500, 1_000, 2_000])];
        let mut policy = policy((0..4).map(|index| in_team(index, index % 2)).collect());
        policy.teams = (0..2).map(|index| team(&format!("team-{index}"), Limits::default())).collect();
        policy.teams.iter_mut().zip(weights).for_each(|(team, weight)| team.weight_millis = weight);
        policy.pools[0].backends = vec![backend("one", slots)];
        let senders = (0..4).map(|index| {
            let team = index % 2;
            Sender { weight_millis: weights[team as usize], ..Sender::new(index, team, &mut chance) }
        }).collect();
        let alpha = policy.alpha_permille;
        let mut traffic = Traffic::new(policy, senders, chance);
        let (_, gap_max) = traffic.bounds_millis(u64::from(slots), alpha);
        for _ in 0..250 {
            traffic.step();
        }
        prop_assert!(traffic.widest_gap <= gap_max, "gap {} over {}", traffic.widest_gap, gap_max);
    }

    #[test]
    fn s2_runs_of_a_tenant_keep_the_same_bound_at_their_level(seed: u64) {
        let mut chance = Chance::new(seed);
        let slots = 1 + chance.below(3) as u32;
        // A quota of the tenant holds all its runs up together.
        let limits = if chance.one_in(2) { at_once(slots) } else { Limits::default() };
        let mut one = tenant("one", limits);
        one.runs = Some(Runs { new_runs: None, ..Runs::default() });
        let mut policy = policy(vec![one]);
        policy.pools[0].backends = vec![backend("one", slots + chance.below(2) as u32)];
        let senders = (0..3).map(|run| {
            Sender { run: Some(u128::from(run)), ..Sender::new(0, run, &mut chance) }
        }).collect();
        let alpha = policy.alpha_permille;
        let mut traffic = Traffic::new(policy, senders, chance);
        let (_, gap_max) = traffic.bounds_millis(u64::from(slots) + 1, alpha);
        for _ in 0..250 {
            traffic.step();
        }
        prop_assert!(traffic.widest_gap <= gap_max, "gap {} over {}", traffic.widest_gap, gap_max);
    }

    #[test]
    fn s14_the_order_does_not_depend_on_ids_names_or_hashes(seed: u64) {
        let mut chance = Chance::new(seed);
        let count = 2 + chance.below(4) as u32;
        let turned = |index: u32| (index + 1) % count;
        let weights: Vec<u32> = (0..count).map(|_| chance.pick(&[1_000, 1_000, 2_000])).collect();
        let build = |turn: &dyn Fn(u32) -> u32, name: &str| {
            let mut list: Vec<_> = (0..count).map(|index| tenant(&format!("{name}-{index}"), at_once(3))).collect();
            for index in 0..count {
                list[turn(index) as usize].weight_millis = weights[index as usize];
            }
            let mut policy = policy(list);
            policy.pools[0].backends = vec![backend("one", 3)];
            World::new(policy)
        };
        let (mut one, mut other) = (build(&|index| index, "a"), build(&turned, "z"));
        for _ in 0..200 {
            let (who, run) = (chance.below(u64::from(count)) as u32, u128::from(chance.below(3)));
            let (input, which) = (1 + chance.below(200), chance.below(16) as usize);
            if chance.one_in(3) {
                let running = one.running();
                if let Some(request) = running.get(which % running.len().max(1)).copied() {
                    one.complete(request, input, 10);
                    other.complete(request, input, 10);
                }
            } else {
                let of = |tenant, run| Arrival { tenant: TenantId(tenant), run: Some(run), ..ask(input, 50) };
                one.arrive(of(who, run));
                other.arrive(of(turned(who), u128::MAX - run * 7_919));
            }
            prop_assert_eq!(&one.starts, &other.starts);
        }
    }

    #[test]
    fn s15_counters_that_are_set_back_change_no_decision(seed: u64) {
        let mut chance = Chance::new(seed);
        let build = |work: u32, weight: u32| {
            let mut list: Vec<_> = (0..3).map(|index| tenant(&format!("t-{index}"), Limits::default())).collect();
            list.iter_mut().for_each(|one| one.weight_millis = weight);
            let mut policy = policy(list);
            policy.pools[0].backends = vec![backend("one", 4)];
            policy.pools[0].work = work_of(work, work);
            World::new(policy)
        };
        // A token counts a thousand in one of them and a million millions in the other, where 64 bits would not hold the sum.
        let (mut one, mut other) = (build(1_000, WEIGHT_ONE_MILLIS), build(1_000_000_000, 1));
        for _ in 0..300 {
            let who = chance.below(3) as u32;
            let (input, which) = (1 + chance.below(100_000), chance.below(16) as usize);
            if chance.one_in(2) {
                let running = one.running();
                if let Some(request) = running.get(which % running.len().max(1)).copied() {
                    one.complete(request, input, 10);
                    other.complete(request, input, 10);
                }
            } else {
                let arrival = Arrival { tenant: TenantId(who), ..ask(input, 50) };
                one.arrive(arrival.clone());
                other.arrive(arrival);
            }
            prop_assert_eq!(&one.starts, &other.starts);
        }
    }
}

#[test]
fn s4_a_tenant_that_comes_back_has_saved_nothing_up() {
    let mut policy = policy(vec![tenant("early", Limits::default()), tenant("late", Limits::default())]);
    policy.pools[0].backends = vec![backend("one", 2)];
    let mut world = World::new(policy);
    let of = |tenant: u32| Arrival { tenant: TenantId(tenant), ..ask(100, 100) };
    for _ in 0..4 {
        world.arrive(of(0));
    }
    for _ in 0..200 {
        let running = world.running();
        world.complete(running[0], 100, 100);
        world.arrive(of(0));
    }
    for _ in 0..60 {
        world.arrive(of(1));
        world.arrive(of(0));
    }
    let before = world.starts.len();
    for _ in 0..40 {
        let running = world.running();
        world.complete(running[0], 100, 100);
    }
    let late = world.starts[before..].iter().filter(|start| world.arrivals[&start.1].tenant.0 == 1).count();
    assert!((19..=22).contains(&late), "{late} of 40 after an idle time of 200 requests");
}

#[test]
fn a_burst_of_free_slots_is_shared_because_input_counts_at_once() {
    let mut policy = policy(vec![tenant("first", Limits::default()), tenant("second", Limits::default())]);
    policy.pools[0].backends = vec![backend("one", 10)];
    let mut world = World::new(policy);
    let filler: Vec<RequestId> = (0..10).map(|_| world.arrive(ask(1, 1))).collect();
    for tenant in [0, 1] {
        for _ in 0..10 {
            world.arrive(Arrival { tenant: TenantId(tenant), ..ask(100, 1) });
        }
    }
    world.handle(Event::BackendDown(ONE));
    for request in filler {
        world.complete(request, 1, 1);
    }
    let before = world.starts.len();
    world.handle(Event::BackendUp(ONE));
    let of = |tenant: u32| {
        world.starts[before..].iter().filter(|start| world.arrivals[&start.1].tenant.0 == tenant).count()
    };
    assert_eq!((of(0), of(1)), (5, 5));
}

#[test]
fn output_counts_while_it_streams_and_not_only_at_its_end() {
    let mut policy = policy(vec![tenant("long", Limits::default()), tenant("short", Limits::default())]);
    policy.pools[0].backends = vec![backend("one", 3)];
    policy.alpha_permille = 0;
    let mut world = World::new(policy);
    let of = |tenant: u32| Arrival { tenant: TenantId(tenant), ..ask(10, 1_000) };
    let long = world.arrive(of(0));
    let short = [world.arrive(of(1)), world.arrive(of(1))];
    let (next_long, next_short) = (world.arrive(of(0)), world.arrive(of(1)));
    world.handle(Event::Produced { request: long, output: Tokens(500) });
    world.complete(short[0], 10, 1);
    assert!(world.is_waiting(next_long) && world.is_running(next_short), "`long` has had 500 tokens");
}

#[test]
fn output_that_is_likely_to_come_counts_in_part() {
    let mut policy = policy(vec![tenant("long", Limits::default()), tenant("short", Limits::default())]);
    policy.pools[0].backends = vec![backend("one", 3)];
    let mut world = World::new(policy);
    let of = |tenant: u32, bound: u64| Arrival { tenant: TenantId(tenant), ..ask(10, bound) };
    world.arrive(of(0, 500));
    let short = [world.arrive(of(1, 5)), world.arrive(of(1, 5))];
    let (next_long, next_short) = (world.arrive(of(0, 500)), world.arrive(of(1, 5)));
    world.complete(short[0], 10, 5);
    // `long` has received 10, `short` 30 and more; a quarter of the 500 that are likely to come tips the balance.
    assert!(world.is_waiting(next_long) && world.is_running(next_short));
}

#[test]
fn s16_streamed_reported_and_interrupted_output_count_the_same() {
    let mut received = Vec::new();
    for way in 0..3 {
        let mut world = World::new(policy(vec![tenant("one", Limits::default())]));
        let request = world.arrive(ask(70, 400));
        match way {
            0 => {
                for output in 1..=90 {
                    world.handle(Event::Produced { request, output: Tokens(output) });
                }
                world.complete(request, 70, 90);
            }
            1 => world.complete(request, 70, 90),
            _ => {
                world.handle(Event::Produced { request, output: Tokens(40) });
                world.leave(request, 90);
            }
        }
        received.push(world.gate.shares(PoolId(0))[0].received_millis);
    }
    assert_eq!(received, [160_000, 160_000, 160_000]);
}

#[test]
fn a_try_that_came_to_nothing_counts_nothing() {
    let mut world = World::new(policy(vec![tenant("one", Limits::default())]));
    let request = world.arrive(ask(70, 400));
    world.hand_back(Event::Bounced { request, retry_after: Some(Micros::from_secs(1)) });
    assert_eq!(world.gate.shares(PoolId(0))[0].received_millis, 0);
    world.advance_secs(1);
    world.complete(request, 70, 90);
    assert_eq!(world.gate.shares(PoolId(0))[0].received_millis, 160_000, "charged once");
}

#[test]
fn what_a_run_gave_back_counts_for_its_tenant_though_other_runs_of_it_wait() {
    let mut policy = policy(vec![tenant("over", Limits::default()), tenant("even", Limits::default())]);
    policy.pools[0].backends = vec![backend("one", 2)];
    let mut world = World::new(policy);
    let of = |tenant: u32, run: u128, input: u64| Arrival {
        tenant: TenantId(tenant),
        run: Some(run),
        ..ask(input, 0)
    };
    let over = world.arrive(of(0, 1, 1_000));
    let even = world.arrive(of(1, 1, 500));
    let next_even = world.arrive(of(1, 2, 10));
    let next_over = world.arrive(of(0, 2, 10));
    // It had been charged a thousand, and used a hundred.
    world.complete(over, 100, 0);
    assert!(world.is_running(next_over) && world.is_waiting(next_even));
    world.complete(even, 500, 0);
}

#[test]
fn a_run_at_its_own_slots_banks_nothing() {
    let before = |slots: u32| {
        let mut one = tenant("one", Limits::default());
        one.runs = Some(Runs { new_runs: None, limits: scope(at_once(1)), ..Runs::default() });
        let mut policy = policy(vec![one]);
        policy.pools[0].backends = vec![backend("one", slots)];
        policy
    };
    let mut world = World::new(before(2));
    let of = |run: u128| Arrival { run: Some(run), ..ask(100, 0) };
    let slow = world.arrive(of(1));
    (0..40).for_each(|_| {
        world.arrive(of(1));
    });
    // While the first request of run 1 takes its time, run 2 makes fifty steps.
    let mut quick = world.arrive(of(2));
    for _ in 0..50 {
        let next = world.arrive(of(2));
        world.complete(quick, 100, 0);
        quick = next;
    }
    (0..40).for_each(|_| {
        world.arrive(of(2));
    });
    world.reload(before(1));
    world.complete(slow, 100, 0);
    world.complete(quick, 100, 0);
    let started = world.starts.len();
    for _ in 0..20 {
        let running = world.running();
        world.complete(running[0], 100, 0);
    }
    let first =
        world.starts[started..].iter().filter(|start| world.arrivals[&start.1].run == Some(1)).count();
    assert!((8..=12).contains(&first), "{first} of 20");
}

#[test]
fn s18_slots_that_are_used_in_another_pool_bank_nothing_in_this_one() {
    let mut policy = policy(vec![tenant("busy", at_once(2)), tenant("other", Limits::default())]);
    policy.pools.push(policy.pools[0].clone());
    policy.pools[1].name = "second".into();
    policy.models[1].pool = PoolId(1);
    policy.pools[0].backends = vec![backend("one", 2)];
    let mut world = World::new(policy);
    let elsewhere = [0, 1].map(|_| world.arrive(Arrival { model: ModelId(1), ..ask(10, 10) }));
    let of = |tenant: u32| Arrival { tenant: TenantId(tenant), ..ask(100, 0) };
    for _ in 0..40 {
        world.arrive(of(0));
    }
    for _ in 0..2 {
        world.arrive(of(1));
    }
    let here = |world: &World| world.running().into_iter().find(|one| !elsewhere.contains(one)).unwrap();
    for _ in 0..50 {
        world.arrive(of(1));
        world.complete(here(&world), 100, 0);
    }
    (0..40).for_each(|_| {
        world.arrive(of(1));
    });
    elsewhere.into_iter().for_each(|request| world.complete(request, 10, 10));
    let before = world.starts.len();
    for _ in 0..20 {
        let running = world.running();
        world.complete(running[0], 100, 0);
    }
    let busy = world.starts[before..].iter().filter(|start| world.arrivals[&start.1].tenant.0 == 0).count();
    assert!((8..=12).contains(&busy), "{busy} of 20");
}

#[test]
fn runs_that_a_key_held_up_together_bank_nothing_and_keep_their_order() {
    let before = |slots: u32| {
        let mut one = tenant("one", Limits::default());
        one.keys = vec![key("web", at_once(1)), key("app", Limits::default())];
        let mut policy = policy(vec![one]);
        policy.pools[0].backends = vec![backend("one", slots)];
        policy
    };
    let mut world = World::new(before(2));
    let of = |run: u128, input: u64| Arrival { run: Some(run), ..ask(input, 0) };
    let app = Arrival { key: Some(KeyId(1)), ..of(3, 100) };
    let filler = world.arrive(of(4, 1));
    let slow = world.arrive(of(1, 5_000));
    for run in [1, 2] {
        (0..40).for_each(|_| {
            world.arrive(of(run, 100));
        });
    }
    // Run 1 gets 5,000 tokens and is at it for long; run 2, which waits as long, has had nothing.
    world.complete(filler, 1, 0);
    assert!(world.is_running(slow));
    let mut quick = world.arrive(app.clone());
    for _ in 0..60 {
        let next = world.arrive(app.clone());
        world.complete(quick, 100, 0);
        quick = next;
    }
    (0..40).for_each(|_| {
        world.arrive(app.clone());
    });
    world.reload(before(1));
    world.complete(slow, 5_000, 0);
    world.complete(quick, 100, 0);
    let started = world.starts.len();
    for _ in 0..20 {
        let running = world.running();
        world.complete(running[0], 100, 0);
    }
    let of = |run: u128| {
        world.starts[started..].iter().filter(|start| world.arrivals[&start.1].run == Some(run)).count()
    };
    assert_eq!(of(1), 0, "run 2 is behind it as before");
    assert!((8..=12).contains(&of(2)), "{} of 20, the others for the key that was not held up", of(2));
}

#[test]
fn runs_under_the_slots_of_one_key_share_them_by_tokens() {
    let mut one = tenant("one", Limits::default());
    one.keys[0].limits = scope(at_once(1));
    let mut world = World::new(policy(vec![one]));
    for (run, input) in [(1, 1_000), (2, 100)] {
        for _ in 0..40 {
            world.arrive(Arrival { run: Some(run), wait_max: None, ..ask(input, 1) });
        }
    }
    let mut received = [0, 0];
    for _ in 0..33 {
        let running = world.running()[0];
        let Arrival { run, input, .. } = world.arrivals[&running];
        received[run.unwrap() as usize - 1] += input.0;
        world.complete(running, input.0, 1);
    }
    assert!(received[0].abs_diff(received[1]) <= 1_100, "{received:?}");
}

#[test]
fn a_reload_keeps_what_tenants_have_received_and_takes_on_their_weights() {
    let two = |weight: u32| {
        let mut second = tenant("second", Limits::default());
        second.weight_millis = weight;
        let mut policy = policy(vec![tenant("first", Limits::default()), second]);
        policy.pools[0].backends = vec![backend("one", 2)];
        policy
    };
    let mut world = World::new(two(1_000));
    for tenant in [0, 1] {
        for _ in 0..30 {
            world.arrive(Arrival { tenant: TenantId(tenant), ..ask(100, 0) });
        }
    }
    let received = |world: &World| {
        world.gate.shares(PoolId(0)).iter().map(|one| one.received_millis).collect::<Vec<_>>()
    };
    let before = received(&world);
    world.reload(two(3_000));
    assert_eq!(received(&world), before);
    let started = world.starts.len();
    for _ in 0..24 {
        let running = world.running();
        world.complete(running[0], 100, 0);
    }
    let second =
        world.starts[started..].iter().filter(|start| world.arrivals[&start.1].tenant.0 == 1).count();
    assert_eq!(second, 18, "three quarters of 24");
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotas {
    None,
    Some,
}

/// Tenants by chance before two backends, and how many requests one of them can have there.
fn tenants(chance: &mut Chance, quotas: Quotas) -> (Policy, Vec<Sender>, u64) {
    let slots = 1 + chance.below(4) as u32;
    let mut senders = Vec::new();
    let mut list = Vec::new();
    for index in 0..2 + chance.below(3) as u32 {
        let quota = (quotas == Quotas::Some && chance.one_in(2)).then(|| 1 + chance.below(2) as u32);
        let mut one = tenant(&format!("tenant-{index}"), quota.map_or_else(Limits::default, at_once));
        one.weight_millis = chance.pick(&[500, 1_000, 1_000, 2_000, 3_000]);
        let weight_millis = one.weight_millis;
        senders.push(Sender { weight_millis, quota, ..Sender::new(index, index, chance) });
        list.push(one);
    }
    let mut policy = policy(list);
    policy.pools[0].backends = vec![backend("one", slots), backend("two", slots)];
    policy.pools[0].work = chance.pick(&[work_of(1_000, 1_000), work_of(1_000, 4_570), work_of(500, 2_000)]);
    policy.order = chance.pick(&[Order::Fair, Order::LanesFair]);
    policy.alpha_permille = chance.pick(&[0, 250, 250, 500, 1_000]);
    (policy, senders, u64::from(slots) * 2)
}

fn in_team(index: u32, team: u32) -> fairlane_core::policy::Tenant {
    let mut one = tenant(&format!("tenant-{index}"), Limits::default());
    one.team = Some(TeamId(team));
    one
}

const fn work_of(input_millis: u32, output_millis: u32) -> Work {
    Work { input_millis, cached_input_millis: input_millis, output_millis }
}
