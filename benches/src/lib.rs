//! What the programs of the bench share. They measure Fairlane and are no part of it: they read clocks and open sockets.

pub mod answers;
pub mod arguments;
pub mod clock;
pub mod message;
#[cfg(any(feature = "hot", feature = "deciders"))]
pub mod policies;
pub mod requests;
#[cfg(any(feature = "hot", feature = "deciders"))]
pub mod world;
