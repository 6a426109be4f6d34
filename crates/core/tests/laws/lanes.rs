//! Classes: strict order, headroom, minimum shares, ageing, waits that can be foreseen.

use std::collections::BTreeMap;

use fairlane_core::gate::{Arrival, Event, RequestId};
use fairlane_core::occupancy::Headroom;
use fairlane_core::policy::{Class, ClassId, Limits, Order, Policy, TenantId};
use fairlane_core::refusal::Reason;
use fairlane_core::units::{Micros, Moment, Tokens};
use proptest::prelude::*;

use crate::chance::Chance;
use crate::policies::{backend, class, policy, tenant};
use crate::some;
use crate::world::{World, ask};

proptest! {
    #![proptest_config(some(300))]

    #[test]
    fn s9_a_class_that_waits_gets_its_share_of_the_work(seed: u64) {
        let mut chance = Chance::new(seed);
        let shares_ppm = [0, chance.pick(&[0, 50_000, 200_000]), chance.pick(&[0, 20_000, 100_000])];
        let mut busy = Busy::new(&mut chance, shares_ppm, [0, 50_000, 100_000]);
        // Work of all, less the share that it was due: how far each class was ever behind it, and the least since.
        let mut behind = [(0i128, 0i128, 0i128); 3];
        for _ in 0..300 {
            let ready: Vec<bool> = (0..3).map(|class| busy.waiting(class) > 0).collect();
            for (class, cost) in busy.step(&mut chance) {
                for (index, (now, least, most)) in behind.iter_mut().enumerate() {
                    if !ready[index] && busy.waiting(index as u32) == 0 {
                        (*now, *least) = (0, 0);
                        continue;
                    }
                    *now += i128::from(cost) * i128::from(shares_ppm[index]);
                    if class == index as u32 {
                        *now -= i128::from(cost) * 1_000_000;
                    }
                    *least = (*least).min(*now);
                    *most = (*most).max(*now - *least);
                }
            }
        }
        for (index, (_, _, most)) in behind.iter().enumerate().filter(|(index, _)| shares_ppm[*index] > 0) {
            let bound = i128::from(COST_MAX) * 3 * 1_000_000;
            prop_assert!(*most <= bound, "class {index} was {} tokens behind", most / 1_000_000);
        }
    }

    #[test]
    fn s10_a_class_held_back_by_its_headroom_never_delays_a_higher_one(seed: u64) {
        let mut chance = Chance::new(seed);
        let headrooms = [0, chance.pick(&[0, 50_000, 300_000]), chance.pick(&[100_000, 500_000])];
        let mut busy = Busy::new(&mut chance, [0, 50_000, 20_000], headrooms);
        for _ in 0..300 {
            busy.step(&mut chance);
            let pool = &busy.world.gate.pools()[0];
            let free: u32 = pool.backends.iter().map(|backend| backend.slots - backend.in_flight).sum();
            prop_assert!(free == 0 || busy.waiting(0) == 0, "{free} slots are free, and the first class waits");
        }
    }

    #[test]
    fn strict_lanes_send_the_highest_class_that_waits(seed: u64) {
        let mut chance = Chance::new(seed);
        let mut busy = Busy::new(&mut chance, [0; 3], [0; 3]);
        for _ in 0..200 {
            let waiting: Vec<u32> = (0..3).map(|class| busy.waiting(class)).collect();
            let sent = busy.end_one(&mut chance);
            if let (Some((class, _)), Some(first)) = (sent, waiting.iter().position(|count| *count > 0)) {
                prop_assert_eq!(class as usize, first);
            }
            busy.refill(&mut chance);
        }
    }

    #[test]
    fn s11_nobody_waits_longer_than_may_be_whatever_was_foreseen(seed: u64) {
        let mut chance = Chance::new(seed);
        let mut busy = Busy::new(&mut chance, [0, 50_000, 20_000], [0, 50_000, 100_000]);
        let mut foreseen = 0;
        for _ in 0..200 {
            let wait = Micros::from_millis(200 + chance.below(6_000));
            let class = chance.below(3) as u32;
            let request = busy.arrive(class, Some(wait), &mut chance);
            foreseen += u32::from(busy.world.is_refused(request));
            busy.world.advance(Micros::from_millis(chance.below(300)));
            if chance.one_in(2) {
                busy.end_one(&mut chance);
            }
            for request in busy.world.waiting() {
                let since = busy.arrived[&request];
                let most = busy.world.arrivals[&request].wait_max.unwrap();
                prop_assert!(busy.world.now.since(since) < most, "{request:?} waits since {since:?}");
            }
        }
        let _ = foreseen;
        busy.world.wind_up();
    }
}

#[test]
fn a_wait_that_is_foreseen_to_be_too_long_is_refused_at_once_and_others_are_not() {
    let mut policy = policy(vec![tenant("one", Limits::default()), tenant("two", Limits::default())]);
    policy.pools[0].backends = vec![backend("one", 1)];
    policy.classes[0].wait_max = Micros::from_secs(60);
    let mut world = World::new(policy);
    let of = |tenant: u32| Arrival { tenant: TenantId(tenant), ..ask(100, 0) };
    for _ in 0..30 {
        world.arrive(of(0));
    }
    // A request of 100 tokens takes half a second.
    for _ in 0..10 {
        world.advance(Micros::from_millis(500));
        let running = world.running();
        world.complete(running[0], 100, 0);
    }
    // Nineteen of its own are ahead of it: nine seconds and a half.
    let hasty = world.arrive(Arrival { wait_max: Some(Micros::from_secs(8)), ..of(0) });
    assert_eq!(world.reason(hasty), Reason::WaitTooLong);
    assert!(world.told(hasty) >= Micros::from_secs(1));
    let patient = world.arrive(Arrival { wait_max: Some(Micros::from_secs(12)), ..of(0) });
    assert!(world.is_waiting(patient));
    let other = world.arrive(Arrival { wait_max: Some(Micros::from_secs(8)), ..of(1) });
    assert!(world.is_waiting(other), "the other tenant's share comes sooner");
}

#[test]
fn how_little_is_done_in_a_pause_lets_nobody_be_refused_in_the_next_one() {
    let mut policy = policy(vec![tenant("one", Limits::default())]);
    policy.pools[0].backends = vec![backend("one", 10)];
    policy.classes[0].wait_max = Micros::from_secs(60);
    let mut world = World::new(policy);
    for pause in 0..20 {
        let tail = world.arrive(ask(1, 0));
        let bounced = world.arrive(ask(100, 0));
        let retry_after = Some(Micros::from_millis(500));
        world.hand_back(Event::Bounced { request: bounced, retry_after });
        for _ in 0..3 {
            let hasty = world.arrive(Arrival { wait_max: Some(Micros::from_secs(1)), ..ask(100, 0) });
            assert!(world.is_waiting(hasty), "in half a second all go, in pause {pause}");
        }
        world.advance(Micros::from_millis(250));
        world.complete(tail, 1, 0);
        world.advance(Micros::from_millis(260));
        for request in world.running() {
            world.complete(request, 100, 0);
        }
    }
}

#[test]
fn nothing_is_foreseen_before_the_pace_is_known() {
    let mut policy = policy(vec![tenant("one", Limits::default())]);
    policy.pools[0].backends = vec![backend("one", 1)];
    let mut world = World::new(policy);
    for _ in 0..500 {
        let request = world.arrive(Arrival { wait_max: Some(Micros(1_000)), ..ask(1_000, 1_000) });
        assert!(!world.is_refused(request));
    }
}

#[test]
fn c01_a_lasting_load_from_above_leaves_batch_its_share_of_every_30_seconds() {
    let mut policy = policy(vec![tenant("chat", Limits::default()), tenant("batch", Limits::default())]);
    policy.classes = vec![roomy("interactive", 0), roomy("batch", 50_000)];
    policy.pools[0].backends = vec![backend("one", 1)];
    let mut world = World::new(policy);
    let of = |tenant: u32, input: u64| Arrival {
        tenant: TenantId(tenant),
        class: ClassId(tenant),
        ..ask(input, 0)
    };
    // Ten tokens a second are served; chat asks for twenty, in requests of ten.
    for _ in 0..40 {
        world.arrive(of(1, 20));
    }
    let mut batch_work: BTreeMap<u64, u64> = BTreeMap::new();
    let start = world.now;
    while world.now.since(start) < Micros::from_secs(300) {
        for _ in 0..2 {
            world.arrive(of(0, 10));
        }
        world.advance(Micros::from_secs(1));
        let running = world.running()[0];
        let Arrival { input, class, .. } = world.arrivals[&running];
        // A request of twenty takes two seconds.
        if world.now.since(world.starts.last().unwrap().0) >= Micros(input.0 * 100_000) {
            let window = world.now.since(start).0 / 30_000_000;
            *batch_work.entry(window).or_default() += if class == ClassId(1) { input.0 } else { 0 };
            world.complete(running, input.0, 0);
        }
    }
    for (window, work) in batch_work.range(0..10) {
        // 5 % of 300, less one request, give or take what a window's edge cuts.
        assert!(*work + 20 >= 15, "window {window}: {work}");
    }
    assert!(batch_work.values().sum::<u64>() >= 140, "5 % of 3,000, less one request: {batch_work:?}");
}

#[test]
fn c02_a_chat_turn_goes_before_fifty_batch_prompts() {
    let mut policy = policy(vec![tenant("chat", Limits::default()), tenant("batch", Limits::default())]);
    policy.classes = vec![roomy("interactive", 0), roomy("batch", 50_000)];
    policy.pools[0].backends = vec![backend("one", 1)];
    let mut world = World::new(policy);
    let batch: Vec<RequestId> = (0..50)
        .map(|_| world.arrive(Arrival { tenant: TenantId(1), class: ClassId(1), ..ask(4_000, 600) }))
        .collect();
    let chat = world.arrive(ask(900, 250));
    world.complete(batch[0], 4_000, 600);
    assert!(world.is_running(chat));
}

#[test]
fn work_owed_by_a_share_is_exempt_from_headroom_and_waits_for_nobody_if_it_fits_nowhere() {
    let mut policy = policy(vec![tenant("chat", Limits::default()), tenant("batch", Limits::default())]);
    policy.classes = vec![roomy("interactive", 0), roomy("batch", 500_000)];
    policy.classes[1].headroom = Headroom::ppm(500_000);
    // Room for 10,000 tokens: two large requests do not fit at once.
    policy.pools[0].backends = vec![backend("one", 100)];
    policy.pools[0].backends[0].kv_tokens = Some(Tokens(10_000));
    let mut world = World::new(policy);
    let chat = |input| ask(input, 0);
    let batch = |input| Arrival { tenant: TenantId(1), class: ClassId(1), ..ask(input, 0) };
    let first: Vec<RequestId> = (0..4).map(|_| world.arrive(chat(2_000))).collect();
    let large = world.arrive(batch(6_000));
    assert!(world.is_waiting(large), "over its headroom");
    // Chat's work earns batch half as much: it is due after 12,000 tokens, but fits nowhere while chat keeps its room.
    let mut next = first;
    for round in 0..6 {
        let request = world.arrive(chat(2_000));
        world.complete(next[0], 2_000, 0);
        next.remove(0);
        next.push(request);
        assert!(world.is_running(request), "round {round}: batch that does not fit holds up nobody above it");
    }
    // It has been due for twice its cost by now: it is next, whatever comes.
    let mut rounds = 0;
    while world.is_waiting(large) {
        rounds += 1;
        assert!(rounds < 20, "it starves");
        next.push(world.arrive(chat(2_000)));
        let running = next.iter().position(|request| world.is_running(*request)).unwrap();
        world.complete(next.remove(running), 2_000, 0);
    }
    assert!(world.is_running(large));
}

#[test]
fn headroom_keeps_slots_free_for_the_classes_above_and_lower_ones_stay_behind() {
    let mut policy = policy(vec![tenant("one", Limits::default())]);
    policy.classes = vec![roomy("interactive", 0), roomy("batch", 0), roomy("background", 0)];
    policy.classes[1].headroom = Headroom::ppm(200_000);
    policy.pools[0].backends = vec![backend("one", 10)];
    let mut world = World::new(policy);
    let of = |class: u32| Arrival { class: ClassId(class), ..ask(10, 10) };
    let batch: Vec<RequestId> = (0..12).map(|_| world.arrive(of(1))).collect();
    let background = world.arrive(of(2));
    assert_eq!(batch.iter().filter(|request| world.is_running(**request)).count(), 8);
    assert!(world.is_waiting(background), "it has no headroom of its own, and does not go before batch");
    let chat = [world.arrive(of(0)), world.arrive(of(0))];
    assert!(chat.iter().all(|request| world.is_running(*request)));
}

#[test]
fn an_aged_class_goes_by_its_arrival_and_an_offset() {
    let mut policy = policy(vec![tenant("one", Limits::default())]);
    policy.classes = vec![roomy("interactive", 0), roomy("batch", 0)];
    policy.classes[1].ageing = Some(Micros::from_secs(5));
    policy.pools[0].backends = vec![backend("one", 1)];
    let mut world = World::new(policy);
    let of = |class: u32| Arrival { class: ClassId(class), ..ask(10, 10) };
    let running = world.arrive(of(0));
    let batch = world.arrive(of(1));
    world.advance_secs(4);
    let early = world.arrive(of(0));
    world.advance_secs(2);
    let late = world.arrive(of(0));
    world.complete(running, 10, 10);
    assert!(world.is_running(early), "it came before batch's arrival and five seconds");
    world.complete(early, 10, 10);
    assert!(world.is_running(batch) && world.is_waiting(late));
}

#[test]
fn without_lanes_the_class_does_not_count() {
    for order in [Order::Fifo, Order::Fair] {
        let mut policy = policy(vec![tenant("one", Limits::default())]);
        policy.order = order;
        policy.pools[0].backends = vec![backend("one", 1)];
        let mut world = World::new(policy);
        let of = |class: u32| Arrival { class: ClassId(class), ..ask(10, 10) };
        let running = world.arrive(of(0));
        let [batch, chat] = [world.arrive(of(1)), world.arrive(of(0))];
        world.complete(running, 10, 10);
        assert!(world.is_running(batch) && world.is_waiting(chat), "{order:?}");
    }
}

#[test]
fn another_order_is_taken_on_with_everybody_in_line() {
    let mut before = policy(vec![tenant("one", Limits::default())]);
    before.order = Order::Fifo;
    before.pools[0].backends = vec![backend("one", 1)];
    let mut world = World::new(before.clone());
    let of = |class: u32| Arrival { class: ClassId(class), ..ask(10, 10) };
    let running = world.arrive(of(0));
    let [batch, chat] = [world.arrive(of(1)), world.arrive(of(0))];
    world.reload(Policy { order: Order::LanesFair, ..before });
    world.complete(running, 10, 10);
    assert!(world.is_running(chat) && world.is_waiting(batch));
    world.complete(chat, 10, 10);
    assert!(world.is_running(batch));
    world.wind_up();
}

/// Three classes before some slots, always with something waiting in most of them.
struct Busy {
    world: World,
    arrived: BTreeMap<RequestId, Moment>,
    seen: usize,
    waiting: [u32; 3],
}

impl Busy {
    fn new(chance: &mut Chance, shares_ppm: [u32; 3], headrooms_ppm: [u32; 3]) -> Self {
        let names = ["interactive", "batch", "background"];
        let mut policy = policy(names.iter().map(|name| tenant(name, Limits::default())).collect());
        policy.classes = names.iter().zip(shares_ppm).map(|(name, share)| roomy(name, share)).collect();
        policy
            .classes
            .iter_mut()
            .zip(headrooms_ppm)
            .for_each(|(class, ppm)| class.headroom = Headroom::ppm(ppm));
        let slots = 1 + chance.below(20) as u32;
        policy.pools[0].backends = vec![backend("one", slots), backend("two", slots)];
        policy.order = chance.pick(&[Order::LanesFair, Order::Lanes]);
        Self { world: World::new(policy), arrived: BTreeMap::new(), seen: 0, waiting: [0; 3] }
    }

    fn step(&mut self, chance: &mut Chance) -> Vec<(u32, u64)> {
        let mut sent = Vec::new();
        let before = self.seen;
        self.refill(chance);
        self.end_one(chance);
        for start in &self.world.starts[before..] {
            let Arrival { class, input, output_bound, .. } = self.world.arrivals[&start.1];
            sent.push((class.0, input.0 + output_bound.0));
        }
        sent
    }

    /// What comes until the next step; now and then a class has nothing more.
    fn refill(&mut self, chance: &mut Chance) {
        for class in 0..3 {
            if self.waiting(class) < 2 && !chance.one_in(6) {
                self.arrive(class, None, chance);
            }
        }
    }

    /// Ends a request that runs, and returns the class and the cost of the one that was sent then.
    fn end_one(&mut self, chance: &mut Chance) -> Option<(u32, u64)> {
        let running = self.world.running();
        if running.is_empty() {
            return None;
        }
        let request = running[chance.below(running.len() as u64) as usize];
        let Arrival { input, output_bound, .. } = self.world.arrivals[&request];
        let before = self.world.starts.len();
        self.world.complete(request, input.0, output_bound.0);
        self.take_note();
        let sent = self.world.starts.get(before)?.1;
        let Arrival { class, input, output_bound, .. } = self.world.arrivals[&sent];
        Some((class.0, input.0 + output_bound.0))
    }

    fn arrive(&mut self, class: u32, wait_max: Option<Micros>, chance: &mut Chance) -> RequestId {
        let output = 1 + chance.below(100);
        let arrival = Arrival {
            tenant: TenantId(class),
            class: ClassId(class),
            wait_max: Some(wait_max.unwrap_or(Micros::from_secs(100_000))),
            ..ask(1 + chance.below(COST_MAX - 100), output)
        };
        self.waiting[class as usize] += 1;
        let request = self.world.arrive(arrival);
        self.arrived.insert(request, self.world.now);
        self.take_note();
        request
    }

    fn take_note(&mut self) {
        for start in &self.world.starts[self.seen..] {
            self.waiting[self.world.arrivals[&start.1].class.0 as usize] -= 1;
        }
        self.seen = self.world.starts.len();
    }

    fn waiting(&self, class: u32) -> u32 {
        self.waiting[class as usize]
    }
}

fn roomy(name: &str, min_share_ppm: u32) -> Class {
    Class { wait_max: Micros::from_secs(1_000_000), min_share_ppm, ..class(name) }
}

/// The most that a request costs.
const COST_MAX: u64 = 1_000;
