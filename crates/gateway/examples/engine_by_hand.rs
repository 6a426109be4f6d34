//! Temporary: removed after trying by hand.
use clap::Parser;
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: fairlane::engine::EngineArgs,
}
#[tokio::main]
async fn main() -> std::io::Result<()> {
    fairlane::engine::run(Cli::parse().args).await
}
