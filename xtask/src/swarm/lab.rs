//! Chaos in the lab's virtual time: many worlds a second, each from its seed.

use crate::step;

/// Runs so many worlds from this seed on.
///
/// # Errors
/// Worlds failed; each has told the line that makes it again.
pub(super) fn run(seed: u64, count: u64) -> Result<(), String> {
    let (seed, count) = (seed.to_string(), count.to_string());
    let arguments = [
        "run",
        "--quiet",
        "--release",
        "--locked",
        "--package",
        "fairlane-lab",
        "--example",
        "chaos",
        "--",
        &seed,
        &count,
    ];
    step::run(&mut step::cargo(&arguments))
}
