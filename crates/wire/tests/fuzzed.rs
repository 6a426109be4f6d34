//! What fuzzers have found worth keeping, read again: each corpus under `fuzz/corpus` through the checks that its target makes.

#![cfg(test)]
#![expect(unreachable_pub, reason = "the fuzz targets are another crate that includes these files")]

#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/src/decode.rs"]
mod decode;
#[path = "../../../fuzz/src/identity.rs"]
mod identity;
#[path = "../../../fuzz/src/input.rs"]
mod input;
#[path = "../../../fuzz/src/reply.rs"]
mod reply;
#[path = "../../../fuzz/src/request.rs"]
mod request;
#[path = "../../../fuzz/src/sse.rs"]
mod sse;
#[path = "../../../fuzz/src/stream.rs"]
mod stream;

use corpus::replay;

#[test]
fn what_fuzzers_found_of_requests_is_read_right() {
    replay("request", request::check);
}

#[test]
fn what_fuzzers_found_of_streams_is_read_right() {
    replay("stream", stream::check);
}

#[test]
fn what_fuzzers_found_of_replies_is_read_right() {
    replay("reply", reply::check);
}

#[test]
fn what_fuzzers_found_of_compressed_bodies_is_read_right() {
    replay("decode", decode::check);
}

#[test]
fn what_fuzzers_found_of_event_lines_is_read_right() {
    replay("sse", sse::check);
}

#[test]
fn what_fuzzers_found_of_senders_is_read_right() {
    replay("identity", identity::check);
}
