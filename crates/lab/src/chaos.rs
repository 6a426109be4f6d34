//! Random worlds in which everything goes wrong, each a function of its seed alone.
//!
//! A seed gives a policy, traffic, and a script of faults: backends that die, stall, crawl, refuse and lie; clients that vanish,
//! storm back or wait as told; clocks that jump; limits that change. Both ledger laws are watched after every event, and at the
//! end nothing may be left: no reservation, no slot, no place in a queue.

mod plan;
mod policy;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fairlane_core::gate::Outcome;
use fairlane_core::ledger::Totals;
use fairlane_core::units::Tokens;

use crate::world::{self, Setup};

/// What a chaotic run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// Requests that clients sent first.
    pub requests: usize,
    /// Faults that happened.
    pub faults: usize,
    /// Events that were simulated.
    pub events: u64,
    /// Tries by how they ended.
    pub endings: BTreeMap<Outcome, u64>,
    /// The sums of the first ledger law.
    pub totals: Totals,
    /// Tokens charged: input and output.
    pub charged: (Tokens, Tokens),
    /// Tokens that the backends worked off: input and output.
    pub worked: (Tokens, Tokens),
}

/// Runs the world of this seed.
///
/// # Errors
/// The law that did not hold, in one line that ends with the command that replays it.
pub fn run(seed: u64) -> Result<Report, String> {
    let setup = setup(seed);
    let (requests, faults) = (setup.offers.len(), setup.faults.len());
    // A panic inside the core is a broken invariant: it must name its seed too.
    let outcome = catch_unwind(AssertUnwindSafe(|| world::run(setup)));
    let broken = match outcome {
        Ok(Ok(run)) => {
            return Ok(Report {
                seed,
                requests,
                faults,
                events: run.figures.events,
                endings: run.endings,
                totals: run.totals,
                charged: run.charged,
                worked: run.worked,
            });
        }
        Ok(Err(broken)) => broken.to_string(),
        Err(panic) => message(panic.as_ref()),
    };
    Err(format!("{}; replay it with: cargo xtask swarm --seed {seed}", broken.replace('\n', " ")))
}

/// The world of this seed, to be looked at or run otherwise.
#[must_use]
pub fn setup(seed: u64) -> Setup {
    plan::setup(seed)
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("the core panicked: {}", text.unwrap_or("without a message"))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {} requests, {} faults, {} events",
            self.seed, self.requests, self.faults, self.events
        )?;
        self.endings.iter().try_for_each(|(outcome, count)| write!(f, ", {count} {}", outcome.name()))
    }
}
