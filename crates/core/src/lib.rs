//! Fairlane's decisions: limits in tokens, the token ledger, and the gate that a request passes.
//!
//! What this crate cannot do: read a clock, a file, a socket or an environment variable, make randomness, or use a float on a
//! decision path. Time comes in as an argument; decisions go out as plain data.
//!
//! Start reading at [`bucket`] for the arithmetic and [`policy`] for what can be configured.
#![no_std]

extern crate alloc;

pub mod bucket;
pub mod charge;
mod directory;
mod drain;
pub mod gate;
pub mod ledger;
pub mod occupancy;
pub mod policy;
pub mod predict;
pub mod promises;
pub mod refusal;
pub mod reload;
mod schedule;
pub mod scope;
pub mod snapshot;
mod subjects;
mod table;
pub mod units;

pub use subjects::Place;
