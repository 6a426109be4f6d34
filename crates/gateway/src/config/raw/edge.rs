//! Bounds on bytes, counts and time.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::scalars::{Count, Size, TimeSpan};

/// Bounds on bytes and counts.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Bounds {
    /// Largest request body, as sent and again after decoding. Default: `16MiB`. Bound: 1KiB to 1GiB.
    pub max_body: Option<Size>,
    /// Most bytes of a request's header. Default: `64KiB`. Bound: 8KiB to 1MiB.
    pub max_header_bytes: Option<Size>,
    /// Most fields in a request's header. Default: 100. Bound: 10 to 1,000.
    pub max_headers: Option<Count>,
    /// Most client connections at the same time. Default: 10,000. Bound: 1 to 1,000,000.
    pub max_connections: Option<Count>,
    /// Most end users whose balances are kept at the same time; beyond it newcomers of a tenant share one set of limits. Default: 100,000. Bound: 1 to 10,000,000.
    pub max_end_users: Option<Count>,
    /// Most bytes of an answer that are read on after its client has left, under `on_client_gone: drain`; then the backend is told to stop. Default: `16MiB`. Bound: 1KiB to 1GiB.
    pub max_drained_answer: Option<Size>,
    /// Most models taken from the backends of a pool with `models: "*"`. Default: 1,000. Bound: 1 to 100,000.
    pub max_models: Option<Count>,
    /// Most finished requests kept for the admin API. Default: 1,000. Bound: 0 to 100,000.
    pub max_recent_requests: Option<Count>,
}

/// Bounds on time.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// Longest time until a client's request header is there, counted from the begin of its connection or from the answer before: it ends idle connections too. Default: `60s`. Bound: 100ms to 1h.
    pub client_header: Option<TimeSpan>,
    /// Longest pause while a client sends a request's body. Default: `30s`. Bound: 100ms to 1h.
    pub client_body: Option<TimeSpan>,
    /// Longest time that a client takes nothing of its answer. Default: `30s`. Bound: 100ms to 1h.
    pub client_write: Option<TimeSpan>,
    /// Longest time that an answer is read on after its client has left, under `on_client_gone: drain`; then the backend is told to stop. Default: `5m`. Bound: 100ms to 24h.
    pub client_gone: Option<TimeSpan>,
    /// Longest time to connect to a backend. Default: `5s`. Bound: 10ms to 10m.
    pub connect: Option<TimeSpan>,
    /// Longest time from dispatch to a backend's first byte; an answer that does not stream has it at its end. Default: `10m`. Bound: 100ms to 24h.
    pub first_byte: Option<TimeSpan>,
    /// Longest pause inside a backend's stream. Default: `2m`. Bound: 100ms to 24h.
    pub stream_idle: Option<TimeSpan>,
    /// Longest time from dispatch to the end of an answer. Default: `1h`. Bound: 1s to 7d.
    pub total: Option<TimeSpan>,
    /// How long a gateway that was told to end goes on serving while `/readyz` says so, so that a balancer notices; then what waits or comes is refused. Default: `0s`. Bound: 0 to 10m.
    pub shutdown_notice: Option<TimeSpan>,
    /// Longest time that a shutdown waits for answers in flight; then they are cut and settled. Default: `60s`. Bound: 0 to 24h.
    pub shutdown: Option<TimeSpan>,
}

/// How much of the usage log is kept. What is older or more goes; the file keeps its size and uses the room again.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Usage {
    /// How long a record is kept. Default: `30d`. Bound: 1m to 366d.
    pub keep: Option<TimeSpan>,
    /// Most records kept; a million take about half a gigabyte. Default: 1,000,000. Bound: 0 to 100,000,000.
    pub records: Option<Count>,
}
