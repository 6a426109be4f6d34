//! The gateway over real sockets: one binary, a module per concern.

mod engine;
mod first;
mod support;
