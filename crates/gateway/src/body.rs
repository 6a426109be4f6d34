//! Bodies of answers: a whole one of our own, or a backend's as it passes.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::heartbeat::Beating;
use crate::outliving::Outliving;
use crate::relay::{Broken, Relay};
use crate::stalled::Watched;

/// The body of an answer to a client.
#[derive(Debug)]
pub enum Body {
    /// All of it, at hand.
    Whole(Option<Bytes>),
    /// A backend's.
    Relayed(Box<Relay>),
    /// A backend's, that is read to its end though the client leaves.
    Outliving(Outliving),
    /// One that tells a waiting client that it is being worked on.
    Beating(Box<Beating>),
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
            Self::Relayed(_) | Self::Outliving(_) | Self::Beating(_) => {
                Self::Watched(Watched::new(Box::new(self), wait_max))
            }
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
            Self::Outliving(outliving) => outliving.poll_next(context),
            Self::Beating(beating) => beating.poll_next(context),
            Self::Watched(watched) => watched.poll_next(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Relayed(_) | Self::Outliving(_) | Self::Beating(_) | Self::Watched(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Relayed(relay) => relay.size_hint(),
            Self::Outliving(outliving) => outliving.size_hint(),
            Self::Beating(_) => SizeHint::default(),
            Self::Watched(watched) => watched.size_hint(),
        }
    }
}
