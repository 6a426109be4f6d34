//! Runs chaotic worlds in virtual time, seed after seed: `cargo run -p fairlane-lab --example chaos -- FIRST COUNT`.
#![expect(clippy::print_stdout, reason = "a program that tells what it found")]

use std::process::ExitCode;

use fairlane_lab::chaos;

fn main() -> ExitCode {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [first, count] = numbers[..] else {
        eprintln!("usage: chaos FIRST COUNT");
        return ExitCode::from(2);
    };
    let (mut requests, mut faults, mut failed) = (0, 0, 0);
    for seed in first..first.saturating_add(count) {
        match chaos::run(seed) {
            Ok(report) => {
                requests += report.requests;
                faults += report.faults;
            }
            Err(broken) => {
                failed += 1;
                println!("{broken}");
            }
        }
    }
    println!("{count} worlds from seed {first}: {requests} requests, {faults} faults, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
