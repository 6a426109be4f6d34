//! The gateway over real sockets: one binary, a module per concern.

mod admin;
mod backends;
mod bodies;
mod cases_a;
mod cases_b;
mod cases_c;
mod cases_e;
mod chaos;
mod data;
mod endings;
mod engine;
mod failures;
mod first;
mod fuzzed;
mod heartbeat;
mod hostile;
mod http;
mod memory;
mod parallel;
#[path = "../../../core/tests/laws/recorder.rs"]
#[expect(dead_code, clippy::unwrap_used, reason = "a test's tool, and the core's tests use all of it")]
mod recorder;
mod reload;
mod restarts;
mod sdk;
mod streams;
mod support;
mod tls;
