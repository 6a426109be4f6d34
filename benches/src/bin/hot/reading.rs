//! Reading: requests and answers as they pass.

use std::hint::black_box;

use fairlane_benches::answers;
use fairlane_benches::requests::{self, Wanted};
use fairlane_wire::count::{ChatOverhead, InputRules, estimate_input};
use fairlane_wire::dialect::Endpoint;
use fairlane_wire::reply::ReplyReader;
use fairlane_wire::request::read;
use fairlane_wire::splice::{Edits, UsageChunk, splice};
use fairlane_wire::stream::{EndOfStream, HideUsage, StreamReader};

use crate::Operation;

/// The facts of a small body.
pub(crate) fn facts_small() -> Operation {
    facts(1_000)
}

/// The facts of a large body.
pub(crate) fn facts_large() -> Operation {
    facts(100_000)
}

/// The input of a small body, as an interval.
pub(crate) fn estimate_small() -> Operation {
    estimate(1_000)
}

/// The input of a large body, as an interval.
pub(crate) fn estimate_large() -> Operation {
    estimate(100_000)
}

/// An output bound and the wish for usage written into a body.
pub(crate) fn splicing() -> Operation {
    let body = body(1_000);
    let layout = read(Endpoint::ChatCompletions, &body).expect("the bench's body is sound").layout;
    let edits = Edits { output_bound: Some(32), usage: UsageChunk::Asked, ..Edits::default() };
    Box::new(move || {
        black_box(splice(&layout, &edits).apply(&body));
    })
}

/// A whole answer, read for its usage.
pub(crate) fn whole_answer() -> Operation {
    let answer = answers::whole(220);
    Box::new(move || {
        let mut reader = ReplyReader::new(Endpoint::ChatCompletions);
        reader.feed(answer.as_bytes());
        black_box(reader.finish(EndOfStream::Clean));
    })
}

/// A stream of twenty events, a usage event and the end mark, each as a piece of its own.
pub(crate) fn stream() -> Operation {
    let mut pieces: Vec<Vec<u8>> = answers::events().iter().map(|chunk| unframed(chunk)).collect();
    pieces.push(unframed(&answers::ending(220)));
    Box::new(move || {
        let mut reader = StreamReader::new(Endpoint::ChatCompletions, HideUsage::Yes);
        for piece in &pieces {
            black_box(reader.feed(piece));
        }
        black_box(reader.finish(EndOfStream::Clean));
    })
}

fn facts(bytes: usize) -> Operation {
    let body = body(bytes);
    Box::new(move || {
        black_box(read(Endpoint::ChatCompletions, &body).is_ok());
    })
}

fn estimate(bytes: usize) -> Operation {
    // It lives as long as the program: the facts borrow from it.
    let body: &'static [u8] = Box::leak(body(bytes).into_boxed_slice());
    let facts = read(Endpoint::ChatCompletions, body).expect("the bench's body is sound");
    let rules = InputRules::new(ChatOverhead::OPENAI);
    Box::new(move || {
        black_box(estimate_input(&facts, &rules));
    })
}

fn body(body_bytes: usize) -> Vec<u8> {
    let wanted =
        Wanted { model: "quick".to_owned(), streams: true, tenants: 1, body_bytes, host: String::new() };
    requests::body(&wanted, 0, 0).into_bytes()
}

/// The text of chunks without their frames of lengths and line ends.
fn unframed(chunks: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(chunks);
    let lines = text.split("\r\n").filter(|line| line.starts_with("data: "));
    lines.collect::<Vec<_>>().concat().into_bytes()
}
