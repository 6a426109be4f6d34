//! Repository tasks: `cargo xtask test` proves the whole repository, `tidy` its structure, `bench` measures it, `tools` installs what
//! tests need.
//!
//! It cannot be part of the product: nothing depends on it.
//! Start reading at `test.rs`.
#![expect(clippy::print_stdout, reason = "a task runner talks to the person who started it")]

mod bench;
mod counts;
mod fuzz;
mod metadata;
mod mutants;
mod repository;
mod step;
mod swarm;
mod test;
mod tidy;
mod tools;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [--fast]   format, structure, lints, tests, doc tests, docs, features; --fast leaves out docs and features
  tidy            structure alone: crate arrows, clock and randomness, licences, package budget, tracked text
  tools           install what the tests need (Python and Node clients) and say what was installed
  mutants         break the core on purpose, one fault at a time: a named test must notice each
  fuzz ...        run the fuzz targets: [TARGET] [--minutes 30] [--keep]
  swarm ...       chaos without end: [--seed N] [--requests 10000] [--minutes M]; hostile: clients that mean harm, at full size
  bench ...       measure: `cargo xtask bench help` tells more";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["test"] => test::run(test::Scope::Everything),
        ["test", "--fast"] => test::run(test::Scope::Fast),
        ["tidy"] => tidy::run(),
        ["tools"] => tools::install(),
        ["mutants"] => mutants::run(),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["swarm", rest @ ..] => swarm::run(rest),
        ["bench", "help"] => {
            println!("{}", bench::USAGE);
            Ok(())
        }
        ["bench", rest @ ..] => bench::run(rest),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\nxtask: {failure}");
            ExitCode::FAILURE
        }
    }
}
