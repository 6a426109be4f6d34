//! The commands of the command line, one file each.

pub mod check;
pub mod data;
pub mod explain;
pub mod keys;
pub mod serve;
pub mod sim;
pub mod usage;
