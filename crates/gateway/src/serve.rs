//! Running the gateway: listeners, background tasks, reloads and the orderly end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fairlane_core::gate::Event;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::addresses::Resolver;
use crate::config::{Config, KeyDigest, Source, Surroundings};
use crate::gateway::Gateway;
use crate::watching::Watching;
use crate::workers::Workers;
use crate::{addresses, admin, clock, health, listen, scrape};

/// Where the configuration comes from, so that it can be read again.
#[derive(Clone, Debug)]
pub enum Origin {
    /// A file.
    File(PathBuf),
    /// One that does not change.
    Fixed(Box<Source>),
}

/// What the command line sets over the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overrides {
    /// Address for clients.
    pub listen: Option<SocketAddr>,
    /// Address of the admin API.
    pub admin: Option<SocketAddr>,
}

/// A gateway that runs.
#[derive(Debug)]
pub struct Running {
    /// The gateway.
    pub gateway: Arc<Gateway>,
    /// Where clients connect.
    pub address: SocketAddr,
    /// Where the admin API is.
    pub admin: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    clients: tokio::task::JoinHandle<()>,
    background: JoinSet<()>,
    reread: mpsc::Sender<()>,
}

/// Starts a gateway.
///
/// # Errors
/// The configuration is wrong, or an address cannot be listened on: the message says which and why.
pub async fn start(origin: Origin, overrides: Overrides) -> Result<Running, String> {
    start_with(origin, overrides, Resolver::system()).await
}

/// Starts a gateway that looks up names of backends by `resolver`.
///
/// # Errors
/// As [`start`].
pub async fn start_with(origin: Origin, overrides: Overrides, resolver: Resolver) -> Result<Running, String> {
    // Watched before it is read: a change that comes while the gateway starts is not missed.
    let (changes, changed) = mpsc::channel(1);
    let mut watching = Watching::new(changes);
    cover(&mut watching, &origin);
    let content = Content::of(&origin, Vec::new());
    let mut discovered = BTreeMap::new();
    let config = read(&origin, &discovered, overrides)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let (listen, admin) = (config.edge.listen, config.edge.admin);
    let gateway = Gateway::new(config)?;
    addresses::refresh(&gateway, &resolver).await;
    if discover(&gateway, &mut discovered).await {
        gateway.reload(read(&origin, &discovered, overrides)?)?;
    }
    let keeper = Arc::clone(&gateway);
    let kept = tokio::task::spawn_blocking(move || keeper.keep_data()).await;
    kept.map_err(|error| error.to_string())??;
    let listener = bind(listen).await?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let (stop, stopped) = watch::channel(false);
    let mut background = JoinSet::new();
    let admin = match admin {
        Some(wanted) => {
            let listener = bind(wanted).await?;
            let address = listener.local_addr().map_err(|error| error.to_string())?;
            background.spawn(admin::serve(Arc::clone(&gateway), listener));
            Some(address)
        }
        None => None,
    };
    let driver = Arc::clone(&gateway.driver);
    background.spawn(async move { driver.tick_on_time().await });
    background.spawn(health::watch(Arc::clone(&gateway)));
    background.spawn(scrape::watch(Arc::clone(&gateway)));
    background.spawn(addresses::watch(Arc::clone(&gateway), resolver));
    let (reread, wanted) = mpsc::channel(1);
    background.spawn(keep_reading(
        Arc::clone(&gateway),
        (origin, overrides),
        discovered,
        Wishes { wanted, changed, watching, content },
    ));
    let workers = Workers::start(&gateway).map_err(|error| format!("no thread to serve clients: {error}"))?;
    let clients = tokio::spawn(listen::serve(Arc::clone(&gateway), listener, workers, stopped));
    Ok(Running { gateway, address, admin, stop, clients, background, reread })
}

impl Running {
    /// Asks for the configuration to be read again.
    pub fn reread(&self) {
        // One wish is waiting already, if the channel is full.
        let _ = self.reread.try_send(());
    }

    /// Ends in order: `/readyz` says so for as long as is configured, then what waits or comes is refused, what runs may finish
    /// within the time configured, everything is settled.
    pub async fn stop(mut self) {
        self.gateway.is_draining.store(true, Ordering::Relaxed);
        let notice = self.gateway.live().edge.timeouts.shutdown_notice;
        if !notice.is_zero() {
            tokio::time::sleep(notice).await;
        }
        self.gateway.driver.tell(Event::Drain);
        let _ = self.stop.send(true);
        let _ = self.clients.await;
        self.background.shutdown().await;
        let gateway = Arc::clone(&self.gateway);
        let closed = tokio::task::spawn_blocking(move || {
            if let Some(data) = gateway.data() {
                data.close();
            }
        });
        if let Err(error) = closed.await {
            tracing::error!(%error, "the data file was not closed in order");
        }
    }
}

/// Reads and resolves a configuration.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read(
    origin: &Origin,
    discovered: &BTreeMap<String, Vec<String>>,
    overrides: Overrides,
) -> Result<Config, String> {
    let source = match origin {
        Origin::File(path) => Source::read(path).map_err(|error| error.to_string())?,
        Origin::Fixed(source) => Source::clone(source),
    };
    let env = |name: &str| std::env::var(name).ok();
    let around = Surroundings { env: &env, discovered, unix_secs: clock::unix_secs() };
    let mut config = source.resolve(&around).map_err(|error| error.to_string())?;
    config.edge.listen = overrides.listen.unwrap_or(config.edge.listen);
    config.edge.admin = overrides.admin.or(config.edge.admin);
    Ok(config)
}

/// Why the configuration is read again.
struct Wishes {
    /// Somebody asks.
    wanted: mpsc::Receiver<()>,
    /// Its files change.
    changed: mpsc::Receiver<()>,
    watching: Watching,
    /// What was read last.
    content: Content,
}

/// The files of a configuration, and a digest of what is in them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Content {
    files: Vec<PathBuf>,
    digest: Option<KeyDigest>,
}

impl Content {
    /// The configuration's files; where it cannot be read, those that it had before.
    fn of(origin: &Origin, before: Vec<PathBuf>) -> Self {
        let Origin::File(path) = origin else { return Self::default() };
        let files = match Source::read(path) {
            Ok(source) => source.files().map(PathBuf::from).collect(),
            Err(_) if before.is_empty() => vec![path.clone()],
            Err(_) => before,
        };
        let digest = digest(&files);
        Self { files, digest }
    }

    /// Whether the same files hold the same. Reads and does not parse: the folder that is watched may be a busy one.
    fn is_current(&self) -> bool {
        digest(&self.files) == self.digest
    }
}

fn digest(files: &[PathBuf]) -> Option<KeyDigest> {
    let mut bytes = Vec::new();
    for file in files {
        bytes.extend_from_slice(&std::fs::read(file).ok()?);
    }
    Some(KeyDigest::of(&bytes))
}

/// Reads the configuration again when its files change or somebody asks, and the models when backends list others.
async fn keep_reading(
    gateway: Arc<Gateway>,
    (origin, overrides): (Origin, Overrides),
    mut discovered: BTreeMap<String, Vec<String>>,
    mut wishes: Wishes,
) {
    let mut rediscover = tokio::time::interval(REDISCOVER);
    loop {
        let (is_asked, may_be_noise) = tokio::select! {
            Some(()) = wishes.wanted.recv() => (true, false),
            Some(()) = wishes.changed.recv() => (true, true),
            _ = rediscover.tick() => (false, false),
        };
        if is_asked {
            // An editor writes in several steps, a ConfigMap swaps links.
            tokio::time::sleep(SETTLE).await;
            while wishes.changed.try_recv().is_ok() {}
            if may_be_noise && wishes.content.is_current() {
                // The folder is watched, and other files live there too.
                continue;
            }
            wishes.content = Content::of(&origin, std::mem::take(&mut wishes.content.files));
            cover(&mut wishes.watching, &origin);
            // Pools that come with this may have models to find.
            rediscover.reset_immediately();
        } else if !discover(&gateway, &mut discovered).await {
            continue;
        }
        let result = read(&origin, &discovered, overrides).and_then(|config| gateway.reload(config));
        match result {
            Ok(()) => {
                tracing::info!("configuration read again");
                gateway.metrics.reloaded("ok");
            }
            Err(message) => {
                tracing::error!("the configuration is wrong, the one before stays in use: {message}");
                gateway.metrics.reloaded("error");
            }
        }
    }
}

/// Takes in what backends list; whether that is another set of models than before.
async fn discover(gateway: &Gateway, discovered: &mut BTreeMap<String, Vec<String>>) -> bool {
    let mut is_changed = false;
    for (pool, names) in health::discover(gateway).await {
        // A pool where nobody answers keeps the models that it had.
        let Some(names) = names else { continue };
        if discovered.get(&pool) != Some(&names) {
            discovered.insert(pool, names);
            is_changed = true;
        }
    }
    is_changed
}

fn cover(watching: &mut Watching, origin: &Origin) {
    if let Origin::File(path) = origin {
        watching.cover(path);
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| {
        format!("cannot listen on {address}: {error}; choose another address or end what uses it")
    })
}

const REDISCOVER: Duration = Duration::from_secs(10);
const SETTLE: Duration = Duration::from_millis(200);
