//! The engine as a server: one listener for each replica, and what they hold.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fairlane_lab::Counters;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::driver::Driver;
use super::fault::Fault;
use super::log::{Log, Record};
use super::metrics::Outcomes;
use super::options::{EngineArgs, EngineOptions};
use super::prefix::PrefixCache;
use super::routes;

/// Engines that run in this process. Dropping it closes every listener and every connection at once.
#[derive(Debug)]
pub struct Running {
    addresses: Vec<SocketAddr>,
    replicas: Vec<Arc<Engine>>,
    tasks: JoinSet<()>,
}

/// One replica and everything it remembers.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) options: EngineOptions,
    pub(super) driver: Arc<Driver>,
    pub(super) log: Log,
    pub(super) outcomes: Outcomes,
    prefix: Mutex<PrefixCache>,
    fault: Mutex<Fault>,
    requests: AtomicU64,
}

/// Serves until the process is interrupted.
///
/// # Errors
/// An address cannot be bound, or standard output is closed.
pub async fn run(args: EngineArgs) -> io::Result<()> {
    let running = spawn(EngineOptions::from(args)).await?;
    let mut out = io::stdout();
    for (replica, address) in running.addresses().iter().enumerate() {
        writeln!(out, "replica {replica} listens on http://{address}")?;
    }
    out.flush()?;
    tokio::signal::ctrl_c().await?;
    running.shutdown().await;
    Ok(())
}

/// Starts the replicas; they accept requests when this returns.
///
/// # Errors
/// An address cannot be bound; its text names it.
pub async fn spawn(options: EngineOptions) -> io::Result<Running> {
    let mut running = Running { addresses: Vec::new(), replicas: Vec::new(), tasks: JoinSet::new() };
    for replica in 0..options.replicas {
        let listener = bind(options.listen, replica).await?;
        let engine = Arc::new(Engine::of(options.clone()));
        running.addresses.push(listener.local_addr()?);
        running.tasks.spawn(Arc::clone(&engine.driver).run());
        running.tasks.spawn(accept(listener, Arc::clone(&engine)));
        running.replicas.push(engine);
    }
    Ok(running)
}

impl Running {
    /// The replicas' addresses, in their order.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The replicas' base URLs, in their order.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.addresses.iter().map(|address| format!("http://{address}")).collect()
    }

    /// What a replica holds and has done.
    ///
    /// # Panics
    /// There is no such replica.
    #[must_use]
    pub fn counters(&self, replica: usize) -> Counters {
        self.replicas[replica].driver.counters()
    }

    /// The records of the requests that ended at a replica, oldest first.
    ///
    /// # Panics
    /// There is no such replica.
    #[must_use]
    pub fn records(&self, replica: usize) -> Vec<Record> {
        self.replicas[replica].log.records()
    }

    /// Waits until so many requests have ended at a replica since its start; their records.
    ///
    /// # Panics
    /// There is no such replica.
    pub async fn recorded(&self, replica: usize, requests: u64) -> Vec<Record> {
        self.replicas[replica].log.reaches(requests).await;
        self.records(replica)
    }

    /// The fault of a replica's requests from here on.
    ///
    /// # Panics
    /// There is no such replica.
    pub fn set_fault(&self, replica: usize, fault: Fault) {
        self.replicas[replica].set_fault(fault);
    }

    /// Closes every listener and every connection at once, as a crash would.
    pub async fn shutdown(mut self) {
        self.crash().await;
    }

    /// Closes every listener and every connection at once; the records of what was running follow, and stay readable.
    pub async fn crash(&mut self) {
        self.tasks.shutdown().await;
    }
}

impl Engine {
    fn of(options: EngineOptions) -> Self {
        Self {
            driver: Arc::new(Driver::of(&options)),
            log: Log::empty(),
            outcomes: Outcomes::default(),
            prefix: Mutex::default(),
            fault: Mutex::new(options.fault),
            requests: AtomicU64::new(0),
            options,
        }
    }

    pub(super) fn next_request(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn fault(&self) -> Fault {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_fault(&self, fault: Fault) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// How many leading tokens of a prompt are cached; 0 while the prefix cache is off.
    pub(super) fn read_prefix(&self, texts: &[&str]) -> u64 {
        if !self.options.prefix_cache {
            return 0;
        }
        self.prefix.lock().unwrap_or_else(PoisonError::into_inner).read(texts, self.options.seed)
    }
}

async fn bind(first: SocketAddr, replica: u16) -> io::Result<TcpListener> {
    let port = match first.port() {
        0 => Some(0),
        port => port.checked_add(replica),
    };
    let too_high =
        || io::Error::other(format!("no port is left for replica {replica} after {first}; start lower"));
    let address = SocketAddr::new(first.ip(), port.ok_or_else(too_high)?);
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"));
    TcpListener::bind(address).await.map_err(named)
}

async fn accept(listener: TcpListener, engine: Arc<Engine>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => { connections.spawn(serve(stream, Arc::clone(&engine))); }
                // No file descriptor left, most often: others have to close first.
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn serve(stream: TcpStream, engine: Arc<Engine>) {
    // Tokens are small writes; without it each waits for an acknowledgement.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let service = service_fn(move |request| routes::answer(Arc::clone(&engine), request));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_WAIT);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX);
    // A connection that breaks is the client's, or a fault's, doing.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

const CONNECTIONS_MAX: usize = 10_000;
const STREAMS_MAX: u32 = 1_024;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const HEADER_WAIT: Duration = Duration::from_secs(30);
