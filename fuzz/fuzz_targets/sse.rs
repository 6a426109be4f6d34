//! Fuzzes what `src/sse.rs` checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fairlane_fuzz::sse::check(bytes));
