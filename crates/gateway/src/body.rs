//! Bodies of answers: a whole one of our own, or a backend's as it passes.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::relay::{Broken, Relay};
use crate::stalled::Watched;

/// The body of an answer to a client.
#[derive(Debug)]
pub enum Body {
    /// All of it, at hand.
    Whole(Option<Bytes>),
    /// A backend's.
    Relayed(Box<Relay>),
    /// A backend's, whose client may not let it wait for ever.
    Watched(Watched),
}

impl Body {
    /// A body that is at hand.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()))
    }

    /// Ends a backend's answer when the client takes nothing of it for so long.
    #[must_use]
    pub fn watched(self, wait_max: Duration) -> Self {
        match self {
            Self::Relayed(relay) => Self::Watched(Watched::new(relay, wait_max)),
            Self::Whole(_) | Self::Watched(_) => self,
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Relayed(relay) => relay.poll_next(context),
            Self::Watched(watched) => watched.poll_next(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Relayed(_) | Self::Watched(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Relayed(relay) => relay.size_hint(),
            Self::Watched(watched) => watched.size_hint(),
        }
    }
}
