//! A stream being told: from the progress of the sequences to events, one token each, with the faults on its way.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use http::StatusCode;
use tokio::time::sleep;

use super::driver::Progress;
use super::fault::Fault;
use super::generation::Generation;
use super::problem::Problem;
use super::script::{Place, Script};

/// A body that breaks on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// The state of a stream between two events.
pub(super) struct Telling {
    generation: Generation,
    script: Box<dyn Script>,
    stage: Stage,
    /// Events made and not yet handed out, each with the tokens that it tells.
    events: VecDeque<(Bytes, u64)>,
    handed_out: u32,
    /// By choice: tokens told.
    told: Vec<u64>,
    ended: Vec<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Silent,
    Opening,
    Tokens,
    Over,
}

impl Telling {
    /// The stream of a generation that has begun, or that begins after its stall.
    pub(super) fn of(generation: Generation, script: Box<dyn Script>) -> Self {
        let choices = generation.plan.shown;
        Self {
            generation,
            script,
            stage: Stage::Silent,
            events: VecDeque::new(),
            handed_out: 0,
            told: vec![0; choices],
            ended: vec![false; choices],
        }
    }

    /// The events as they become due.
    pub(super) fn events(self) -> impl Stream<Item = Result<Bytes, Broken>> {
        unfold(Some(self), async |telling| {
            let mut telling = telling?;
            match telling.next().await? {
                Ok(event) => Some((Ok(event), Some(telling))),
                Err(broken) => Some((Err(broken), None)),
            }
        })
    }

    async fn next(&mut self) -> Option<Result<Bytes, Broken>> {
        loop {
            if self.generation.plan.fault == Fault::Cut(self.handed_out) {
                self.generation.record.cancelled = true;
                settle_connection().await;
                return Some(Err(Broken));
            }
            if let Some((event, tokens)) = self.events.pop_front() {
                self.handed_out += 1;
                self.generation.record.sent += tokens;
                return Some(Ok(event));
            }
            match self.stage {
                Stage::Over => return None,
                Stage::Silent => self.begin().await,
                Stage::Opening | Stage::Tokens => self.tell_progress().await,
            }
        }
    }

    async fn begin(&mut self) {
        if let Fault::Stall(millis) = self.generation.plan.fault {
            stall(millis).await;
        }
        if self.generation.plan.fault == Fault::ErrorEvent(0) {
            self.fail(&overloaded());
        } else if let Err(problem) = self.generation.begin() {
            self.fail(&problem);
        } else {
            self.stage = Stage::Opening;
        }
    }

    /// Tells at most one token of each choice, or waits if there is none.
    async fn tell_progress(&mut self) {
        let progress = self.generation.progress();
        if self.stage == Stage::Opening
            && progress.iter().any(|sequence| sequence.produced > 0 || sequence.finished)
        {
            self.stage = Stage::Tokens;
            let opening = self.script.opening(&self.generation.plan);
            self.push(opening, 0);
        }
        for (choice, sequence) in progress.iter().take(self.told.len()).enumerate() {
            self.tell_choice(choice, *sequence);
            if self.stage == Stage::Over {
                return;
            }
        }
        let all_finished = progress.iter().all(|sequence| sequence.finished);
        if all_finished && self.ended.iter().all(|ended| *ended) {
            let usage = self.generation.plan.final_usage();
            let closing = self.script.closing(&self.generation.plan, usage);
            self.push(closing, 0);
            self.stage = Stage::Over;
        } else if self.events.is_empty() {
            self.generation.changed().await;
        }
    }

    fn tell_choice(&mut self, choice: usize, sequence: Progress) {
        let token = self.told[choice];
        if token < sequence.produced {
            self.told[choice] += 1;
            let place = Place { choice, token };
            let running = self.generation.plan.running_usage(self.told[choice]);
            let events = self.script.token(&self.generation.plan, place, running);
            self.push(events, 1);
        }
        let reached_fault = Fault::ErrorEvent(u32::try_from(self.told_in_all()).unwrap_or(u32::MAX));
        if self.generation.plan.fault == reached_fault {
            self.fail(&Problem::of(
                StatusCode::INTERNAL_SERVER_ERROR,
                "The simulated engine failed as asked.",
            ));
        } else if sequence.finished && self.told[choice] == sequence.produced && !self.ended[choice] {
            self.ended[choice] = true;
            let running = self.generation.plan.running_usage(self.told[choice]);
            let events = self.script.choice_end(&self.generation.plan, choice, running);
            self.push(events, 0);
        }
    }

    fn fail(&mut self, problem: &Problem) {
        let events = self.script.failure(problem);
        self.push(events, 0);
        self.generation.record.cancelled = true;
        self.stage = Stage::Over;
    }

    fn told_in_all(&self) -> u64 {
        self.told.iter().sum()
    }

    fn push(&mut self, events: Vec<Bytes>, tokens: u64) {
        let mut tokens = tokens;
        for event in events {
            self.events.push_back((event, std::mem::take(&mut tokens)));
        }
    }
}

/// Silence for so many milliseconds, or for ever.
pub(super) async fn stall(millis: Option<u32>) {
    match millis {
        Some(millis) => sleep(Duration::from_millis(u64::from(millis))).await,
        None => pending().await,
    }
}

/// Gives the connection time to write what it has, so that a break comes after the bytes before it.
pub(super) async fn settle_connection() {
    sleep(Duration::from_millis(20)).await;
}

/// As SGLang refuses.
pub(super) fn overloaded() -> Problem {
    Problem::of(StatusCode::SERVICE_UNAVAILABLE, "The request queue is full.")
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the simulated engine broke the connection as asked")
    }
}

impl Error for Broken {}

impl From<Infallible> for Broken {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
