//! The whole product on one machine: a gateway, four simulated replicas, and the reference traffic with its runaway agent.

mod board;
mod load;
mod terminal;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fairlane_core::units::{Micros, Moment};
use fairlane_lab::reference;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::config::Source;
use crate::engine::{self, EngineOptions};
use crate::serve::{Origin, Overrides, Running, start};

use board::Board;
use load::{Load, Scores};
use terminal::{Key, Terminal};

/// Flags of `fairlane demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Address for clients; port 0 takes any free one.
    #[arg(long, default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Address of the admin API; port 0 takes any free one.
    #[arg(long, default_value = "127.0.0.1:9090")]
    pub admin: SocketAddr,
    /// The limit of each tenant at the start.
    #[arg(long, value_enum, default_value_t = Limits::Tokens)]
    pub limits: Limits,
    /// The runaway agent runs from the start.
    #[arg(long)]
    pub agent: bool,
    /// Chat bursts to 2.5 times its rate between 45 s and 75 s.
    #[arg(long)]
    pub burst: bool,
    /// The batch tenant sends 50 requests every 4 s instead of 15.
    #[arg(long)]
    pub heavy: bool,
    /// Traffic for so many seconds, then the result; 0 is until you quit.
    #[arg(long, default_value_t = 0)]
    pub seconds: u64,
    /// Seed of the traffic.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// What every tenant of the demo is limited by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Limits {
    /// Nothing.
    None,
    /// 400 requests a minute.
    Requests,
    /// 800,000 tokens a minute.
    Tokens,
}

/// Runs the demo.
///
/// # Errors
/// A port is taken, or the terminal cannot be written.
pub async fn run(args: DemoArgs) -> Result<(), String> {
    let replicas = EngineOptions { replicas: REPLICAS, seed: args.seed, ..EngineOptions::default() };
    let engine = engine::spawn(replicas).await.map_err(|error| error.to_string())?;
    let source = |limits| configuration(&engine.urls(), limits);
    let overrides = Overrides { listen: Some(args.listen), admin: Some(args.admin) };
    let running = start(Origin::Fixed(Box::new(source(args.limits)?)), overrides).await?;
    let scores = Arc::new(Scores::default());
    let mut load = Load::new(&args, running.address, Arc::clone(&scores));
    let mut board = Board::new(&args, &running, Arc::clone(&scores));
    let (pressed, mut keys) = mpsc::channel(8);
    let terminal = Terminal::open(pressed);
    board.begin(&terminal)?;
    let clock = Clock::start();
    let traffic_ends = (args.seconds > 0).then(|| Moment(args.seconds.saturating_mul(1_000_000)));
    let ends = traffic_ends.map(|end| end.after(DRAIN));
    let mut redraw = tokio::time::interval(board.period(&terminal));
    loop {
        let now = clock.now();
        load.send_due(now, traffic_ends);
        if ends.is_some_and(|end| now >= end)
            || traffic_ends.is_some_and(|end| now >= end) && scores.is_quiet()
        {
            break;
        }
        tokio::select! {
            () = load.wait(&clock, traffic_ends) => {}
            _ = redraw.tick() => board.draw(&terminal, clock.now())?,
            Some(key) = keys.recv() => match key {
                Key::Quit => break,
                Key::Agent => board.agent = load.toggle_agent(clock.now()),
                Key::Burst => board.burst = load.toggle_burst(clock.now()),
                Key::Heavy => board.heavy = load.toggle_heavy(clock.now()),
                Key::Limits(limits) => {
                    reload(&running, source(limits)?, overrides)?;
                    board.limits = limits;
                }
            },
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    board.finish(&terminal, &args)?;
    drop(terminal);
    tokio::select! {
        () = running.stop() => {}
        () = tokio::time::sleep(STOP_WAIT) => {}
    }
    engine.shutdown().await;
    Ok(())
}

/// The limits change while requests run: balances, queues and streams stay.
fn reload(running: &Running, source: Source, overrides: Overrides) -> Result<(), String> {
    let discovered = std::collections::BTreeMap::new();
    let config = crate::serve::read(&Origin::Fixed(Box::new(source)), &discovered, overrides)?;
    running.gateway.reload(config)
}

/// The reference scenario: waits and queues as good as unbounded, so that every wait is seen.
fn configuration(urls: &[String], limits: Limits) -> Result<Source, String> {
    let backends: Vec<String> = urls.iter().map(|url| format!("\"{url}\"")).collect();
    let limits = match limits {
        Limits::None => "{max_output_tokens: 1024}",
        Limits::Requests => "{requests: 400/min burst 10s, max_output_tokens: 1024}",
        Limits::Tokens => "{tokens: 800000/min burst 10s, max_output_tokens: 1024}",
    };
    let mut text = format!(
        "pools:
  - name: main
    models: [sim]
    engine: vllm
    backends: [{}]
    slots: {}
    work: {{input: 1, cached_input: 1, output: 4.57}}
    tokenizer: {{vocabulary: words, mode: exact}}
    health: off
classes:
",
        backends.join(", "),
        fairlane_lab::Shape::REFERENCE.slots,
    );
    for class in ["interactive", "batch", "background"] {
        text.push_str(&format!(
            "  - {{name: {class}, max_wait: 24h, queue: {{requests: 1000000, tokens: 4000000000}}}}\n"
        ));
    }
    text.push_str("tenants:\n");
    let everybody = reference::Switches { agent: true, ..reference::Switches::default() };
    for tenant in reference::tenants(everybody) {
        let (name, class) = (tenant.name, tenant.class.name());
        text.push_str(&format!(
            "  - {{name: {name}, class: {class}, keys: [{}], limits: {limits}}}\n",
            load::key_of(&name)
        ));
    }
    Source::from_text("demo.yaml", &text).map_err(|error| error.to_string())
}

const REPLICAS: u16 = reference::REPLICAS as u16;
/// After the traffic has ended, so long for what is still under way: waits must not be cut off.
const DRAIN: Micros = Micros::from_secs(120);
const STOP_WAIT: Duration = Duration::from_secs(2);
