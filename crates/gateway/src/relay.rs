//! A backend's answer on its way to the client: bytes pass at once, usage is read as they go by.
//!
//! There is no task and no channel per answer: the client's connection polls this body, and this body polls the backend's.
//! Dropping it closes the backend's connection, which is how an engine learns that its client has left.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fairlane_core::gate::Outcome;
use fairlane_core::refusal::Refusal;
use fairlane_core::units::Tokens;
use fairlane_wire::dialect::Endpoint;
use fairlane_wire::stream::{EndOfStream, Forward, Summary};
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::cutting::Cutter;
use crate::passage::{Ending, Passage, outcome};
use crate::reader::Reader;
use crate::upstream::BackendBody;

/// Why a client's answer breaks off.
#[derive(Debug)]
pub enum Broken {
    /// The backend's connection broke.
    Backend(hyper::Error),
    /// The backend's stream ended in the middle of its answer.
    Cut,
    /// The backend was silent for too long, or the answer took too long as a whole.
    TimedOut,
    /// The client took nothing of it for too long.
    Untaken,
    /// A budget is used up, and the answer is none that an error event could end.
    Spent,
}

/// A backend's body, read as it passes.
#[derive(Debug)]
pub struct Relay {
    incoming: BackendBody,
    reader: Reader,
    passage: Passage,
    /// Frames that were taken before the status was committed.
    taken: VecDeque<Frame<Bytes>>,
    /// The backend has nothing more to give.
    drained: bool,
    /// The answer breaks off, as soon as what came before has had time to leave.
    breaks: Option<Broken>,
    done: bool,
    /// The gate wants to hear of output as it streams.
    output_step: Option<Tokens>,
    told_output: u64,
    /// Follows the events where the stream is to be cut at its budget's end.
    cutter: Option<Box<Cutter>>,
    is_cut: bool,
    /// The client has left, and the answer is read on without it.
    is_left: bool,
    /// Made when the backend lets wait for the first time: most answers are there at once.
    idle: Option<Pin<Box<Sleep>>>,
    idle_max: Duration,
    last_frame: Instant,
    ends_by: Instant,
}

/// Bounds on a relay's time.
#[derive(Clone, Copy, Debug)]
pub struct RelayBounds {
    /// Longest silence of the backend.
    pub idle: Duration,
    /// When the answer must be over.
    pub ends_by: Instant,
}

impl Relay {
    /// A relay for what is left of `incoming` after the frames already taken.
    #[must_use]
    pub fn new(
        incoming: BackendBody,
        reader: Reader,
        passage: Passage,
        taken: VecDeque<Frame<Bytes>>,
        (bounds, output_step): (RelayBounds, Option<Tokens>),
    ) -> Self {
        let last_frame = Instant::from_std(crate::clock::monotonic());
        Self {
            incoming,
            reader,
            passage,
            taken,
            drained: false,
            breaks: None,
            done: false,
            output_step,
            told_output: 0,
            cutter: None,
            is_cut: false,
            is_left: false,
            idle: None,
            idle_max: bounds.idle,
            last_frame,
            ends_by: bounds.ends_by,
        }
    }

    /// Cuts the stream with an error event when the gate says that its budget is used up.
    #[must_use]
    pub fn cut_by(mut self, endpoint: Endpoint) -> Self {
        let passed = self.taken.iter().filter_map(Frame::data_ref);
        self.cutter = Some(Box::new(Cutter::new(endpoint, passed)));
        self
    }

    /// Tells the gate of the output in the frames that were taken already.
    #[must_use]
    pub fn with_taken_told(mut self) -> Self {
        let stop = self.output_step.and_then(|step| self.tell_output(step));
        if stop.is_some() {
            self.pass_unless_cut(Bytes::new(), stop);
        }
        self
    }

    /// The client has left. What follows is read for its usage alone.
    pub const fn client_left(&mut self) {
        self.is_left = true;
    }

    /// Whether nothing more is to come.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.done || self.is_cut || self.breaks.is_some()
    }

    /// The next frame for the client.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            if self.done {
                return Poll::Ready(None);
            }
            if let Some(frame) = self.taken.pop_front() {
                if frame.data_ref().is_some_and(Bytes::is_empty) {
                    continue;
                }
                return Poll::Ready(Some(Ok(frame)));
            }
            if self.breaks.is_some() {
                ready!(self.idle().as_mut().poll(context));
                self.done = true;
                return Poll::Ready(self.breaks.take().map(Err));
            }
            if self.is_cut {
                self.done = true;
                continue;
            }
            if self.drained {
                match self.end() {
                    Ok(release) => return Poll::Ready(release.map(Ok)),
                    Err(broken) => self.break_off(broken),
                }
                continue;
            }
            let frame = match Pin::new(&mut self.incoming).poll_frame(context) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    let broken = ready!(self.poll_silence(context));
                    self.break_off(broken);
                    continue;
                }
            };
            self.last_frame = Instant::from_std(crate::clock::monotonic());
            match frame {
                Some(Ok(frame)) => self.pass(frame),
                Some(Err(error)) => {
                    let broken = self.broken(Broken::Backend(error));
                    self.break_off(broken);
                }
                None => self.drained = true,
            }
        }
    }

    /// What is known of the length.
    #[must_use]
    pub fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::default();
        if self.taken.is_empty() && self.reader.forwards_everything() {
            hint = self.incoming.size_hint();
        }
        hint
    }

    fn pass(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) => self.read(data),
            Err(other) => self.taken.push_back(other),
        }
    }

    fn read(&mut self, data: Bytes) {
        let fed = self.reader.feed(&data);
        if fed.first_content {
            self.passage.first_token();
        }
        let bytes = forwarded(data, fed.forward);
        let Some(step) = self.output_step else {
            return self.taken.push_back(Frame::data(bytes));
        };
        let stop = self.tell_output(step);
        self.pass_unless_cut(bytes, stop);
    }

    fn tell_output(&mut self, step: Tokens) -> Option<Refusal> {
        let produced = self.reader.produced();
        if produced < self.told_output.saturating_add(step.0.max(1)) {
            return None;
        }
        self.told_output = produced;
        self.passage.ticket.produced(Tokens(produced))
    }

    fn pass_unless_cut(&mut self, bytes: Bytes, stop: Option<Refusal>) {
        let Some(cutter) = &mut self.cutter else {
            self.taken.push_back(Frame::data(bytes));
            if stop.is_some() {
                self.end_spent();
                self.break_off(Broken::Spent);
            }
            return;
        };
        stop.into_iter().for_each(|refusal| cutter.stop(refusal));
        let Some(cut) = cutter.pass(&bytes) else {
            return self.taken.push_back(Frame::data(bytes));
        };
        let event = self.passage.cut_event(&cut);
        self.taken.push_back(Frame::data(bytes.slice(..cut.passes)));
        self.taken.push_back(Frame::data(Bytes::from(event)));
        self.end_spent();
        self.is_cut = true;
    }

    fn end_spent(&mut self) {
        let (summary, counted) = self.reader.finish(EndOfStream::Broken);
        self.passage.finish(&Ending::read(&summary, Outcome::BudgetEnd, counted));
    }

    /// hyper throws away what it has not yet written when a body breaks: the client would lose what came just before.
    fn break_off(&mut self, broken: Broken) {
        self.breaks = Some(broken);
        self.idle().as_mut().reset(Instant::from_std(crate::clock::monotonic()) + BREAK_DELAY);
    }

    fn end(&mut self) -> Result<Option<Frame<Bytes>>, Broken> {
        let (summary, counted) = self.reader.finish(EndOfStream::Clean);
        let outcome = outcome(summary.outcome);
        self.finish(&summary, outcome, counted);
        if outcome == Outcome::Interrupted {
            // A clean end would make a truncated answer look complete.
            return Err(Broken::Cut);
        }
        self.done = true;
        let Summary { release, .. } = summary;
        Ok((!release.is_empty()).then(|| Frame::data(Bytes::from(release))))
    }

    fn broken(&mut self, why: Broken) -> Broken {
        let (summary, counted) = self.reader.finish(EndOfStream::Broken);
        let outcome = match why {
            Broken::TimedOut => Outcome::UpstreamTimeout,
            Broken::Spent => Outcome::BudgetEnd,
            // Bytes have passed: it is no failure before the first byte any more.
            Broken::Backend(_) | Broken::Cut | Broken::Untaken => {
                let told = outcome(summary.outcome);
                if told == Outcome::UpstreamErrorMidStream { told } else { Outcome::Interrupted }
            }
        };
        self.finish(&summary, outcome, counted);
        why
    }

    fn finish(&mut self, summary: &Summary, outcome: Outcome, counted: Option<u64>) {
        let mut ending = Ending::read(summary, outcome, counted);
        if self.is_left {
            ending.report.outcome = Outcome::ClientGone;
        }
        self.passage.finish(&ending);
    }

    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<Broken> {
        loop {
            ready!(self.idle().as_mut().poll(context));
            let now = Instant::from_std(crate::clock::monotonic());
            let silent_until = (self.last_frame + self.idle_max).min(self.ends_by);
            if silent_until <= now {
                return Poll::Ready(self.broken(Broken::TimedOut));
            }
            self.idle().as_mut().reset(silent_until);
        }
    }

    fn idle(&mut self) -> &mut Pin<Box<Sleep>> {
        let until = (self.last_frame + self.idle_max).min(self.ends_by);
        self.idle.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if self.is_over() {
            return;
        }
        let is_cut = self.passage.gateway().is_cut() || std::thread::panicking();
        let outcome = if is_cut { Outcome::Shutdown } else { Outcome::ClientGone };
        // HTTP/1 drops a body once all of its declared bytes are sent, without asking it for its end.
        let (summary, counted) = match self.reader.is_whole() {
            true => self.reader.finish(EndOfStream::Clean),
            false => self.reader.finish(EndOfStream::Broken),
        };
        let outcome = if self.reader.is_whole() { crate::passage::outcome(summary.outcome) } else { outcome };
        self.passage.finish(&Ending::read(&summary, outcome, counted));
    }
}

/// The bytes to send of a chunk: without a copy where it passes whole or one stretch of it does.
pub fn forwarded(data: Bytes, forward: Forward) -> Bytes {
    match forward {
        Forward::Whole => data,
        Forward::Parts { released, ranges } => match (released.is_empty(), ranges.as_slice()) {
            (true, []) => Bytes::new(),
            (true, [only]) => data.slice(only.clone()),
            _ => {
                let mut bytes = BytesMut::from(released.as_slice());
                ranges.into_iter().for_each(|range| bytes.extend_from_slice(&data[range]));
                bytes.freeze()
            }
        },
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backend(_) => f.write_str("the backend's connection broke"),
            Self::Cut => f.write_str("the backend's stream ended before its answer did"),
            Self::TimedOut => f.write_str("the backend was silent for too long"),
            Self::Untaken => f.write_str("the client took nothing of its answer for too long"),
            Self::Spent => f.write_str("a budget was used up in the middle of the answer"),
        }
    }
}

impl std::error::Error for Broken {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Backend(error) => Some(error),
            Self::Cut | Self::TimedOut | Self::Untaken | Self::Spent => None,
        }
    }
}

/// How long a break waits for what came before it to leave.
const BREAK_DELAY: Duration = Duration::from_millis(20);
