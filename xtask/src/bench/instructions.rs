//! `cargo xtask bench instructions`: instructions of the hot paths, counted by callgrind, so that a regression is seen without noise.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::flags::Flags;
use super::{machine, progress, results, setup};
use crate::repository;

/// Counts, prints, and compares or writes.
///
/// # Errors
/// Valgrind is missing, a case does not run, or it takes more instructions than kept and allowed.
pub(super) fn run(flags: Flags) -> Result<(), String> {
    setup::provide(&[("valgrind", "valgrind")])?;
    progress::show("building");
    let programs = setup::build_programs(&["--features", "hot", "--bin", "hot"])?;
    let hot = programs.join("hot");
    let cases = cases(&hot)?;
    flags.check_parts(&cases.iter().map(String::as_str).collect::<Vec<_>>())?;
    let kept = kept()?;
    let mut counted = Vec::new();
    for case in cases.iter().filter(|case| flags.wants(case)) {
        progress::show(&format!("counting {case}"));
        counted.push((case.clone(), count(&hot, case)?));
    }
    progress::clear();
    let machine = machine::told();
    println!("{}, {}\n", machine::line(&machine), setup::version("valgrind", "--version"));
    println!("| instructions per operation | counted | kept | change |");
    println!("|---|---|---|---|");
    for (case, instructions) in &counted {
        println!(
            "| {case} | {instructions} | {} |",
            change(*instructions, kept["instructions"][case].as_u64())
        );
    }
    if let Some(path) = &flags.json {
        let counts: serde_json::Map<String, Value> =
            counted.iter().map(|(case, instructions)| (case.clone(), json!(instructions))).collect();
        results::save(path, &json!({"machine": machine, "instructions": counts}))?;
    }
    if flags.check { check(&counted, &kept) } else { Ok(()) }
}

/// The names of the cases.
fn cases(hot: &Path) -> Result<Vec<String>, String> {
    let output = Command::new(hot).arg("list").output();
    let output = output.map_err(|error| format!("cannot start the hot paths: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// Instructions of one operation of a case. Only the function that repeats it is collected.
fn count(hot: &Path, case: &str) -> Result<u64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*measured_part*"])
        .arg(hot)
        .args(["run", case, &OPERATIONS.to_string()])
        .output()
        .map_err(|error| format!("cannot start valgrind: {error}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    let collected =
        told.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse::<u64>().ok());
    match collected {
        Some(instructions) if output.status.success() && instructions > 0 => Ok(instructions / OPERATIONS),
        _ => Err(format!("callgrind did not count `{case}`: {}", told.trim())),
    }
}

/// What is kept; nothing if there is no file yet.
fn kept() -> Result<Value, String> {
    let path = repository::root().join(KEPT);
    if !path.exists() {
        return Ok(Value::Null);
    }
    let text = fs::read_to_string(&path).map_err(|error| format!("cannot read {KEPT}: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("{KEPT} is no JSON: {error}"))
}

fn change(counted: u64, kept: Option<u64>) -> String {
    kept.map_or_else(
        || "– | –".to_owned(),
        |kept| format!("{kept} | {:+.1} %", 100.0 * (counted as f64 / kept as f64 - 1.0)),
    )
}

/// Fails with the names of those that take more than is kept and allowed, and of those that nothing is kept of.
fn check(counted: &[(String, u64)], kept: &Value) -> Result<(), String> {
    let mut faults = Vec::new();
    for (case, instructions) in counted {
        match kept["instructions"][case].as_u64() {
            None => faults.push(format!("{case}: nothing is kept")),
            Some(kept) if exceeds(*instructions, kept) => {
                faults.push(format!("{case}: {instructions} where {kept} are kept"));
            }
            Some(_) => {}
        }
    }
    if faults.is_empty() {
        return Ok(());
    }
    Err(format!(
        "instructions above what {KEPT} keeps by more than {TOLERANCE_PERCENT} %:\n  {}\nif that is meant, run it with --json {KEPT}",
        faults.join("\n  ")
    ))
}

const fn exceeds(counted: u64, kept: u64) -> bool {
    counted * 100 > kept * (100 + TOLERANCE_PERCENT)
}

const KEPT: &str = "benches/results/instructions.json";
const TOLERANCE_PERCENT: u64 = 5;
/// Enough that the loop around them does not count.
const OPERATIONS: u64 = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tolerance_is_five_percent() {
        assert!(!exceeds(105, 100));
        assert!(exceeds(106, 100));
    }

    #[test]
    fn a_regression_is_told_by_its_name() {
        let kept = json!({"instructions": {"a": 100, "b": 100}});
        let counted = [("a".to_owned(), 104), ("b".to_owned(), 150), ("c".to_owned(), 1)];
        let told = check(&counted, &kept).unwrap_err();
        assert!(!told.contains("a: "), "{told}");
        assert!(told.contains("b: 150 where 100 are kept") && told.contains("c: nothing is kept"), "{told}");
    }
}
