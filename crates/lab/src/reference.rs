//! The reference scenario's traffic: four chat apps, a batch tenant, and a runaway agent on a switch.

use fairlane_core::units::{Micros, Moment, Tokens};

use crate::traffic::{Class, Pattern, Size, Tenant, Traffic};

/// Replicas that serve the reference traffic.
pub const REPLICAS: usize = 4;
/// The length of a run; arrivals stop here, the work in flight drains after it.
pub const LENGTH: Micros = Micros(120_000_000);
/// The index of the batch tenant.
pub const BATCH: usize = 4;
/// The index of the agent.
pub const AGENT: usize = 5;
/// Chat requests a second and tenant, outside a burst.
pub const CHAT_RATE: f64 = 1.5;
/// How much faster chat comes in a burst.
pub const BURST_FACTOR: f64 = 2.5;
/// When the burst of a run starts.
pub const BURST_START: Moment = Moment(45_000_000);
/// When the burst of a run ends.
pub const BURST_END: Moment = Moment(75_000_000);
/// Agent requests a second.
pub const AGENT_RATE: f64 = 2.0;

const CHAT_NAMES: [&str; 4] = ["chat-a", "chat-b", "chat-c", "chat-d"];
const MAX_TOKENS: Tokens = Tokens(1_024);

/// How much the batch tenant asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batch {
    /// 15 requests every 4 seconds.
    #[default]
    Normal,
    /// 50 requests every 4 seconds.
    Heavy,
}

/// The switches of the scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// How much the batch tenant asks.
    pub batch: Batch,
    /// Whether the runaway agent runs.
    pub agent: bool,
    /// Whether chat bursts in the middle of the run.
    pub burst: bool,
}

/// The tenants in the order of their indices: chat-a to chat-d, batch, agent (absent when switched off).
#[must_use]
pub fn tenants(switches: Switches) -> Vec<Tenant> {
    let mut tenants: Vec<Tenant> = CHAT_NAMES.iter().map(|name| chat(name, switches.burst)).collect();
    tenants.push(batch(switches.batch));
    if switches.agent {
        tenants.push(agent());
    }
    tenants
}

/// The arrivals of one run.
#[must_use]
pub fn traffic(switches: Switches, seed: u64) -> Traffic {
    Traffic::seeded(tenants(switches), seed, Moment(LENGTH.0))
}

fn chat(name: &'static str, burst: bool) -> Tenant {
    let changes = vec![(BURST_START, CHAT_RATE * BURST_FACTOR), (BURST_END, CHAT_RATE)];
    Tenant {
        name,
        class: Class::Interactive,
        rate: CHAT_RATE,
        rate_changes: if burst { changes } else { Vec::new() },
        pattern: Pattern::Poisson,
        prompt: Size::Spread { mean: 900.0, low: 0.8, high: 1.2 },
        output: Size::Spread { mean: 250.0, low: 0.6, high: 1.4 },
        max_tokens: MAX_TOKENS,
    }
}

fn batch(batch: Batch) -> Tenant {
    let (rate, block) = match batch {
        Batch::Normal => (3.75, 15),
        Batch::Heavy => (12.5, 50),
    };
    Tenant {
        name: "batch",
        class: Class::Batch,
        rate,
        rate_changes: Vec::new(),
        pattern: Pattern::Even { block },
        prompt: Size::Spread { mean: 4_000.0, low: 0.9, high: 1.1 },
        output: Size::Spread { mean: 600.0, low: 0.8, high: 1.2 },
        max_tokens: MAX_TOKENS,
    }
}

/// Its context grows by three quarters of its last size in a run, as an agent's does that never trims.
fn agent() -> Tenant {
    Tenant {
        name: "agent",
        class: Class::Background,
        rate: AGENT_RATE,
        rate_changes: Vec::new(),
        pattern: Pattern::Even { block: 1 },
        prompt: Size::Growing { from: 6_000.0, by: 18_000.0, over: LENGTH },
        output: Size::Spread { mean: 1_000.0, low: 0.98, high: 1.02 },
        max_tokens: MAX_TOKENS,
    }
}
