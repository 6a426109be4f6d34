//! The lab's tests in one binary: the engine's model, the reference traffic, and the figures both must give together.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod chaos;
mod coming_back;
mod figures;
mod order;
mod replica;
mod rows;
mod traffic;
mod world;
