//! The way to backends: clients with kept-alive connections, and what their answers mean before the first byte has passed.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::{Bytes, BytesMut};
use fairlane_core::units::Micros;
use fairlane_wire::answer::Problem;
use fairlane_wire::splice::is_control_header;
use fairlane_wire::stream::{Coding, Opening};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header, response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Error as ClientError;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use crate::config::{CredentialHeader, Edge, EdgeBackend, Timeouts};
use crate::reader::{Reader, Shape};

mod clients;

use clients::Clients;

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
    pub path: String,
    /// The client's headers that may be passed on.
    pub headers: HeaderMap,
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
    pub incoming: Incoming,
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
        backend: &EdgeBackend,
        shape: Shape,
        timeouts: &Timeouts,
    ) -> Sent {
        let started = Instant::from_std(crate::clock::monotonic());
        let first_byte_by = started + timeouts.first_byte.min(timeouts.total);
        let answer = match self.request(outgoing, backend, first_byte_by).await {
            Ok(answer) => answer,
            Err(message) => return Sent::Failed(bad_gateway(message), Fault::Answer),
        };
        let response = match answer {
            Err(_) => return Sent::Failed(LastAnswer::Problem(Problem::GatewayTimeout), Fault::Timeout),
            Ok(Err(error)) if error.is_connect() => {
                let message = "the backend cannot be reached".to_owned();
                return Sent::Failed(bad_gateway(message), Fault::Unreachable);
            }
            Ok(Err(_)) => {
                let message = "the backend closed the connection without a valid answer".to_owned();
                return Sent::Failed(bad_gateway(message), Fault::Answer);
            }
            Ok(Ok(response)) => response,
        };
        let (head, incoming) = response.into_parts();
        match head.status.as_u16() {
            429 | 503 | 529 => {
                let wait = retry_after(&head.headers);
                Sent::Busy(keep(head, incoming).await, wait)
            }
            500.. => Sent::Failed(keep(head, incoming).await, Fault::Answer),
            200..=299 => open(head, incoming, shape, first_byte_by).await,
            _ => Sent::Answer(Box::new(unread(head, incoming, shape))),
        }
    }

    /// One request, and once more where a kept-alive connection turns out to be closed: a backend may close an idle one at the
    /// very moment that it is used, which is nobody's failure.
    async fn request(
        &self,
        outgoing: &Outgoing,
        backend: &EdgeBackend,
        by: Instant,
    ) -> Result<Result<Result<Response<Incoming>, ClientError>, Elapsed>, String> {
        let client = self.clients.load().of(backend)?;
        let answer = timeout_at(by, client.request(build(outgoing, backend)?)).await;
        match &answer {
            Ok(Err(error)) if closed_unanswered(error) => {
                Ok(timeout_at(by, client.request(build(outgoing, backend)?)).await)
            }
            _ => Ok(answer),
        }
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
        let outgoing = Outgoing {
            method: Method::GET,
            path: path.to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        };
        let request = build(&outgoing, backend)?;
        let client = self.clients.load().of(backend)?;
        let answer = async {
            let response = client.request(request).await.map_err(|error| error.to_string())?;
            let status = response.status();
            Ok((status, collect(response.into_body(), DOCUMENT_BYTES_MAX).await))
        };
        timeout(wait, answer).await.map_err(|_| "no answer in time".to_owned())?
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upstream")
    }
}

/// The client's headers that a backend may see: not those of one connection, no credential, nothing that steers an engine.
#[must_use]
pub fn forwardable(headers: &HeaderMap) -> HeaderMap {
    let named_by_connection: Vec<&str> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    let mut forwarded = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let text = name.as_str();
        let is_hidden = NOT_FORWARDED.contains(&text)
            || text.starts_with("x-fairlane-")
            || text.starts_with("proxy-")
            || is_control_header(text)
            || named_by_connection.iter().any(|named| named.eq_ignore_ascii_case(text));
        if !is_hidden {
            forwarded.append(name.clone(), value.clone());
        }
    }
    forwarded
}

/// A backend's headers that a client may see; its budgets are not the client's.
pub fn strip_answer_headers(headers: &mut HeaderMap) {
    let hidden: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let text = name.as_str();
            HOP_BY_HOP.contains(&text)
                || text.starts_with("x-ratelimit-")
                || text.starts_with("anthropic-ratelimit-")
                || text.starts_with("ratelimit")
                || text.starts_with("x-fairlane-")
        })
        .cloned()
        .collect();
    for name in hidden {
        headers.remove(name);
    }
}

fn build(outgoing: &Outgoing, backend: &EdgeBackend) -> Result<Request<Full<Bytes>>, String> {
    let mut request = Request::new(Full::new(outgoing.body.clone()));
    *request.method_mut() = outgoing.method.clone();
    *request.uri_mut() = backend
        .target
        .address(&outgoing.path)
        .parse()
        .map_err(|error| format!("the backend's address cannot be used: {error}"))?;
    *request.headers_mut() = outgoing.headers.clone();
    let headers = request.headers_mut();
    // The usage-only chunk can only be left out of plain bytes.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if let Some(secret) = &backend.credential {
        let (name, text) = match backend.credential_header {
            CredentialHeader::Bearer => (header::AUTHORIZATION, format!("Bearer {}", secret.expose())),
            CredentialHeader::XApiKey => (HeaderName::from_static("x-api-key"), secret.expose().to_owned()),
        };
        let mut value = HeaderValue::from_str(&text)
            .map_err(|_| format!("the credential of backend {} cannot be sent as a header", backend.name))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(request)
}

/// Waits for a stream's first event: an overloaded engine may say so with status 200 (SGLang does).
async fn open(
    head: response::Parts,
    mut incoming: Incoming,
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

/// The connection ended before one byte of an answer.
fn closed_unanswered(error: &ClientError) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<hyper::Error>());
    !error.is_connect()
        && cause
            .is_some_and(|cause| cause.is_incomplete_message() || cause.is_canceled() || cause.is_closed())
}

/// An answer that is passed on without a look at its first event.
fn unread(head: response::Parts, incoming: Incoming, mut shape: Shape) -> Answered {
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

async fn keep(head: response::Parts, incoming: Incoming) -> LastAnswer {
    let body = timeout(KEEP_WAIT, collect(incoming, KEEP_BYTES_MAX)).await.unwrap_or_default();
    LastAnswer::Own(head.status, head.headers, body)
}

/// At most `bytes_max` of a body, as much as came.
async fn collect(mut body: Incoming, bytes_max: usize) -> Bytes {
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
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    number("retry-after-ms").map(Micros::from_millis).or_else(|| number("retry-after").map(Micros::from_secs))
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
