//! Fuzzes what `src/reply.rs` checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fairlane_fuzz::reply::check(bytes));
