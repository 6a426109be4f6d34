//! `fairlane serve`: the gateway in the foreground, until a signal ends it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Source;
use crate::serve::{Origin, Overrides, start};

/// Flags of `fairlane serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Configuration file.
    #[arg(long, conflicts_with = "backend", required_unless_present = "backend")]
    pub config: Option<PathBuf>,
    /// Without a file: serve this backend to everybody, without limits; repeat for several.
    #[arg(long)]
    pub backend: Vec<String>,
    /// Address for clients, over the configuration's.
    #[arg(long)]
    pub listen: Option<SocketAddr>,
    /// Address of the admin API, over the configuration's.
    #[arg(long)]
    pub admin: Option<SocketAddr>,
}

/// Serves until SIGINT or SIGTERM; SIGHUP reads the configuration again.
///
/// # Errors
/// It cannot start.
pub async fn run(args: ServeArgs) -> Result<(), String> {
    let origin = match args.config {
        Some(path) => Origin::File(path),
        None => Origin::Fixed(Box::new(Source::open(&args.backend))),
    };
    let running = start(origin, Overrides { listen: args.listen, admin: args.admin }).await?;
    let models = running.gateway.live().model_names().count();
    tracing::info!(listen = %running.address, admin = ?running.admin, models, "serving");
    let mut hangup = signal(SignalKind::hangup()).map_err(|error| error.to_string())?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    loop {
        tokio::select! {
            Some(()) = hangup.recv() => running.reread(),
            _ = tokio::signal::ctrl_c() => break,
            Some(()) = terminate.recv() => break,
        }
    }
    tracing::info!("shutting down: what waits is refused, what runs may finish");
    let gateway = std::sync::Arc::clone(&running.gateway);
    running.stop().await;
    let totals = gateway.driver.totals();
    tracing::info!(outstanding = totals.outstanding, settled = totals.settled, "ended");
    Ok(())
}
