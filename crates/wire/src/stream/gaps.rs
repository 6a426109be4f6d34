//! The places between two events of a stream, where something can be put in that the backend did not send.

use crate::sse::{LineKind, SseLines};

/// Follows what a client gets of a stream.
///
/// ```
/// use fairlane_wire::stream::Gaps;
///
/// let mut gaps = Gaps::default();
/// assert!(gaps.is_between());
/// assert_eq!(gaps.feed(b"data: 1\n\ndata: "), Some(9));
/// assert!(!gaps.is_between());
/// assert_eq!((gaps.feed(b"2\n"), gaps.feed(b"\n")), (None, Some(1)));
/// assert_eq!(gaps.events(), 2);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    lines: SseLines,
    is_inside: bool,
    has_data: bool,
    events: u64,
}

impl Gaps {
    /// Reads what comes next; where in it the last event or comment ends that ends there.
    pub fn feed(&mut self, chunk: &[u8]) -> Option<usize> {
        let mut at = 0;
        let mut last = None;
        while let Some(piece) = self.lines.next(chunk, at) {
            at = piece.bytes.end;
            match piece.kind {
                LineKind::Blank => {
                    self.events += u64::from(self.has_data);
                    (self.is_inside, self.has_data) = (false, false);
                    last = Some(at);
                }
                LineKind::LateLineFeed => last = if self.is_inside { last } else { Some(at) },
                LineKind::Data => (self.is_inside, self.has_data) = (true, true),
                LineKind::Undecided | LineKind::Comment | LineKind::EventName | LineKind::Other => {
                    self.is_inside = true;
                }
            }
        }
        last
    }

    /// Whether the last byte ended an event or a comment.
    #[must_use]
    pub const fn is_between(&self) -> bool {
        !self.is_inside
    }

    /// Events with data that have ended.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_ends_of_events_and_comments_are_gaps_at_every_cut() {
        let stream = b"event: a\r\ndata: x\r\n\r\n: note\n\ndata: y\ndata: z\n\n";
        let ends = [21, 29, 46];
        for first in 0..=stream.len() {
            for second in first..=stream.len() {
                let mut gaps = Gaps::default();
                let mut at = 0;
                for cut in [first, second, stream.len()] {
                    let found = gaps.feed(&stream[at..cut]).map(|end| at + end);
                    // A CRLF that is cut ends with its CR, and again with its LF.
                    let whole = ends.iter().copied().rfind(|end| (at + 1..=cut).contains(end));
                    let halved = (cut == 20 && at < 20).then_some(20);
                    assert_eq!(found, whole.or(halved), "{at} to {cut}");
                    at = cut;
                }
                assert!(gaps.is_between());
                assert_eq!(gaps.events(), 2);
            }
        }
    }
}
