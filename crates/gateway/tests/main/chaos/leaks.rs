//! What a process holds: file descriptors, connections, tasks and memory, as the system tells.

#![cfg(test)]

use std::fs;
use std::net::SocketAddr;

/// Open file descriptors of this process, the one that reads the folder left out.
pub(super) fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count().saturating_sub(1))
}

/// Connections to a port that are not over for its owner: open, or closed by the peer alone.
pub(super) fn connections(address: SocketAddr) -> usize {
    let table = fs::read_to_string("/proc/self/net/tcp").unwrap_or_default();
    let port = format!(":{:04X}", address.port());
    let is_open = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next().unwrap_or_default(), words.nth(1).unwrap_or_default());
        local.ends_with(&port) && matches!(state, "01" | "08")
    };
    table.lines().filter(is_open).count()
}

/// Memory of this process that is resident, in KiB.
pub(super) fn resident_kib() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4
}

/// Tasks that live in this runtime.
pub(super) fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}
