//! One run from the first engine to the last check.

#![cfg(test)]

use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use fairlane::clock::monotonic;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::client::{self, Crowd, End, Seen};
use super::fleet::Fleet;
use super::joined::{self, Joined};
use super::way::{Many, Way, Window};
use super::witnessed::Witnessed;
use super::{accounts, leaks, report, settings, sums};
use crate::cases_b::reload;
use crate::support::{TestGateway, gateway};

/// What a run is made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) seed: u64,
    /// Requests, the repeated ones not counted.
    pub(super) requests: u64,
}

impl Run {
    /// From words as `cargo xtask swarm` takes them.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |name: &str| {
            let place = words.iter().position(|word| *word == name)?;
            words.get(place + 1)?.parse().ok()
        };
        Some(Self { seed: number("--seed")?, requests: number("--requests")? })
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--seed {} --requests {}", self.seed, self.requests)
    }
}

/// Makes a run in a runtime of its own.
///
/// # Panics
/// Something is wrong afterwards; the message ends with the line that makes the run again.
pub(super) fn make(run: Run) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let wrong = runtime.block_on(through(run));
    assert!(wrong.is_empty(), "{}\nagain: cargo xtask swarm {run}", wrong.join("\n"));
}

/// The whole run; what is wrong.
async fn through(run: Run) -> Vec<String> {
    let (tasks, descriptors) = (leaks::tasks(), leaks::descriptors());
    let began = monotonic();
    let mut wrong = Vec::new();
    let fleet = Fleet::start(run.seed).await;
    let gateway = gateway(&settings::yaml(run.seed, 0, &fleet.addresses())).await;
    let witnessed = Witnessed::default();
    gateway.running.gateway.driver.witnessed_by(witnessed.witness());
    let holders = holders_at_rest(&gateway).await;
    let storm = storm(run, &fleet, &gateway).await;
    settle(&fleet, &gateway, holders, &mut wrong).await;
    verify(&fleet, &gateway, &storm, began, &mut wrong);
    let (complaint, effects, checks) = witnessed.verdict();
    wrong.extend(complaint.map(|complaint| format!("the second ledger law: {complaint}")));
    println!("{effects} effects on the ledger, all levels compared {checks} times");
    still(&gateway, &mut wrong).await;
    gateway.running.stop().await;
    fleet.end().await;
    let is_clean = || (leaks::tasks(), leaks::descriptors()) == (tasks, descriptors);
    if !eventually(is_clean).await {
        let left = (leaks::tasks(), leaks::descriptors());
        wrong.push(format!("tasks and file descriptors: {:?} before, {left:?} after", (tasks, descriptors)));
    }
    wrong
}

/// Who holds the gateway while nobody asks for anything.
async fn holders_at_rest(gateway: &TestGateway) -> usize {
    // The admin API is there, and its connection is over.
    gateway.admin("/api/v1/state").await;
    let mut least = usize::MAX;
    for _ in 0..20 {
        least = least.min(Arc::strong_count(&gateway.running.gateway));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    least
}

/// What happened.
struct Storm {
    seen: Vec<Seen>,
    reloads: u64,
    kills: u64,
    spells: u64,
    resident_kib: (u64, u64),
}

async fn storm(run: Run, fleet: &Fleet, gateway: &TestGateway) -> Storm {
    let crowd = Arc::new(Crowd {
        seed: run.seed,
        requests: run.requests,
        next: AtomicU64::new(0),
        seen: Mutex::default(),
    });
    let address = gateway.address();
    let shared: Vec<Arc<Many>> = (0..SHARED).map(|_| Many::new(address)).collect();
    let mut clients = JoinSet::new();
    for place in 0..CLIENTS {
        let window = if place % 3 == 0 { Window::Small } else { Window::Usual };
        let way = match place % 5 {
            0 | 1 => Way::Many(Arc::clone(&shared[place % SHARED])),
            _ => Way::One { address, window, connection: None },
        };
        let crowd = Arc::clone(&crowd);
        clients.spawn(async move { client::run(&crowd, way).await });
    }
    let (stop, stopped) = watch::channel(false);
    let period = Duration::from_millis(if run.requests < 2_000 { 150 } else { 1_000 });
    let everybody = async {
        while let Some(ended) = clients.join_next().await {
            ended.unwrap();
        }
        let _ = stop.send(true);
    };
    let reloads = reloads(run, fleet, gateway, period, stopped.clone());
    let ((), (reloads, warm_kib), (kills, spells)) =
        tokio::join!(everybody, reloads, fleet.weather(run.seed, stopped.clone()));
    // Everything is as at first, to be compared.
    reload(gateway, &settings::yaml(run.seed, 0, &fleet.addresses()));
    for connection in shared {
        Way::Many(connection).cut_all().await;
    }
    let seen = std::mem::take(&mut *crowd.seen.lock().unwrap());
    Storm { seen, reloads, kills, spells, resident_kib: (warm_kib, leaks::resident_kib()) }
}

/// Reloads without end; how often, and the memory in use once everything has been used.
async fn reloads(
    run: Run,
    fleet: &Fleet,
    gateway: &TestGateway,
    period: Duration,
    mut stop: watch::Receiver<bool>,
) -> (u64, u64) {
    let mut warm_kib = leaks::resident_kib();
    for place in 1.. {
        if tokio::time::timeout(period, stop.wait_for(|stop| *stop)).await.is_ok() {
            return (place - 1, warm_kib);
        }
        if place <= WARM_RELOADS {
            warm_kib = leaks::resident_kib();
        }
        reload(gateway, &settings::yaml(run.seed, place, &fleet.addresses()));
    }
    (0, warm_kib)
}

/// Waits until everything is over, and says what is not.
async fn settle(fleet: &Fleet, gateway: &TestGateway, holders: usize, wrong: &mut Vec<String>) {
    let driver = &gateway.running.gateway.driver;
    let address = gateway.address();
    let mut must = async |what: &str, count: &dyn Fn() -> usize| {
        if !eventually(|| count() == 0).await {
            wrong.push(format!("{} {what}", count()));
        }
    };
    must("requests live", &|| driver.live()).await;
    must("callers and accounts unfetched", &|| driver.unfetched()).await;
    must("sequences in engines", &|| fleet.busy()).await;
    must("connections of clients open", &|| leaks::connections(address)).await;
    let held = || Arc::strong_count(&gateway.running.gateway).saturating_sub(holders);
    must("holders of the gateway more than at first", &held).await;
}

fn verify(fleet: &Fleet, gateway: &TestGateway, storm: &Storm, began: Instant, wrong: &mut Vec<String>) {
    let mut records = gateway.running.gateway.usage.last(usize::MAX);
    records.reverse();
    let written = fleet.written();
    let elapsed_secs = monotonic().duration_since(began).as_secs_f64();
    for seen in storm.seen.iter().filter(|seen| seen.end == End::Hung) {
        wrong.push(format!("nothing happened for too long: {seen:?}"));
    }
    wrong.extend(sums::check(gateway, &records, elapsed_secs).err());
    match joined::join(&gateway.running.gateway, &records, &storm.seen, &written) {
        Ok(joined) => {
            let complaints: Vec<String> =
                joined.iter().filter_map(|one| accounts::check(one).err()).collect();
            let more = complaints.len().saturating_sub(SHOWN);
            wrong.extend(complaints.into_iter().take(SHOWN));
            if more > 0 {
                wrong.push(format!("and {more} more like these"));
            }
            tell(storm, &joined, elapsed_secs);
            wrong.extend(memory(storm));
        }
        Err(what) => wrong.push(what),
    }
}

fn tell(storm: &Storm, joined: &[Joined<'_>], elapsed_secs: f64) {
    println!(
        "{} requests sent, {} reached the gate; {} reloads, {} kills, {} spells; {elapsed_secs:.1} s; memory {:?} KiB",
        storm.seen.len(),
        joined.len(),
        storm.reloads,
        storm.kills,
        storm.spells,
        storm.resident_kib
    );
    println!("{}{:?}\n{:?}", report::table(joined), report::endings(joined), report::refusals(joined));
}

/// What is kept of each request is a few records; anything beyond is a leak.
fn memory(storm: &Storm) -> Option<String> {
    let (warm, last) = storm.resident_kib;
    let most = warm + RESIDENT_SLACK_KIB + storm.seen.len() as u64 * RECORDS_KIB;
    (last > most).then(|| {
        format!("{last} KiB are resident, {warm} were after the first reloads, {most} at most are explained")
    })
}

/// No slot is taken any more, wherever slots are counted.
async fn still(gateway: &TestGateway, wrong: &mut Vec<String>) {
    let state = gateway.admin("/api/v1/state").await;
    for backend in state["backends"].as_array().unwrap() {
        if backend["in_flight"] != 0 {
            wrong.push(format!("slots of a backend are taken: {backend}"));
        }
    }
    for pool in state["pools"].as_array().unwrap() {
        if pool["queued"] != 0 || pool["running"] != 0 {
            wrong.push(format!("a pool is not empty: {pool}"));
        }
    }
    for level in gateway.running.gateway.driver.all_limits() {
        let limit = level.view.limit;
        let is_slots = limit.dimension == fairlane_core::policy::Dimension::ConcurrentRequests;
        if is_slots && level.level != level.view.shape.capacity {
            wrong.push(format!("slots are taken: {limit:?} holds {:?}", level.level));
        }
    }
}

/// Waits for a condition; whether it came.
async fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    let waited = tokio::time::timeout(SETTLED_BY, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    waited.await.is_ok()
}

const CLIENTS: usize = 40;
/// HTTP/2 connections.
const SHARED: usize = 4;
const WARM_RELOADS: u64 = 5;
const SHOWN: usize = 5;
const SETTLED_BY: Duration = Duration::from_secs(10);
const RESIDENT_SLACK_KIB: u64 = 48 * 1_024;
/// The records of one request: the gateway's, the engine's, the client's.
const RECORDS_KIB: u64 = 6;
