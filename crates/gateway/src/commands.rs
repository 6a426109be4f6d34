//! The commands of the command line, one file each.

pub mod check;
pub mod explain;
pub mod keys;
pub mod serve;
