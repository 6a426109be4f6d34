//! `cargo xtask bench`: Fairlane beside nginx, haproxy and no proxy; its deciders beside others; instructions of its hot paths.
//!
//! Start reading at `proxies.rs` for what is run, and at `bars.rs` for what is asked of the results.

mod bars;
mod deciders;
mod fairlane;
mod figures;
mod flags;
mod instructions;
mod load;
mod machine;
mod memory;
mod plain_http;
mod process;
mod progress;
mod proxies;
mod results;
mod setup;
mod stage;
mod table;

/// How to use it.
pub(crate) const USAGE: &str = "\
  bench [--rounds N] [--quick] [--only NAME,..] [--binary F] [--json F] [--foremost]
                  Fairlane with every kind of limit, nginx, haproxy and the direct backend in interleaved rounds;
                  NAME: saturation single fixed streams first-byte memory tenants bodies
  bench core [--quick] [--json F]
                  nanoseconds of a decision beside governor and limitador, the scheduler, memory of 100,000 tenants
  bench instructions [--only NAME,..] [--check | --json F]
                  instructions of the hot paths by callgrind; --check compares with what is kept and fails beyond 5 %";

/// Runs what the words after `bench` ask for.
///
/// # Errors
/// What could not be started or measured, or which check failed.
pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    match words {
        ["core", rest @ ..] => deciders::run(flags::Flags::read(rest, &["--quick", "--json"])?),
        ["instructions", rest @ ..] => {
            instructions::run(flags::Flags::read(rest, &["--only", "--check", "--json"])?)
        }
        _ => proxies::run(flags::Flags::read(
            words,
            &["--rounds", "--quick", "--only", "--binary", "--json", "--foremost"],
        )?),
    }
}
