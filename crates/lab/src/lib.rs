//! Fairlane's simulated world: traffic and engines in virtual time, with the same numbers on every machine.
//!
//! What this crate cannot do: read a clock, touch a file or a socket, or take randomness from anywhere but a seed. Time is an
//! argument, floats come from the four basic operations alone, and every logarithm is [`natural_logarithm`].
//!
//! Start reading at [`Replica`] for the engine's model and [`mod@reference`] for the traffic.

mod logarithm;
pub mod reference;
mod replica;
mod shape;
mod splitmix;
mod traffic;

pub use logarithm::natural_logarithm;
pub use replica::{Cancelled, Counters, Emission, Job, NeverFits, Replica, SequenceId};
pub use shape::Shape;
pub use splitmix::Stream;
pub use traffic::{Arrival, Class, Pattern, Size, Source, Tenant, Traffic};
