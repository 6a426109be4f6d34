//! The gateway's tests in one binary: real sockets on the loopback address, free ports, no sleep.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod engine;
