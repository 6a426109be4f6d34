//! The simulated engine over HTTP: every endpoint, every fault, its log, and its pace.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod answers;
mod client;
mod faults;
mod pace;
mod streams;
