//! Leaves the usage-only chunk out of what the client gets, and holds nothing else back.
//!
//! Only the bytes of an event that may still turn out to be that chunk are held, and only while it is incomplete. Comments pass at once.

use core::ops::Range;

use crate::sse::{LineKind, LinePiece};

/// A usage-only chunk is shorter; an event that is longer passes.
const HELD_BYTES_MAX: usize = 16 * 1024;

/// What is known of the document being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may be the usage-only chunk.
    Open,
    /// It is not, and goes on.
    Pass,
    /// It was not, and has ended.
    Passed,
    /// It was the usage-only chunk, and has ended.
    Drop,
}

/// Which bytes of a chunk to send on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forward {
    /// The chunk as it came: no copy is needed.
    Whole,
    /// First `released`, then these ranges of the chunk, in order. Both may be empty.
    Parts {
        /// Bytes held back from earlier chunks.
        released: Vec<u8>,
        /// What to send of this chunk.
        ranges: Vec<Range<usize>>,
    },
}

/// The bytes that wait, and the places of a chunk that are sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hold {
    /// The document being read passes whatever else it says.
    passing: bool,
    /// Bytes of earlier chunks that wait for the verdict.
    held: Vec<u8>,
    /// Where the waiting bytes start in this chunk.
    open_from: Option<usize>,
    /// Whether the waiting bytes hold part of a document, not only `id` or `event` lines.
    holds_data: bool,
    /// The document of this event was dropped: so are its other lines.
    after_drop: bool,
    dropped_last: bool,
    released: Vec<u8>,
    ranges: Vec<Range<usize>>,
    /// End of the bytes of this chunk that are settled.
    sent_to: usize,
    changed: bool,
}

impl Hold {
    /// Bytes set aside, in use or not.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held.capacity() + self.released.capacity()
    }

    pub(crate) fn begin(&mut self) {
        self.open_from = (!self.held.is_empty()).then_some(0);
        self.sent_to = 0;
        self.changed = false;
    }

    /// Places a piece of a line; says whether a document ended with it and is left out. `verdict` is what the data read so far tells;
    /// it matters for data lines only.
    pub(crate) fn place(&mut self, piece: &LinePiece, verdict: Verdict) -> bool {
        let bytes = piece.bytes.clone();
        let dropped_before = core::mem::take(&mut self.dropped_last);
        match piece.kind {
            LineKind::Comment => {
                self.release();
                self.passing |= core::mem::take(&mut self.holds_data);
            }
            LineKind::LateLineFeed if dropped_before => self.drop(bytes),
            LineKind::LateLineFeed => {}
            LineKind::Undecided | LineKind::EventName | LineKind::Other => {
                if !self.passing {
                    self.open_from.get_or_insert(bytes.start);
                }
            }
            LineKind::Data => {
                let is_left_out = verdict == Verdict::Drop && !self.passing;
                self.data(bytes, verdict);
                return is_left_out;
            }
            LineKind::Blank => {
                if self.after_drop {
                    self.drop(bytes);
                } else {
                    self.release();
                }
                self.after_drop = false;
                self.passing = false;
                self.holds_data = false;
            }
        }
        false
    }

    fn data(&mut self, bytes: Range<usize>, verdict: Verdict) {
        if !self.passing {
            self.open_from.get_or_insert(bytes.start);
            self.holds_data = true;
        }
        self.after_drop = false;
        match verdict {
            Verdict::Open => {}
            Verdict::Drop if !self.passing => {
                self.drop(bytes);
                self.after_drop = true;
                self.holds_data = false;
            }
            Verdict::Pass => {
                self.release();
                self.passing = true;
            }
            Verdict::Drop | Verdict::Passed => {
                self.release();
                self.passing = false;
                self.holds_data = false;
            }
        }
    }

    /// The bytes to send of a chunk of `length` bytes.
    pub(crate) fn end(&mut self, chunk: &[u8]) -> Forward {
        if let Some(from) = self.open_from {
            if self.held.len() + chunk.len() - from > HELD_BYTES_MAX {
                self.release();
                self.passing = true;
            } else {
                self.held.extend_from_slice(&chunk[from..]);
                self.push(self.sent_to..from);
                self.sent_to = chunk.len();
                self.changed = true;
            }
        }
        if !self.changed {
            return Forward::Whole;
        }
        self.push(self.sent_to..chunk.len());
        Forward::Parts {
            released: core::mem::take(&mut self.released),
            ranges: core::mem::take(&mut self.ranges),
        }
    }

    /// What still waits when the stream ends; `None` if that is the usage-only chunk.
    pub(crate) fn finish(&mut self, verdict: Verdict) -> Option<Vec<u8>> {
        let held = core::mem::take(&mut self.held);
        (verdict != Verdict::Drop || self.passing).then_some(held)
    }

    /// The waiting bytes pass: those of this chunk simply stay in the run that is sent.
    fn release(&mut self) {
        if self.open_from.take().is_some() && !self.held.is_empty() {
            self.released.append(&mut self.held);
            self.changed = true;
        }
    }

    /// Leaves out the waiting bytes and these.
    fn drop(&mut self, bytes: Range<usize>) {
        self.held.clear();
        let from = self.open_from.take().unwrap_or(bytes.start);
        self.push(self.sent_to..from);
        self.sent_to = bytes.end;
        self.changed = true;
        self.dropped_last = true;
    }

    fn push(&mut self, range: Range<usize>) {
        if !range.is_empty() {
            self.ranges.push(range);
        }
    }
}
