//! A client's connections to the gateway: HTTP/1, one request after the other, and HTTP/2, many at once.

#![cfg(test)]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Mutex;
use tokio::task::AbortHandle;

/// A body that may come in pieces and break off.
pub(super) type Sent = UnsyncBoxBody<Bytes, BrokenOff>;

/// The client breaks its body off.
#[derive(Clone, Copy, Debug)]
pub(super) struct BrokenOff;

/// How a client reaches the gateway.
pub(super) enum Way {
    One { address: SocketAddr, window: Window, connection: Option<One> },
    Many(Arc<Many>),
}

/// Whether the client's system takes much of an answer that the client does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Window {
    Usual,
    Small,
}

/// An HTTP/1 connection.
pub(super) struct One {
    sender: http1::SendRequest<Sent>,
    task: AbortHandle,
}

/// An HTTP/2 connection that several clients share.
pub(super) struct Many {
    address: SocketAddr,
    connection: Mutex<Option<(http2::SendRequest<Sent>, AbortHandle)>>,
}

impl Many {
    pub(super) fn new(address: SocketAddr) -> Arc<Self> {
        Arc::new(Self { address, connection: Mutex::new(None) })
    }
}

impl Way {
    /// Sends a request; none if the connection broke first.
    pub(super) async fn send(&mut self, request: Request<Sent>) -> Option<Response<Incoming>> {
        match self {
            Self::One { address, window, connection } => {
                if connection.as_ref().is_none_or(|one| one.sender.is_closed()) {
                    *connection = One::open(*address, *window).await;
                }
                let sender = &mut connection.as_mut()?.sender;
                sender.ready().await.ok()?;
                sender.send_request(request).await.ok()
            }
            Self::Many(many) => {
                let mut sender = many.sender().await?;
                sender.ready().await.ok()?;
                sender.send_request(request).await.ok()
            }
        }
    }

    /// Leaves: an HTTP/1 connection is cut. On HTTP/2 the stream has been reset when its answer was dropped.
    pub(super) fn cut(&mut self) {
        if let Self::One { connection, .. } = self
            && let Some(one) = connection.take()
        {
            one.task.abort();
        }
    }

    /// Cuts an HTTP/2 connection with all of its streams.
    pub(super) async fn cut_all(&self) {
        if let Self::Many(many) = self
            && let Some((_, task)) = many.connection.lock().await.take()
        {
            task.abort();
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        match self {
            Self::One { address, .. } => *address,
            Self::Many(many) => many.address,
        }
    }

    pub(super) const fn is_shared(&self) -> bool {
        matches!(self, Self::Many(_))
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.cut();
    }
}

impl One {
    async fn open(address: SocketAddr, window: Window) -> Option<Self> {
        let stream = connect(address, window).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        let task = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        Some(Self { sender, task })
    }
}

impl Many {
    async fn sender(&self) -> Option<http2::SendRequest<Sent>> {
        let mut connection = self.connection.lock().await;
        if let Some((sender, _)) = &*connection
            && !sender.is_closed()
        {
            return Some(sender.clone());
        }
        let stream = connect(self.address, Window::Usual).await?;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(STREAM_WINDOW_BYTES);
        let (sender, task) = builder.handshake(TokioIo::new(stream)).await.ok()?;
        let task = tokio::spawn(async move { drop(task.await) }).abort_handle();
        *connection = Some((sender.clone(), task));
        Some(sender)
    }
}

pub(super) async fn connect(address: SocketAddr, window: Window) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().ok()?;
    if window == Window::Small {
        socket.set_recv_buffer_size(SMALL_WINDOW_BYTES).ok()?;
    }
    let stream = socket.connect(address).await.ok()?;
    stream.set_nodelay(true).ok()?;
    Some(stream)
}

/// A body that comes at once.
pub(super) fn whole(bytes: &[u8]) -> Sent {
    Full::new(Bytes::copy_from_slice(bytes)).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// A body in pieces, with a pause before each but the first; it breaks off after its last piece if `ends` says so.
pub(super) fn pieces(bytes: &[u8], count: usize, pause: Duration, ends: Result<(), BrokenOff>) -> Sent {
    let size = bytes.len().div_ceil(count.max(1)).max(1);
    let pieces: Vec<Bytes> = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
    let told = stream::iter(pieces.into_iter().enumerate()).then(move |(place, piece)| async move {
        if place > 0 {
            tokio::time::sleep(pause).await;
        }
        Ok(Frame::data(piece))
    });
    let end = stream::iter(ends.err().map(Err));
    StreamBody::new(told.chain(end)).boxed_unsync()
}

impl std::fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the client breaks its body off")
    }
}

impl std::error::Error for BrokenOff {}

const SMALL_WINDOW_BYTES: u32 = 8 * 1024;
const STREAM_WINDOW_BYTES: u32 = 16 * 1024;
