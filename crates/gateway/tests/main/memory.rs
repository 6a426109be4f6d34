//! Clients that mean harm, and the memory that the gateway holds meanwhile: measured on a process of its own, from outside.
//!
//! `cargo xtask swarm hostile` runs the same at full size, and shows what another tenant notices of it.

#![cfg(test)]

mod bombs;
mod crowds;
mod engine;
mod neighbour;
mod process;
mod scene;
mod slow;

/// How hard to attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    /// As part of the tests.
    Usual,
    /// As the cases say.
    Full,
}

impl Scale {
    /// What the environment asks for.
    fn asked() -> Self {
        if std::env::var_os(ASKED).is_some() { Self::Full } else { Self::Usual }
    }

    /// One number or the other.
    fn pick(self, usual: usize, full: usize) -> usize {
        match self {
            Self::Usual => usual,
            Self::Full => full,
        }
    }
}

/// Asks for the full size.
const ASKED: &str = "FAIRLANE_HOSTILE";

/// What one attack may add to the memory of the gateway: case D01's figure.
const GROWTH_KIB_MAX: u64 = 8 * 1024;
