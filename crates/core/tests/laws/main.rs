//! The core's laws and cases, in virtual time with the ledger that lives in memory.
#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test they help")]

mod cases;
mod charging;
mod endings;
mod histories;
mod ledger_laws;
mod policies;
mod promises;
mod queue;
mod queue_model;
mod recorder;
mod reload;
mod runs;
mod scopes;
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
