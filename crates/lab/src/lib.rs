//! Fairlane's simulated world: traffic and engines in virtual time, with the same numbers on every machine.
//!
//! What this crate cannot do: read a clock, touch a file or a socket, or take randomness from anywhere but a seed. Time is an
//! argument, floats come from the four basic operations alone, and every logarithm is [`natural_logarithm`].
//!
//! Start reading at [`mod@world`] for the run of a simulated world, at [`Replica`] for the engine's model and at
//! [`mod@reference`] for the traffic.

pub mod chaos;
pub mod chart;
mod logarithm;
mod recorder;
pub mod reference;
mod replica;
mod scenario;
mod shape;
mod splitmix;
mod summary;
mod traffic;
pub mod world;

pub use logarithm::{exponential_function, natural_logarithm};
pub use replica::{Cancelled, Counters, Emission, Job, NeverFits, Replica, SequenceId};
pub use scenario::{Clients, Scenario};
pub use shape::Shape;
pub use splitmix::Stream;
pub use summary::{ClassSummary, Spread, Summary, TenantSummary};
pub use traffic::{Arrival, Class, Pattern, Size, Source, Tenant, Traffic};
