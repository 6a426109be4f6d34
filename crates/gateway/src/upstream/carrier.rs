//! One kept-alive HTTP/1 connection to a backend, driven by the request that it carries: it has no task of its own, so that a
//! chunk takes no detour through a channel's waker, and a client that leaves takes the connection with it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::pool::{Key, Pool};

/// A connection with nothing or one request on it.
pub(super) struct Carrier {
    sender: SendRequest<Full<Bytes>>,
    connection: Box<Connection<TokioIo<TcpStream>, Full<Bytes>>>,
    ended: bool,
}

/// The body of a backend's answer, with the connection that brings it.
pub struct BackendBody {
    incoming: Incoming,
    carrier: Option<(Carrier, Key, Arc<Pool>)>,
}

impl Carrier {
    /// A fresh connection.
    ///
    /// # Errors
    /// There is none to be had within the time.
    pub(super) async fn connect(host: &str, port: u16, wait: Duration) -> Result<Self, ConnectError> {
        let stream = tokio::time::timeout(wait, TcpStream::connect((host, port)))
            .await
            .map_err(|_| ConnectError)?
            .map_err(|_| ConnectError)?;
        let _ = stream.set_nodelay(true);
        let mut builder = Builder::new();
        builder.max_buf_size(BUFFER_BYTES_MAX);
        let handshake = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|_| ConnectError)?;
        Ok(Self { sender, connection: Box::new(connection), ended: false })
    }

    /// Whether the backend has left it open, and it can carry a request.
    pub(super) fn is_usable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        !self.ended && self.sender.is_ready()
    }

    /// Carries a request until its answer begins.
    ///
    /// # Errors
    /// The connection broke, or what came is no answer.
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        let mut answer = std::pin::pin!(self.sender.send_request(request));
        let (connection, ended) = (&mut self.connection, &mut self.ended);
        std::future::poll_fn(|context| {
            drive(connection, ended, context);
            // Nothing but the connection, polled just above, can bring it: its own waker would only wake this task twice.
            answer.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        })
        .await
    }

    fn drive(&mut self, context: &mut Context<'_>) {
        drive(&mut self.connection, &mut self.ended, context);
    }
}

fn drive(
    connection: &mut Connection<TokioIo<TcpStream>, Full<Bytes>>,
    ended: &mut bool,
    context: &mut Context<'_>,
) {
    // An error reaches whoever waits for the answer or its body.
    *ended = *ended || Pin::new(connection).poll(context).is_ready();
}

impl BackendBody {
    /// A body whose connection has a task of its own.
    pub(super) const fn driven_elsewhere(incoming: Incoming) -> Self {
        Self { incoming, carrier: None }
    }

    /// A body that its reader drives. The connection goes back to the pool as soon as the last byte is there.
    pub(super) fn carried(incoming: Incoming, carrier: Carrier, key: Key, pool: Arc<Pool>) -> Self {
        let mut body = Self { incoming, carrier: Some((carrier, key, pool)) };
        if body.incoming.is_end_stream() {
            body.release();
        } else {
            body.prepare();
        }
        body
    }

    /// Lets the connection forget whom to wake when its body is wanted: the body's first reader, who drives it at once anyway.
    fn prepare(&mut self) {
        if let Some((carrier, ..)) = &mut self.carrier {
            carrier.drive(&mut Context::from_waker(Waker::noop()));
        }
    }

    fn release(&mut self) {
        if let Some((mut carrier, key, pool)) = self.carrier.take()
            && carrier.is_usable()
        {
            pool.put(key, carrier);
        }
    }

    fn poll_carried(&mut self, context: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        // As above: only the connection adds to the body.
        let mut unwoken = Context::from_waker(Waker::noop());
        let first = Pin::new(&mut self.incoming).poll_frame(&mut unwoken);
        match (first, &mut self.carrier) {
            (Poll::Pending, Some((carrier, ..))) => {
                carrier.drive(context);
                Pin::new(&mut self.incoming).poll_frame(&mut unwoken)
            }
            (frame, _) => frame,
        }
    }
}

impl Body for BackendBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if this.carrier.is_none() {
            return Pin::new(&mut this.incoming).poll_frame(context);
        }
        let frame = std::task::ready!(this.poll_carried(context));
        if frame.is_none() || this.is_end_stream() {
            this.release();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl fmt::Debug for BackendBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendBody").field("incoming", &self.incoming).finish_non_exhaustive()
    }
}

/// What is read ahead for a client that takes it slowly; a backend's header may be as long.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// No connection could be made.
#[derive(Debug)]
pub(super) struct ConnectError;
