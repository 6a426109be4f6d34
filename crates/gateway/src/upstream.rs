//! The way to backends: clients with kept-alive connections, and what their answers mean before the first byte has passed.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::{Bytes, BytesMut};
use fairlane_core::units::Micros;
use fairlane_wire::answer::Problem;
use fairlane_wire::splice::is_control_header;
use fairlane_wire::stream::{Coding, Opening};
use http::uri::PathAndQuery;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header, response,
};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full};
use tokio::time::{Instant, timeout, timeout_at};

use crate::config::{Edge, EdgeBackend, Scheme, Timeouts};
use crate::reader::{Reader, Shape};

mod carrier;
mod clients;
mod door;
mod pool;

pub use carrier::BackendBody;
pub use door::Door;
pub use pool::Pool;

use carrier::Carrier;
use clients::{Client, Clients};

/// The clients for all backends.
pub struct Upstream {
    clients: ArcSwap<Clients>,
}

/// A request for a backend.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Method.
    pub method: Method,
    /// Path and query.
    pub path: PathAndQuery,
    /// The client's headers.
    pub headers: HeaderMap,
    /// A header that no client may send.
    pub stamped: Option<(HeaderName, HeaderValue)>,
    /// Body.
    pub body: Bytes,
}

/// What came of sending.
#[derive(Debug)]
pub enum Sent {
    /// An answer that is passed on as it comes.
    Answer(Box<Answered>),
    /// The backend is too busy and has not begun.
    Busy(LastAnswer, Option<Micros>),
    /// The backend failed before its first byte.
    Failed(LastAnswer, Fault),
}

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no connection to it.
    Unreachable,
    /// It answered with an error, or not at all.
    Answer,
    /// It took too long.
    Timeout,
}

/// The head of an answer and the frames that came with it.
#[derive(Debug)]
pub struct Answered {
    /// Status and headers.
    pub head: response::Parts,
    /// The rest of the body.
    pub incoming: BackendBody,
    /// Frames of the body that were taken already, as they are to be forwarded.
    pub taken: VecDeque<Frame<Bytes>>,
    /// Has read the frames taken.
    pub reader: Reader,
    /// The first content was among them.
    pub had_content: bool,
}

/// A backend's answer that another try may mend; kept to be passed on if none does.
#[derive(Clone, Debug)]
pub enum LastAnswer {
    /// Its own words.
    Own(StatusCode, HeaderMap, Bytes),
    /// Ours, where it had none.
    Problem(Problem),
}

impl Upstream {
    /// Clients for the backends of this configuration.
    ///
    /// # Errors
    /// A `ca_file` cannot be read.
    pub fn new(edge: &Edge) -> Result<Self, String> {
        Ok(Self { clients: ArcSwap::from_pointee(Clients::new(edge, None)?) })
    }

    /// What another configuration needs; clients that stay the same keep their connections.
    ///
    /// # Errors
    /// A `ca_file` cannot be read.
    pub fn prepare(&self, edge: &Edge) -> Result<Clients, String> {
        Clients::new(edge, Some(&self.clients.load()))
    }

    /// Takes on what was prepared.
    pub fn take_on(&self, clients: Clients) {
        self.clients.store(clients.into());
    }

    /// Sends a request and waits until it is known what its answer means: for a stream, until its first event.
    pub async fn send(
        &self,
        outgoing: &Outgoing,
        (backend, door): (&EdgeBackend, &Door),
        pool: &Arc<Pool>,
        shape: Shape,
        timeouts: &Timeouts,
    ) -> Sent {
        let started = Instant::from_std(crate::clock::monotonic());
        let first_byte_by = started + timeouts.first_byte.min(timeouts.total);
        let way = match self.way(backend, door, pool, timeouts) {
            Ok(way) => way,
            Err(message) => return Sent::Failed(bad_gateway(message), Fault::Answer),
        };
        let path = match door::path_of(backend, &outgoing.path) {
            Ok(path) => path,
            Err(message) => return Sent::Failed(bad_gateway(message), Fault::Answer),
        };
        let is_sent = AtomicBool::new(false);
        let begin = || {
            is_sent.store(true, Ordering::Relaxed);
            build(outgoing, &path, door)
        };
        let answer = match timeout_at(first_byte_by, way.request(begin)).await {
            Err(_) => {
                let is_sent = is_sent.load(Ordering::Relaxed);
                let fault = if is_sent { Fault::Timeout } else { Fault::Unreachable };
                return Sent::Failed(LastAnswer::Problem(Problem::GatewayTimeout), fault);
            }
            Ok(Err(Unanswered::Unreachable)) => {
                let message = "the backend cannot be reached".to_owned();
                return Sent::Failed(bad_gateway(message), Fault::Unreachable);
            }
            Ok(Err(Unanswered::Closed | Unanswered::Invalid)) => {
                let message = "the backend closed the connection without a valid answer".to_owned();
                return Sent::Failed(bad_gateway(message), Fault::Answer);
            }
            Ok(Ok(answer)) => answer,
        };
        let (head, incoming) = answer.into_parts();
        match head.status.as_u16() {
            429 | 503 | 529 => {
                let wait = retry_after(&head.headers);
                Sent::Busy(Box::pin(keep(head, incoming)).await, wait)
            }
            500.. => Sent::Failed(Box::pin(keep(head, incoming)).await, Fault::Answer),
            200..=299 => open(head, incoming, shape, first_byte_by).await,
            _ => Sent::Answer(Box::new(unread(head, incoming, shape))),
        }
    }

    fn way<'a>(
        &self,
        backend: &'a EdgeBackend,
        door: &'a Door,
        pool: &'a Arc<Pool>,
        timeouts: &Timeouts,
    ) -> Result<Way<'a>, String> {
        Ok(match door.scheme {
            Scheme::Http => Way::Plain { backend, door, pool, connect: timeouts.connect },
            Scheme::Https => Way::Secure(Box::new(self.clients.load().of(backend)?), door),
        })
    }

    /// Asks a backend for a small JSON or text document.
    ///
    /// # Errors
    /// What went wrong.
    pub async fn fetch(
        &self,
        backend: &EdgeBackend,
        path: &str,
        wait: Duration,
    ) -> Result<(StatusCode, Bytes), String> {
        let door = Door::new(backend)?;
        let path = PathAndQuery::try_from(path).map_err(|error| error.to_string())?;
        let path = door::path_of(backend, &path)?;
        let outgoing = Outgoing {
            method: Method::GET,
            path: path.clone(),
            headers: HeaderMap::new(),
            stamped: None,
            body: Bytes::new(),
        };
        let request = build(&outgoing, &path, &door);
        let client = self.clients.load().of(backend)?;
        let answer = async {
            let response =
                client.request(absolute(request, &door)).await.map_err(|error| error.to_string())?;
            let status = response.status();
            let body = BackendBody::driven_elsewhere(response.into_body());
            Ok((status, collect(body, DOCUMENT_BYTES_MAX).await))
        };
        timeout(wait, answer).await.map_err(|_| "no answer in time".to_owned())?
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upstream")
    }
}

/// How a request gets to a backend.
enum Way<'a> {
    /// In the clear, on a connection of the worker's own.
    Plain { backend: &'a EdgeBackend, door: &'a Door, pool: &'a Arc<Pool>, connect: Duration },
    /// With TLS, over HTTP/1 or HTTP/2 as the two agree.
    Secure(Box<Client>, &'a Door),
}

/// Why there is no answer.
enum Unanswered {
    /// There is no connection.
    Unreachable,
    /// It was closed before one byte of an answer.
    Closed,
    /// What came is no answer.
    Invalid,
}

impl Way<'_> {
    /// One request, and once more where a kept-alive connection turns out to be closed: a backend may close an idle one at the
    /// very moment that it is used, which is nobody's failure.
    async fn request(
        &self,
        build: impl Fn() -> Request<Full<Bytes>>,
    ) -> Result<Response<BackendBody>, Unanswered> {
        match self {
            Self::Secure(client, door) => {
                let once = || client.request(absolute(build(), door));
                let answer = match once().await.map_err(unanswered) {
                    Err(Unanswered::Closed) => once().await.map_err(unanswered),
                    answer => answer,
                };
                answer.map(|response| response.map(BackendBody::driven_elsewhere))
            }
            Self::Plain { backend, door, pool, connect } => {
                if let Some(carrier) = pool.take(&door.key) {
                    match carry(carrier, door, pool, build()).await {
                        Err(Unanswered::Closed) => {}
                        answer => return answer,
                    }
                }
                let target = &backend.target;
                // Rare, and larger than all the rest of a request's state.
                let carrier = Box::pin(Carrier::connect(&target.host, target.port, *connect)).await;
                carry(carrier.map_err(|_| Unanswered::Unreachable)?, door, pool, build()).await
            }
        }
    }
}

async fn carry(
    mut carrier: Carrier,
    door: &Door,
    pool: &Arc<Pool>,
    request: Request<Full<Bytes>>,
) -> Result<Response<BackendBody>, Unanswered> {
    let answer = carrier.send(request).await.map_err(|error| unanswered_by(&error))?;
    Ok(answer
        .map(|incoming| BackendBody::carried(incoming, carrier, Arc::clone(&door.key), Arc::clone(pool))))
}

fn unanswered(error: hyper_util::client::legacy::Error) -> Unanswered {
    if error.is_connect() {
        return Unanswered::Unreachable;
    }
    let cause = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<hyper::Error>());
    cause.map_or(Unanswered::Invalid, unanswered_by)
}

fn unanswered_by(error: &hyper::Error) -> Unanswered {
    let is_closed = error.is_incomplete_message() || error.is_canceled() || error.is_closed();
    if is_closed { Unanswered::Closed } else { Unanswered::Invalid }
}

/// Whether a client's header stays here: those of one connection, credentials, and what steers an engine.
fn is_hidden(name: &HeaderName) -> bool {
    let text = name.as_str();
    NOT_FORWARDED.contains(&text)
        || text.starts_with("x-fairlane-")
        || text.starts_with("proxy-")
        || is_control_header(text)
}

/// The headers that the client's `connection` header says are for this connection alone.
fn named_by_connection(headers: &HeaderMap) -> Vec<&str> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect()
}

/// The gateway's own headers with those of a backend that a client may see; a backend's budgets are not the client's.
#[must_use]
pub fn answer_headers(backends: HeaderMap, own: HeaderMap) -> HeaderMap {
    let mut headers = own;
    let mut shown = None;
    for (name, value) in backends {
        // A further value of the same name comes without it.
        if let Some(name) = name {
            shown = (!is_for_gateway(&name)).then_some(name);
        }
        if let Some(name) = &shown {
            headers.append(name.clone(), value);
        }
    }
    headers
}

/// Whether a backend's header is meant for whoever is connected to it.
fn is_for_gateway(name: &HeaderName) -> bool {
    let text = name.as_str();
    HOP_BY_HOP.contains(&text)
        || text.starts_with("x-ratelimit-")
        || text.starts_with("anthropic-ratelimit-")
        || text.starts_with("ratelimit")
        || text.starts_with("x-fairlane-")
}

/// The client's request as a backend may see it, with the backend's own address and credential.
fn build(outgoing: &Outgoing, path: &PathAndQuery, door: &Door) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(outgoing.body.clone()));
    *request.method_mut() = outgoing.method.clone();
    *request.uri_mut() = Uri::from(path.clone());
    let headers = request.headers_mut();
    headers.reserve(outgoing.headers.len() + 4);
    headers.insert(header::HOST, door.host.clone());
    // The usage-only chunk can only be left out of plain bytes.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let for_this_connection = named_by_connection(&outgoing.headers);
    for (name, value) in &outgoing.headers {
        if !is_hidden(name)
            && !for_this_connection.iter().any(|named| named.eq_ignore_ascii_case(name.as_str()))
        {
            headers.append(name.clone(), value.clone());
        }
    }
    if let Some((name, value)) = outgoing.stamped.as_ref() {
        headers.insert(name.clone(), value.clone());
    }
    if let Some((name, value)) = &door.credential {
        headers.insert(name.clone(), value.clone());
    }
    request
}

/// The same request with its whole address, as the pooled client wants it.
fn absolute(mut request: Request<Full<Bytes>>, door: &Door) -> Request<Full<Bytes>> {
    let mut parts = request.uri().clone().into_parts();
    parts.scheme = Some(match door.scheme {
        Scheme::Http => http::uri::Scheme::HTTP,
        Scheme::Https => http::uri::Scheme::HTTPS,
    });
    parts.authority = door.host.to_str().ok().and_then(|host| host.parse().ok());
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
    }
    // Over HTTP/2 the address says it.
    request.headers_mut().remove(header::HOST);
    request
}

/// Waits for a stream's first event: an overloaded engine may say so with status 200 (SGLang does).
async fn open(
    head: response::Parts,
    mut incoming: BackendBody,
    mut shape: Shape,
    first_byte_by: Instant,
) -> Sent {
    describe(&head.headers, &mut shape);
    let mut reader = Reader::new(&shape);
    let mut taken = VecDeque::new();
    let mut had_content = false;
    let mut commit_by = first_byte_by;
    loop {
        if !shape.is_stream {
            break;
        }
        match reader.opening() {
            Opening::Nothing => {}
            Opening::Comment => {
                // The client must see a comment soon, and an error may yet follow it: a second is the compromise.
                let soon = Instant::from_std(crate::clock::monotonic()) + COMMENT_HOLD;
                commit_by = if commit_by == first_byte_by { soon.min(first_byte_by) } else { commit_by };
            }
            Opening::Error => return opened_with_error(&reader),
            Opening::Content | Opening::Other => break,
        }
        let Ok(frame) = timeout_at(commit_by, incoming.frame()).await else {
            if reader.opening() == Opening::Comment {
                break;
            }
            return Sent::Failed(LastAnswer::Problem(Problem::GatewayTimeout), Fault::Timeout);
        };
        match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    let fed = reader.feed(&data);
                    had_content |= fed.first_content;
                    taken.push_back(Frame::data(crate::relay::forwarded(data, fed.forward)));
                }
                Err(other) => taken.push_back(other),
            },
            Some(Err(_)) => {
                let message = "the backend's connection broke before its first event".to_owned();
                return Sent::Failed(bad_gateway(message), Fault::Answer);
            }
            None if reader.opening() == Opening::Nothing => {
                let message = "the backend ended its stream before its first event".to_owned();
                return Sent::Failed(bad_gateway(message), Fault::Answer);
            }
            None => break,
        }
    }
    Sent::Answer(Box::new(Answered { head, incoming, taken, reader, had_content }))
}

fn opened_with_error(reader: &Reader) -> Sent {
    let Some(error) = reader.error() else {
        return Sent::Failed(bad_gateway("the backend began with an error".to_owned()), Fault::Answer);
    };
    let status = error.http_status().unwrap_or(502);
    let answer = LastAnswer::Problem(Problem::BackendError { status, message: error.message.clone() });
    match status {
        429 | 503 | 529 => Sent::Busy(answer, None),
        _ => Sent::Failed(answer, Fault::Answer),
    }
}

/// An answer that is passed on without a look at its first event.
fn unread(head: response::Parts, incoming: BackendBody, mut shape: Shape) -> Answered {
    describe(&head.headers, &mut shape);
    shape.is_stream = false;
    let reader = Reader::new(&shape);
    Answered { head, incoming, taken: VecDeque::new(), reader, had_content: false }
}

fn describe(headers: &HeaderMap, shape: &mut Shape) {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    shape.is_stream =
        text(header::CONTENT_TYPE).is_some_and(|kind| kind.trim_start().starts_with(EVENT_STREAM));
    shape.coding = text(header::CONTENT_ENCODING).and_then(Coding::from_header);
    shape.length_bytes = text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
}

async fn keep(head: response::Parts, incoming: BackendBody) -> LastAnswer {
    let body = timeout(KEEP_WAIT, collect(incoming, KEEP_BYTES_MAX)).await.unwrap_or_default();
    LastAnswer::Own(head.status, head.headers, body)
}

/// At most `bytes_max` of a body, as much as came.
async fn collect(mut body: BackendBody, bytes_max: usize) -> Bytes {
    let mut bytes = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(data) = frame.data_ref() {
            let room = bytes_max.saturating_sub(bytes.len());
            bytes.extend_from_slice(&data[..data.len().min(room)]);
            if room <= data.len() {
                break;
            }
        }
    }
    bytes.freeze()
}

fn bad_gateway(message: String) -> LastAnswer {
    LastAnswer::Problem(Problem::BadGateway { message })
}

/// The pause that a backend asks for, in its two usual spellings.
fn retry_after(headers: &HeaderMap) -> Option<Micros> {
    let number = |name: &str| {
        let number: f64 = headers.get(name)?.to_str().ok()?.trim().parse().ok()?;
        (number.is_finite() && number >= 0.0).then_some(number)
    };
    let micros = number("retry-after-ms").map(|millis| millis * 1e3);
    micros.or_else(|| number("retry-after").map(|secs| secs * 1e6)).map(|micros| Micros(micros.ceil() as u64))
}

const KEEP_WAIT: Duration = Duration::from_secs(5);
const KEEP_BYTES_MAX: usize = 256 * 1024;
const DOCUMENT_BYTES_MAX: usize = 4 * 1024 * 1024;
const COMMENT_HOLD: Duration = Duration::from_secs(1);
const EVENT_STREAM: &str = "text/event-stream";
/// Headers that belong to one connection (RFC 9110, section 7.6.1), and those that hyper sets itself.
const HOP_BY_HOP: [&str; 7] =
    ["connection", "keep-alive", "proxy-authenticate", "te", "trailer", "transfer-encoding", "upgrade"];
const NOT_FORWARDED: [&str; 17] = [
    "accept-encoding",
    "api-key",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "openai-organization",
    "openai-project",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-api-key",
];
