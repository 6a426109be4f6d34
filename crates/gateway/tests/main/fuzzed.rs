//! What fuzzers have found worth keeping, read again: each corpus under `fuzz/corpus` through the checks that its target makes.

#![cfg(test)]
#![expect(unreachable_pub, reason = "the fuzz targets are another crate that includes these files")]

#[path = "../../../../fuzz/src/configuration.rs"]
mod configuration;
#[path = "../../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../../fuzz/src/headers.rs"]
mod headers;

use corpus::replay;

#[test]
fn what_fuzzers_found_of_configurations_is_read_right() {
    replay("configuration", configuration::check);
}

#[test]
fn what_fuzzers_found_of_headers_is_read_right() {
    replay("headers", headers::check);
}
