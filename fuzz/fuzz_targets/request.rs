//! Fuzzes what `src/request.rs` checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fairlane_fuzz::request::check(bytes));
