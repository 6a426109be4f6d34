//! The tests of the wire formats against whole bodies and whole streams.

mod counting;
mod requests;
mod streams;
