//! `cargo xtask fuzz`: runs the targets of `fuzz/` for a time each, and keeps what reaches further as their corpus.
//!
//! The targets live outside the workspace: they need a nightly compiler and cargo-fuzz, and the tests replay their corpus without
//! either.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::repository;
use crate::step;

/// What to run, and for how long.
#[derive(Debug, PartialEq, Eq)]
struct Wish {
    /// This target alone.
    target: Option<String>,
    minutes: u64,
    keep: Keep,
}

/// What becomes of the inputs that a run finds.
#[derive(Debug, PartialEq, Eq)]
enum Keep {
    /// They stay under `target/fuzz`, where the next run goes on.
    Here,
    /// The smallest set that reaches as far replaces the committed corpus.
    Committed,
}

/// Runs what the words after `fuzz` ask for.
///
/// # Errors
/// A word is not known, a tool is missing, or a target found a failure: the line that repeats it.
pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let targets = targets()?;
    let wish = Wish::parse(words, &targets)?;
    if step::first_line(cargo_fuzz().arg("--version")).is_none() {
        return Err(MISSING.to_owned());
    }
    for target in targets.iter().filter(|target| wish.target.as_ref().is_none_or(|only| only == *target)) {
        println!("\n== fuzz {target}: {} minutes", wish.minutes);
        fuzz(target, wish.minutes)?;
        if wish.keep == Keep::Committed {
            keep(target)?;
        }
    }
    Ok(())
}

impl Wish {
    fn parse(words: &[&str], targets: &[String]) -> Result<Self, String> {
        let mut wish = Self { target: None, minutes: MINUTES, keep: Keep::Here };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--keep" => wish.keep = Keep::Committed,
                "--minutes" => {
                    let number = words.next().and_then(|number| number.parse().ok());
                    wish.minutes = number.ok_or_else(|| format!("--minutes needs a number: {USAGE}"))?;
                }
                name if targets.iter().any(|target| target == name) => wish.target = Some(name.to_owned()),
                other => {
                    let known = targets.join(", ");
                    return Err(format!("there is no target {other}, only {known}: {USAGE}"));
                }
            }
        }
        Ok(wish)
    }
}

fn targets() -> Result<Vec<String>, String> {
    let folder = repository::root().join("fuzz/fuzz_targets");
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let mut targets: Vec<String> = entries.flatten().filter_map(|entry| stem(&entry.path())).collect();
    targets.sort();
    Ok(targets)
}

fn fuzz(target: &str, minutes: u64) -> Result<(), String> {
    let found = found(target)?;
    let mut command = cargo_fuzz();
    // No sanitizer: the crates forbid unsafe code, and without one twice as many inputs are tried.
    command.args(["run", "--sanitizer", "none", target]).arg(&found).arg(format!("corpus/{target}"));
    command.args(["--", "-rss_limit_mb=2048", "-timeout=10", "-print_final_stats=1"]);
    command.arg(format!("-max_total_time={}", minutes * 60)).arg(format!("-max_len={}", bytes_max(target)));
    if let Some(dictionary) = dictionary(target) {
        command.arg(format!("-dict=dictionaries/{dictionary}.dict"));
    }
    step::run(&mut command).map_err(|failure| {
        format!("{failure}\nthe input is in fuzz/artifacts/{target}; mend the fault, then put the input into fuzz/corpus/{target}")
    })
}

/// Replaces the committed corpus by the smallest part of it and of what was found that reaches as far.
fn keep(target: &str) -> Result<(), String> {
    let root = repository::root().join("fuzz");
    let (corpus, before) =
        (root.join("corpus").join(target), root.join("corpus").join(format!("{target}.before")));
    let told = |error: std::io::Error| format!("cannot replace {}: {error}", corpus.display());
    fs::rename(&corpus, &before).map_err(told)?;
    fs::create_dir(&corpus).map_err(told)?;
    let mut command = cargo_fuzz();
    command.args(["run", "--sanitizer", "none", target]);
    command.arg(&corpus).arg(&before).arg(found(target)?);
    command.args(["--", "-merge=1", "-rss_limit_mb=2048"]).arg(format!("-max_len={}", bytes_max(target)));
    step::run(&mut command)?;
    // Inputs of past failures stay, also where others reach as far.
    for entry in fs::read_dir(&before).map_err(told)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with("found-") {
            fs::copy(entry.path(), corpus.join(entry.file_name())).map_err(told)?;
        }
    }
    thin(&corpus).map_err(told)?;
    fs::remove_dir_all(&before).map_err(told)
}

/// Keeps at most [`FILES_MAX`] inputs and those of past failures: every so-manieth by size, so that short and long ones stay.
fn thin(corpus: &Path) -> std::io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(corpus)?.flatten() {
        if !entry.file_name().to_string_lossy().starts_with("found-") {
            files.push((entry.metadata()?.len(), entry.path()));
        }
    }
    files.sort();
    let stays = |place: usize| place * FILES_MAX / files.len() != (place + 1) * FILES_MAX / files.len();
    for (place, (_, path)) in files.iter().enumerate() {
        if files.len() > FILES_MAX && !stays(place) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Where a target's own finds are.
fn found(target: &str) -> Result<std::path::PathBuf, String> {
    let folder = repository::root().join("target/fuzz").join(target);
    fs::create_dir_all(&folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    Ok(folder)
}

/// cargo-fuzz under the nightly compiler, in the folder of the targets.
fn cargo_fuzz() -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "fuzz"]).current_dir(repository::root().join("fuzz"));
    command
}

/// Long inputs are slow and say no more.
fn bytes_max(target: &str) -> usize {
    match target {
        "decode" | "configuration" => 8_192,
        _ => 4_096,
    }
}

fn dictionary(target: &str) -> Option<&'static str> {
    match target {
        "request" | "reply" | "stream" | "sse" => Some("json"),
        "configuration" => Some("yaml"),
        "headers" | "identity" => Some("headers"),
        _ => None,
    }
}

const MINUTES: u64 = 30;
/// So many inputs replay in a moment and are no burden to a checkout.
const FILES_MAX: usize = 150;
const USAGE: &str = "cargo xtask fuzz [TARGET] [--minutes 30] [--keep]";
const MISSING: &str = "fuzzing needs a nightly compiler and cargo-fuzz: rustup toolchain install nightly, then cargo install cargo-fuzz --locked";

#[cfg(test)]
mod tests {
    use super::{Keep, Wish, dictionary, targets};

    #[test]
    fn a_wish_is_read_from_its_words_and_an_unknown_target_is_refused() {
        let targets = ["request".to_owned(), "sse".to_owned()];
        let wish = Wish::parse(&["sse", "--minutes", "2", "--keep"], &targets).unwrap();
        assert_eq!(wish, Wish { target: Some("sse".to_owned()), minutes: 2, keep: Keep::Committed });
        let all = Wish::parse(&[], &targets).unwrap();
        assert_eq!(all, Wish { target: None, minutes: 30, keep: Keep::Here });
        assert!(Wish::parse(&["requests"], &targets).unwrap_err().contains("request, sse"));
        assert!(Wish::parse(&["--minutes"], &targets).is_err());
    }

    #[test]
    fn every_dictionary_is_there() {
        for target in targets().unwrap() {
            let name = dictionary(&target).map(|name| format!("fuzz/dictionaries/{name}.dict"));
            assert!(name.is_none_or(|name| crate::repository::root().join(name).exists()), "{target}");
        }
    }
}
