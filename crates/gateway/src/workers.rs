//! The threads that serve clients. Each has a reactor and kept-alive connections to backends of its own: a request is read, sent
//! on and answered without waking another thread.

use std::net::TcpStream;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use crate::gateway::Gateway;
use crate::listen;

/// A client's connection on its way to a worker.
#[derive(Debug)]
pub struct Accepted {
    /// The connection, not blocking.
    pub stream: TcpStream,
    /// Its place among those that may be open.
    pub place: OwnedSemaphorePermit,
    /// Counts it among its worker's while it lives.
    pub load: Load,
}

/// All workers.
#[derive(Debug)]
pub struct Workers {
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    connections: mpsc::UnboundedSender<Accepted>,
    load: Arc<AtomicUsize>,
    ended: oneshot::Receiver<()>,
}

/// One connection in the count of its worker.
#[derive(Debug)]
pub struct Load(Arc<AtomicUsize>);

impl Workers {
    /// One worker per core.
    ///
    /// # Errors
    /// A thread or its reactor cannot be had.
    pub fn start(gateway: &Arc<Gateway>) -> std::io::Result<Self> {
        let count = std::thread::available_parallelism().map_or(1, NonZero::get);
        let workers = (0..count).map(|_| Worker::start(gateway)).collect::<Result<_, _>>()?;
        Ok(Self { workers })
    }

    /// Gives a connection to the worker with fewest.
    pub fn take(&self, stream: TcpStream, place: OwnedSemaphorePermit) {
        if let Some(worker) = self.workers.iter().min_by_key(|worker| worker.load.load(Ordering::Relaxed)) {
            worker.load.fetch_add(1, Ordering::Relaxed);
            let load = Load(Arc::clone(&worker.load));
            // A worker ends only after its sender: this one is there.
            let _ = worker.connections.send(Accepted { stream, place, load });
        }
    }

    /// Lets no connection in any more and waits until the workers are through with theirs.
    pub async fn finish(self) {
        let ended: Vec<_> = self.workers.into_iter().map(|worker| worker.ended).collect();
        for ended in ended {
            let _ = ended.await;
        }
    }
}

impl Worker {
    fn start(gateway: &Arc<Gateway>) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (connections, accepted) = mpsc::unbounded_channel();
        let (end, ended) = oneshot::channel();
        let gateway = Arc::clone(gateway);
        std::thread::Builder::new().name("fairlane-worker".to_owned()).spawn(move || {
            runtime.block_on(listen::serve_clients(gateway, accepted));
            // What goes on without a client ends with it.
            drop(runtime);
            // Nobody waits for it where the gateway was dropped instead of ended.
            let _ = end.send(());
        })?;
        Ok(Self { connections, load: Arc::default(), ended })
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
