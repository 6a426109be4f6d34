//! The shape of the last event that was only a piece of text, so that the next one like it need not be scanned.
//!
//! Chunks of one stream differ in little but their text. If all bytes before the text and all bytes after it are the same, and the text holds
//! neither a quote nor a backslash, then a scan would find the same facts again: comparing is exact, not a guess.

use memchr::memchr2;

/// Longer shapes are not worth keeping per stream.
const SHAPE_BYTES_MAX: usize = 1024;

/// The bytes around a piece of text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Template {
    before: Vec<u8>,
    after: Vec<u8>,
    choice: u32,
}

impl Template {
    /// Remembers the shape of a document whose only fact is the text in `span`.
    pub(crate) fn learn(&mut self, document: &[u8], span: (usize, usize), choice: u32) {
        self.before.clear();
        self.after.clear();
        if document.len() - (span.1 - span.0) > SHAPE_BYTES_MAX {
            return;
        }
        self.before.extend_from_slice(&document[..span.0]);
        self.after.extend_from_slice(&document[span.1..]);
        self.choice = choice;
    }

    /// The text of a document of the same shape, and its choice.
    pub(crate) fn text<'d>(&self, document: &'d [u8]) -> Option<(&'d [u8], u32)> {
        if self.before.is_empty() {
            return None;
        }
        let text = document.strip_prefix(self.before.as_slice())?.strip_suffix(self.after.as_slice())?;
        let plain = !text.is_empty() && memchr2(b'"', b'\\', text).is_none();
        plain.then_some((text, self.choice))
    }

    /// Bytes set aside, in use or not.
    pub(crate) fn held_bytes(&self) -> usize {
        self.before.capacity() + self.after.capacity()
    }
}
