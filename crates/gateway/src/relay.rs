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
use fairlane_core::units::Tokens;
use fairlane_wire::stream::{EndOfStream, Forward, Summary};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use crate::passage::{Ending, Passage, outcome};
use crate::reader::Reader;

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
}

/// A backend's body, read as it passes.
#[derive(Debug)]
pub struct Relay {
    incoming: Incoming,
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
    wants_output: bool,
    told_output: u64,
    idle: Pin<Box<Sleep>>,
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
        incoming: Incoming,
        reader: Reader,
        passage: Passage,
        taken: VecDeque<Frame<Bytes>>,
        (bounds, wants_output): (RelayBounds, bool),
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
            wants_output,
            told_output: 0,
            idle: Box::pin(tokio::time::sleep_until((last_frame + bounds.idle).min(bounds.ends_by))),
            idle_max: bounds.idle,
            last_frame,
            ends_by: bounds.ends_by,
        }
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
                ready!(self.idle.as_mut().poll(context));
                self.done = true;
                return Poll::Ready(self.breaks.take().map(Err));
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
        let frame = match frame.into_data() {
            Ok(data) => Frame::data(self.read(data)),
            Err(other) => other,
        };
        self.taken.push_back(frame);
    }

    fn read(&mut self, data: Bytes) -> Bytes {
        let fed = self.reader.feed(&data);
        if fed.first_content {
            self.passage.first_token();
        }
        if self.wants_output {
            let produced = self.reader.produced();
            if produced > self.told_output {
                self.told_output = produced;
                self.passage.ticket.produced(Tokens(produced));
            }
        }
        forwarded(data, fed.forward)
    }

    /// hyper throws away what it has not yet written when a body breaks: the client would lose what came just before.
    fn break_off(&mut self, broken: Broken) {
        self.breaks = Some(broken);
        self.idle.as_mut().reset(Instant::from_std(crate::clock::monotonic()) + BREAK_DELAY);
    }

    fn end(&mut self) -> Result<Option<Frame<Bytes>>, Broken> {
        let (summary, counted) = self.reader.finish(EndOfStream::Clean);
        let outcome = outcome(summary.outcome);
        self.passage.finish(&Ending::read(&summary, outcome, counted));
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
            // Bytes have passed: it is no failure before the first byte any more.
            Broken::Backend(_) | Broken::Cut | Broken::Untaken => {
                let told = outcome(summary.outcome);
                if told == Outcome::UpstreamErrorMidStream { told } else { Outcome::Interrupted }
            }
        };
        self.passage.finish(&Ending::read(&summary, outcome, counted));
        why
    }

    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<Broken> {
        loop {
            ready!(self.idle.as_mut().poll(context));
            let now = Instant::from_std(crate::clock::monotonic());
            let silent_until = (self.last_frame + self.idle_max).min(self.ends_by);
            if silent_until <= now {
                return Poll::Ready(self.broken(Broken::TimedOut));
            }
            self.idle.as_mut().reset(silent_until);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if self.done || self.breaks.is_some() {
            return;
        }
        let gateway = self.passage.gateway();
        let cut = gateway.is_cutting.load(std::sync::atomic::Ordering::Relaxed);
        let outcome = if cut { Outcome::Shutdown } else { Outcome::ClientGone };
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
        }
    }
}

impl std::error::Error for Broken {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Backend(error) => Some(error),
            Self::Cut | Self::TimedOut | Self::Untaken => None,
        }
    }
}

/// How long a break waits for what came before it to leave.
const BREAK_DELAY: Duration = Duration::from_millis(20);
