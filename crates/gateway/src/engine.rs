//! The simulated inference engine: the lab's step-time model in real time behind the HTTP surface of a real engine.
//!
//! It answers the OpenAI and Anthropic dialects, shows vLLM's metric names, honours `priority`, and fails on request, so that
//! the gateway, client libraries and operators can be tried without a GPU. Text and lengths follow from the seed and the
//! request alone.
//!
//! Start reading at `routes` for what it serves and at `driver` for how model time meets real time.

mod chat;
mod completions;
mod driver;
mod embeddings;
mod fault;
mod generation;
mod headers;
mod histogram;
mod log;
mod messages;
mod metrics;
mod models;
mod options;
mod plan;
mod prefix;
mod problem;
mod reply;
mod request;
mod responses;
mod routes;
mod script;
mod server;
mod telling;
mod words;

pub use fault::{BadFault, Fault};
pub use log::Record;
pub use options::{EngineArgs, EngineOptions, Pace};
pub use server::{Running, run, spawn};
