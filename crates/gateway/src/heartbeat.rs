//! Comments for a client that waits (`queue_heartbeat`): in the queue, before a backend's first event, and while it is silent.
//!
//! The status 200 is committed for the first of them. What is refused or fails after that becomes the stream's last event, in the
//! form that client libraries raise, and the body ends as its framing says.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fairlane_wire::dialect::Endpoint;
use fairlane_wire::late::error_event;
use fairlane_wire::stream::Gaps;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::{Body as _, Frame};
use tokio::time::{Instant, Sleep};

use crate::body::Body;
use crate::clock;
use crate::relay::Broken;

/// An answer that is being worked on.
pub type Work = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// A streamed answer with comments in its pauses.
pub struct Beating {
    stage: Stage,
    endpoint: Endpoint,
    gaps: Gaps,
    every: Duration,
    beat: Pin<Box<Sleep>>,
    last_frame: Instant,
}

enum Stage {
    /// There is no answer yet.
    Waiting(Work),
    /// It streams.
    Passing(Box<Body>),
    /// It is none that can pass any more: it is read, for its words and its usage, and told as an error.
    Failing {
        why: Why,
        body: Box<Body>,
        kept: BytesMut,
    },
    Over,
}

#[derive(Clone, Copy, Debug)]
enum Why {
    Status(StatusCode),
    NoStream,
}

/// Waits for an answer, at most until it is time for a first comment. Until then it is what it would be without heartbeat; after
/// that it is a stream, with the headers that `head` gives.
pub async fn answer(
    mut work: Work,
    endpoint: Endpoint,
    every: Duration,
    head: impl FnOnce() -> HeaderMap,
) -> Response<Body> {
    match tokio::time::timeout(every, &mut work).await {
        Ok(response) if is_stream(&response) => {
            let (mut parts, body) = response.into_parts();
            prepare(&mut parts.headers);
            let beating = Beating::new(Stage::Passing(Box::new(body)), endpoint, every);
            Response::from_parts(parts, Body::Beating(Box::new(beating)))
        }
        Ok(response) => response,
        Err(_) => {
            let mut beating = Beating::new(Stage::Waiting(work), endpoint, every);
            beating.beat.as_mut().reset(now());
            beating.last_frame = now() - every;
            let mut response = Response::new(Body::Beating(Box::new(beating)));
            *response.headers_mut() = head();
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
            prepare(response.headers_mut());
            response
        }
    }
}

impl Beating {
    fn new(stage: Stage, endpoint: Endpoint, every: Duration) -> Self {
        let last_frame = now();
        let beat = Box::pin(tokio::time::sleep_until(last_frame + every));
        Self { stage, endpoint, gaps: Gaps::default(), every, beat, last_frame }
    }

    /// The next frame for the client.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            match &mut self.stage {
                Stage::Waiting(work) => match work.as_mut().poll(context) {
                    Poll::Ready(response) => self.stage = take_over(response),
                    Poll::Pending => return self.poll_beat(context),
                },
                Stage::Passing(body) => match Pin::new(body.as_mut()).poll_frame(context) {
                    Poll::Ready(Some(Ok(frame))) => {
                        if let Some(data) = frame.data_ref() {
                            self.gaps.feed(data);
                        }
                        self.last_frame = now();
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    Poll::Ready(end) => return Poll::Ready(end),
                    Poll::Pending => return self.poll_beat(context),
                },
                Stage::Failing { body, kept, .. } => match Pin::new(body.as_mut()).poll_frame(context) {
                    Poll::Ready(Some(Ok(frame))) => keep(kept, &frame),
                    Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(self.end_with_error()),
                    Poll::Pending => return self.poll_beat(context),
                },
                Stage::Over => return Poll::Ready(None),
            }
        }
    }

    fn end_with_error(&mut self) -> Option<Result<Frame<Bytes>, Broken>> {
        let Stage::Failing { why, kept, .. } = std::mem::replace(&mut self.stage, Stage::Over) else {
            return None;
        };
        let event = match why {
            Why::Status(status) => error_event(self.endpoint, status.as_u16(), &kept, self.gaps.events()),
            Why::NoStream => error_event(self.endpoint, 502, NO_STREAM.as_bytes(), self.gaps.events()),
        };
        Some(Ok(Frame::data(Bytes::from(event))))
    }

    /// A comment, where it is time for one and no event is under way.
    fn poll_beat(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            ready!(self.beat.as_mut().poll(context));
            let now = now();
            let due = self.last_frame + self.every;
            if due > now {
                self.beat.as_mut().reset(due);
                continue;
            }
            self.last_frame = now;
            self.beat.as_mut().reset(now + self.every);
            if self.gaps.is_between() {
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(COMMENT)))));
            }
        }
    }
}

fn take_over(response: Response<Body>) -> Stage {
    let streams = is_stream(&response);
    let (parts, body) = response.into_parts();
    let body = Box::new(body);
    if streams {
        return Stage::Passing(body);
    }
    let why = if parts.status == StatusCode::OK { Why::NoStream } else { Why::Status(parts.status) };
    Stage::Failing { why, body, kept: BytesMut::new() }
}

fn keep(kept: &mut BytesMut, frame: &Frame<Bytes>) {
    if let Some(data) = frame.data_ref() {
        let room = KEPT_BYTES_MAX.saturating_sub(kept.len());
        kept.extend_from_slice(&data[..data.len().min(room)]);
    }
}

/// Whether comments can be put between the events of an answer.
fn is_stream(response: &Response<Body>) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    response.status() == StatusCode::OK
        && kind.is_some_and(|kind| kind.trim_start().starts_with(EVENT_STREAM))
        && !response.headers().contains_key(header::CONTENT_ENCODING)
}

fn prepare(headers: &mut HeaderMap) {
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // A proxy that collects bytes before it sends them would keep the comments to itself (nginx knows this header).
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
}

fn now() -> Instant {
    Instant::from_std(clock::monotonic())
}

impl fmt::Debug for Beating {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beating").field("every", &self.every).finish_non_exhaustive()
    }
}

const COMMENT: &[u8] = b": waiting\n\n";
const EVENT_STREAM: &str = "text/event-stream";
/// Of an answer that becomes an error event.
const KEPT_BYTES_MAX: usize = 64 * 1024;
const NO_STREAM: &str = r#"{"error": {"message": "the backend did not answer with a plain event stream", "code": "bad_gateway"}}"#;
