//! A word on a line, short enough to compare, that may be cut between chunks.

/// `[DONE]`, `error` and a little more.
const MARK_BYTES_MAX: usize = 16;

/// A word short enough to compare.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    bytes: [u8; MARK_BYTES_MAX],
    length: usize,
    pub(super) too_long: bool,
}

impl Mark {
    pub(super) fn push(&mut self, part: &[u8]) {
        let taken = part.len().min(MARK_BYTES_MAX - self.length);
        self.bytes[self.length..self.length + taken].copy_from_slice(&part[..taken]);
        self.length += taken;
        self.too_long |= taken < part.len();
    }

    pub(super) fn is(&self, word: &[u8]) -> bool {
        !self.too_long && self.bytes[..self.length].trim_ascii() == word
    }
}
