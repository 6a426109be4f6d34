//! The gateway as one value: configuration in use, driver, backends' client, metrics, usage log.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use fairlane_core::gate::{Event, PoolView};
use fairlane_core::policy::BackendId;
use sha2::{Digest as _, Sha256};

use crate::addresses::{self, DnsName, Seats};
use crate::config::Config;
use crate::data::{Data, DataFile};
use crate::driver::Driver;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::models::Cards;
use crate::outliving::Survivors;
use crate::random;
use crate::tallies::Tallies;
use crate::upstream::Upstream;
use crate::usage_log::{RequestTag, UsageLog};

/// Everything that requests share.
#[derive(Debug)]
pub struct Gateway {
    live: ArcSwap<Live>,
    loaded: Mutex<Loaded>,
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
    /// What goes on though its client has left.
    pub survivors: Survivors,
    /// It ends; `/readyz` says so.
    pub is_draining: AtomicBool,
    id_prefix: u64,
    next_id: AtomicU64,
    hash_key: OnceLock<[u8; 16]>,
    data: OnceLock<Data>,
}

/// The configuration as it was read, and the addresses that its names stand for.
#[derive(Debug)]
struct Loaded {
    config: Config,
    seats: Seats,
}

impl Gateway {
    /// A gateway for a resolved configuration.
    ///
    /// # Errors
    /// A vocabulary or a `ca_file` cannot be read.
    pub fn new(config: Config) -> Result<Arc<Self>, String> {
        let seats = Seats::default();
        let live = Live::new(seats.expand(config.clone()), None)?;
        let driver = Arc::new(Driver::new(Arc::clone(&live.policy)));
        Ok(Arc::new(Self {
            driver,
            upstream: Upstream::new(&live.edge)?,
            metrics: Metrics::default(),
            usage: UsageLog::new(live.edge.bounds.recent_requests_max),
            tallies: Tallies::default(),
            cards: Cards::default(),
            is_cutting: AtomicBool::new(false),
            survivors: Survivors::default(),
            is_draining: AtomicBool::new(false),
            id_prefix: u64::from_le_bytes(random::bytes()),
            next_id: AtomicU64::new(0),
            hash_key: OnceLock::new(),
            data: OnceLock::new(),
            live: ArcSwap::from_pointee(live),
            loaded: Mutex::new(Loaded { config, seats }),
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
        let mut loaded = self.loaded();
        self.apply(&config, &loaded.seats)?;
        loaded.seats.retain(&addresses::names(&config));
        loaded.config = config;
        // A name that comes back finds the seats that it once had without an address.
        let live = self.live();
        let absent = live.edge.pools.iter().flat_map(|pool| {
            let absent = pool.backends.iter().filter(|backend| !backend.is_there());
            absent.filter_map(|backend| live.backend_named(&pool.name, &backend.name))
        });
        absent.for_each(|id| self.driver.tell(Event::BackendDown(id)));
        Ok(())
    }

    /// The DNS names of backends, with host and port.
    #[must_use]
    pub fn dns_names(&self) -> Vec<(DnsName, String, u16)> {
        addresses::names(&self.loaded().config)
    }

    /// Takes on what the DNS names of backends stand for; names that are not among `found` keep their addresses. What runs on an
    /// address that is gone may finish.
    ///
    /// # Errors
    /// The configuration cannot be taken on any more: a file that it names is gone. Then nothing has changed.
    pub fn readdress(&self, found: &BTreeMap<DnsName, BTreeSet<IpAddr>>) -> Result<(), String> {
        let mut loaded = self.loaded();
        let mut seats = loaded.seats.clone();
        let live = self.live();
        let busy: BTreeSet<BackendId> = self
            .driver
            .pools()
            .iter()
            .flat_map(|pool| &pool.backends)
            .filter(|backend| backend.in_flight > 0)
            .map(|backend| backend.backend)
            .collect();
        let is_idle = |(pool, backend): &(String, String)| {
            live.backend_named(pool, backend).is_none_or(|id| !busy.contains(&id))
        };
        let changes = seats.assign(found, is_idle);
        if changes.left_out > 0 {
            tracing::warn!(addresses = changes.left_out, "a name has more addresses than are used at once");
        }
        if changes.gone.is_empty() && changes.come.is_empty() {
            return Ok(());
        }
        let named = |(pool, backend): &(String, String)| self.live().backend_named(pool, backend);
        let gone = changes.gone.iter().filter_map(named);
        gone.for_each(|id| self.driver.tell(Event::BackendDown(id)));
        self.apply(&loaded.config, &seats)?;
        loaded.seats = seats;
        let come = changes.come.iter().filter_map(named);
        come.for_each(|id| self.driver.tell(Event::BackendUp(id)));
        let (gone, come) = (changes.gone.len(), changes.come.len());
        tracing::info!(gone, come, "the addresses of backends have changed");
        Ok(())
    }

    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, config: &Config, seats: &Seats) -> Result<(), String> {
        let live = Live::new(seats.expand(config.clone()), Some(&self.live()))?;
        let clients = self.upstream.prepare(&live.edge)?;
        let policy = Arc::clone(&live.policy);
        self.take_on_data(&live);
        self.upstream.take_on(clients);
        // First the gate: a request that finds the fresh lookups must not meet a gate that does not know their ids.
        self.driver.tell(Event::Reload(policy));
        self.live.store(Arc::new(live));
        Ok(())
    }

    /// Puts back what the configured data file keeps, and writes to it from here on. To be called once, before the first request.
    ///
    /// # Errors
    /// The file is in use, damaged or of another version, or the system refuses: the message says what to do.
    pub fn keep_data(&self) -> Result<(), String> {
        let live = self.live();
        let Some(settings) = &live.edge.data else { return Ok(()) };
        let told = |error: crate::data::DataError| error.to_string();
        let file = DataFile::open(&settings.file).map_err(told)?;
        let loaded = file.load().map_err(told)?;
        let _ = self.hash_key.set(loaded.hash_key);
        for record in file.last_records(live.edge.bounds.recent_requests_max).map_err(told)? {
            // One that this version cannot read is still in the file.
            if let Ok(record) = serde_json::from_slice(&record) {
                self.usage.remember(record);
            }
        }
        let cells = loaded.cells.len();
        let counters = self.metrics.data.clone();
        let data = Data::start(file, loaded, &self.driver, (settings, counters)).map_err(told)?;
        tracing::info!(file = %settings.file.display(), balances = cells, "data file opened");
        self.usage.store(data.sender().clone());
        let _ = self.data.set(data);
        Ok(())
    }

    /// The data file, if one is kept.
    #[must_use]
    pub fn data(&self) -> Option<&Data> {
        self.data.get()
    }

    fn take_on_data(&self, live: &Live) {
        let before = self.live();
        let file = |live: &Live| live.edge.data.as_ref().map(|data| data.file.clone());
        if file(&before) != file(live) {
            tracing::warn!(
                "another data file is taken on at the next start; until then the one before is written"
            );
        }
        if let (Some(data), Some(settings)) = (self.data.get(), &live.edge.data) {
            data.retain(settings);
        }
    }

    /// What is still in flight is the gateway's to cut from here on.
    pub fn cut(&self) {
        self.is_cutting.store(true, Ordering::Relaxed);
    }

    /// Whether what is in flight is being cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cutting.load(Ordering::Relaxed)
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
        let is_served = |pool: &PoolView| pool.backends.iter().any(|backend| backend.is_alive);
        if pools.iter().all(|pool| pool.backends.is_empty() || is_served(pool)) {
            Ok(())
        } else {
            Err("a pool has no backend alive\n")
        }
    }

    /// An id for a request: unlike any other of this process, and very likely of any other.
    #[must_use]
    pub fn request_id(&self) -> RequestTag {
        let count = self.next_id.fetch_add(1, Ordering::Relaxed);
        // An odd factor reaches every number once before it repeats.
        RequestTag(self.id_prefix.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// The hash that stands for a client's id inside the gate and in records. Its highest bit is set, which marks it as an id.
    #[must_use]
    pub fn hash(&self, kind: &str, id: &str) -> u128 {
        let digest = Sha256::new()
            .chain_update(self.hash_key.get_or_init(random::bytes))
            .chain_update(kind)
            .chain_update([0])
            .chain_update(id)
            .finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        u128::from_be_bytes(bytes) | 1 << 127
    }
}
