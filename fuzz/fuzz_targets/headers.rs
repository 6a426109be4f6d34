//! Fuzzes what `src/headers.rs` checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fairlane_fuzz::headers::check(bytes));
