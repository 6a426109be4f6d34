//! Memory: idle, with an exact tokenizer, with a thousand streams open, with a hundred thousand tenants.

use std::collections::BTreeMap;

use super::fairlane::{Limits, Variant};
use super::load::{self, Load};
use super::stage::{Peer, Stage, Sums};

/// Memory by name, in KiB.
pub(super) type Memory = BTreeMap<String, f64>;

/// Measures one more variant alone: after its start, and after a few requests. Gives its sums too.
///
/// # Errors
/// It cannot be started or does not answer.
pub(super) fn alone(stage: &Stage, variant: &Variant) -> Result<(f64, f64, Option<Sums>), String> {
    let peer = stage.fairlane(variant)?;
    let started = resident(&peer);
    let few = Load {
        connections: 1,
        seconds: 0.2,
        rate: 0,
        stream: None,
        tenants: variant.tenants.min(1_000),
        body_bytes: 1_000,
    };
    few.run(&stage.generator, peer.port)?;
    Ok((started, resident(&peer), peer.sums()?))
}

/// What each of a thousand open streams takes, in KiB.
///
/// # Errors
/// A stream did not open, or did not end well.
pub(super) fn per_stream(stage: &Stage, peer: &Peer, tenants: usize) -> Result<f64, String> {
    let before = resident(peer);
    let plan = (peer.port, STREAMS, tenants);
    let (during, ended) = load::hold(&stage.generator, plan, || resident(peer), || stage.release())?;
    if ended != STREAMS as u64 {
        return Err(format!("of {STREAMS} streams through {} only {ended} ended well", peer.name));
    }
    Ok((during - before) / STREAMS as f64)
}

/// The memory of a peer, in KiB.
pub(super) fn resident(peer: &Peer) -> f64 {
    peer.running.as_ref().map_or(f64::NAN, super::process::Running::memory_kib)
}

/// With an exact tokenizer, which its first request loads.
pub(super) const EXACT: Variant =
    Variant { name: "fairlane-exact", tenants: 1_000, tokenizer: "exact", limits: Limits::EveryKind };
/// With a hundred thousand tenants of three limits each.
pub(super) const MANY: Variant =
    Variant { name: "fairlane-100000", tenants: 100_000, tokenizer: "auto", limits: Limits::Three };

const STREAMS: usize = 1_000;
