//! The configuration: strict YAML in, a [`Policy`](fairlane_core::policy::Policy) for the core and an [`Edge`] for the rest out.
//!
//! [`Source::read`] reads files, [`Source::resolve`] checks what they say against each other. Every mistake is told with file, line,
//! column and remedy.

mod alone;
mod edge;
mod keys;
mod path;
mod places;
mod problem;
pub mod raw;
mod resolve;
mod scalars;
mod schema;
mod secret;
mod source;

pub(crate) use alone::{FileProblems, read_alone};
pub use edge::{
    Bounds, CredentialHeader, DataSettings, Edge, EdgeBackend, EdgePool, Engine, Health, Images, Lookup,
    OPEN_TENANT, Passthrough, PriorityUse, Scheme, Target, Timeouts, Tokenizer, TokenizerMode, Vocabulary,
};
pub use keys::{KeyOwner, KeyTable, Lookup as KeyLookup};
pub(crate) use path::Path as NodePath;
pub use places::Place;
pub(crate) use problem::SourceFile;
pub use problem::{ConfigError, PROBLEMS_MAX, Problem, Warning};
pub use resolve::{Config, Surroundings};
pub use scalars::{Count, Decimal, Name, Rate, Share, Size, TimeSpan, Toggle};
pub use schema::schema;
pub use secret::{Credential, KeyDigest, Secret};
pub use source::Source;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
