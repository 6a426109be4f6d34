//! Where model time meets real time: one replica of the lab, driven on absolute step deadlines.
//!
//! Model time is the real time since the start times the scale. A wake-up that comes late ends every step that was due, each at
//! its own model moment, so lateness never adds up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fairlane_core::units::{Micros, Moment, Tokens};
use fairlane_lab::{Counters, Emission, Job, Replica, SequenceId, Shape};
use tokio::sync::{Notify, watch};
use tokio::time::sleep_until;

use super::histogram::{Histogram, LONG_BOUNDS, SHORT_BOUNDS};
use super::options::{EngineOptions, Pace};
use crate::clock;

/// One replica in real time.
#[derive(Debug)]
pub(super) struct Driver {
    model: Mutex<Model>,
    /// Rings when an idle replica has work again.
    work_came: Notify,
    started: Instant,
    pace: Pace,
    queue_limit: usize,
}

/// How far one sequence is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) produced: u64,
    pub(super) finished: bool,
}

/// Sequences that run for one request. Dropping it cancels those that are not finished, at once.
#[derive(Debug)]
pub(super) struct Ticket {
    driver: Arc<Driver>,
    sequences: Vec<SequenceId>,
    progress: watch::Receiver<Vec<Progress>>,
}

/// Why a replica takes no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It holds as many sequences as it may.
    QueueFull,
    /// One sequence is larger than its cache.
    NeverFits { needed: Tokens, kv: Tokens },
}

/// Waiting times seen so far.
#[derive(Clone, Debug)]
pub(super) struct Timings {
    pub(super) first_token: Histogram,
    pub(super) between_tokens: Histogram,
    pub(super) whole: Histogram,
}

#[derive(Debug)]
struct Model {
    replica: Replica,
    /// Model time reached; it never goes back.
    now: Moment,
    live: BTreeMap<SequenceId, Live>,
    sequences: u64,
    timings: Timings,
}

/// A sequence in the replica.
#[derive(Debug)]
struct Live {
    progress: Arc<watch::Sender<Vec<Progress>>>,
    /// Its place among the sequences of its request.
    place: usize,
    submitted: Moment,
    last_token: Moment,
}

impl Driver {
    pub(super) fn of(options: &EngineOptions) -> Self {
        let timings = Timings {
            first_token: Histogram::with(LONG_BOUNDS),
            between_tokens: Histogram::with(SHORT_BOUNDS),
            whole: Histogram::with(LONG_BOUNDS),
        };
        let model = Model {
            replica: Replica::of(options.shape),
            now: Moment(0),
            live: BTreeMap::new(),
            sequences: 0,
            timings,
        };
        Self {
            model: Mutex::new(model),
            work_came: Notify::new(),
            started: clock::monotonic(),
            pace: options.pace,
            queue_limit: options.queue_limit,
        }
    }

    /// Ends steps when they are due, for ever.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            let deadline = self.lock().replica.deadline();
            match deadline.map(|moment| self.real(moment)) {
                Some(at) => sleep_until(at.into()).await,
                None => self.work_came.notified().await,
            }
            drop(self.lock());
        }
    }

    /// Submits all jobs of one request, or none.
    pub(super) fn start(self: &Arc<Self>, jobs: &[Job]) -> Result<Ticket, Refusal> {
        let mut model = self.lock();
        if model.live.len() + jobs.len() > self.queue_limit {
            return Err(Refusal::QueueFull);
        }
        let kv = model.replica.shape().kv;
        if let Some(job) = jobs.iter().find(|job| job.peak() > kv) {
            return Err(Refusal::NeverFits { needed: job.peak(), kv });
        }
        let (progress, seen) = watch::channel(vec![Progress::default(); jobs.len()]);
        let progress = Arc::new(progress);
        let submit = |(place, job)| model.submit(Arc::clone(&progress), place, job);
        let sequences = jobs.iter().enumerate().map(submit).collect();
        let now = model.now;
        model.replica.begin_step(now);
        if self.pace == Pace::Instant {
            model.run_dry();
        }
        drop(model);
        self.work_came.notify_one();
        Ok(Ticket { driver: Arc::clone(self), sequences, progress: seen })
    }

    pub(super) fn counters(&self) -> Counters {
        self.lock().replica.counters()
    }

    pub(super) fn timings(&self) -> Timings {
        self.lock().timings.clone()
    }

    pub(super) fn shape(&self) -> Shape {
        *self.lock().replica.shape()
    }

    /// The model, with every step ended that is due.
    fn lock(&self) -> MutexGuard<'_, Model> {
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        if let Pace::Scaled(scale) = self.pace {
            let elapsed = clock::monotonic().saturating_duration_since(self.started);
            model.catch_up(Moment((elapsed.as_secs_f64() * scale * 1e6) as u64));
        }
        model
    }

    fn real(&self, moment: Moment) -> Instant {
        match self.pace {
            // A microsecond late rather than early: an early wake-up would have to sleep again.
            Pace::Scaled(scale) => {
                self.started + Duration::from_secs_f64((moment.0 + 1) as f64 / (scale * 1e6))
            }
            Pace::Instant => self.started,
        }
    }
}

impl Ticket {
    /// How far each sequence is, as last told to a caller of [`Ticket::changed`].
    pub(super) fn progress(&mut self) -> Vec<Progress> {
        self.progress.borrow_and_update().clone()
    }

    /// Waits for a token or an end.
    pub(super) async fn changed(&mut self) {
        // Senders go when the last sequence ends, and then the last progress was already seen or is still to be read.
        let _ = self.progress.changed().await;
    }

    /// Waits until every sequence is finished.
    pub(super) async fn finished(&mut self) {
        let over = |progress: &Vec<Progress>| progress.iter().all(|sequence| sequence.finished);
        let _ = self.progress.wait_for(over).await;
    }

    /// Cancels what is not finished; the tokens made by all sequences, and whether one was cut short.
    pub(super) fn stop(&mut self) -> (u64, bool) {
        let mut model = self.driver.lock();
        let mut cut = false;
        for sequence in self.sequences.drain(..) {
            model.live.remove(&sequence);
            cut |= model.replica.cancel(sequence).is_some();
        }
        (self.progress.borrow().iter().map(|sequence| sequence.produced).sum(), cut)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Model {
    fn submit(&mut self, progress: Arc<watch::Sender<Vec<Progress>>>, place: usize, job: &Job) -> SequenceId {
        let id = SequenceId(self.sequences);
        self.sequences += 1;
        if self.replica.submit(id, *job).is_ok() {
            let live = Live { progress, place, submitted: self.now, last_token: self.now };
            self.live.insert(id, live);
        }
        id
    }

    fn catch_up(&mut self, now: Moment) {
        self.now = self.now.max(now);
        for emission in self.replica.advance(self.now) {
            self.tell(emission);
        }
    }

    fn run_dry(&mut self) {
        while let Some(deadline) = self.replica.deadline() {
            self.catch_up(deadline);
        }
    }

    fn tell(&mut self, emission: Emission) {
        let Some(live) = self.live.get_mut(&emission.id) else {
            return;
        };
        let timings = &mut self.timings;
        let seconds = Micros::as_secs_f64;
        match emission.produced {
            Tokens(0) => {}
            Tokens(1) => timings.first_token.observe(seconds(emission.at.since(live.submitted))),
            Tokens(_) => timings.between_tokens.observe(seconds(emission.at.since(live.last_token))),
        }
        live.last_token = emission.at;
        let progress = Progress { produced: emission.produced.0, finished: emission.finished };
        live.progress.send_modify(|all| all[live.place] = progress);
        if emission.finished {
            timings.whole.observe(seconds(emission.at.since(live.submitted)));
            self.live.remove(&emission.id);
        }
    }
}
