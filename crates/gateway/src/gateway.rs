//! The gateway as one value: configuration in use, driver, backends' client, metrics, usage log.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use fairlane_core::gate::{Event, PoolView};
use sha2::{Digest as _, Sha256};

use crate::config::Config;
use crate::driver::Driver;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::models::Cards;
use crate::random;
use crate::tallies::Tallies;
use crate::upstream::Upstream;
use crate::usage_log::UsageLog;

/// Everything that requests share.
#[derive(Debug)]
pub struct Gateway {
    live: ArcSwap<Live>,
    reloading: Mutex<()>,
    /// The gate.
    pub driver: Arc<Driver>,
    /// The way to backends.
    pub upstream: Upstream,
    /// Counters and histograms.
    pub metrics: Metrics,
    /// The last finished requests.
    pub usage: UsageLog,
    /// Sums per tenant.
    pub tallies: Tallies,
    /// What backends say of their models.
    pub cards: Cards,
    /// What is in flight is being cut: endings are the gateway's own doing from here on.
    pub is_cutting: AtomicBool,
    /// No request is accepted any more; `/readyz` says so.
    pub is_draining: AtomicBool,
    id_prefix: u64,
    next_id: AtomicU64,
    hash_key: [u8; 16],
}

impl Gateway {
    /// A gateway for a resolved configuration.
    ///
    /// # Errors
    /// A vocabulary or a `ca_file` cannot be read.
    pub fn new(config: Config) -> Result<Arc<Self>, String> {
        let live = Live::new(config, None)?;
        let driver = Arc::new(Driver::new(Arc::clone(&live.policy)));
        Ok(Arc::new(Self {
            driver,
            upstream: Upstream::new(&live.edge)?,
            metrics: Metrics::default(),
            usage: UsageLog::new(live.edge.bounds.recent_requests_max),
            tallies: Tallies::default(),
            cards: Cards::default(),
            is_cutting: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            id_prefix: u64::from_le_bytes(random::bytes()),
            next_id: AtomicU64::new(0),
            hash_key: random::bytes(),
            live: ArcSwap::from_pointee(live),
            reloading: Mutex::new(()),
        }))
    }

    /// The configuration in use.
    #[must_use]
    pub fn live(&self) -> Arc<Live> {
        self.live.load_full()
    }

    /// Takes on another configuration; balances, queues and what is in flight stay.
    ///
    /// # Errors
    /// A vocabulary or a `ca_file` cannot be read; then nothing has changed.
    pub fn reload(&self, config: Config) -> Result<(), String> {
        let _one_at_a_time = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let live = Live::new(config, Some(&self.live()))?;
        let clients = self.upstream.prepare(&live.edge)?;
        let policy = Arc::clone(&live.policy);
        self.upstream.take_on(clients);
        // First the gate: a request that finds the fresh lookups must not meet a gate that does not know their ids.
        self.driver.tell(Event::Reload(policy));
        self.live.store(Arc::new(live));
        Ok(())
    }

    /// Whether requests are served.
    ///
    /// # Errors
    /// Why not, as a line.
    pub fn readiness(&self) -> Result<(), &'static str> {
        if self.is_draining.load(Ordering::Relaxed) {
            return Err("shutting down\n");
        }
        let pools = self.driver.pools();
        let is_served = |pool: &PoolView| pool.backends.iter().any(|(_, alive, ..)| *alive);
        if pools.iter().all(|pool| pool.backends.is_empty() || is_served(pool)) {
            Ok(())
        } else {
            Err("a pool has no backend alive\n")
        }
    }

    /// An id for a request: unlike any other of this process, and very likely of any other.
    #[must_use]
    pub fn request_id(&self) -> String {
        let count = self.next_id.fetch_add(1, Ordering::Relaxed);
        // An odd factor reaches every number once before it repeats.
        format!("{:016x}", self.id_prefix.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// The hash that stands for a client's id inside the gate and in records. Its highest bit is set, which marks it as an id.
    #[must_use]
    pub fn hash(&self, kind: &str, id: &str) -> u128 {
        let digest = Sha256::new()
            .chain_update(self.hash_key)
            .chain_update(kind)
            .chain_update([0])
            .chain_update(id)
            .finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        u128::from_be_bytes(bytes) | 1 << 127
    }
}

/// A hash as it is shown.
#[must_use]
pub fn shown_hash(hash: u128) -> String {
    format!("{hash:032x}")
}
