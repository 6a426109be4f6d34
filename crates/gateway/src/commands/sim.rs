//! `fairlane sim`: scenarios in the lab's virtual time, several policies side by side, over several seeds.

mod json;
mod progress;
mod seeds;
mod table;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use clap::Args;
use fairlane_core::policy::Policy;
use fairlane_lab::world::Figures;
use fairlane_lab::{Scenario, Summary, chart};

use crate::scenario;
use progress::Progress;
pub use seeds::Seeds;

/// Flags of `fairlane sim`.
#[derive(Args, Clone, Debug)]
pub struct SimArgs {
    /// Scenario files.
    #[arg(required = true)]
    pub scenarios: Vec<PathBuf>,
    /// Only this policy of the files; may be given several times.
    #[arg(long = "policy")]
    pub policies: Vec<String>,
    /// Seeds of the traffic, such as 1..20 or 7; figures are means and ranges over them.
    #[arg(long, default_value = "1..20")]
    pub seeds: Seeds,
    /// As JSON: an object, or a list of them for several files.
    #[arg(long)]
    pub json: bool,
    /// Draws the first seed's run as a chart into this file; for several policies or files, one file each beside it.
    #[arg(long)]
    pub svg: Option<PathBuf>,
}

/// Simulates and prints the figures to `out`.
///
/// # Errors
/// A file is wrong, a policy is not in it, or a chart cannot be written.
pub fn run(args: &SimArgs, out: &mut impl Write) -> Result<(), String> {
    let mut scenarios = Vec::new();
    for path in &args.scenarios {
        let mut scenario = scenario::read(path).map_err(|error| error.to_string())?;
        choose(&mut scenario, &args.policies, path)?;
        scenarios.push((path, scenario));
    }
    let seeds = args.seeds.list();
    let mut results = Vec::new();
    for (path, scenario) in &scenarios {
        let runs = compare(scenario, &seeds)?;
        if let Some(file) = &args.svg {
            let many = scenarios.len() > 1 || runs.len() > 1;
            draw(scenario, &runs, many.then_some(path.as_path()), file)?;
        }
        let summaries: Vec<(String, Summary)> =
            runs.into_iter().map(|(name, runs)| (name, Summary::of(&runs))).collect();
        results.push((scenario.name.clone(), summaries));
    }
    let written = if args.json {
        let text = json::text(&results, &seeds).map_err(|error| error.to_string())?;
        writeln!(out, "{text}")
    } else {
        results.iter().try_for_each(|(name, summaries)| table::print(name, &seeds, summaries, out))
    };
    written.map_err(|error| error.to_string())
}

/// Keeps the policies that were asked for, in the order of the asking.
fn choose(scenario: &mut Scenario, wanted: &[String], path: &Path) -> Result<(), String> {
    if wanted.is_empty() {
        return Ok(());
    }
    let known = std::mem::take(&mut scenario.policies);
    for name in wanted {
        let Some(found) = known.iter().find(|(known, _)| known == name) else {
            let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
            return Err(format!(
                "{}: there is no policy \"{name}\"; it has {}",
                path.display(),
                names.join(", ")
            ));
        };
        scenario.policies.push(found.clone());
    }
    Ok(())
}

/// Every policy on every seed, on all processors; the order of the results does not depend on who was quicker.
fn compare(scenario: &Scenario, seeds: &[u64]) -> Result<Vec<(String, Vec<Figures>)>, String> {
    let jobs: Vec<(&Arc<Policy>, u64)> = scenario
        .policies
        .iter()
        .flat_map(|(_, policy)| seeds.iter().map(move |seed| (policy, *seed)))
        .collect();
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    let (sender, results) = mpsc::channel();
    let mut figures: Vec<Option<Figures>> = vec![None; jobs.len()];
    let mut progress = Progress::new(&scenario.name, jobs.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let (sender, jobs, next) = (sender.clone(), &jobs, &next);
            scope.spawn(move || {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some((policy, seed)) = jobs.get(place) else { return };
                    if sender.send((place, scenario.run(policy, *seed))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (place, result) in results {
            figures[place] = Some(result.map_err(|broken| format!("{}: {broken}", scenario.name))?);
            progress.step();
        }
        Ok::<(), String>(())
    })?;
    progress.finish();
    let mut figures = figures.into_iter().flatten();
    Ok(scenario
        .policies
        .iter()
        .map(|(name, _)| (name.clone(), figures.by_ref().take(seeds.len()).collect()))
        .collect())
}

fn draw(
    scenario: &Scenario,
    runs: &[(String, Vec<Figures>)],
    many: Option<&Path>,
    file: &Path,
) -> Result<(), String> {
    for ((name, runs), (_, policy)) in runs.iter().zip(&scenario.policies) {
        let Some(first) = runs.first() else { continue };
        let title = format!("{} ({name})", scenario.name);
        let path = many.map_or_else(|| file.to_path_buf(), |scenario| beside(file, scenario, name));
        let svg = chart::svg(&title, first, capacity_per_s(scenario, policy));
        std::fs::write(&path, svg).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(())
}

/// `chart.svg` for row-05.yaml and the policy `reference` is `chart-row-05-reference.svg`.
fn beside(file: &Path, scenario: &Path, policy: &str) -> PathBuf {
    let stem =
        |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let plain: String =
        policy.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    let extension = file.extension().map_or_else(|| "svg".into(), |extension| extension.to_string_lossy());
    file.with_file_name(format!("{}-{}-{plain}.{extension}", stem(file), stem(scenario)))
}

/// What the replicas can do in a second, in tokens of the pool's work: a token of input takes its part of a step.
fn capacity_per_s(scenario: &Scenario, policy: &Policy) -> f64 {
    let work = policy.pools.first().map(|pool| pool.work).unwrap_or_default();
    let per_replica = scenario.replicas.iter().map(|shape| {
        let million = fairlane_core::units::Tokens(1_000_000);
        let none = fairlane_core::units::Tokens::ZERO;
        let (micros, weight) = match shape.work(million, none).0 {
            0 => (shape.work(none, million).0, work.output_millis),
            micros => (micros, work.input_millis),
        };
        1e12 / micros.max(1) as f64 * f64::from(weight) / 1_000.0
    });
    per_replica.sum()
}
