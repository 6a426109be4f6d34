//! Fuzzes what `src/identity.rs` checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fairlane_fuzz::identity::check(bytes));
