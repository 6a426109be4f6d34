//! Clients that mean harm, at full size: the gateway's own tests of them, one after the other, with what another tenant notices.

use std::process::Command;

use super::sockets;
use crate::repository;
use crate::step;

/// Runs every attack of the gateway's tests at the size that the cases name. Each prints the memory that the gateway held before, what
/// it added at its worst, and how much longer another tenant's requests took at the median.
///
/// # Errors
/// The tests cannot be built, or an attack was not bounded.
pub(super) fn run() -> Result<(), String> {
    let binary = sockets::build()?;
    println!(
        "another tenant's requests may take {RATIO_WANTED} times the idle addition; the machine's other load counts"
    );
    let mut attacks = Command::new(&binary);
    attacks
        .args([TESTS, "--nocapture", "--test-threads", "1"])
        .env("FAIRLANE_HOSTILE", "1")
        .current_dir(repository::root().join("crates/gateway"));
    step::run(&mut attacks)
}

/// The module of the attacks.
const TESTS: &str = "memory::";
/// The bar for the median.
const RATIO_WANTED: &str = "1.5";
