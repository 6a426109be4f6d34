//! What the gateway must know and the core must not: addresses, credentials, engines, bounds on bytes and time.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use fairlane_core::units::Tokens;
use fairlane_wire::images::ImageRule;

use super::keys::KeyTable;
use super::secret::{KeyDigest, Secret};

pub use super::raw::{Engine, Mode as TokenizerMode, PriorityUse};

/// Everything of the configuration that is not a decision.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where metrics, pages and the admin API are; `None` is off.
    pub admin: Option<SocketAddr>,
    /// Digest of the admin address's bearer token; `None` asks for none.
    pub admin_token: Option<KeyDigest>,
    /// Whether the admin API runs scenarios of the lab.
    pub lab: bool,
    /// The pools, in the order of [`fairlane_core::policy::Policy::pools`].
    pub pools: Vec<EdgePool>,
    /// Who presents which key.
    pub keys: KeyTable,
    /// How often a stream that waits gets a comment; `None` is never.
    pub queue_heartbeat: Option<Duration>,
    /// Bounds on bytes and counts.
    pub bounds: Bounds,
    /// Bounds on time.
    pub timeouts: Timeouts,
    /// Where balances and the usage log are kept; `None` keeps nothing.
    pub data: Option<DataSettings>,
}

/// Where balances and the usage log are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSettings {
    /// The file.
    pub file: PathBuf,
    /// How long a record of the usage log is kept.
    pub keep: Duration,
    /// Most records of the usage log.
    pub records_max: u64,
}

/// The edge's side of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgePool {
    /// Name.
    pub name: String,
    /// What its backends run.
    pub engine: Engine,
    /// Whether its models are those that its backends list (`models: "*"`).
    pub discovers_models: bool,
    /// The backends, in the order of [`fairlane_core::policy::Pool::backends`].
    pub backends: Vec<EdgeBackend>,
    /// Other paths that are passed on.
    pub passthrough: Vec<Passthrough>,
    /// How input is counted.
    pub tokenizer: Tokenizer,
    /// What an image costs.
    pub images: Images,
    /// How backends are checked; `None` is not at all.
    pub health: Option<Health>,
    /// Whether requests tell an engine that orders by priority their class.
    pub priority: PriorityUse,
}

/// The edge's side of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeBackend {
    /// Name, as in the policy.
    pub name: String,
    /// Where it is.
    pub target: Target,
    /// Its own credential.
    pub credential: Option<Secret>,
    /// The header that carries the credential.
    pub credential_header: CredentialHeader,
    /// Authorities that may have signed its certificate, instead of the public ones.
    pub ca_file: Option<PathBuf>,
}

/// The header that carries a backend's credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialHeader {
    /// `authorization: Bearer …`, as the OpenAI dialect has it.
    Bearer,
    /// `x-api-key: …`, as the Anthropic dialect has it.
    XApiKey,
}

/// Where a backend is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Whether it speaks TLS.
    pub scheme: Scheme,
    /// Host name or address, an IPv6 address without its brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// What stands before every path: empty, or begins with `/` and does not end with one.
    pub base_path: String,
    /// Whether the name is looked up again while running, for all its addresses (`dns:`).
    pub lookup: Lookup,
}

/// How a backend is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// With TLS.
    Https,
}

/// How a backend's name becomes addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// When a connection is made (`url:`).
    OnConnect,
    /// Again and again, each address a backend of its own (`dns:`).
    Repeated,
}

/// Another path that is passed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passthrough {
    /// The path, to be met whole.
    pub path: String,
    /// What a request costs, as input.
    pub cost: Tokens,
}

/// How input is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokenizer {
    /// By which vocabulary.
    pub vocabulary: Vocabulary,
    /// When exactly.
    pub mode: TokenizerMode,
}

/// A vocabulary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vocabulary {
    /// OpenAI's from 2024 on, shipped.
    O200k,
    /// OpenAI's before, shipped.
    Cl100k,
    /// One token for each word between blanks, as the simulated engine counts: for tests and demos.
    Words,
    /// A file: tokenizer.json, tekken or sentencepiece.
    File(PathBuf),
}

/// What images and other attachments cost, whatever their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Images {
    /// How images are charged.
    pub rule: ImageRule,
    /// What another attachment costs.
    pub attachment_tokens: Tokens,
}

/// How backends are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Path that is asked; a status below 500 is alive.
    pub path: String,
    /// Time between two checks.
    pub interval: Duration,
    /// Longest wait for an answer.
    pub timeout: Duration,
    /// Failures in a row after which a backend is down.
    pub unhealthy_after: u32,
    /// Successes in a row after which it is up again.
    pub healthy_after: u32,
}

/// Bounds on bytes and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Largest request body in bytes, as sent and again after decoding.
    pub body_bytes_max: usize,
    /// Most bytes of a request's header.
    pub header_bytes_max: usize,
    /// Most fields in a request's header.
    pub headers_max: usize,
    /// Most client connections at the same time.
    pub connections_max: usize,
    /// Most bytes of an answer that are read on after its client has left.
    pub drained_answer_bytes_max: usize,
    /// Most models taken from the backends of a pool.
    pub models_max: usize,
    /// Most finished requests kept for the admin API.
    pub recent_requests_max: usize,
}

/// Bounds on time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a client to send a request's header, counted from the connection's begin or the answer before.
    pub client_header: Duration,
    /// Longest pause while a client sends a body.
    pub client_body: Duration,
    /// Longest time that a client takes nothing of its answer.
    pub client_write: Duration,
    /// Longest time that an answer is read on after its client has left.
    pub client_gone: Duration,
    /// To connect to a backend.
    pub connect: Duration,
    /// From dispatch to a backend's first byte.
    pub first_byte: Duration,
    /// Longest pause inside a backend's stream.
    pub stream_idle: Duration,
    /// From dispatch to the end of an answer.
    pub total: Duration,
    /// How long a gateway that ends goes on serving, so that a balancer notices.
    pub shutdown_notice: Duration,
    /// How long a shutdown waits for answers in flight.
    pub shutdown: Duration,
}

impl EdgeBackend {
    /// Whether it has an address: a seat of a DNS name may have none.
    #[must_use]
    pub fn is_there(&self) -> bool {
        !self.target.host.is_empty()
    }
}

impl Target {
    /// The address before a path: `https://api.example.com`, with the port where it is not the scheme's own.
    #[must_use]
    pub fn origin(&self) -> String {
        let (scheme, usual) = match self.scheme {
            Scheme::Http => ("http", 80),
            Scheme::Https => ("https", 443),
        };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == usual {
            format!("{scheme}://{host}")
        } else {
            format!("{scheme}://{host}:{}", self.port)
        }
    }

    /// The whole address of `path`, which begins with `/`.
    #[must_use]
    pub fn address(&self, path: &str) -> String {
        format!("{}{}{path}", self.origin(), self.base_path)
    }

    /// Whether it is this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self.host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

/// Name of the tenant that everybody is where no tenant is configured.
pub const OPEN_TENANT: &str = "open";
