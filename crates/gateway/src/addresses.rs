//! Backends behind a DNS name: each of its addresses is one, and they come and go.
//!
//! A name has a fixed number of seats, each a backend of its own to the gate, which is there while an address sits on it. So
//! addresses come and go without a change of the policy, and ids keep their meaning.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::config::{Config, EdgeBackend, Lookup, Scheme};
use crate::gateway::Gateway;

/// How names are looked up, and how often.
#[derive(Clone)]
pub struct Resolver {
    /// Gives the addresses of a host; the port is for resolvers that want one.
    pub resolve: Arc<Resolve>,
    /// Time between two rounds.
    pub interval: Duration,
}

/// A look-up of a host's addresses.
pub type Resolve = dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync;

/// A name: its pool's and its backend's.
pub type DnsName = (String, String);

/// Which address sits where.
#[derive(Clone, Debug, Default)]
pub struct Seats {
    by_name: BTreeMap<DnsName, Vec<Option<IpAddr>>>,
}

/// What a round of look-ups changed, as names of pools and backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Seats whose address is gone.
    pub gone: Vec<(String, String)>,
    /// Seats that were given one.
    pub come: Vec<(String, String)>,
    /// Addresses that found no free seat.
    pub left_out: usize,
}

impl Resolver {
    /// That of the system.
    #[must_use]
    pub fn system() -> Self {
        let resolve = |host: String, port: u16| {
            async move {
                let found = tokio::net::lookup_host((host, port)).await?;
                Ok(found.map(|address| address.ip()).collect())
            }
            .boxed()
        };
        Self { resolve: Arc::new(resolve), interval: INTERVAL }
    }

    /// The addresses of a host; where it has both kinds those of IPv4 alone, as both are of the same machines. `None` if there
    /// was no answer: what was known before stays.
    async fn addresses(&self, host: &str, port: u16) -> Option<BTreeSet<IpAddr>> {
        let found = tokio::time::timeout(TIMEOUT, (self.resolve)(host.to_owned(), port)).await;
        let found: BTreeSet<IpAddr> = found.ok()?.ok()?.into_iter().collect();
        let first: BTreeSet<IpAddr> = found.iter().copied().filter(IpAddr::is_ipv4).collect();
        let found = if first.is_empty() { found } else { first };
        (!found.is_empty()).then_some(found)
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("interval", &self.interval).finish_non_exhaustive()
    }
}

/// Looks up every name again and again, for ever.
pub async fn watch(gateway: Arc<Gateway>, resolver: Resolver) {
    loop {
        tokio::time::sleep(resolver.interval).await;
        refresh(&gateway, &resolver).await;
    }
}

/// Looks up every name once.
pub async fn refresh(gateway: &Gateway, resolver: &Resolver) {
    let names = gateway.dns_names();
    let lookups = names.into_iter().map(|(name, host, port)| async move {
        let found = resolver.addresses(&host, port).await;
        if found.is_none() {
            tracing::warn!(host, "the name of a backend cannot be looked up; its known addresses stay");
        }
        Some((name, found?))
    });
    let found = futures_util::future::join_all(lookups).await.into_iter().flatten().collect();
    if let Err(message) = gateway.readdress(&found) {
        tracing::error!("the addresses of backends were not taken on: {message}");
    }
}

impl Seats {
    /// The configuration with every seat as a backend.
    #[must_use]
    pub fn expand(&self, mut config: Config) -> Config {
        for (policy, edge) in config.policy.pools.iter_mut().zip(&mut config.edge.pools) {
            let mut backends = Vec::new();
            let mut edges = Vec::new();
            for (backend, edge_backend) in policy.backends.drain(..).zip(edge.backends.drain(..)) {
                if !is_seated(&edge_backend) {
                    backends.push(backend);
                    edges.push(edge_backend);
                    continue;
                }
                let seats = self.by_name.get(&(policy.name.clone(), backend.name.clone()));
                for seat in 0..SEATS {
                    let address = seats.and_then(|seats| seats.get(seat).copied()?);
                    let mut edge_backend = edge_backend.clone();
                    edge_backend.name = seat_name(&backend.name, seat);
                    edge_backend.target.host =
                        address.map_or_else(String::new, |address| address.to_string());
                    let name = edge_backend.name.clone();
                    let limits = backend.limits.clone();
                    backends.push(fairlane_core::policy::Backend {
                        name,
                        limits,
                        is_awaited: true,
                        ..backend.clone()
                    });
                    edges.push(edge_backend);
                }
            }
            policy.backends = backends;
            edge.backends = edges;
        }
        config
    }

    /// Gives each address a seat: the one that it has, else a free one that nothing runs on any more.
    pub fn assign(
        &mut self,
        found: &BTreeMap<DnsName, BTreeSet<IpAddr>>,
        is_idle: impl Fn(&(String, String)) -> bool,
    ) -> Changes {
        let mut changes = Changes::default();
        for (name, addresses) in found {
            let seats = self.by_name.entry(name.clone()).or_insert_with(|| vec![None; SEATS]);
            let id = |seat: usize| (name.0.clone(), seat_name(&name.1, seat));
            let mut missing = addresses.clone();
            let mut free = Vec::new();
            for (seat, address) in seats.iter_mut().enumerate() {
                match address {
                    Some(known) if missing.remove(known) => {}
                    Some(_) => {
                        *address = None;
                        changes.gone.push(id(seat));
                    }
                    None if is_idle(&id(seat)) => free.push(seat),
                    None => {}
                }
            }
            let mut free = free.into_iter();
            for address in missing {
                match free.next() {
                    Some(seat) => {
                        seats[seat] = Some(address);
                        changes.come.push(id(seat));
                    }
                    None => changes.left_out += 1,
                }
            }
        }
        changes
    }

    /// Forgets names that are not among these.
    pub fn retain(&mut self, names: &[(DnsName, String, u16)]) {
        self.by_name.retain(|name, _| names.iter().any(|(known, ..)| known == name));
    }
}

/// The names in a configuration, with host and port.
#[must_use]
pub fn names(config: &Config) -> Vec<(DnsName, String, u16)> {
    let pools = config.edge.pools.iter();
    pools
        .flat_map(|pool| pool.backends.iter().map(move |backend| (pool, backend)))
        .filter(|(_, backend)| is_seated(backend))
        .map(|(pool, backend)| {
            let target = &backend.target;
            ((pool.name.clone(), backend.name.clone()), target.host.clone(), target.port)
        })
        .collect()
}

/// With TLS the name itself is spoken to: its certificate is for the name, and a connection goes to one of its addresses.
fn is_seated(backend: &EdgeBackend) -> bool {
    backend.target.lookup == Lookup::Repeated && backend.target.scheme == Scheme::Http
}

fn seat_name(name: &str, seat: usize) -> String {
    format!("{name}#{}", seat + 1)
}

/// Addresses of one name at the same time.
pub const SEATS: usize = 64;
const INTERVAL: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn found(addresses: &[&str]) -> BTreeMap<DnsName, BTreeSet<IpAddr>> {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        BTreeMap::from([(("main".to_owned(), "vllm:8000".to_owned()), addresses)])
    }

    fn seats(numbers: &[usize]) -> Vec<(String, String)> {
        numbers.iter().map(|number| ("main".to_owned(), format!("vllm:8000#{number}"))).collect()
    }

    #[test]
    fn an_address_keeps_its_seat_and_a_seat_is_given_away_only_when_nothing_runs_there() {
        let mut table = Seats::default();
        let changes = table.assign(&found(&["10.0.0.1", "10.0.0.2"]), |_| true);
        assert_eq!(changes, Changes { come: seats(&[1, 2]), ..Changes::default() });
        let changes = table.assign(&found(&["10.0.0.2"]), |_| true);
        assert_eq!(changes, Changes { gone: seats(&[1]), ..Changes::default() });
        let changes = table.assign(&found(&["10.0.0.2", "10.0.0.3"]), |seat| seat.1 != "vllm:8000#1");
        assert_eq!(changes, Changes { come: seats(&[3]), ..Changes::default() });
        let changes = table.assign(&found(&["10.0.0.2", "10.0.0.3", "10.0.0.4"]), |_| true);
        assert_eq!(changes, Changes { come: seats(&[1]), ..Changes::default() });
        assert_eq!(table.assign(&found(&["10.0.0.2", "10.0.0.3", "10.0.0.4"]), |_| true), Changes::default());
    }

    #[test]
    fn addresses_beyond_the_seats_are_left_out() {
        let mut table = Seats::default();
        let many: Vec<String> = (0..SEATS + 3).map(|number| format!("10.0.1.{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let changes = table.assign(&found(&many), |_| true);
        assert_eq!((changes.come.len(), changes.left_out), (SEATS, 3));
        // The look-up that failed is not among those found.
        assert_eq!(table.assign(&BTreeMap::new(), |_| true), Changes::default());
    }
}
