//! Fuzzes what `src/decode.rs` checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fairlane_fuzz::decode::check(bytes));
