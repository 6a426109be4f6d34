//! Cuts a stream where its budget ends: between two events, with an error event as the last one.

use bytes::Bytes;
use fairlane_core::refusal::Refusal;
use fairlane_wire::dialect::Endpoint;
use fairlane_wire::stream::Gaps;

/// Follows a stream that may be cut.
#[derive(Debug)]
pub struct Cutter {
    gaps: Gaps,
    endpoint: Endpoint,
    refusal: Option<Refusal>,
}

/// The place of a cut.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Bytes of the last piece that still pass.
    pub passes: usize,
    /// Whose error event follows.
    pub endpoint: Endpoint,
    /// What is used up.
    pub refusal: Refusal,
    /// Events before the cut.
    pub events: u64,
}

impl Cutter {
    /// Follows a stream of that API, of which these pieces have passed already.
    #[must_use]
    pub fn new<'a>(endpoint: Endpoint, passed: impl Iterator<Item = &'a Bytes>) -> Self {
        let mut gaps = Gaps::default();
        for piece in passed {
            gaps.feed(piece);
        }
        Self { gaps, endpoint, refusal: None }
    }

    /// The budget is used up: the stream is cut at the end of the event that is under way.
    pub fn stop(&mut self, refusal: Refusal) {
        self.refusal.get_or_insert(refusal);
    }

    /// Reads the next piece for the client, and says where the stream is to be cut, if it is to be cut in it.
    pub fn pass(&mut self, piece: &[u8]) -> Option<Cut> {
        // An event that has begun passes whole: what it holds is charged.
        let is_here = piece.is_empty() && self.gaps.is_between();
        let passes = self.gaps.feed(piece).or_else(|| is_here.then_some(0));
        let refusal = self.refusal?;
        Some(Cut { passes: passes?, endpoint: self.endpoint, refusal, events: self.gaps.events() })
    }
}
