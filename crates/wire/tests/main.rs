//! The tests of the wire formats against whole bodies and whole streams.

mod counting;
mod fuzzed;
mod requests;
mod streams;
