//! Chaos over real sockets: the gateway's own test of it, in a process for each seed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::repository;
use crate::step;

/// Builds the gateway's tests; where they are.
///
/// # Errors
/// They cannot be built.
pub(super) fn build() -> Result<PathBuf, String> {
    let arguments = [
        "test",
        "--package",
        "fairlane",
        "--test",
        "main",
        "--locked",
        "--no-run",
        "--message-format",
        "json",
    ];
    let output = step::cargo(&arguments)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if !output.status.success() {
        return Err(
            "the gateway's tests cannot be built: cargo test -p fairlane --no-run tells why".to_owned()
        );
    }
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    executable(&told).ok_or_else(|| "cargo does not say where the gateway's tests are".to_owned())
}

/// One run.
///
/// # Errors
/// It failed: the line that makes it again.
pub(super) fn run(binary: &Path, seed: u64, requests: u64) -> Result<(), String> {
    let wish = format!("--seed {seed} --requests {requests}");
    let status = Command::new(binary)
        .args(["--exact", TEST, "--nocapture"])
        .env("FAIRLANE_CHAOS", &wish)
        .current_dir(repository::root().join("crates/gateway"))
        .status()
        .map_err(|error| format!("cannot start {}: {error}", binary.display()))?;
    if status.success() { Ok(()) } else { Err(format!("again: cargo xtask swarm {wish}")) }
}

/// The test binary that cargo's messages name.
fn executable(messages: &str) -> Option<PathBuf> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut tests = artifacts.filter(|message| {
        message["reason"] == "compiler-artifact"
            && message["target"]["kind"][0] == "test"
            && message["executable"].is_string()
    });
    tests.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// The test that makes the run that the environment names.
const TEST: &str = "chaos::all_accounts_are_right_and_nothing_is_left_after_chaos_of_seed_1";
