//! The orderly end of a worker: everybody who is connected gets an answer, what runs may finish, and what takes too long is cut.

use std::time::Duration;

use hyper_util::server::graceful::GracefulShutdown;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::gateway::Gateway;

/// Ends a worker's connections within the time configured.
pub async fn drain(gateway: &Gateway, mut connections: JoinSet<()>, graceful: GracefulShutdown) {
    let shutdown = gateway.live().edge.timeouts.shutdown;
    let in_flight = async {
        // A request may be on its way on a connection that looks idle: for a moment it still finds somebody to refuse it.
        let _ = timeout(LINGER, async { while connections.join_next().await.is_some() {} }).await;
        graceful.shutdown().await;
        gateway.survivors.none().await;
    };
    if timeout(shutdown, in_flight).await.is_err() {
        tracing::warn!("the time for shutting down is over; cutting what is still in flight");
        gateway.cut();
    }
    connections.shutdown().await;
}

const LINGER: Duration = Duration::from_millis(500);
