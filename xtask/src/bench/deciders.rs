//! `cargo xtask bench core`: deciders in process, beside each other.

use std::process::Command;

use serde_json::Value;

use super::bars::{Bar, Better, Row, number};
use super::flags::Flags;
use super::{machine, progress, results, setup, table};

/// Builds and runs the deciders, prints the table, and writes the results where they are wanted.
///
/// # Errors
/// They do not build or run.
pub(super) fn run(flags: Flags) -> Result<(), String> {
    progress::show("building");
    let programs = setup::build_programs(&["--features", "deciders", "--bin", "deciders"])?;
    progress::clear();
    let machine = machine::told();
    let mut command = Command::new(programs.join("deciders"));
    if flags.quick {
        command.arg("--quick");
    }
    let output = command.stderr(std::process::Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot start the deciders: {error}"))?;
    if !output.status.success() {
        return Err(format!("the deciders ended with {}", output.status));
    }
    let told: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("the deciders told what is not JSON: {error}"))?;
    let rows: Vec<Row> = told.as_array().into_iter().flatten().map(row).collect();
    println!("{}\nload average {:.1}\n", machine::line(&machine), machine::load_average());
    print!("{}", table::of(&rows));
    if let Some(path) = &flags.json {
        results::write(path, &machine, &rows, ("measured", told.as_array().cloned().unwrap_or_default()))?;
    }
    Ok(())
}

/// A figure as the deciders tell it.
fn row(told: &Value) -> Row {
    let value = told["value"].as_f64().unwrap_or(f64::NAN);
    let bar = Bar { better: Better::Less, must: told["must"].as_f64(), goal: told["goal"].as_f64() };
    let name = told["name"].as_str().unwrap_or_default().to_owned();
    let unit = if told["unit"] == "MB" { "MB" } else { "ns" };
    let column = if name.starts_with("fairlane") { vec![("fairlane", number(value))] } else { Vec::new() };
    Row { measure: name, peers: column, value, unit, bar }
}
