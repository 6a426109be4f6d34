//! One simulated engine: continuous batching with chunked prefill, as a state machine in virtual time.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use fairlane_core::units::{Micros, Moment, Tokens};

use crate::shape::Shape;

/// The name of one sequence; whoever submits picks it and keeps it unique while the sequence lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(pub u64);

/// One sequence to run: how much it reads and how much it will write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Prompt tokens, those found in a cache included.
    pub prompt: Tokens,
    /// Prompt tokens that need no reading because a cache holds them; the last prompt token is always read.
    pub cached: Tokens,
    /// Tokens that the sequence writes until it ends by itself.
    pub output: Tokens,
    /// Waiting sequences with a lower number are admitted first; equal ones by arrival.
    pub priority: i64,
}

/// What came out of a step for one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emission {
    /// The sequence.
    pub id: SequenceId,
    /// When the step ended.
    pub at: Moment,
    /// Tokens made in this step: one, or none for a sequence that writes nothing.
    pub tokens: Tokens,
    /// Tokens made since the sequence began.
    pub produced: Tokens,
    /// Whether the sequence is over; its slot and its cache are free.
    pub finished: bool,
}

/// A sequence that leaves before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled {
    /// Prompt tokens that were read, cached ones included.
    pub prefilled: Tokens,
    /// Tokens that were made.
    pub produced: Tokens,
}

/// A sequence that the cache could not hold even alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeverFits {
    /// Prompt and output together.
    pub needed: Tokens,
    /// What the cache holds.
    pub kv: Tokens,
}

/// What the engine would show on its metrics page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sequences in a slot.
    pub running: usize,
    /// Sequences that wait for a slot or for cache room.
    pub waiting: usize,
    /// Cache tokens in use.
    pub kv_held: Tokens,
    /// Cache tokens promised to the running sequences up to their ends.
    pub kv_reserved: Tokens,
    /// Prompt tokens read since the start, cached ones included.
    pub prompt_tokens: Tokens,
    /// Output tokens made since the start.
    pub output_tokens: Tokens,
    /// Sequences that ended by themselves.
    pub finished: u64,
    /// Sequences that were cancelled.
    pub cancelled: u64,
}

/// One engine. It runs steps back to back while it has sequences; in a step every sequence whose prompt is read makes one
/// token, and up to a chunk of prompt tokens is read in the order of dispatch, across sequences. The step that ends a prompt
/// makes that sequence's first token.
///
/// The caller owns time: [`Replica::deadline`] says when the running step ends, [`Replica::advance`] takes it there. A
/// simulated world that places work between two steps uses [`Replica::end_step`] and [`Replica::begin_step`] instead.
/// ```
/// use fairlane_core::units::{Moment, Tokens};
/// use fairlane_lab::{Job, Replica, SequenceId, Shape};
/// let mut replica = Replica::of(Shape::REFERENCE);
/// let job = Job { prompt: Tokens(1_000), cached: Tokens(0), output: Tokens(2), priority: 0 };
/// replica.submit(SequenceId(1), job).unwrap();
/// replica.begin_step(Moment(0));
/// assert_eq!(replica.deadline(), Some(Moment(8_000 + 54_000)));
/// let emissions = replica.advance(Moment(100_000));
/// assert_eq!(emissions.len(), 2);
/// assert!(emissions[1].finished);
/// ```
#[derive(Clone, Debug)]
pub struct Replica {
    shape: Shape,
    /// By priority, then by arrival number.
    waiting: BTreeMap<(i64, u64), (SequenceId, Job)>,
    arrivals: u64,
    /// In the order of dispatch.
    running: Vec<Sequence>,
    step_ends: Option<Moment>,
    counters: Counters,
}

/// A sequence in a slot.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    id: SequenceId,
    job: Job,
    prefilled: u64,
    produced: u64,
    /// What the running step does for it.
    share: Share,
}

/// One sequence's part of a step.
#[derive(Clone, Copy, Debug)]
enum Share {
    Nothing,
    Prefill(u64),
    Decode,
}

impl Replica {
    /// An idle replica of this shape.
    #[must_use]
    pub fn of(shape: Shape) -> Self {
        Self {
            shape,
            waiting: BTreeMap::new(),
            arrivals: 0,
            running: Vec::with_capacity(shape.slots),
            step_ends: None,
            counters: Counters::default(),
        }
    }

    /// Puts a sequence into the engine's own queue; the next step to begin admits it if there is room.
    ///
    /// # Errors
    /// The cache could not hold the sequence even alone; nothing changed.
    pub fn submit(&mut self, id: SequenceId, job: Job) -> Result<(), NeverFits> {
        let needed = job.peak();
        if needed > self.shape.kv {
            return Err(NeverFits { needed, kv: self.shape.kv });
        }
        self.waiting.insert((job.priority, self.arrivals), (id, job));
        self.arrivals += 1;
        self.counters.waiting = self.waiting.len();
        Ok(())
    }

    /// When the running step ends; none while no step runs.
    #[must_use]
    pub const fn deadline(&self) -> Option<Moment> {
        self.step_ends
    }

    /// Ends every step due by `now`, each beginning the moment the one before it ended, however late the call comes.
    pub fn advance(&mut self, now: Moment) -> Vec<Emission> {
        let mut emissions = Vec::new();
        while let Some(ended) = self.step_ends.filter(|ends| *ends <= now) {
            emissions.extend(self.end_step());
            self.begin_step(ended);
        }
        emissions
    }

    /// Admits from the queue what fits and begins a step at `now`. Does nothing while a step runs or if there is no work.
    pub fn begin_step(&mut self, now: Moment) {
        if self.step_ends.is_some() {
            return;
        }
        self.admit();
        if self.running.is_empty() {
            return;
        }
        let mut chunk = self.shape.prefill_chunk.0;
        let (mut decoding, mut prompt) = (0, 0);
        for sequence in &mut self.running {
            sequence.share = sequence.next_share(chunk);
            match sequence.share {
                Share::Nothing => {}
                Share::Prefill(tokens) => {
                    chunk -= tokens;
                    prompt += tokens;
                }
                Share::Decode => decoding += 1,
            }
        }
        self.step_ends = Some(now.after(self.shape.step(decoding, prompt)));
    }

    /// Ends the running step and tells what it made, in the order of dispatch; does not begin another.
    pub fn end_step(&mut self) -> Vec<Emission> {
        let Some(at) = self.step_ends.take() else {
            return Vec::new();
        };
        let mut emissions = Vec::with_capacity(self.running.len());
        for sequence in &mut self.running {
            emissions.extend(sequence.apply(at, &mut self.counters));
        }
        let counters = &mut self.counters;
        self.running.retain(|sequence| {
            let over = sequence.is_over();
            if over {
                counters.finished += 1;
                counters.free(sequence);
            }
            !over
        });
        self.counters.running = self.running.len();
        emissions
    }

    /// The running step ends so much later: the engine is slow, or stands still.
    pub const fn delay(&mut self, by: Micros) {
        if let Some(ends) = self.step_ends {
            self.step_ends = Some(ends.after(by));
        }
    }

    /// Takes a sequence out at once, waiting or running; none if it is not here. The running step keeps its end.
    pub fn cancel(&mut self, id: SequenceId) -> Option<Cancelled> {
        let left = self.cancel_waiting(id).or_else(|| self.cancel_running(id))?;
        self.counters.cancelled += 1;
        Some(left)
    }

    /// What the engine's metrics page would show.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// The size and speed it was built with.
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// First in, first out by priority, and it stops at a head that does not fit: passing it by would starve long prompts.
    fn admit(&mut self) {
        while self.running.len() < self.shape.slots {
            let Some(head) = self.waiting.first_entry() else {
                break;
            };
            let (id, job) = *head.get();
            if self.counters.kv_reserved.plus(job.peak()) > self.shape.kv {
                break;
            }
            head.remove();
            let prefilled = job.read_already();
            self.counters.kv_reserved = self.counters.kv_reserved.plus(job.peak());
            self.counters.kv_held.0 += prefilled;
            self.counters.prompt_tokens.0 += prefilled;
            self.running.push(Sequence { id, job, prefilled, produced: 0, share: Share::Nothing });
        }
        self.counters.running = self.running.len();
        self.counters.waiting = self.waiting.len();
    }

    fn cancel_waiting(&mut self, id: SequenceId) -> Option<Cancelled> {
        let place = self.waiting.iter().find(|(_, (waiting, _))| *waiting == id).map(|(place, _)| *place)?;
        self.waiting.remove(&place);
        self.counters.waiting = self.waiting.len();
        Some(Cancelled { prefilled: Tokens(0), produced: Tokens(0) })
    }

    fn cancel_running(&mut self, id: SequenceId) -> Option<Cancelled> {
        let place = self.running.iter().position(|sequence| sequence.id == id)?;
        let sequence = self.running.remove(place);
        self.counters.free(&sequence);
        self.counters.running = self.running.len();
        Some(Cancelled { prefilled: Tokens(sequence.prefilled), produced: Tokens(sequence.produced) })
    }
}

impl Job {
    /// Cache tokens that it holds at its end.
    #[must_use]
    pub const fn peak(&self) -> Tokens {
        self.prompt.plus(self.output)
    }

    /// Prompt tokens that a cache spares; the last one is read in any case, since its step makes the first token.
    fn read_already(&self) -> u64 {
        self.cached.0.min(self.prompt.0.saturating_sub(1))
    }
}

impl Sequence {
    fn next_share(&self, chunk: u64) -> Share {
        match self.job.prompt.0 - self.prefilled {
            0 if self.produced > 0 => Share::Decode,
            // An empty prompt still takes a step to its first token.
            left if left == 0 || chunk > 0 => Share::Prefill(left.min(chunk)),
            _ => Share::Nothing,
        }
    }

    /// Does this sequence's part of the step; the emission, if it made a token or is over.
    fn apply(&mut self, at: Moment, counters: &mut Counters) -> Option<Emission> {
        let made = match self.share {
            Share::Nothing => return None,
            Share::Prefill(tokens) => {
                self.prefilled += tokens;
                counters.kv_held.0 += tokens;
                counters.prompt_tokens.0 += tokens;
                if self.prefilled < self.job.prompt.0 {
                    return None;
                }
                self.job.output.0.min(1)
            }
            Share::Decode => 1,
        };
        self.produced += made;
        counters.kv_held.0 += made;
        counters.output_tokens.0 += made;
        Some(Emission {
            id: self.id,
            at,
            tokens: Tokens(made),
            produced: Tokens(self.produced),
            finished: self.is_over(),
        })
    }

    const fn is_over(&self) -> bool {
        self.prefilled == self.job.prompt.0 && self.produced >= self.job.output.0
    }
}

impl Counters {
    fn free(&mut self, sequence: &Sequence) {
        self.kv_held = self.kv_held.minus(Tokens(sequence.prefilled + sequence.produced));
        self.kv_reserved = self.kv_reserved.minus(sequence.job.peak());
    }
}

impl fmt::Display for NeverFits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the sequence needs {} tokens of the key-value cache, which holds {}; send a shorter prompt or a lower output bound",
            self.needed, self.kv
        )
    }
}

impl Error for NeverFits {}
