//! Occupancy against a naive model, over generated worlds: what is dispatched fits (S7), what fits is found, and the entries are
//! exactly what is in flight (S8).

use std::collections::BTreeMap;

use fairlane_core::gate::RequestId;
use fairlane_core::occupancy::{
    Ask, FACTOR_MAX_PPM, FACTOR_MIN_PPM, Footprint, Headroom, Liveness, NoPlace, Occupancy, Reading,
};
use fairlane_core::policy::{Fit, Placement, Placing, Pool};
use fairlane_core::units::{Micros, Moment, Tokens};
use proptest::prelude::*;

use crate::many;
use crate::policies::{backend, pool};

/// A backend, and what runs there, as plainly as can be.
#[derive(Debug)]
struct Spot {
    slots: u64,
    memory: Option<u64>,
    alive: bool,
    closed_until: Moment,
    foreign: u64,
    running: BTreeMap<RequestId, Run>,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    input: u64,
    expected: u64,
    generated: u64,
    choices: u64,
    is_reserved: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Ask { input: u64, bound: u64, predicted: u64, choices: u32, headroom: u32, preferred: u32 },
    Produced(u8, u64),
    Leave(u8),
    Scrape { place: u8, used: u32, waiting: u64, preempted: u64 },
    Bounce(u8, u32),
    Alive(u8, bool),
    Pass(u32),
}

struct Pair {
    real: Occupancy,
    naive: Vec<Spot>,
    rules: Placing,
    now: Moment,
    next: u64,
    preempted: u64,
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn s7_s8_what_is_sent_fits_what_fits_is_sent_and_entries_are_what_is_in_flight(
        memory in prop::collection::vec(prop::option::of(50u64..5_000), 1..4),
        slots in 1u32..30, reserved in any::<bool>(), fewest in any::<bool>(),
        steps in prop::collection::vec(step(), 10..70),
    ) {
        let rules = Placing {
            fit: if reserved { Fit::Reserved } else { Fit::Predicted },
            placement: if fewest { Placement::FewestRunning } else { Placement::MostRoom },
            slow_start: Micros::ZERO,
        };
        let mut pair = Pair::new(&memory, slots, rules);
        for step in steps {
            pair.follow(step);
            pair.check();
        }
        for place in 0..pair.naive.len() {
            for request in pair.naive[place].running.keys().copied().collect::<Vec<_>>() {
                pair.leave(place, request);
            }
        }
        pair.check();
    }
}

impl Pair {
    fn new(memory: &[Option<u64>], slots: u32, rules: Placing) -> Self {
        let backends = memory.iter().map(|memory| {
            let mut backend = backend("b", slots);
            backend.kv_tokens = memory.map(Tokens);
            backend
        });
        let mut real = Occupancy::default();
        real.reload(&Pool { placing: rules, ..pool("main", backends.collect()) });
        let naive = memory.iter().map(|memory| Spot {
            slots: u64::from(slots),
            memory: *memory,
            alive: true,
            closed_until: Moment(0),
            foreign: 0,
            running: BTreeMap::new(),
        });
        Self { real, naive: naive.collect(), rules, now: Moment(1_000_000), next: 0, preempted: 0 }
    }

    fn follow(&mut self, step: Step) {
        match step {
            Step::Ask { input, bound, predicted, choices, headroom, preferred } => {
                let footprint = Footprint {
                    input: Tokens(input),
                    bound: Tokens(bound),
                    predicted: Tokens(predicted),
                    choices,
                };
                let headroom = headroom.min(1_000_000);
                let preferred = (preferred < 3).then_some(preferred);
                self.ask(footprint, headroom, preferred);
            }
            Step::Produced(which, more) => {
                if let Some((place, request)) = self.pick(which) {
                    let run = self.naive[place].running.get_mut(&request).unwrap();
                    run.generated += more;
                    self.real.produced(place as u32, request, Tokens(run.generated));
                    // A count that comes late changes nothing.
                    self.real.produced(place as u32, request, Tokens(run.generated / 2));
                }
            }
            Step::Leave(which) => {
                if let Some((place, request)) = self.pick(which) {
                    self.leave(place, request);
                }
            }
            Step::Scrape { place, used, waiting, preempted } => {
                self.scrape(place, used, (waiting, preempted))
            }
            Step::Bounce(place, millis) => {
                let (place, wait) =
                    (usize::from(place) % self.naive.len(), Micros::from_millis(u64::from(millis)));
                self.real.bounced(place as u32, Some(wait), self.now);
                let spot = &mut self.naive[place];
                spot.closed_until = spot.closed_until.max(self.now.after(wait));
            }
            Step::Alive(place, up) => {
                let place = usize::from(place) % self.naive.len();
                let liveness = if up { Liveness::Up } else { Liveness::Down };
                self.real.set_alive(place as u32, liveness, self.now);
                self.naive[place].alive = up;
                if !up {
                    self.naive[place].foreign = 0;
                }
            }
            Step::Pass(micros) => self.now = self.now.after(Micros(u64::from(micros))),
        }
    }

    fn ask(&mut self, footprint: Footprint, headroom: u32, preferred: Option<u32>) {
        let ask = Ask { footprint, headroom: Headroom::ppm(headroom), preferred, tried: &[] };
        let run = self.run(&footprint);
        let fitting: Vec<usize> =
            (0..self.naive.len()).filter(|place| self.fits(*place, run, headroom, self.now)).collect();
        let chosen = preferred.map(|place| place as usize).filter(|place| fitting.contains(place));
        let best = chosen.or_else(|| self.best(&fitting, run));
        let expected = best.map(|place| place as u32).ok_or_else(|| {
            if self.naive.iter().any(|spot| spot.alive) { NoPlace::Busy } else { NoPlace::NoneAlive }
        });
        assert_eq!(self.real.place(&ask, self.now), expected, "{ask:?}");
        let Some(place) = best else {
            let end = self.now.after(Micros::from_secs(3_600));
            let later = (0..self.naive.len()).filter(|place| self.fits(*place, run, headroom, end));
            let opening = later.map(|place| self.naive[place].closed_until).min();
            return assert_eq!(self.real.opening(&ask, self.now), opening);
        };
        self.next += 1;
        self.real.enter(place as u32, RequestId(self.next), &footprint, self.now);
        self.naive[place].running.insert(RequestId(self.next), run);
    }

    fn run(&self, footprint: &Footprint) -> Run {
        let expected = match self.rules.fit {
            Fit::Predicted => footprint.predicted.min(footprint.bound),
            Fit::Reserved => footprint.bound,
        };
        let choices = u64::from(footprint.choices.max(1));
        let is_reserved = self.rules.fit == Fit::Reserved;
        Run { input: footprint.input.0, expected: expected.0, generated: 0, choices, is_reserved }
    }

    fn fits(&self, place: usize, run: Run, headroom: u32, now: Moment) -> bool {
        let spot = &self.naive[place];
        let share = u64::from(1_000_000 - headroom);
        let is_empty = spot.running.is_empty();
        let has_slot =
            if is_empty { spot.slots > 0 } else { (spot.sequences() + 1) * 1_000_000 <= spot.slots * share };
        let holds =
            self.capacity(place).is_none_or(|capacity| spot.peak_with(run) <= capacity * share / 1_000_000);
        spot.alive && spot.closed_until <= now && has_slot && (holds || is_empty)
    }

    /// κ · K, less what others hold.
    fn capacity(&self, place: usize) -> Option<u64> {
        let factor = u64::from(self.real.backends()[place].factor_ppm());
        let spot = &self.naive[place];
        spot.memory.map(|memory| memory.saturating_sub(spot.foreign) * factor / 1_000_000)
    }

    fn best(&self, fitting: &[usize], run: Run) -> Option<usize> {
        let by_memory = self.naive.iter().filter(|spot| spot.alive).all(|spot| spot.memory.is_some());
        let score = |place: usize| {
            let spot = &self.naive[place];
            let left =
                self.capacity(place).map_or(0, |capacity| capacity.saturating_sub(spot.peak_with(run)));
            match self.rules.placement {
                Placement::FewestRunning => (u64::MAX - spot.running.len() as u64, left),
                Placement::MostRoom if by_memory => (left, 0),
                Placement::MostRoom => (spot.slots - spot.sequences(), 0),
            }
        };
        let most = fitting.iter().map(|place| score(*place)).max()?;
        fitting.iter().copied().find(|place| score(*place) == most)
    }

    fn scrape(&mut self, place: u8, used: u32, (waiting, preempted): (u64, u64)) {
        let place = usize::from(place) % self.naive.len();
        self.preempted += preempted;
        let reading = Reading {
            waiting: Some(waiting),
            preemptions: Some(self.preempted),
            memory_used_ppm: Some(used),
            memory: None,
        };
        let before = self.real.backends()[place].factor_ppm();
        self.real.backend_mut(place as u32).unwrap().read(&reading, |_, _| None, self.now);
        let after = self.real.backends()[place].factor_ppm();
        assert!((FACTOR_MIN_PPM..=FACTOR_MAX_PPM).contains(&after));
        assert!(after <= before + 10_000 && after >= (before / 10 * 9).max(FACTOR_MIN_PPM).min(before));
        let spot = &mut self.naive[place];
        let memory = spot.memory.unwrap_or(0);
        let ours = spot.occupied() + memory / 50;
        spot.foreign = (memory * u64::from(used) / 1_000_000).saturating_sub(ours);
    }

    fn leave(&mut self, place: usize, request: RequestId) {
        self.real.leave(place as u32, request);
        self.naive[place].running.remove(&request);
        // Leaving twice changes nothing.
        self.real.leave(place as u32, request);
    }

    fn pick(&self, which: u8) -> Option<(usize, RequestId)> {
        let running: Vec<(usize, RequestId)> = (0..)
            .zip(&self.naive)
            .flat_map(|(place, spot)| spot.running.keys().map(move |request| (place, *request)))
            .collect();
        (!running.is_empty()).then(|| running[usize::from(which) % running.len()])
    }

    fn check(&mut self) {
        for (place, spot) in self.naive.iter().enumerate() {
            let real = self.real.backend_mut(place as u32).unwrap();
            assert_eq!(real.in_flight() as usize, spot.running.len());
            assert_eq!(real.occupied().0, spot.occupied());
            assert_eq!(real.peak().0, spot.peak());
        }
    }
}

impl Spot {
    fn sequences(&self) -> u64 {
        self.running.values().map(|run| run.choices).sum()
    }

    fn occupied(&self) -> u64 {
        self.running.values().map(|run| run.input + run.generated).sum()
    }

    fn peak(&self) -> u64 {
        peak(self.running.values().copied().collect())
    }

    fn peak_with(&self, run: Run) -> u64 {
        peak(self.running.values().copied().chain([run]).collect())
    }
}

/// The most that is held when one of them ends: those that last as long or longer, grown by what remained of it.
fn peak(runs: Vec<Run>) -> u64 {
    let held_at = |end: u64| -> u64 {
        let lasting = runs.iter().filter(|run| run.remaining() >= end);
        lasting.map(|run| run.claimed() + end * run.choices).sum()
    };
    runs.iter().map(|run| held_at(run.remaining())).max().unwrap_or(0)
}

impl Run {
    /// What is in the cache, and what is kept for it from the start.
    fn claimed(&self) -> u64 {
        let kept = if self.is_reserved { self.expected_more() * self.choices } else { 0 };
        self.input + self.generated + kept
    }

    fn remaining(&self) -> u64 {
        if self.is_reserved { 0 } else { self.expected_more() }
    }

    fn expected_more(&self) -> u64 {
        let generated = self.generated / self.choices;
        if generated < self.expected { self.expected - generated } else { (generated / 4).max(1) }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let ask = (0u64..800, 0u64..600, 0u64..600, 0u32..4, prop_oneof![Just(0u32), 0u32..600_000], 0u32..8);
    prop_oneof![
        8 => ask.prop_map(|(input, bound, predicted, choices, headroom, preferred)| {
            Step::Ask { input, bound, predicted, choices, headroom, preferred }
        }),
        6 => (any::<u8>(), 0u64..300).prop_map(|(which, more)| Step::Produced(which, more)),
        3 => any::<u8>().prop_map(Step::Leave),
        2 => (any::<u8>(), 0u32..1_000_000, 0u64..2, 0u64..2).prop_map(|(place, used, waiting, preempted)| {
            Step::Scrape { place, used, waiting, preempted }
        }),
        1 => (any::<u8>(), 0u32..3_000).prop_map(|(place, millis)| Step::Bounce(place, millis)),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(place, up)| Step::Alive(place, up)),
        1 => (0u32..2_000_000).prop_map(Step::Pass),
    ]
}
