//! Fuzzes what `src/stream.rs` checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fairlane_fuzz::stream::check(bytes));
