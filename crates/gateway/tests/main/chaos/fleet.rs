//! The engines of a run: killed, restarted and made to fail, with every record that they ever wrote.

#![cfg(test)]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use fairlane::engine::{EngineOptions, Fault, Pace, Record, Running, spawn};
use tokio::sync::watch;

use super::dice::{Dice, WEATHER};
use crate::support::in_time;

/// The engines, the last one fast and alone in its pool.
pub(super) struct Fleet {
    machines: Vec<Machine>,
}

struct Machine {
    address: SocketAddr,
    options: EngineOptions,
    /// The one that runs is the last; those before it have crashed.
    lives: Mutex<Vec<Running>>,
}

/// What an engine wrote, with the engine's place.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) backend: String,
    pub(super) record: Record,
}

impl Fleet {
    /// Starts them on an address that no other process uses: their ports stay theirs while they are down.
    pub(super) async fn start(seed: u64) -> Self {
        let mut machines = Vec::new();
        for place in 0..ENGINES {
            let is_quick = place + 1 == ENGINES;
            let options = EngineOptions {
                listen: SocketAddr::from((own_address(), 0)),
                models: ["a", "b", "q"].map(String::from).to_vec(),
                seed: seed.wrapping_add(place),
                pace: if is_quick { Pace::Instant } else { Pace::Scaled(TIME_SCALE) },
                prefix_cache: true,
                queue_limit: if is_quick { 4_096 } else { 48 },
                ..EngineOptions::default()
            };
            let running = spawn(options.clone()).await.unwrap();
            let address = running.addresses()[0];
            let options = EngineOptions { listen: address, ..options };
            machines.push(Machine { address, options, lives: Mutex::new(vec![running]) });
        }
        Self { machines }
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.machines.iter().map(|machine| machine.address).collect()
    }

    /// Kills, restarts and faults by the seed until `stop` says so; then every engine is up and well. How many times each happened.
    pub(super) async fn weather(&self, seed: u64, mut stop: watch::Receiver<bool>) -> (u64, u64) {
        let (mut kills, mut spells) = (0, 0);
        for place in 0.. {
            let mut dice = Dice::of(seed, WEATHER, place);
            let machine = &self.machines[dice.below(ENGINES) as usize];
            match dice.below(3) {
                0 => {
                    machine.kill().await;
                    kills += 1;
                    pause(dice.millis(20, 300), &mut stop).await;
                    machine.revive().await;
                }
                1 => {
                    spells += 1;
                    machine.set_fault(dice.one(&SPELLS).parse().unwrap());
                    pause(dice.millis(20, 200), &mut stop).await;
                    machine.set_fault(Fault::None);
                }
                _ => {}
            }
            if pause(dice.millis(50, 250), &mut stop).await {
                break;
            }
        }
        (kills, spells)
    }

    /// Every record of every life, in order for each engine.
    pub(super) fn written(&self) -> Vec<Written> {
        let mut all = Vec::new();
        for (place, machine) in self.machines.iter().enumerate() {
            for running in machine.lives.lock().unwrap().iter() {
                let records = running.records(0).into_iter();
                all.extend(records.map(|record| Written { backend: format!("b{place}"), record }));
            }
        }
        all
    }

    /// Sequences that engines still hold.
    pub(super) fn busy(&self) -> usize {
        let held = |machine: &Machine| {
            let lives = machine.lives.lock().unwrap();
            lives.last().map_or(0, |running| {
                let counters = running.counters(0);
                counters.running + counters.waiting
            })
        };
        self.machines.iter().map(held).sum()
    }

    /// Ends them all.
    pub(super) async fn end(self) {
        for machine in self.machines {
            let lives = machine.lives.into_inner().unwrap();
            for running in lives {
                running.shutdown().await;
            }
        }
    }
}

impl Machine {
    async fn kill(&self) {
        let last = self.lives.lock().unwrap().pop();
        if let Some(mut running) = last {
            running.crash().await;
            self.lives.lock().unwrap().push(running);
        }
    }

    async fn revive(&self) {
        let running = in_time("an engine's old port", async {
            loop {
                match spawn(self.options.clone()).await {
                    Ok(running) => return running,
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        })
        .await;
        self.lives.lock().unwrap().push(running);
    }

    fn set_fault(&self, fault: Fault) {
        if let Some(running) = self.lives.lock().unwrap().last() {
            running.set_fault(0, fault);
        }
    }
}

/// Waits; whether the run is over.
async fn pause(time: Duration, stop: &mut watch::Receiver<bool>) -> bool {
    tokio::time::timeout(time, stop.wait_for(|stop| *stop)).await.is_ok()
}

/// A loopback address of this process alone.
fn own_address() -> Ipv4Addr {
    let [_, upper, middle, lower] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 | upper, middle, lower.max(1))
}

const ENGINES: u64 = 4;
/// Model seconds a second of the slower engines.
const TIME_SCALE: f64 = 25.0;
/// Faults of every request that asks for no other.
const SPELLS: [&str; 8] = ["503", "429:1", "500", "html-503", "refuse", "slow-start:40", "cut:5", "stall:60"];
