//! Accepting clients: HTTP/1.1 and HTTP/2 on one port, with bounds on connections, headers and slow readers.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};

use crate::clock;
use crate::config::{Bounds, Timeouts};
use crate::drain::drain;
use crate::gateway::Gateway;
use crate::proxy;
use crate::upstream::Pool;
use crate::workers::{Accepted, Workers};

/// Lets clients in until `stop` says so; then waits for what is in flight, and cuts it when the time for that is over.
pub async fn serve(
    gateway: Arc<Gateway>,
    listener: TcpListener,
    workers: Workers,
    mut stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(gateway.live().edge.bounds.connections_max));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        if let Some((stream, place)) = accepted {
            workers.take(stream, place);
        }
    }
    // Those who have connected before it closes get an answer.
    let until = Instant::from_std(clock::monotonic()) + BACKLOG_WAIT;
    while let Ok(accepted) = tokio::time::timeout_at(until, accept(&listener, &places)).await {
        if let Some((stream, place)) = accepted {
            workers.take(stream, place);
        }
    }
    drop(listener);
    workers.finish().await;
}

/// Serves the clients that come through `accepted`, until nobody is left who could send one.
pub async fn serve_clients(gateway: Arc<Gateway>, mut accepted: mpsc::UnboundedReceiver<Accepted>) {
    let live = gateway.live();
    let (bounds, timeouts) = (live.edge.bounds, live.edge.timeouts);
    drop(live);
    let builder = builder(&bounds, &timeouts);
    let graceful = GracefulShutdown::new();
    let pool = Arc::new(Pool::default());
    let mut connections = JoinSet::new();
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        let Accepted { stream, place, load } = tokio::select! {
            accepted = accepted.recv() => match accepted {
                Some(accepted) => accepted,
                None => break,
            },
            Some(_) = connections.join_next() => continue,
            _ = sweep.tick() => {
                pool.sweep();
                continue;
            }
        };
        let Ok(stream) = TcpStream::from_std(stream) else { continue };
        let (gateway, pool) = (Arc::clone(&gateway), Arc::clone(&pool));
        let guarded = Guarded::new(stream, &timeouts);
        let has_begun = Arc::clone(&guarded.has_begun);
        let service = service_fn(move |request: Request<Incoming>| {
            has_begun.store(true, Ordering::Relaxed);
            proxy::handle(Arc::clone(&gateway), Arc::clone(&pool), timeouts.client_write, request)
        });
        let io = TokioIo::new(guarded);
        let connection = graceful.watch(builder.serve_connection(io, service).into_owned());
        connections.spawn(async move {
            let _counted = (place, load);
            // Errors of a connection concern nobody but its client, who has caused or seen them.
            let _ = connection.await;
        });
    }
    drain(&gateway, connections, graceful).await;
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(std::net::TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    let accepted = match listener.accept().await {
        Ok((stream, _)) => {
            let _ = stream.set_nodelay(true);
            stream.into_std()
        }
        Err(error) => Err(error),
    };
    match accepted {
        Ok(stream) => Some((stream, place)),
        Err(error) => {
            // Out of file descriptors, most likely: trying again at once would only spin.
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

fn builder(bounds: &Bounds, timeouts: &Timeouts) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(timeouts.client_header)
        .max_buf_size(bounds.header_bytes_max)
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(H2_STREAMS_MAX)
        .max_header_list_size(u32::try_from(bounds.header_bytes_max).unwrap_or(u32::MAX))
        .keep_alive_interval(Some(H2_PING))
        .keep_alive_timeout(timeouts.client_write);
    // Saying what hyper does anyway would make it fill a list of that length for each request.
    if bounds.headers_max != HYPER_HEADERS_MAX {
        builder.http1().max_headers(bounds.headers_max);
    }
    builder
}

/// A connection that breaks when its peer brings no request after all, or takes nothing for too long: only so does a client that
/// never reads give its slot back.
#[derive(Debug)]
struct Guarded {
    stream: TcpStream,
    /// The first request is there. Until then nobody else minds the time: the version of HTTP is not known.
    has_begun: Arc<AtomicBool>,
    begin_by: Pin<Box<Sleep>>,
    write_wait_max: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Guarded {
    fn new(stream: TcpStream, timeouts: &Timeouts) -> Self {
        let begin_by = Instant::from_std(clock::monotonic()) + timeouts.client_header;
        Self {
            stream,
            has_begun: Arc::default(),
            begin_by: Box::pin(tokio::time::sleep_until(begin_by)),
            write_wait_max: timeouts.client_write,
            stalled: None,
        }
    }

    fn watch<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stalled = None;
            return result;
        }
        let until = Instant::from_std(clock::monotonic()) + self.write_wait_max;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Guarded {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_read(context, buffer);
        let waits = result.is_pending() && !this.has_begun.load(Ordering::Relaxed);
        if waits && this.begin_by.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        result
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.watch(context, result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write_vectored(context, parts);
        this.watch(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

const SWEEP: Duration = Duration::from_secs(30);
const BACKLOG_WAIT: Duration = Duration::from_millis(20);
const HYPER_HEADERS_MAX: usize = 100;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const H2_STREAMS_MAX: u32 = 256;
const H2_PING: Duration = Duration::from_secs(20);
