//! `cargo xtask bench`: loads on every peer in interleaved rounds, so that what else the machine does meets all alike.

use std::fs;
use std::thread;
use std::time::Duration;

use super::fairlane::{Limits, Variant};
use super::figures::{Sample, Samples};
use super::flags::Flags;
use super::load::Load;
use super::memory::{self, Memory};
use super::stage::{Peer, Stage, Sums};
use super::{bars, machine, progress, results, setup, table};

/// What was measured.
#[derive(Default)]
pub(super) struct Measured {
    /// Every load on every peer.
    pub(super) samples: Samples,
    /// Memory by name, in KiB.
    pub(super) memory: Memory,
    /// What each Fairlane charged.
    pub(super) sums: Vec<(&'static str, Sums)>,
}

/// Runs what the flags ask for, prints the table, and writes the results where they are wanted.
///
/// # Errors
/// Something cannot be started, an answer was no success, or a sum is wrong.
pub(super) fn run(flags: Flags) -> Result<(), String> {
    flags.check_parts(&PARTS)?;
    setup::provide(&[("nginx", "nginx-light"), ("haproxy", "haproxy")])?;
    progress::show("building");
    let programs = setup::build_programs(&["--bins"])?;
    let binary = setup::binary(flags.binary.as_deref())?;
    let stage = Stage::new(binary, &programs, setup::scratch()?)?;
    if flags.foremost {
        come_first();
    }
    let (load_before, mut machine) = (machine::load_average(), machine::told());
    for (program, flag) in [("nginx", "-v"), ("haproxy", "-v")] {
        machine[program] = setup::version(program, flag).into();
    }
    let measured = measure(&stage, &flags)?;
    progress::clear();
    let rows = bars::of_proxies(&measured);
    println!("{}", machine::line(&machine));
    let version = |program: &str| machine[program].as_str().unwrap_or_default();
    println!("{}, {}", version("nginx"), version("haproxy"));
    println!("load average {load_before:.1} before, {:.1} after\n", machine::load_average());
    machine["load_average"] = format!("{load_before:.1} before, {:.1} after", machine::load_average()).into();
    print!("{}", table::of(&rows));
    if let Some(path) = &flags.json {
        let samples = measured.samples.0.iter().map(Sample::told).collect();
        results::write(path, &machine, &rows, ("samples", samples))?;
    }
    faults(&measured)
}

fn measure(stage: &Stage, flags: &Flags) -> Result<Measured, String> {
    let mut measured = Measured::default();
    let peers = [stage.direct(), stage.nginx()?, stage.haproxy()?, stage.fairlane(&USUAL)?];
    for peer in &peers[1..] {
        measured.memory.insert(format!("{} idle", peer.name), memory::resident(peer));
    }
    let scale = if flags.quick { QUICK_SCALE } else { 1.0 };
    let mut bench = Bench { stage, measured: &mut measured, scale, round: 0 };
    for peer in &peers {
        bench.warm(peer, USUAL.tenants)?;
    }
    let cases: Vec<_> = CASES.into_iter().filter(|(name, _)| flags.wants(name)).collect();
    for round in 0..flags.rounds.unwrap_or(if flags.quick { 1 } else { ROUNDS }) {
        bench.round = round;
        for (name, load) in &cases {
            // The one that comes first in a round is another one in the next.
            let first = round as usize % peers.len();
            for peer in peers[first..].iter().chain(&peers[..first]) {
                bench.sample(peer, name, load)?;
            }
        }
    }
    if flags.wants("bodies") {
        bench.bodies(&peers[1])?;
    }
    if flags.wants("tenants") {
        bench.tenants(&peers[3])?;
    }
    if flags.wants("memory") {
        bench.memory(&peers[1..])?;
    }
    if let Some(sums) = peers[3].sums()? {
        measured.sums.push((USUAL.name, sums));
    }
    Ok(measured)
}

struct Bench<'a> {
    stage: &'a Stage,
    measured: &'a mut Measured,
    scale: f64,
    round: u32,
}

impl Bench<'_> {
    /// Fills pools and caches, so that no round pays for it.
    fn warm(&self, peer: &Peer, tenants: usize) -> Result<(), String> {
        let load = Load { seconds: 1.0 * self.scale, tenants, ..SATURATION };
        load.run(&self.stage.generator, peer.port).map(|_| ())
    }

    fn sample(&mut self, peer: &Peer, case: &str, load: &Load) -> Result<(), String> {
        progress::show(&format!("round {}: {case} on {}", self.round + 1, peer.name));
        let load = Load { seconds: load.seconds * self.scale, ..*load };
        let cpu = || peer.running.as_ref().map_or(0.0, super::process::Running::cpu_us);
        let (cpu_before, backend_before) = (cpu(), self.stage.backend_cpu_us());
        let told = load.run(&self.stage.generator, peer.port)?;
        let answers = told["ok"].as_f64().unwrap_or_default();
        self.measured.samples.0.push(Sample {
            peer: peer.name,
            case: case.to_owned(),
            round: self.round,
            cpu_us: (cpu() - cpu_before) / answers,
            backend_cpu_us: (self.stage.backend_cpu_us() - backend_before) / answers,
            memory_kib: memory::resident(peer),
            load: told,
        });
        thread::sleep(REST);
        Ok(())
    }

    /// CPU time by the size of bodies, beside nginx.
    fn bodies(&mut self, nginx: &Peer) -> Result<(), String> {
        let fairlane = self.stage.fairlane(&ESTIMATING)?;
        self.warm(&fairlane, ESTIMATING.tenants)?;
        for round in 0..ROUNDS {
            self.round = round;
            for body_bytes in BODIES_BYTES {
                for peer in [nginx, &fairlane] {
                    let load = Load { connections: 8, seconds: 1.5, body_bytes, ..SATURATION };
                    self.sample(peer, &format!("body {body_bytes}"), &load)?;
                }
            }
        }
        self.close(&fairlane)
    }

    /// CPU time by the number of tenants.
    fn tenants(&mut self, usual: &Peer) -> Result<(), String> {
        let others = [self.stage.fairlane(&ONE)?, self.stage.fairlane(&TEN_THOUSAND)?];
        let peers = [(&others[0], ONE.tenants), (usual, USUAL.tenants), (&others[1], TEN_THOUSAND.tenants)];
        // The first request of each run and end user makes its cells; growth is about the ones after it.
        for (peer, tenants) in peers {
            let load = Load { seconds: 6.0 * self.scale, tenants, ..SATURATION };
            load.run(&self.stage.generator, peer.port)?;
        }
        for round in 0..ROUNDS {
            self.round = round;
            for (peer, tenants) in peers {
                let load = Load { seconds: 2.0, tenants, ..SATURATION };
                self.sample(peer, &format!("tenants {tenants}"), &load)?;
            }
        }
        for peer in &others {
            self.close(peer)?;
        }
        Ok(())
    }

    fn memory(&mut self, peers: &[Peer]) -> Result<(), String> {
        for peer in peers {
            progress::show(&format!("memory of {}", peer.name));
            self.measured.memory.insert(format!("{} loaded", peer.name), memory::resident(peer));
            let kib = memory::per_stream(self.stage, peer, USUAL.tenants)?;
            self.measured.memory.insert(format!("{} per stream", peer.name), kib);
        }
        for variant in [memory::EXACT, memory::MANY] {
            progress::show(&format!("memory of {}", variant.name));
            let (idle, used, sums) = memory::alone(self.stage, &variant)?;
            self.measured.memory.insert(format!("{} idle", variant.name), idle);
            self.measured.memory.insert(format!("{} loaded", variant.name), used);
            self.measured.sums.extend(sums.map(|sums| (variant.name, sums)));
        }
        Ok(())
    }

    fn close(&mut self, peer: &Peer) -> Result<(), String> {
        let sums = peer.sums()?;
        self.measured.sums.extend(sums.map(|sums| (peer.name, sums)));
        Ok(())
    }
}

/// Lets this session's processes run before those of others, where autogroups and rights allow it.
fn come_first() {
    if fs::write("/proc/self/autogroup", "-15").is_err() {
        eprintln!("the machine does not let this session come first; measuring all the same");
    }
}

/// A figure counts only if every answer was good and every token was charged once.
fn faults(measured: &Measured) -> Result<(), String> {
    let bad = measured.samples.0.iter().find(|sample| sample.faults() > 0);
    if let Some(sample) = bad {
        return Err(format!(
            "{} of {} answers of {} under `{}` were no success; the first: {}",
            sample.faults(),
            sample.load["ok"],
            sample.peer,
            sample.case,
            sample.load["sample"].as_str().unwrap_or("a connection that broke")
        ));
    }
    match measured.sums.iter().find(|(_, sums)| !sums.agree()) {
        Some((name, sums)) => Err(format!(
            "{name} charged {} tokens where the backend reported {} in {} answers; its ledger: {}",
            sums.charged, sums.reported, sums.answers, sums.ledger
        )),
        None => Ok(()),
    }
}

/// The Fairlane of the rounds.
const USUAL: Variant =
    Variant { name: "fairlane", tenants: 1_000, tokenizer: "auto", limits: Limits::EveryKind };
const ONE: Variant = Variant { name: "fairlane-1", tenants: 1, ..USUAL };
const TEN_THOUSAND: Variant = Variant { name: "fairlane-10000", tenants: 10_000, ..USUAL };
const ESTIMATING: Variant = Variant { name: "fairlane-estimate", tokenizer: "estimate", ..USUAL };

const SATURATION: Load =
    Load { connections: 64, seconds: 3.0, rate: 0, stream: None, tenants: 1_000, body_bytes: 1_000 };
const CASES: [(&str, Load); 5] = [
    ("saturation", SATURATION),
    ("single", Load { connections: 1, seconds: 2.0, ..SATURATION }),
    ("fixed", Load { connections: 32, rate: 500, ..SATURATION }),
    ("streams", Load { stream: Some("quick"), ..SATURATION }),
    ("first-byte", Load { stream: Some("paced"), rate: 100, ..SATURATION }),
];
const PARTS: [&str; 8] =
    ["saturation", "single", "fixed", "streams", "first-byte", "memory", "tenants", "bodies"];
/// Sizes of bodies over which growth is measured.
pub(super) const BODIES_BYTES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];

const ROUNDS: u32 = 3;
const QUICK_SCALE: f64 = 0.3;
/// A pause in which connections that were closed are taken down.
const REST: Duration = Duration::from_millis(50);
