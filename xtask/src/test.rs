//! `cargo xtask test`: the one command that proves the repository, here and in CI.

use std::process::Command;

use crate::counts::Counts;
use crate::step::{self, Steps};
use crate::{tidy, tools};

/// How much of the proof to run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Every step.
    Everything,
    /// Without the documentation and feature steps.
    Fast,
}

/// Runs the steps in order and stops at the first that fails.
///
/// The last line printed is `N passed, N failed`, counted from the test runners' own closing lines.
///
/// # Errors
/// Names the step that failed and the command to repeat.
pub(crate) fn run(scope: Scope) -> Result<(), String> {
    let mut steps = Steps::default();
    let mut counts = Counts::default();
    let outcome = run_steps(scope, &mut steps, &mut counts).and_then(|()| refuse_empty(counts));
    println!("\n{}", steps.summary());
    if counts != Counts::default() {
        println!("{} passed, {} failed", counts.passed, counts.failed);
    }
    outcome
}

fn run_steps(scope: Scope, steps: &mut Steps, counts: &mut Counts) -> Result<(), String> {
    steps.run("format", || step::run(&mut step::cargo(&["fmt", "--all", "--check"])))?;
    steps.run("tidy", tidy::run)?;
    steps.run("tools", tools::install)?;
    steps.run("lints", || {
        step::run(&mut step::cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ]))
    })?;
    // The tests of the client libraries fail instead of being skipped where the step before was to install them.
    steps.run("tests", || step::run_counted(runner().env("FAIRLANE_TEST_TOOLS", "1"), counts))?;
    steps.run("doc tests", || {
        step::run_counted(&mut step::cargo(&["test", "--workspace", "--locked", "--doc"]), counts)
    })?;
    if scope == Scope::Fast {
        println!("\n(--fast: documentation and features not checked)");
        return Ok(());
    }
    steps.run("documentation", || {
        let mut documentation = step::cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
        step::run(documentation.env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    steps.run("features", || {
        let arguments =
            ["clippy", "--workspace", "--no-default-features", "--locked", "--", "-D", "warnings"];
        step::run(&mut step::cargo(&arguments))
    })
}

fn runner() -> Command {
    if step::first_line(&mut step::cargo(&["nextest", "--version"])).is_some() {
        let arguments = ["nextest", "run", "--workspace", "--locked", "--config-file", "xtask/nextest.toml"];
        return step::cargo(&arguments);
    }
    println!("cargo-nextest is not installed: tests run under cargo test");
    step::cargo(&["test", "--workspace", "--locked", "--no-fail-fast", "--lib", "--bins", "--tests"])
}

fn refuse_empty(counts: Counts) -> Result<(), String> {
    match (counts.passed, counts.failed) {
        (0, 0) => Err("no test ran: the runners' closing lines could not be read".to_owned()),
        (_, 0) => Ok(()),
        (_, failed) => Err(format!("{failed} tests failed though their runner ended well")),
    }
}
