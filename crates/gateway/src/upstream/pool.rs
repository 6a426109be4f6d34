//! Kept-alive connections to backends that speak HTTP/1 in the clear. Each worker has its own, so that a connection stays on the
//! thread whose reactor watches it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::carrier::Carrier;
use crate::clock;

/// Where a connection leads: `host:port`.
pub(super) type Key = Arc<str>;

/// Idle connections. Bounded in count and in age.
#[derive(Default)]
pub struct Pool {
    idle: Mutex<HashMap<Key, Vec<Idle>>>,
}

struct Idle {
    carrier: Carrier,
    since: Instant,
}

impl Pool {
    /// The connection used last that is still open.
    pub(super) fn take(&self, key: &Key) -> Option<Carrier> {
        loop {
            // One at a time, so that the lock is not held while a connection is looked at.
            let Idle { mut carrier, since } = self.idle().get_mut(key)?.pop()?;
            if clock::monotonic().duration_since(since) < IDLE_MAX && carrier.is_usable() {
                return Some(carrier);
            }
        }
    }

    /// Keeps a connection for the next request.
    pub(super) fn put(&self, key: Key, carrier: Carrier) {
        let mut idle = self.idle();
        let connections = idle.entry(key).or_default();
        if connections.len() < IDLE_CONNECTIONS_MAX {
            connections.push(Idle { carrier, since: clock::monotonic() });
        }
    }

    /// Closes what has been idle for too long.
    pub fn sweep(&self) {
        let now = clock::monotonic();
        let mut idle = self.idle();
        for connections in idle.values_mut() {
            connections.retain(|one| now.duration_since(one.since) < IDLE_MAX);
        }
        idle.retain(|_, connections| !connections.is_empty());
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<Key, Vec<Idle>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool")
    }
}

/// How long a connection may be idle: below what servers usually allow, as a request on a closing one is sent twice.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Idle connections kept per backend and worker.
const IDLE_CONNECTIONS_MAX: usize = 256;
