//! The gateway over real sockets: one binary, a module per concern.

mod admin;
mod bodies;
mod cases_a;
mod cases_b;
mod cases_c;
mod cases_e;
mod engine;
mod failures;
mod first;
mod hostile;
mod http;
mod parallel;
mod reload;
mod sdk;
mod streams;
mod support;
mod tls;
