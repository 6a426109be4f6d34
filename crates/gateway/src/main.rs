//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fairlane::commands::{check, data, explain, keys, serve, sim, usage};
use fairlane::{clock, demo, engine};

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A gateway that limits LLM traffic in tokens.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway.
    Serve(serve::ServeArgs),
    /// Show the main job on this machine: gateway, simulated replicas and the reference traffic.
    Demo(demo::DemoArgs),
    /// Run a simulated inference engine.
    Engine(engine::EngineArgs),
    /// Simulate scenarios in virtual time, several policies side by side.
    Sim(sim::SimArgs),
    /// Check a file.
    #[command(subcommand)]
    Check(Check),
    /// Say what would happen to a request and why.
    Explain {
        /// Configuration file.
        config: PathBuf,
        /// The request: {"tenant": .., "path": .., "headers": {..}, "body": {..}}.
        request: PathBuf,
    },
    /// Make keys.
    #[command(subcommand)]
    Keys(Keys),
    /// Sum up the usage log.
    Usage(usage::UsageArgs),
    /// Export a data file, or import one.
    #[command(subcommand)]
    Data(data::DataCommand),
}

#[derive(Subcommand)]
enum Check {
    /// Print the resolved policy of a configuration, or what is wrong with it.
    Config {
        /// Configuration file.
        file: PathBuf,
    },
}

#[derive(Subcommand)]
enum Keys {
    /// Make a key and print it with its digest.
    New,
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    // The demo draws on the screen that log lines would tear.
    let usual = if matches!(command, Command::Demo(_)) { "error" } else { "info" };
    let filter = tracing_subscriber::EnvFilter::try_from_env("FAIRLANE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(usual));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("the runtime cannot start: {error}")),
    };
    match runtime.block_on(run(command)) {
        Ok(code) => code,
        Err(message) => failed(&message),
    }
}

async fn run(command: Command) -> Result<ExitCode, String> {
    let mut out = std::io::stdout();
    match command {
        Command::Serve(args) => serve::run(args).await?,
        Command::Demo(args) => demo::run(args).await?,
        Command::Engine(args) => engine::run(args).await.map_err(|error| error.to_string())?,
        Command::Sim(args) => sim::run(&args, &mut out)?,
        Command::Check(Check::Config { file }) => {
            let checked = check::check_config(&file, clock::unix_secs(), &mut out);
            return match checked.map_err(|error| error.to_string())? {
                check::Checked::Good => Ok(ExitCode::SUCCESS),
                check::Checked::Bad => Ok(ExitCode::FAILURE),
            };
        }
        Command::Explain { config, request } => explain::run(&config, &request, &mut out).await?,
        Command::Usage(args) => usage::run(args, &mut out).await?,
        Command::Data(command) => data::run(&command, &mut out)?,
        Command::Keys(Keys::New) => keys::new_key(&mut out).map_err(|error| error.to_string())?,
    }
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::print_stderr, reason = "the last words of a command line")]
fn failed(message: &str) -> ExitCode {
    eprintln!("fairlane: {message}");
    ExitCode::FAILURE
}
