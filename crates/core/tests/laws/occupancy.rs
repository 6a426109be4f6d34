//! What is in flight, as the gate keeps it: entries that live as long as their streams, corrections, providers, slow starts.

use fairlane_core::gate::{BackendView, Event, Failure, RequestId};
use fairlane_core::occupancy::{Allowance, Ask, Footprint, Headroom, Liveness, NoPlace, Occupancy, Reading};
use fairlane_core::policy::{BackendId, Fit, Limits, Pacing, Placing, Policy, Pool};
use fairlane_core::units::{Micros, Moment, Tokens};
use proptest::prelude::*;

use crate::many;
use crate::policies::{backend, policy, pool, tenant, tokens};
use crate::world::{ONE, State, TWO, World, ask};

#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive(u16, u16),
    Produced(u8, u16),
    End(u8),
    Leave(u8),
    Bounce(u8, u16),
    Fail(u8),
    Backend(bool, bool),
    Scrape(bool, u32, u64),
    Reload(bool),
    Pass(u32),
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn s7_s8_entries_are_exactly_the_live_streams_and_reserved_ones_fit_whatever_happens(
        slots in 1u32..6, memory in 100u64..2_000, steps in prop::collection::vec(step(), 20..60),
    ) {
        let mut world = World::new(crowded(slots, memory));
        let mut made: std::collections::BTreeMap<RequestId, u64> = Default::default();
        for step in steps {
            let before = world.starts.len();
            follow(&mut world, &mut made, step, (slots, memory));
            for view in world.gate.pools()[0].backends.clone() {
                check(&world, &made, &view, before);
            }
        }
        world.wind_up();
    }

    #[test]
    fn a_provider_is_never_asked_for_more_than_is_left_of_its_limit(
        limit in 100u64..2_000, spent in 0u64..2_000,
        steps in prop::collection::vec((1u64..900, 0u64..20_000_000, any::<bool>()), 5..60),
    ) {
        let mut hosted = Hosted::new(limit, spent.min(limit));
        for (cost, pause, told) in steps {
            hosted.now = hosted.now.after(Micros(pause));
            hosted.send(cost);
            if told {
                hosted.tell();
            }
        }
    }

    #[test]
    fn a_paced_backend_gets_from_four_requests_to_its_slots(
        slots in 1u32..300, times in prop::collection::vec((0u64..60_000, 1u8..9, any::<bool>()), 1..200),
    ) {
        let mut paced = paced(slots);
        let (mut now, mut next, mut running) = (Moment(1_000_000), 0u64, Vec::new());
        for (millis, many, bounces) in times {
            for _ in 0..many {
                if paced.place(&Ask::default(), now).is_ok() {
                    next += 1;
                    paced.enter(0, RequestId(next), &Footprint::default(), now);
                    running.push(RequestId(next));
                }
            }
            now = now.after(Micros::from_millis(millis));
            if let Some(request) = running.pop() {
                paced.backend_mut(0).unwrap().first_token(request, now);
                paced.leave(0, request);
            }
            if bounces {
                paced.bounced(0, Some(Micros::ZERO), now);
            }
            let open = paced.backends()[0].slots_open(now);
            prop_assert!(open >= slots.min(4) && open <= slots, "{open} of {slots}");
            prop_assert!(running.len() as u32 <= slots);
        }
    }
}

#[test]
fn an_engine_that_refuses_is_cut_and_the_request_goes_back_uncharged() {
    let mut policy = policy(vec![tenant("T", tokens(100, 20))]);
    policy.pools[0].backends = vec![backend("one", 4)];
    let mut world = World::new(policy);
    let [first, second] = [(); 2].map(|()| world.arrive(ask(100, 100)));
    world.hand_back(Event::Bounced { request: first, retry_after: None });
    world.hand_back(Event::Bounced { request: second, retry_after: None });
    assert_eq!(view(&world, ONE).factor_ppm, 900_000, "refusals at the same time are one");
    assert!(world.is_waiting(first) && world.is_waiting(second));
    assert_eq!(view(&world, ONE).in_flight, 0);
    world.advance(Micros::from_millis(200));
    assert!(world.is_running(first) && world.is_running(second), "at the head, after a pause");
    world.complete(first, 100, 10);
    world.complete(second, 100, 10);
    assert_eq!(
        world.tokens(),
        2_000 - 220 + 20,
        "charged once for what it used; a fifth of a second refilled"
    );
}

#[test]
fn waiting_inside_the_engine_twice_or_a_preemption_cuts_and_quiet_readings_restore() {
    let mut world = World::new(roomy(10_000));
    world.arrive(ask(6_000, 10));
    let mut scrape = |waiting, preemptions| {
        let reading =
            Reading { waiting: Some(waiting), preemptions: Some(preemptions), ..Reading::default() };
        world.handle(Event::Scraped { backend: ONE, reading });
        view(&world, ONE).factor_ppm
    };
    assert_eq!(
        scrape(1, 5),
        1_000_000,
        "once may be by chance, and the first count is nothing to compare with"
    );
    assert_eq!(scrape(1, 5), 900_000);
    assert_eq!(scrape(0, 6), 810_000, "it preempted");
    assert_eq!(scrape(0, 0), 820_000, "it began anew");
    for _ in 0..40 {
        scrape(0, 0);
    }
    assert_eq!(scrape(0, 0), 1_100_000);
    for preemptions in 1..20 {
        scrape(0, preemptions);
    }
    assert_eq!(scrape(0, 20), 600_000);
}

#[test]
fn an_idle_backend_is_not_trusted_with_more_than_its_cache() {
    let mut world = World::new(roomy(10_000));
    for _ in 0..40 {
        world.handle(Event::Scraped { backend: ONE, reading: Reading::default() });
    }
    assert_eq!(view(&world, ONE).factor_ppm, 1_000_000);
}

#[test]
fn what_others_hold_in_the_cache_is_left_to_them() {
    let mut world = World::new(roomy(10_000));
    let half = Reading { memory_used_ppm: Some(520_000), ..Reading::default() };
    world.handle(Event::Scraped { backend: ONE, reading: half });
    let first = world.arrive(ask(2_000, 100));
    let second = world.arrive(ask(2_900, 200));
    assert!(world.is_running(first) && world.is_waiting(second), "5,000 are somebody else's");
    world
        .handle(Event::Scraped { backend: ONE, reading: Reading { memory_used_ppm: Some(200_000), ..half } });
    assert!(world.is_running(second), "they are gone");
}

#[test]
fn requests_that_show_nothing_are_not_taken_for_somebody_elses() {
    let mut world = World::new(roomy(10_000));
    // A second for each hundred tokens, as learned from eight answers.
    for _ in 0..8 {
        let request = world.arrive(ask(10, 4_000));
        world.advance_secs(40);
        world.complete(request, 10, 4_000);
    }
    let silent = world.arrive(ask(10, 4_000));
    world.advance_secs(30);
    let reading = Reading { memory_used_ppm: Some(301_000), ..Reading::default() };
    world.handle(Event::Scraped { backend: ONE, reading });
    assert_eq!(view(&world, ONE).occupied, Tokens(3_010));
    let beside = world.arrive(ask(5_500, 0));
    assert!(world.is_running(silent) && world.is_running(beside));
}

#[test]
fn a_cache_size_that_is_read_from_the_engine_is_what_requests_are_fitted_to() {
    let mut world = World::new(policy(vec![tenant("T", Limits::default())]));
    let first = world.arrive(ask(900, 100));
    let reading = Reading { memory: Some(Tokens(1_000)), ..Reading::default() };
    world.handle(Event::Scraped { backend: ONE, reading });
    assert_eq!(view(&world, ONE).kv_tokens, Some(Tokens(1_000)));
    let second = world.arrive(ask(900, 100));
    assert!(world.is_running(first) && world.is_waiting(second), "slots are not all that is counted");
    world.handle(Event::Scraped { backend: ONE, reading: Reading::default() });
    assert!(world.is_waiting(second), "a reading without the size leaves it as it was");
    world.complete(first, 900, 10);
    assert!(world.is_running(second));
}

#[test]
fn one_that_no_cache_can_hold_runs_alone_and_holds_up_nobody_for_ever() {
    let mut world = World::new(roomy(1_000));
    let small = world.arrive(ask(100, 100));
    let huge = world.arrive(ask(5_000, 100));
    let behind = world.arrive(ask(100, 100));
    assert!(world.is_running(small) && world.is_waiting(huge) && world.is_waiting(behind));
    world.complete(small, 100, 1);
    assert!(world.is_running(huge) && world.is_waiting(behind));
    world.complete(huge, 5_000, 1);
    assert!(world.is_running(behind));
}

#[test]
fn predictions_let_more_in_than_reservations() {
    let started = |fit| {
        let mut policy = roomy(10_000);
        policy.pools[0].placing.fit = fit;
        let mut world = World::new(policy);
        for _ in 0..8 {
            let request = world.arrive(ask(10, 4_000));
            world.complete(request, 10, 250);
        }
        (0..40).for_each(|_| {
            world.arrive(ask(10, 4_000));
        });
        world.running().len()
    };
    assert_eq!((started(Fit::Reserved), started(Fit::Predicted)), (2, 38));
}

#[test]
fn a_backend_that_comes_back_is_filled_slowly_and_asks_for_its_ticks() {
    let mut policy = policy(vec![tenant("T", Limits::default())]);
    policy.pools[0].backends = vec![backend("one", 20), backend("two", 1)];
    policy.pools[0].placing.slow_start = Micros::from_secs(10);
    policy.classes[0].wait_max = Micros::from_secs(60);
    let mut world = World::new(policy);
    world.handle(Event::BackendDown(ONE));
    let elsewhere = world.arrive(ask(1, 1));
    world.handle(Event::BackendUp(ONE));
    assert_eq!(world.state(elsewhere), &State::Running(TWO));
    let requests: Vec<RequestId> = (0..20).map(|_| world.arrive(ask(1, 1))).collect();
    let running = |world: &World| requests.iter().filter(|request| world.is_running(**request)).count();
    assert_eq!(running(&world), 2, "a tenth at once");
    world.advance(Micros(1_499_999));
    assert_eq!(running(&world), 2);
    world.advance(Micros(1));
    assert_eq!(running(&world), 3, "at the moment that it asked for a tick");
    world.advance(Micros(3_500_000));
    assert_eq!(running(&world), 10);
    world.advance(Micros(4_999_999));
    assert_eq!(running(&world), 19);
    world.advance(Micros(1));
    assert_eq!(running(&world), 20);
}

#[test]
fn a_backend_that_comes_back_alone_is_given_all_its_slots_at_once() {
    let mut policy = policy(vec![tenant("T", Limits::default())]);
    policy.pools[0].backends = vec![backend("one", 20)];
    policy.pools[0].placing.slow_start = Micros::from_secs(10);
    let mut world = World::new(policy);
    world.handle(Event::BackendDown(ONE));
    world.handle(Event::BackendUp(ONE));
    let requests: Vec<RequestId> = (0..20).map(|_| world.arrive(ask(1, 1))).collect();
    assert!(requests.iter().all(|request| world.is_running(*request)));
}

#[test]
fn a_backend_that_is_awaited_gets_nothing_before_it_is_up() {
    let mut policy = policy(vec![tenant("T", Limits::default())]);
    policy.pools[0].backends = vec![backend("one", 1), backend("two", 5)];
    policy.pools[0].backends[1].is_awaited = true;
    let mut world = World::new(policy);
    let [first, second] = [(); 2].map(|()| world.arrive(ask(1, 1)));
    assert!(world.state(first) == &State::Running(ONE) && world.is_waiting(second));
    world.handle(Event::BackendUp(TWO));
    assert_eq!(world.state(second), &State::Running(TWO));
}

#[test]
fn what_the_provider_says_is_left_holds_back_the_next_until_it_refills() {
    let mut world = World::new(policy(vec![tenant("T", Limits::default())]));
    let first = world.arrive(ask(100, 100));
    let told = Allowance { limit: Some(1_000), left: 100, full_in: Micros::from_secs(9) };
    world.handle(Event::Provider { request: first, tokens: Some(told), requests: None });
    let second = world.arrive(ask(100, 100));
    assert!(world.is_waiting(second));
    world.advance(Micros(999_999));
    assert!(world.is_waiting(second));
    world.advance(Micros(1));
    assert!(world.is_running(second), "a hundred a second come back");
    let third = world.arrive(ask(100, 100));
    assert!(
        world.is_waiting(third),
        "the provider has not told anew, so the second one counts against its last word"
    );
    let none = Allowance { limit: None, left: 0, full_in: Micros::from_secs(3) };
    world.handle(Event::Provider { request: second, tokens: None, requests: Some(none) });
    world.advance_secs(2);
    assert!(world.is_waiting(third));
    world.advance_secs(1);
    assert!(world.is_running(third));
}

#[test]
fn the_preferred_backend_is_taken_if_it_has_room() {
    let mut occupancy = Occupancy::default();
    occupancy.reload(&pool("main", vec![backend("one", 9), backend("two", 2)]));
    let mut place =
        |preferred, tried: &[u32]| occupancy.place(&Ask { preferred, tried, ..Ask::default() }, Moment(0));
    assert_eq!([place(None, &[]), place(Some(1), &[]), place(Some(1), &[1])], [Ok(0), Ok(1), Ok(0)]);
    assert_eq!(place(Some(7), &[]), Ok(0), "one that is not there is nobody's wish");
    occupancy.enter(1, RequestId(1), &Footprint::default(), Moment(0));
    occupancy.enter(1, RequestId(2), &Footprint::default(), Moment(0));
    assert_eq!(occupancy.place(&Ask { preferred: Some(1), ..Ask::default() }, Moment(0)), Ok(0));
}

#[test]
fn headroom_is_left_free_and_is_waived_for_what_a_share_owes() {
    let mut occupancy = Occupancy::default();
    occupancy.reload(&pool("main", vec![backend("one", 20)]));
    let headroom = Headroom::ppm(100_000);
    for request in 0..18 {
        assert_eq!(occupancy.place(&Ask { headroom, ..Ask::default() }, Moment(0)), Ok(0));
        occupancy.enter(0, RequestId(request), &Footprint::default(), Moment(0));
    }
    assert_eq!(occupancy.place(&Ask { headroom, ..Ask::default() }, Moment(0)), Err(NoPlace::Busy));
    assert_eq!(occupancy.place(&Ask::default(), Moment(0)), Ok(0));
}

#[test]
fn headroom_that_is_no_whole_slot_keeps_one_more_and_never_a_whole_idle_backend() {
    let places = |slots: u32, headroom: Headroom| {
        let mut occupancy = Occupancy::default();
        occupancy.reload(&pool("main", vec![backend("one", slots)]));
        let ask = Ask { headroom, ..Ask::default() };
        let mut taken = 0;
        while occupancy.place(&ask, Moment(0)).is_ok() {
            occupancy.enter(0, RequestId(taken), &Footprint::default(), Moment(0));
            taken += 1;
        }
        taken
    };
    // 5 % of 48 are 2.4 slots: 45 may be taken, as the third of those left would be a part of them.
    assert_eq!(places(48, Headroom::ppm(50_000)), 45);
    assert_eq!([places(2, Headroom::ppm(50_000)), places(1, Headroom::ppm(50_000))], [1, 1]);
    assert_eq!([places(1, Headroom::NONE), places(0, Headroom::NONE)], [1, 0]);
}

#[test]
fn slow_answers_narrow_a_paced_backend_and_quick_ones_open_it() {
    let mut paced = paced(64);
    let mut now = Moment(0);
    let mut next = 0;
    let mut round = |paced: &mut Occupancy, millis: u64| {
        let mut running = Vec::new();
        while paced.place(&Ask::default(), now).is_ok() {
            next += 1;
            paced.enter(0, RequestId(next), &Footprint::default(), now);
            running.push(RequestId(next));
        }
        now = now.after(Micros::from_millis(millis));
        for request in running {
            paced.backend_mut(0).unwrap().first_token(request, now);
            paced.leave(0, request);
        }
        paced.backends()[0].slots_open(now)
    };
    assert_eq!(round(&mut paced, 400), 64);
    let slow = round(&mut paced, 8_000);
    assert!(slow < 32, "{slow}");
    for _ in 0..40 {
        round(&mut paced, 400);
    }
    assert_eq!(round(&mut paced, 400), 64);
}

/// A hosted provider with a limit that refills in a minute, and what it really has left, in millionths.
struct Hosted {
    occupancy: Occupancy,
    limit: u64,
    level_micros: u128,
    seen: Moment,
    now: Moment,
    next: u64,
    untold: Vec<RequestId>,
    has_told: bool,
}

impl Hosted {
    fn new(limit: u64, level: u64) -> Self {
        let mut occupancy = Occupancy::default();
        occupancy.reload(&pool("main", vec![backend("one", 1_000)]));
        let now = Moment(1_000_000);
        let level_micros = u128::from(level) * 60_000_000;
        Self { occupancy, limit, level_micros, seen: now, now, next: 0, untold: Vec::new(), has_told: false }
    }

    /// The level refills by `limit` in sixty seconds.
    fn refill(&mut self) {
        let grown = self.level_micros + u128::from(self.limit) * u128::from(self.now.since(self.seen).0);
        self.level_micros = grown.min(u128::from(self.limit) * 60_000_000);
        self.seen = self.now;
    }

    fn send(&mut self, cost: u64) {
        self.refill();
        let footprint = Footprint { input: Tokens(cost), ..Footprint::default() };
        let ask = Ask { footprint, ..Ask::default() };
        if self.occupancy.place(&ask, self.now).is_err() {
            let opening = self.occupancy.opening(&ask, self.now);
            assert!(opening.is_some() || !self.untold.is_empty(), "it waits for a time or for a word");
            return;
        }
        self.next += 1;
        self.occupancy.enter(0, RequestId(self.next), &footprint, self.now);
        self.untold.push(RequestId(self.next));
        // What is more than the whole limit can never be there; the provider refuses that itself.
        let needed = u128::from(cost.min(self.limit)) * 60_000_000;
        assert!(!self.has_told || self.level_micros >= needed, "{} of {needed}", self.level_micros);
        self.level_micros = self.level_micros.saturating_sub(u128::from(cost) * 60_000_000);
    }

    fn tell(&mut self) {
        let Some(request) = self.untold.pop() else { return };
        let whole = u128::from(self.limit) * 60_000_000;
        let left = (self.level_micros / 60_000_000) as u64;
        let full_in = (whole - self.level_micros).div_ceil(u128::from(self.limit)) as u64;
        let told = Allowance { limit: Some(self.limit), left, full_in: Micros(full_in) };
        self.occupancy.backend_mut(0).unwrap().provider_told(request, (Some(told), None), self.now);
        self.occupancy.leave(0, request);
        self.has_told = true;
    }
}

fn paced(slots: u32) -> Occupancy {
    let mut occupancy = Occupancy::default();
    let mut backend = backend("one", slots);
    backend.pacing = Pacing::Adaptive;
    occupancy.reload(&Pool { placing: Placing::default(), ..pool("main", vec![backend]) });
    occupancy.set_alive(0, Liveness::Up, Moment(0));
    occupancy
}

fn view(world: &World, backend: BackendId) -> BackendView {
    let pools = world.gate.pools();
    *pools[0].backends.iter().find(|view| view.backend == backend).unwrap()
}

/// One backend with many slots and a KV cache.
fn roomy(memory: u64) -> Policy {
    let mut policy = policy(vec![tenant("T", Limits::default())]);
    policy.pools[0].backends[0].kv_tokens = Some(Tokens(memory));
    policy
}

fn crowded(slots: u32, memory: u64) -> Policy {
    let mut policy = roomy(memory);
    policy.pools[0].placing.fit = Fit::Reserved;
    policy.pools[0].backends = vec![backend("one", slots), backend("two", slots + 1)];
    for backend in &mut policy.pools[0].backends {
        backend.kv_tokens = Some(Tokens(memory));
    }
    policy
}

fn follow(
    world: &mut World,
    made: &mut std::collections::BTreeMap<RequestId, u64>,
    step: Step,
    (slots, memory): (u32, u64),
) {
    let pick = |world: &World, which: u8| {
        let running = world.running();
        (!running.is_empty()).then(|| running[usize::from(which) % running.len()])
    };
    match step {
        Step::Arrive(input, bound) => {
            world.arrive(ask(u64::from(input), u64::from(bound)));
        }
        Step::Produced(which, output) => {
            if let Some(request) = pick(world, which) {
                let output = u64::from(output).min(world.arrivals[&request].output_bound.0);
                let known = made.entry(request).or_default();
                *known = output.max(*known);
                world.handle(Event::Produced { request, output: Tokens(output) });
            }
        }
        Step::End(which) => {
            if let Some(request) = pick(world, which) {
                // Of one that is cut nothing is learned, so that no output is reckoned from time.
                world.leave(request, 1);
            }
        }
        Step::Leave(which) => {
            let waiting = world.waiting();
            if let Some(request) = waiting.get(usize::from(which) % waiting.len().max(1)) {
                world.leave(*request, 0);
            }
        }
        Step::Bounce(which, millis) => {
            if let Some(request) = pick(world, which) {
                made.remove(&request);
                let retry_after = Some(Micros::from_millis(u64::from(millis)));
                world.hand_back(Event::Bounced { request, retry_after });
            }
        }
        Step::Fail(which) => {
            if let Some(request) = pick(world, which) {
                made.remove(&request);
                world.hand_back(Event::Failed { request, failure: Failure::Error });
            }
        }
        Step::Backend(first, up) => {
            let backend = if first { ONE } else { TWO };
            world.handle(if up { Event::BackendUp(backend) } else { Event::BackendDown(backend) });
        }
        Step::Scrape(first, used, preemptions) => {
            let reading =
                Reading { memory_used_ppm: Some(used), preemptions: Some(preemptions), ..Reading::default() };
            world.handle(Event::Scraped { backend: if first { ONE } else { TWO }, reading });
        }
        Step::Reload(both) => {
            let mut policy = crowded(slots, memory);
            policy.pools[0].backends.truncate(if both { 2 } else { 1 });
            world.reload(policy);
        }
        Step::Pass(micros) => world.advance(Micros(u64::from(micros))),
    }
}

/// The entries of a backend are its streams; and where something was sent, all of them fit together, or one is alone.
fn check(
    world: &World,
    made: &std::collections::BTreeMap<RequestId, u64>,
    view: &BackendView,
    before: usize,
) {
    let streams: Vec<RequestId> = world
        .running()
        .into_iter()
        .filter(|request| world.state(*request) == &State::Running(view.backend))
        .collect();
    assert_eq!(view.in_flight as usize, streams.len(), "{:?}", view.backend);
    let of = |request: &RequestId| {
        let arrival = &world.arrivals[request];
        let made = made.get(request).copied().unwrap_or(0);
        (arrival.output_bound.0, arrival.input.0, made)
    };
    let held: u64 = streams.iter().map(of).map(|(_, input, made)| input + made).sum();
    assert_eq!(view.occupied.0, held, "{:?}", view.backend);
    let was_sent_to = world.starts[before..].iter().any(|start| start.2 == view.backend);
    if was_sent_to && streams.len() > 1 {
        let rest =
            |(bound, _, made): (u64, u64, u64)| if made < bound { bound - made } else { (made / 4).max(1) };
        let peak = streams.iter().map(of).map(|one| {
            let lasting = streams.iter().map(of).filter(|other| rest(*other) >= rest(one));
            lasting.map(|other| other.1 + other.2 + rest(one)).sum::<u64>()
        });
        let capacity = view.kv_tokens.unwrap().0 * u64::from(view.factor_ppm) / 1_000_000;
        assert!(peak.max().unwrap() <= capacity, "{:?}", view.backend);
        assert!(streams.len() as u32 <= view.slots);
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u16..400, 1u16..400).prop_map(|(input, bound)| Step::Arrive(input, bound)),
        5 => (any::<u8>(), 0u16..400).prop_map(|(which, output)| Step::Produced(which, output)),
        4 => any::<u8>().prop_map(Step::End),
        1 => any::<u8>().prop_map(Step::Leave),
        1 => (any::<u8>(), 0u16..4_000).prop_map(|(which, millis)| Step::Bounce(which, millis)),
        1 => any::<u8>().prop_map(Step::Fail),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(first, up)| Step::Backend(first, up)),
        1 => (any::<bool>(), 0u32..1_000_000, 0u64..3).prop_map(|(first, used, preemptions)| {
            Step::Scrape(first, used, preemptions)
        }),
        1 => any::<bool>().prop_map(Step::Reload),
        2 => (0u32..3_000_000).prop_map(Step::Pass),
    ]
}
