//! The simulated engine over HTTP: every endpoint, every fault, its log, and its pace.

mod answers;
mod client;
mod faults;
mod pace;
mod streams;
