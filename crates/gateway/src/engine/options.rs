//! What an engine is started with: command-line flags, and the settings they become.

use std::net::{Ipv4Addr, SocketAddr};

use clap::Args;
use fairlane_core::units::Tokens;
use fairlane_lab::Shape;

use super::fault::Fault;

/// Flags of `fairlane engine`.
#[derive(Args, Clone, Debug)]
pub struct EngineArgs {
    /// Address of the first replica; the others listen on the ports after it. Port 0: any free port for each.
    #[arg(long, default_value = "127.0.0.1:18000")]
    pub listen: SocketAddr,
    /// Replicas to run, each with its own address.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub replicas: u16,
    /// Seed of texts and natural output lengths.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Model to serve; repeat for several.
    #[arg(long, default_value = "sim")]
    pub model: Vec<String>,
    /// Prompt and output tokens of one sequence, at most.
    #[arg(long, default_value_t = 131_072)]
    pub max_model_len: u64,
    /// Fault of every request: 500, 503, 429:SECONDS, stall or stall:MS, slow-start:MS, cut:N, error-event:N, no-usage,
    /// usage-over:N, refuse, html-503, empty or none. The request header x-sim-fault overrides it.
    #[arg(long, default_value = "none")]
    pub fault: Fault,
    /// How many times faster than real time the model runs.
    #[arg(long, default_value_t = 1.0, value_parser = time_scale)]
    pub time_scale: f64,
    /// Every token at once: no model time passes.
    #[arg(long, conflicts_with = "time_scale")]
    pub instant: bool,
    /// Reuse leading prompt words that an earlier request had, and report them as cached.
    #[arg(long)]
    pub prefix_cache: bool,
    /// Sequences that a replica holds, running and waiting; above it requests are refused with 503.
    #[arg(long, default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub queue_limit: u32,
    /// Sequences that a replica runs at the same time.
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u16).range(1..=4_096))]
    pub slots: u16,
    /// Tokens that a replica's key-value cache holds.
    #[arg(long, default_value_t = 480_000)]
    pub kv_tokens: u64,
}

/// How model time follows real time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// This many model seconds a second, more than zero.
    Scaled(f64),
    /// All work is done the moment it comes.
    Instant,
}

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Address of the first replica, as in [`EngineArgs::listen`].
    pub listen: SocketAddr,
    /// Replicas to run.
    pub replicas: u16,
    /// Seed of texts and natural output lengths.
    pub seed: u64,
    /// Models to serve; the first answers requests that name none.
    pub models: Vec<String>,
    /// Prompt and output tokens of one sequence, at most.
    pub max_model_len: u64,
    /// Fault of every request that asks for no other.
    pub fault: Fault,
    /// How model time follows real time.
    pub pace: Pace,
    /// Whether leading prompt words are reused and reported.
    pub prefix_cache: bool,
    /// Sequences that a replica holds, running and waiting.
    pub queue_limit: usize,
    /// Size and speed of a replica.
    pub shape: Shape,
}

impl Default for EngineOptions {
    /// One replica of the reference scenario on a free port of the loopback address.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            replicas: 1,
            seed: 1,
            models: vec![String::from("sim")],
            max_model_len: 131_072,
            fault: Fault::None,
            pace: Pace::Scaled(1.0),
            prefix_cache: false,
            queue_limit: 4_096,
            shape: Shape::REFERENCE,
        }
    }
}

impl From<EngineArgs> for EngineOptions {
    fn from(args: EngineArgs) -> Self {
        let slots = usize::from(args.slots);
        Self {
            listen: args.listen,
            replicas: args.replicas,
            seed: args.seed,
            models: args.model,
            max_model_len: args.max_model_len,
            fault: args.fault,
            pace: if args.instant { Pace::Instant } else { Pace::Scaled(args.time_scale) },
            prefix_cache: args.prefix_cache,
            queue_limit: args.queue_limit as usize,
            shape: Shape { slots, kv: Tokens(args.kv_tokens), ..Shape::REFERENCE },
        }
    }
}

fn time_scale(text: &str) -> Result<f64, String> {
    let scale: f64 = text.parse().map_err(|_| String::from("give a number, for example 10"))?;
    if (0.001..=1_000_000.0).contains(&scale) {
        Ok(scale)
    } else {
        Err(String::from("give a number from 0.001 to 1000000"))
    }
}
