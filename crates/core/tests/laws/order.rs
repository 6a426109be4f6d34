//! Whatever happens: first in, first out inside a run; nobody is lost, starved or sent after leaving; no room is left while
//! somebody could use it.

use std::collections::{BTreeMap, BTreeSet};

use fairlane_core::gate::{Arrival, Event, Failure, RequestId};
use fairlane_core::occupancy::Headroom;
use fairlane_core::policy::{ClassId, KeyId, Limits, Order, Policy, Runs, TeamId, TenantId};
use fairlane_core::units::{Micros, Tokens};
use proptest::prelude::*;

use crate::chance::Chance;
use crate::policies::{at_once, backend, class, in_team, key, policy, scope, team, tenant};
use crate::some;
use crate::world::{ONE, State, Store, TWO, World, ask, nothing};

proptest! {
    #![proptest_config(some(600))]

    #[test]
    fn s5_s6_s12_s13_s17_nobody_is_lost_overtaken_or_sent_after_leaving_and_no_room_is_left(seed: u64) {
        let mut chance = Chance::new(seed);
        let policy = by_chance(&mut chance);
        let quotas = policy.tenants.iter().map(|one| one.limits.all.concurrency.map(|slots| slots.limit)).collect();
        let has_headroom = policy.order.has_lanes() && policy.classes.iter().any(|class| class.headroom > Headroom::NONE);
        let store = if chance.one_in(4) { Store::DecidesLate } else { Store::AtOnce };
        let mut history = History {
            world: World::with_store(policy, store),
            left: BTreeSet::new(),
            came_back: BTreeSet::new(),
            quotas,
        };
        for _ in 0..120 {
            history.step(&mut chance);
            history.check_all_are_known();
            if store == Store::AtOnce && !has_headroom {
                history.check_no_room_is_left();
            }
        }
        history.check_runs();
        history.check_who_left();
        history.world.wind_up();
    }
}

struct History {
    world: World,
    /// Requests whose clients left while they waited.
    left: BTreeSet<RequestId>,
    /// Requests that were sent more than once.
    came_back: BTreeSet<RequestId>,
    quotas: Vec<Option<u32>>,
}

impl History {
    fn step(&mut self, chance: &mut Chance) {
        let running = self.world.running();
        let waiting = self.world.waiting();
        let which = |chance: &mut Chance, of: &[RequestId]| {
            (!of.is_empty()).then(|| of[chance.below(of.len() as u64) as usize])
        };
        match chance.below(12) {
            0..5 => {
                self.world.arrive(by_whom(chance));
            }
            5..8 => {
                if let Some(request) = which(chance, &running) {
                    self.world.complete(request, 1 + chance.below(300), chance.below(60));
                }
            }
            8 => {
                if let Some(request) = which(chance, &waiting) {
                    self.left.insert(request);
                    self.world.leave(request, 0);
                }
            }
            9 => {
                if let Some(request) = which(chance, &running) {
                    self.came_back.insert(request);
                    let event = match chance.below(3) {
                        0 => Event::Failed { request, failure: Failure::Error },
                        1 => Event::Evicted { request },
                        _ => Event::Bounced { request, retry_after: Some(Micros(chance.below(2_000_000))) },
                    };
                    self.world.hand_back(event);
                }
            }
            10 => {
                let backend = chance.pick(&[ONE, TWO]);
                self.world.handle(if chance.one_in(3) {
                    Event::BackendDown(backend)
                } else {
                    Event::BackendUp(backend)
                });
            }
            _ => self.world.advance(Micros(chance.below(1_500_000))),
        }
        if let Some(request) = which(chance, &self.world.running()) {
            self.world.handle(Event::Produced { request, output: Tokens(chance.below(60)) });
        }
        while chance.one_in(2) && !self.world.pending.is_empty() {
            self.world.answer();
        }
    }

    /// Arrived is queued, in flight, done and refused together, as the gate itself counts.
    fn check_all_are_known(&self) {
        let world = &self.world;
        let over = world
            .states
            .values()
            .filter(|state| matches!(state, State::Refused(_) | State::Finished(_)))
            .count();
        assert_eq!(world.states.len(), over + world.gate.live());
        let queued: u32 = world.gate.pools().iter().flat_map(|pool| &pool.classes).map(|class| class.1).sum();
        assert!(queued as usize <= world.waiting().len());
    }

    /// Who waits is held up by a full limit of its tenant or a backend that it has tried, or all backends are full, paused or down.
    fn check_no_room_is_left(&self) {
        let world = &self.world;
        let pool = &world.gate.pools()[0];
        let paused = world.gate.deadline().is_some() && !self.came_back.is_empty();
        if paused || !pool.backends.iter().any(|one| one.is_alive && one.in_flight < one.slots) {
            return;
        }
        let running = world.running();
        for request in world.waiting() {
            let arrival = &world.arrivals[&request];
            let of = |other: &&RequestId| world.arrivals[other].tenant == arrival.tenant;
            let quota = self.quotas[arrival.tenant.0 as usize];
            let used = running.iter().filter(of).count() as u32;
            let own = |other: &&RequestId| {
                let other = &world.arrivals[other];
                other.tenant == arrival.tenant && (other.run == arrival.run || other.key == arrival.key)
            };
            let others_use_it = running.iter().filter(own).count() > 0
                || world.gate.policy().teams[0].limits.all.concurrency.is_some();
            assert!(quota.is_some_and(|quota| used >= quota) || others_use_it, "{request:?} could run");
        }
    }

    /// First in, first out inside a run of one class, as far as nobody came back.
    fn check_runs(&self) {
        let mut last: BTreeMap<(TenantId, ClassId, u128, KeyId), RequestId> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for (_, request, _) in &self.world.starts {
            if !seen.insert(*request) || self.came_back.contains(request) {
                continue;
            }
            let arrival = &self.world.arrivals[request];
            let run = (arrival.tenant, arrival.class, arrival.run.unwrap(), arrival.key.unwrap());
            if let Some(before) = last.insert(run, *request) {
                assert!(before < *request, "{request:?} overtook in its run");
            }
        }
    }

    fn check_who_left(&self) {
        for (_, request, _) in &self.world.starts {
            assert!(!self.left.contains(request) || self.came_back.contains(request), "{request:?} had left");
        }
    }
}

fn by_chance(chance: &mut Chance) -> Policy {
    let maybe = |chance: &mut Chance| {
        if chance.one_in(2) { at_once(1 + chance.below(3) as u32) } else { Limits::default() }
    };
    let tenants = (0..3).map(|index| {
        let mut one = tenant(&format!("tenant-{index}"), maybe(chance));
        one.keys = vec![key("web", maybe(chance)), key("app", Limits::default())];
        one.weight_millis = chance.pick(&[1_000, 2_500]);
        if chance.one_in(2) {
            one.runs = Some(Runs { new_runs: None, limits: scope(maybe(chance)), ..Runs::default() });
        }
        if chance.one_in(2) { in_team(one) } else { one }
    });
    let mut policy = policy(tenants.collect());
    policy.teams = vec![team("shop", maybe(chance))];
    policy.classes = vec![class("interactive"), class("batch"), class("background")];
    for class in policy.classes.iter_mut().skip(1) {
        class.min_share_ppm = chance.pick(&[0, 100_000]);
        class.headroom = Headroom::ppm(chance.pick(&[0, 0, 300_000]));
        class.ageing = chance.one_in(4).then(|| Micros::from_secs(2));
        class.is_evictable = chance.one_in(3);
    }
    policy.order = chance.pick(&[Order::LanesFair, Order::LanesFair, Order::Fair, Order::Lanes, Order::Fifo]);
    policy.pools[0].stickiness = chance.pick(&[Tokens(0), Tokens(200)]);
    policy.pools[0].backends =
        vec![backend("one", 1 + chance.below(3) as u32), backend("two", 1 + chance.below(3) as u32)];
    policy
}

fn by_whom(chance: &mut Chance) -> Arrival {
    Arrival {
        tenant: TenantId(chance.below(3) as u32),
        key: Some(KeyId(chance.below(2) as u32)),
        class: ClassId(chance.below(3) as u32),
        run: Some(u128::from(chance.below(3))),
        wait_max: Some(Micros(chance.below(6_000_000))),
        ..ask(1 + chance.below(300), 1 + chance.below(60))
    }
}

#[test]
fn a_team_at_its_slots_is_passed_and_its_tenants_share_them() {
    let mut list: Vec<_> = ["a", "b"].iter().map(|name| in_team(tenant(name, Limits::default()))).collect();
    list.push(tenant("c", Limits::default()));
    let mut policy = policy(list);
    policy.teams = vec![team("shop", at_once(1))];
    policy.pools[0].backends = vec![backend("one", 8)];
    let mut world = World::new(policy);
    assert_eq!(TeamId(0), world.gate.policy().tenants[0].team.unwrap());
    let of = |tenant: u32, input: u64| Arrival { tenant: TenantId(tenant), ..ask(input, 0) };
    for _ in 0..20 {
        world.arrive(of(0, 300));
        world.arrive(of(1, 100));
    }
    let other = world.arrive(of(2, 10));
    assert!(world.is_running(other), "the team's full slots hold up nobody else");
    world.end(other, nothing());
    let mut received = [0, 0];
    for _ in 0..20 {
        let running = world.running()[0];
        let Arrival { tenant, input, .. } = world.arrivals[&running];
        received[tenant.0 as usize] += input.0;
        world.complete(running, input.0, 0);
    }
    assert!(received[0].abs_diff(received[1]) <= 400, "{received:?}");
}
