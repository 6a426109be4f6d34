//! A key, a word or a number that may be cut between chunks.

/// Longer keys, words and numbers are of no interest; the longest that matters is an event type of 41 bytes.
const WORD_BYTES_MAX: usize = 64;

/// A key, word or number that may be cut between chunks.
#[derive(Clone, Debug)]
pub(super) struct Word {
    bytes: [u8; WORD_BYTES_MAX],
    length: usize,
    /// Too long, or written with escapes: equal to no known word.
    odd: bool,
}

impl Default for Word {
    fn default() -> Self {
        Self { bytes: [0; WORD_BYTES_MAX], length: 0, odd: false }
    }
}

impl Word {
    pub(super) fn clear(&mut self) {
        self.length = 0;
        self.odd = false;
    }

    /// No known word is written so.
    pub(super) fn spoil(&mut self) {
        self.odd = true;
    }

    pub(super) fn push(&mut self, part: &[u8]) {
        let taken = part.len().min(WORD_BYTES_MAX - self.length);
        self.bytes[self.length..self.length + taken].copy_from_slice(&part[..taken]);
        self.length += taken;
        self.odd |= taken < part.len();
    }

    /// The whole word with its last part: no copy if it was not cut.
    pub(super) fn finish<'w>(&'w mut self, last: &'w [u8]) -> Option<&'w [u8]> {
        if self.length == 0 && !self.odd {
            return (last.len() <= WORD_BYTES_MAX).then_some(last);
        }
        self.push(last);
        (!self.odd).then_some(&self.bytes[..self.length])
    }

    /// As much of the word as fits: enough for a number, which saturates long before.
    pub(super) fn beginning<'w>(&'w mut self, last: &'w [u8]) -> &'w [u8] {
        if self.length == 0 {
            return &last[..last.len().min(WORD_BYTES_MAX)];
        }
        self.push(last);
        &self.bytes[..self.length]
    }
}
