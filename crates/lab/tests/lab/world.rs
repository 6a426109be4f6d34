//! The smallest reference world: no limits, one first-in-first-out queue, four replicas, no gate.

use std::collections::{BTreeMap, VecDeque};

use fairlane_core::units::{Micros, Moment, Tokens};
use fairlane_lab::reference::{self, Switches};
use fairlane_lab::{Arrival, Class, Job, Replica, SequenceId, Shape};

/// What one run shows.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Interactive requests offered.
    pub(crate) interactive: usize,
    /// Waits from arrival to dispatch of the interactive requests, shortest first.
    pub(crate) waits: Vec<Micros>,
    /// Output tokens of the batch tenant before the run's end.
    pub(crate) batch_output: u64,
    /// Replica time of all the work done before the run's end.
    pub(crate) work: Micros,
}

/// Replicas and a queue between two events.
pub(crate) struct World {
    /// Last first.
    arrivals: Vec<Arrival>,
    queue: VecDeque<Arrival>,
    backends: Vec<Backend>,
    dispatched: u64,
    figures: Figures,
}

struct Backend {
    replica: Replica,
    reserved_kv: Tokens,
    placed: BTreeMap<SequenceId, Arrival>,
}

impl World {
    /// The traffic of this seed in front of idle replicas.
    pub(crate) fn seeded(seed: u64, switches: Switches) -> Self {
        let mut arrivals: Vec<Arrival> = reference::traffic(switches, seed).collect();
        arrivals.reverse();
        Self {
            arrivals,
            queue: VecDeque::new(),
            backends: (0..reference::REPLICAS).map(|_| Backend::idle()).collect(),
            dispatched: 0,
            figures: Figures::default(),
        }
    }

    /// Runs until the work in flight has drained.
    pub(crate) fn run(mut self) -> Figures {
        let mut work_at_end = None;
        while let Some(now) = self.next_event() {
            if now.0 >= reference::LENGTH.0 {
                work_at_end.get_or_insert_with(|| self.work_done());
            }
            if self.arrivals.last().is_some_and(|arrival| arrival.at == now) {
                self.queue.extend(self.arrivals.pop());
            } else {
                self.end_one_step(now);
            }
            while self.dispatch_head(now) {}
            for backend in &mut self.backends {
                backend.replica.begin_step(now);
            }
        }
        self.figures.work = work_at_end.unwrap_or_else(|| self.work_done());
        self.figures.waits.sort_unstable();
        self.figures
    }

    fn next_event(&self) -> Option<Moment> {
        let steps = self.backends.iter().filter_map(|backend| backend.replica.deadline());
        steps.chain(self.arrivals.last().map(|arrival| arrival.at)).min()
    }

    fn end_one_step(&mut self, now: Moment) {
        let due = self.backends.iter_mut().find(|backend| backend.replica.deadline() == Some(now));
        let backend = due.unwrap();
        for emission in backend.replica.end_step() {
            let arrival = backend.placed[&emission.id];
            let counts = arrival.tenant == reference::BATCH && now.0 < reference::LENGTH.0;
            self.figures.batch_output += u64::from(counts);
            if emission.finished {
                backend.placed.remove(&emission.id);
                backend.reserved_kv = backend.reserved_kv.minus(reservation(&arrival));
            }
        }
    }

    /// Places the head of the queue: fewest running, then least reserved, then lowest index. False if it fits nowhere.
    fn dispatch_head(&mut self, now: Moment) -> bool {
        let Some(head) = self.queue.front().copied() else {
            return false;
        };
        let needed = reservation(&head);
        let open = self.backends.iter_mut().filter(|backend| backend.has_room(needed));
        let Some(backend) = open.min_by_key(|backend| (backend.placed.len(), backend.reserved_kv)) else {
            return false;
        };
        let id = SequenceId(self.dispatched);
        let job = Job { prompt: head.prompt, cached: Tokens(0), output: head.output, priority: 0 };
        backend.reserved_kv = backend.reserved_kv.plus(needed);
        backend.placed.insert(id, head);
        backend.replica.submit(id, job).unwrap();
        self.dispatched += 1;
        self.queue.pop_front();
        if head.class == Class::Interactive {
            self.figures.interactive += 1;
            self.figures.waits.push(now.since(head.at));
        }
        true
    }

    fn work_done(&self) -> Micros {
        let works = self.backends.iter().map(|backend| {
            let counters = backend.replica.counters();
            Shape::REFERENCE.work(counters.prompt_tokens, counters.output_tokens).0
        });
        Micros(works.sum())
    }
}

impl Backend {
    fn idle() -> Self {
        Self { replica: Replica::of(Shape::REFERENCE), reserved_kv: Tokens(0), placed: BTreeMap::new() }
    }

    fn has_room(&self, needed: Tokens) -> bool {
        self.placed.len() < Shape::REFERENCE.slots && self.reserved_kv.plus(needed) <= Shape::REFERENCE.kv
    }
}

fn reservation(arrival: &Arrival) -> Tokens {
    arrival.prompt.plus(arrival.max_tokens)
}

impl Figures {
    /// The share of interactive requests that started within 2 s.
    pub(crate) fn started_in_2_s(&self) -> f64 {
        let started = self.waits.partition_point(|wait| *wait <= Micros::from_secs(2));
        started as f64 / self.interactive as f64
    }

    /// The smallest wait that 95 % of the interactive requests do not exceed, in seconds.
    pub(crate) fn wait_p95(&self) -> f64 {
        let rank = (0.95 * self.waits.len() as f64).ceil() as usize;
        self.waits[rank - 1].as_secs_f64()
    }

    /// Batch output tokens a second.
    pub(crate) fn batch_rate(&self) -> f64 {
        self.batch_output as f64 / reference::LENGTH.as_secs_f64()
    }

    /// Work done over what the replicas can do.
    pub(crate) fn utilisation(&self) -> f64 {
        self.work.as_secs_f64() / (reference::REPLICAS as f64 * reference::LENGTH.as_secs_f64())
    }
}
