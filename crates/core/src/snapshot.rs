//! What outlives the process: balances under names that stay, claimed ahead so that no crash makes one larger.
//!
//! Plain values: [`Saved`] is one cell, [`CellName`] what it is found by again. [`Claims`] decides which cells are written down
//! when; whoever drives the gate stores the rows and says when they are sure.

mod claims;
mod name;
mod restore;
mod saved;

pub use claims::{Batch, Claims, Gathered};
pub use name::{CellName, OwnerName};
pub use restore::Leftover;
pub use saved::{SLOW_FROM, Saved, claim_of};
