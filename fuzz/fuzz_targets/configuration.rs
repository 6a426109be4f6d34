//! Fuzzes what `src/configuration.rs` checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fairlane_fuzz::configuration::check(bytes));
