//! The real client libraries of OpenAI and Anthropic, unmodified, against the gateway and straight against the engine.
//!
//! `cargo xtask test` installs the libraries and sets `FAIRLANE_TEST_TOOLS`: then a missing library fails these tests. Without that
//! variable, under a plain `cargo test`, a test whose library is missing says on standard error that it was skipped, and why.

mod answers;
pub(crate) mod clients;
mod endings;
mod overload;
mod setting;
