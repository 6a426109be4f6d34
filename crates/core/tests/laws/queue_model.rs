//! The queue against a naive model: order, concurrency limits, bounded waits, and no lost wake-up, over generated histories.

use std::collections::BTreeMap;

use fairlane_core::gate::{Arrival, Event, Failure, RequestId};
use fairlane_core::policy::{BackendId, KeyId, Limits, Order, Policy, PoolId, Runs, TenantId};
use fairlane_core::refusal::Reason;
use fairlane_core::units::{Micros, Moment};
use proptest::prelude::*;

use crate::many;
use crate::policies::{at_once, backend, in_team, key, policy, scope, team, tenant};
use crate::world::{ONE, Store, TWO, World, ask};

/// Somebody who holds slots: which limit, and whose of it.
type Slot = (&'static str, u64);

/// First in, first out among those whose limits have a slot, written down as plainly as can be.
struct Naive {
    waiting: Vec<(RequestId, Vec<Slot>, Moment)>,
    running: BTreeMap<RequestId, (usize, usize)>,
    slots_of: BTreeMap<RequestId, (usize, Vec<Slot>, Moment)>,
    used: BTreeMap<Slot, u32>,
    limits: BTreeMap<&'static str, u32>,
    backends: Vec<Spot>,
    starts: Vec<(Moment, RequestId, BackendId)>,
    refusals: Vec<(Moment, RequestId)>,
    turn: usize,
}

struct Spot {
    alive: bool,
    room: u32,
    closed_until: Moment,
}

impl Naive {
    fn eligible(&self, slots: &[Slot]) -> bool {
        slots.iter().all(|slot| {
            let used = self.used.get(slot).copied().unwrap_or(0);
            self.limits.get(slot.0).is_none_or(|limit| used < *limit)
        })
    }

    fn arrive(&mut self, request: RequestId, slots: Vec<Slot>, until: Moment, now: Moment) {
        self.slots_of.insert(request, (self.turn, slots.clone(), until));
        self.turn += 1;
        self.waiting.push((request, slots, until));
        self.dispatch(now);
    }

    fn dispatch(&mut self, now: Moment) {
        loop {
            let open = |spot: &&(usize, &Spot)| spot.1.alive && spot.1.room > 0 && spot.1.closed_until <= now;
            let spots: Vec<(usize, &Spot)> = self.backends.iter().enumerate().collect();
            let Some(most) = spots.iter().filter(open).map(|(_, spot)| spot.room).max() else { return };
            let place = spots.iter().filter(open).find(|(_, spot)| spot.room == most).unwrap().0;
            let Some(next) = self.waiting.iter().position(|(_, slots, _)| self.eligible(slots)) else {
                return;
            };
            let (request, slots, _) = self.waiting.remove(next);
            self.backends[place].room -= 1;
            slots.iter().for_each(|slot| *self.used.entry(*slot).or_default() += 1);
            self.running.insert(request, (place, 0));
            let backend = BackendId { pool: PoolId(0), index: place as u32 };
            self.starts.push((now, request, backend));
        }
    }

    /// Takes a request off its backend or out of the queue.
    fn remove(&mut self, request: RequestId) {
        self.waiting.retain(|(waiting, _, _)| *waiting != request);
        if let Some((place, _)) = self.running.remove(&request) {
            self.backends[place].room += 1;
            for slot in &self.slots_of[&request].1 {
                *self.used.get_mut(slot).unwrap() -= 1;
            }
        }
    }

    /// Back to its place: before all that came later.
    fn requeue(&mut self, request: RequestId) {
        let (turn, slots, until) = self.slots_of[&request].clone();
        let place = self.waiting.iter().filter(|(other, _, _)| self.slots_of[other].0 < turn).count();
        self.waiting.insert(place, (request, slots, until));
    }

    fn tick(&mut self, now: Moment) {
        let mut over: Vec<(Moment, RequestId)> =
            self.waiting.iter().filter(|entry| entry.2 <= now).map(|entry| (entry.2, entry.0)).collect();
        over.sort();
        for (_, request) in over {
            self.remove(request);
            self.refusals.push((now, request));
        }
        self.dispatch(now);
    }

    /// The next moment at which something must happen though nothing else comes.
    fn due(&self) -> Option<Moment> {
        self.waiting.iter().map(|entry| entry.2).min()
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive(u16),
    Pass(u32),
    End(u8),
    Leave(u8),
    Bounce(u8, u16),
    Backend(bool, bool),
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn requests_start_in_order_of_arrival_among_those_with_a_free_slot_and_no_wake_up_is_lost(
        limits in prop::array::uniform6(0u32..4), slots in prop::array::uniform2(1u32..4),
        steps in prop::collection::vec(step(), 20..60),
    ) {
        let mut world = World::new(crowded(limits, slots));
        let mut naive = naive(limits, slots);
        for step in steps {
            follow(&mut world, &mut naive, step);
            assert_eq!(world.starts, naive.starts, "dispatches");
            assert_eq!(world.refusals, naive.refusals, "refusals at exactly their moment");
        }
        world.wind_up();
    }

    #[test]
    fn slots_are_never_exceeded_nor_left_idle_across_two_pools_and_a_late_store(
        limits in prop::array::uniform6(0u32..4), slots in prop::array::uniform2(1u32..4),
        store in prop::sample::select(vec![Store::AtOnce, Store::TellsLate, Store::DecidesLate]),
        steps in prop::collection::vec(step(), 20..60),
    ) {
        let mut policy = crowded(limits, slots);
        policy.pools.push(crate::policies::pool("other", vec![backend("three", slots[1])]));
        policy.models[1].pool = PoolId(1);
        let mut world = World::with_store(policy, store);
        let mut granted: Vec<RequestId> = Vec::new();
        for step in steps {
            drive(&mut world, step, &mut granted);
            check_slots(&world, limits, &granted);
        }
        world.wind_up();
    }
}

fn crowded(limits: [u32; 6], slots: [u32; 2]) -> Policy {
    let block = |limit: u32| if limit == 0 { Limits::default() } else { at_once(limit) };
    let tenants = ["first", "second"].map(|name| {
        let mut tenant = in_team(tenant(name, block(limits[0])));
        tenant.keys = vec![key("web", block(limits[1])), key("app", block(limits[1]))];
        tenant.end_users = Some(scope(block(limits[2])));
        tenant.runs = Some(Runs { limits: scope(block(limits[3])), ..Runs::default() });
        tenant
    });
    let mut policy = policy(tenants.to_vec());
    policy.teams = vec![team("shop", block(limits[4]))];
    policy.pools[0].limits = block(limits[5]);
    policy.pools[0].backends = vec![backend("one", slots[0]), backend("two", slots[1])];
    policy.classes[0].wait_max = Micros::from_secs(10);
    policy.order = Order::Fifo;
    policy
}

fn naive(limits: [u32; 6], slots: [u32; 2]) -> Naive {
    let names = ["tenant", "key", "end_user", "run", "team", "pool"];
    let spot = |room| Spot { alive: true, room, closed_until: Moment(0) };
    Naive {
        waiting: Vec::new(),
        running: BTreeMap::new(),
        slots_of: BTreeMap::new(),
        used: BTreeMap::new(),
        limits: names.into_iter().zip(limits).filter(|(_, limit)| *limit > 0).collect(),
        backends: slots.map(spot).into(),
        starts: Vec::new(),
        refusals: Vec::new(),
        turn: 0,
    }
}

fn arrival(who: u16) -> Arrival {
    let pick = |shift: u32, many: u16| u32::from((who >> shift) % many);
    Arrival {
        tenant: TenantId(pick(0, 2)),
        key: Some(KeyId(pick(1, 2))),
        end_user: Some(u128::from(1 + pick(2, 3))),
        run: Some(u128::from(1 + pick(4, 3))),
        model: fairlane_core::policy::ModelId(pick(6, 2)),
        wait_max: Some(Micros::from_secs(u64::from(1 + pick(7, 16)))),
        ..ask(1, 1)
    }
}

fn slots_of(arrival: &Arrival) -> Vec<Slot> {
    let tenant = u64::from(arrival.tenant.0);
    let of = |id: u128| tenant * 100 + id as u64;
    vec![
        ("tenant", tenant),
        ("key", of(arrival.key.unwrap().0.into())),
        ("end_user", of(arrival.end_user.unwrap())),
        ("run", of(arrival.run.unwrap())),
        ("team", 0),
        ("pool", 0),
    ]
}

fn follow(world: &mut World, naive: &mut Naive, step: Step) {
    let now = world.now;
    match step {
        Step::Arrive(who) => {
            let arrival = arrival(who);
            let until = now.after(arrival.wait_max.unwrap().min(Micros::from_secs(10)));
            let request = world.arrive(arrival.clone());
            naive.arrive(request, slots_of(&arrival), until, now);
            if world.is_refused(request) {
                // Foreseen: it would have waited, and for longer than it may.
                assert_eq!(world.reason(request), Reason::WaitTooLong);
                assert!(naive.waiting.iter().any(|entry| entry.0 == request), "{request:?} could have run");
                naive.remove(request);
                naive.refusals.push((now, request));
            }
        }
        Step::Pass(micros) => {
            let end = now.after(Micros(u64::from(micros)));
            loop {
                let asked = world.gate.deadline();
                if let Some(due) = naive.due() {
                    assert!(asked.is_some_and(|asked| asked <= due), "{asked:?} is later than {due:?}");
                }
                let Some(moment) = asked.filter(|moment| *moment <= end) else { break };
                world.now = world.now.max(moment);
                world.handle(Event::Tick);
                naive.tick(world.now);
            }
            world.now = end;
            world.handle(Event::Tick);
            naive.tick(end);
        }
        Step::End(which) => {
            if let Some(request) = pick(&world.running(), which) {
                world.complete(request, 1, 1);
                naive.remove(request);
                naive.dispatch(now);
            }
        }
        Step::Leave(which) => {
            if let Some(request) = pick(&world.waiting(), which) {
                world.leave(request, 0);
                naive.remove(request);
                naive.dispatch(now);
            }
        }
        Step::Bounce(which, millis) => {
            if let Some(request) = pick(&world.running(), which)
                && naive.slots_of[&request].2 > now
            {
                let wait = Micros::from_millis(u64::from(millis));
                world.hand_back(Event::Bounced { request, retry_after: Some(wait) });
                let spot = &mut naive.backends[naive.running[&request].0];
                spot.closed_until = spot.closed_until.max(now.after(wait));
                naive.remove(request);
                naive.requeue(request);
                // What was bounced is over at its wait's end, with the answer that it got: not a refusal of ours.
                naive.dispatch(now);
                let abandon_later = naive.waiting.iter().any(|entry| entry.0 == request);
                if abandon_later {
                    world.leave(request, 0);
                    naive.remove(request);
                    naive.dispatch(now);
                }
            }
        }
        Step::Backend(first, up) => {
            let backend = if first { ONE } else { TWO };
            world.handle(if up { Event::BackendUp(backend) } else { Event::BackendDown(backend) });
            naive.backends[backend.index as usize].alive = up;
            if !naive.backends.iter().any(|spot| spot.alive) {
                // Newcomers would be refused at once, which is not under test here.
                world.handle(Event::BackendUp(ONE));
                naive.backends[0].alive = true;
            }
            naive.dispatch(now);
        }
    }
}

fn drive(world: &mut World, step: Step, granted: &mut Vec<RequestId>) {
    match step {
        Step::Arrive(who) => {
            world.arrive(arrival(who));
        }
        Step::Pass(micros) => world.advance(Micros(u64::from(micros))),
        Step::End(which) => {
            if let Some(request) = pick(&world.running(), which) {
                world.complete(request, 1, 1);
            }
        }
        Step::Leave(which) => {
            if let Some(request) = pick(&world.waiting(), which) {
                world.leave(request, 0);
            }
        }
        Step::Bounce(which, _) if which.is_multiple_of(2) => {
            if let Some(request) = pick(&world.running(), which) {
                world.hand_back(Event::Failed { request, failure: Failure::Error });
            }
        }
        Step::Bounce(..) => {}
        Step::Backend(..) => {
            for _ in 0..3 {
                world.answer();
            }
        }
    }
    let asking = |request: &RequestId| {
        let admission = world.admissions.get(request);
        world.pending.iter().any(|(asked, _)| Some(&asked.id) == admission)
    };
    granted.clear();
    granted.extend(world.waiting().into_iter().filter(|request| !asking(request)));
}

/// No limit is exceeded; and whoever waits while a backend has room is held by a full limit.
fn check_slots(world: &World, limits: [u32; 6], granted: &[RequestId]) {
    let names = ["tenant", "key", "end_user", "run", "team", "pool"];
    let limits: BTreeMap<&str, u32> = names.into_iter().zip(limits).filter(|(_, limit)| *limit > 0).collect();
    let mut used: BTreeMap<Slot, u32> = BTreeMap::new();
    let own = |request: &RequestId| {
        let arrival = &world.arrivals[request];
        let mut slots = slots_of(arrival);
        // The limit of the first pool does not hold for the second one.
        slots.retain(|slot| slot.0 != "pool" || arrival.model.0 == 0);
        slots
    };
    for slot in world.running().iter().flat_map(own) {
        *used.entry(slot).or_default() += 1;
    }
    let full =
        |slot: &Slot| limits.get(slot.0).is_some_and(|limit| used.get(slot).copied().unwrap_or(0) >= *limit);
    for (slot, used) in &used {
        assert!(limits.get(slot.0).is_none_or(|limit| used <= limit), "{slot:?} has {used} running");
    }
    let pools = world.gate.pools();
    let mut blocked = [false; 2];
    for request in granted {
        let tried: Vec<BackendId> =
            world.starts.iter().filter(|start| start.1 == *request).map(|start| start.2).collect();
        let pool = &pools[world.arrivals[request].model.0 as usize];
        let room = pool
            .backends
            .iter()
            .any(|one| one.is_alive && one.in_flight < one.slots && !tried.contains(&one.backend));
        if own(request).iter().any(full) {
            continue;
        }
        // The first one that fits nowhere, as one that goes to no backend twice, holds up those behind it.
        let blocked = &mut blocked[world.arrivals[request].model.0 as usize];
        assert!(*blocked || !room, "{request:?} waits though it could run");
        *blocked = true;
    }
}

fn pick(requests: &[RequestId], which: u8) -> Option<RequestId> {
    (!requests.is_empty()).then(|| requests[usize::from(which) % requests.len()])
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => any::<u16>().prop_map(Step::Arrive),
        2 => (0u32..3_000_000).prop_map(Step::Pass),
        5 => any::<u8>().prop_map(Step::End),
        2 => any::<u8>().prop_map(Step::Leave),
        1 => (any::<u8>(), 0u16..4_000).prop_map(|(which, millis)| Step::Bounce(which, millis)),
        2 => (any::<bool>(), any::<bool>()).prop_map(|(first, up)| Step::Backend(first, up)),
    ]
}
