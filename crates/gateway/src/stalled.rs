//! An HTTP/2 stream whose client takes nothing for too long gives its slot and its backend back.
//!
//! On HTTP/1 the connection itself is watched. Here it may be well while one of its streams has no room: then nobody polls that
//! stream's body, so a task looks after it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::body::Body;
use crate::clock;
use crate::relay::Broken;

/// A body that is dropped when what it gives is not taken.
#[derive(Debug)]
pub struct Watched {
    watch: Arc<Watch>,
    /// What is left of a long frame: a client takes it piece by piece.
    rest: Bytes,
    watchdog: AbortHandle,
}

#[derive(Debug)]
struct Watch {
    state: Mutex<State>,
    wait_max: Duration,
}

#[derive(Debug)]
struct State {
    /// Taken out when the wait is over.
    body: Option<Box<Body>>,
    /// Since when the client has had something to take and has not asked for more.
    full_since: Option<Instant>,
}

impl Watched {
    /// Watches a body. Call it inside the runtime.
    #[must_use]
    pub fn new(body: Box<Body>, wait_max: Duration) -> Self {
        let state = State { body: Some(body), full_since: Some(now()) };
        let watch = Arc::new(Watch { state: Mutex::new(state), wait_max });
        let watchdog = tokio::spawn(Arc::clone(&watch).end_when_stalled()).abort_handle();
        Self { watch, rest: Bytes::new(), watchdog }
    }

    /// The next frame for the client.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let mut state = self.watch.state();
        if self.rest.is_empty() {
            let Some(body) = &mut state.body else {
                return Poll::Ready(Some(Err(Broken::Untaken)));
            };
            let Poll::Ready(frame) = Pin::new(body.as_mut()).poll_frame(context) else {
                state.full_since = None;
                return Poll::Pending;
            };
            match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end => return Poll::Ready(end),
            }
        }
        state.full_since = Some(now());
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES_MAX));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    /// What is known of the length.
    #[must_use]
    pub fn size_hint(&self) -> SizeHint {
        self.watch.state().body.as_ref().map_or_else(SizeHint::default, |body| body.size_hint())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watchdog.abort();
        // The task may live for a moment longer: what ends is settled here and not by it.
        drop(self.watch.state().body.take());
    }
}

impl Watch {
    async fn end_when_stalled(self: Arc<Self>) {
        loop {
            let until = self.state().full_since.unwrap_or_else(now) + self.wait_max;
            if until <= now() {
                drop(self.state().body.take());
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> Instant {
    Instant::from_std(clock::monotonic())
}

/// What a client must take within the wait.
const PIECE_BYTES_MAX: usize = 16 * 1024;
