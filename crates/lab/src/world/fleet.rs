//! The backends of the simulated world: replicas that step, and what is wrong with them.

use fairlane_core::gate::Reported;
use fairlane_core::occupancy::Reading;
use fairlane_core::policy::BackendId;
use fairlane_core::units::{Micros, Moment, Tokens};

use super::fault::{Honesty, Manner};
use crate::replica::{Emission, Job, NeverFits, Replica, SequenceId};
use crate::shape::Shape;

/// One backend.
pub(super) struct Backend {
    pub(super) id: BackendId,
    pub(super) replica: Replica,
    pub(super) manner: Manner,
    pub(super) honesty: Honesty,
    pub(super) is_dead: bool,
    /// Whether the gate was told that it is gone.
    pub(super) is_known_dead: bool,
    slowness_percent: u32,
    stalled_until: Moment,
    /// Prompt and output tokens of replicas that are gone.
    lost: (Tokens, Tokens),
    /// Counts the ends that were planned for steps: an older one does not hold.
    plan: u64,
}

impl Backend {
    pub(super) fn new(id: BackendId, shape: Shape) -> Self {
        Self {
            id,
            replica: Replica::of(shape),
            manner: Manner::default(),
            honesty: Honesty::default(),
            is_dead: false,
            is_known_dead: false,
            slowness_percent: 100,
            stalled_until: Moment(0),
            lost: (Tokens::ZERO, Tokens::ZERO),
            plan: 0,
        }
    }

    /// Begins a step if there is work and none runs; when it ends, and the number of this plan.
    pub(super) fn begin_step(&mut self, now: Moment) -> Option<(Moment, u64)> {
        if self.is_dead || self.replica.deadline().is_some() {
            return None;
        }
        self.replica.begin_step(now);
        let ends = self.replica.deadline()?;
        let slower = ends.since(now).0 * u64::from(self.slowness_percent) / 100;
        self.replica.delay(Micros(slower.saturating_sub(ends.since(now).0)));
        self.replica.delay(self.stalled_until.since(now));
        self.planned()
    }

    /// What the step made that was planned under this number; nothing if it was planned anew since.
    pub(super) fn end_step(&mut self, plan: u64) -> Vec<Emission> {
        if plan == self.plan { self.replica.end_step() } else { Vec::new() }
    }

    pub(super) fn submit(&mut self, id: SequenceId, job: Job) -> Result<(), NeverFits> {
        self.replica.submit(id, job)
    }

    /// It is gone, with all that it ran.
    pub(super) fn die(&mut self) {
        self.is_dead = true;
        self.plan += 1;
        self.lost = self.done();
        self.replica = Replica::of(*self.replica.shape());
    }

    /// It stands still; the new plan of the step that runs.
    pub(super) fn stall(&mut self, span: Micros, now: Moment) -> Option<(Moment, u64)> {
        self.stalled_until = now.after(span).max(self.stalled_until);
        self.replica.delay(span);
        self.replica.deadline().and_then(|_| self.planned())
    }

    pub(super) const fn slow(&mut self, percent: u32) {
        self.slowness_percent = percent;
    }

    /// Prompt and output tokens that it has worked off.
    pub(super) const fn done(&self) -> (Tokens, Tokens) {
        let counters = self.replica.counters();
        (self.lost.0.plus(counters.prompt_tokens), self.lost.1.plus(counters.output_tokens))
    }

    /// The usage block of an answer that is over.
    pub(super) fn usage(&self, input: Tokens, output: Tokens) -> Reported {
        let told = |input: Option<Tokens>, output: Option<Tokens>| Reported {
            input,
            output,
            cached: Tokens::ZERO,
            partial: false,
        };
        match self.honesty {
            Honesty::Honest => told(Some(input), Some(output)),
            Honesty::Silent => told(None, None),
            Honesty::InputAlone => told(Some(input), None),
            Honesty::Percent(percent) => {
                let part = |tokens: Tokens| Some(Tokens(tokens.0 * percent / 100));
                told(part(input), part(output))
            }
            Honesty::Absurd => told(Some(Tokens(u64::MAX)), Some(Tokens(u64::MAX / 2))),
        }
    }

    /// What its metrics page shows.
    pub(super) fn reading(&self) -> Reading {
        let counters = self.replica.counters();
        let memory = self.replica.shape().kv;
        let used_ppm = counters.kv_held.0.saturating_mul(1_000_000) / memory.0.max(1);
        Reading {
            waiting: Some(counters.waiting as u64),
            preemptions: Some(0),
            memory_used_ppm: u32::try_from(used_ppm).ok(),
            memory: Some(memory),
        }
    }

    fn planned(&mut self) -> Option<(Moment, u64)> {
        self.plan += 1;
        self.replica.deadline().map(|ends| (ends, self.plan))
    }
}
