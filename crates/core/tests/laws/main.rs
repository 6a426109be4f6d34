//! The core's laws and cases, in virtual time with the ledger that lives in memory.
#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test they help")]

mod budget_ends;
mod cases;
mod chance;
mod charging;
mod endings;
mod estimates;
mod evicting;
mod fairness;
mod flows;
mod found_by_chaos;
mod histories;
mod holding;
mod lanes;
mod ledger_laws;
mod occupancy;
mod occupancy_model;
mod order;
mod policies;
mod predictions;
mod promises;
mod queue;
mod queue_model;
mod recorder;
mod reload;
mod runs;
mod scopes;
mod snapshot;
mod subjects;
mod world;

use proptest::test_runner::{Config, FileFailurePersistence};

/// Ten thousand histories; a failing one is kept and tried first ever after.
pub(crate) fn many() -> Config {
    Config {
        cases: 10_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/laws/regressions.txt"))),
        ..Config::default()
    }
}

/// As [`many`], but fewer: worlds that are long.
pub(crate) fn some(cases: u32) -> Config {
    Config { cases, ..many() }
}
