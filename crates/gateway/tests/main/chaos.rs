//! Chaos on real sockets: engines that die and fail, clients that leave, limits that change each moment. Afterwards every account
//! must be right and nothing be left. All choices follow from a seed.
//!
//! `cargo xtask swarm` runs this without end, each run in a process of its own: what it leaves open can be counted.

#![cfg(test)]

mod accounts;
mod client;
mod dice;
mod fleet;
mod joined;
mod leaks;
mod plan;
mod received;
mod report;
mod run;
mod settings;
mod sums;
mod way;
mod witnessed;

use std::process::Command;

use run::Run;

#[test]
fn all_accounts_are_right_and_nothing_is_left_after_chaos_of_seed_1() {
    alone("all_accounts_are_right_and_nothing_is_left_after_chaos_of_seed_1", Run { seed: 1, requests: 300 });
}

#[test]
fn all_accounts_are_right_and_nothing_is_left_after_chaos_of_seed_2() {
    alone("all_accounts_are_right_and_nothing_is_left_after_chaos_of_seed_2", Run { seed: 2, requests: 300 });
}

#[test]
fn all_accounts_are_right_and_nothing_is_left_after_chaos_of_seed_3() {
    alone("all_accounts_are_right_and_nothing_is_left_after_chaos_of_seed_3", Run { seed: 3, requests: 300 });
}

/// Makes the run in a process of its own, or in this one if it is that process.
fn alone(test: &str, usual: Run) {
    if let Ok(asked) = std::env::var(ASKED) {
        return run::make(Run::parse(&asked).unwrap_or(usual));
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("chaos::{test}"), "--nocapture"])
        .env(ASKED, usual.to_string())
        .output()
        .unwrap();
    let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    println!("{}", told.join("\n"));
    assert!(output.status.success(), "cargo xtask swarm {usual}");
}

/// Names a run in the environment: `--seed 1 --requests 300`.
const ASKED: &str = "FAIRLANE_CHAOS";
