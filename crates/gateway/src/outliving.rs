//! Answers that are read to their end although their clients have left (`on_client_gone: drain`), so that their real usage is charged.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::gateway::Gateway;
use crate::relay::{Broken, Relay};

/// A relay that is read on when it is dropped before its end.
#[derive(Debug)]
pub struct Outliving {
    relay: Option<Box<Relay>>,
    gateway: Arc<Gateway>,
    bounds: ReadOn,
}

/// How far an answer is read on.
#[derive(Clone, Copy, Debug)]
pub struct ReadOn {
    /// For so long at most.
    pub wait_max: Duration,
    /// So many bytes at most.
    pub bytes_max: usize,
}

/// Counts what goes on without a client, so that a shutdown waits for it.
#[derive(Debug, Default)]
pub struct Survivors {
    count: watch::Sender<usize>,
}

/// One of them, while it lives.
#[derive(Debug)]
pub struct Survivor(Arc<Gateway>);

impl Outliving {
    /// A relay whose answer is read on within the bounds.
    #[must_use]
    pub const fn new(relay: Box<Relay>, gateway: Arc<Gateway>, bounds: ReadOn) -> Self {
        Self { relay: Some(relay), gateway, bounds }
    }

    /// The next frame for the client.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.relay.as_mut().map_or(Poll::Ready(None), |relay| relay.poll_next(context))
    }

    /// What is known of the length.
    #[must_use]
    pub fn size_hint(&self) -> SizeHint {
        self.relay.as_ref().map_or_else(SizeHint::default, |relay| relay.size_hint())
    }
}

impl Drop for Outliving {
    fn drop(&mut self) {
        let Some(mut relay) = self.relay.take() else { return };
        // What is dropped here without being read on ends as any other answer whose client left.
        if relay.is_over() || self.gateway.is_cut() {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        relay.client_left();
        let (survivor, bounds) = (Survivors::enter(&self.gateway), self.bounds);
        runtime.spawn(async move {
            let _counted = survivor;
            read_on(relay, bounds).await;
        });
    }
}

async fn read_on(mut relay: Box<Relay>, bounds: ReadOn) {
    let reading = async {
        let mut bytes_left = bounds.bytes_max;
        while let Some(Ok(frame)) = std::future::poll_fn(|context| relay.poll_next(context)).await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            let Some(left) = bytes_left.checked_sub(length) else { return };
            bytes_left = left;
        }
    };
    let _ = timeout(bounds.wait_max, reading).await;
}

impl Survivors {
    /// Counts one more.
    #[must_use]
    pub fn enter(gateway: &Arc<Gateway>) -> Survivor {
        gateway.survivors.count.send_modify(|count| *count += 1);
        Survivor(Arc::clone(gateway))
    }

    /// Waits until there is none.
    pub async fn none(&self) {
        // The sender lives as long as the gateway, so that the wait cannot fail.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Survivor {
    fn drop(&mut self) {
        self.0.survivors.count.send_modify(|count| *count -= 1);
    }
}
