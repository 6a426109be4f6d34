//! Splits a server-sent event stream into pieces of lines, at whatever places the chunks were cut.
//!
//! Nothing is buffered but the first bytes of a field name, so a line may be of any length. A line may end in LF, CR or CRLF;
//! the blank after the colon may be missing; a byte order mark at the start is skipped.

use core::ops::Range;

use memchr::memchr2;

/// The longest field name that matters is `event`; the rest is room for a byte order mark.
const NAME_BYTES_MAX: usize = 8;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// The chunk ended inside the field name: the next piece tells.
    Undecided,
    /// A line that starts with a colon: keep-alive, ignored by clients.
    Comment,
    /// A `data` line.
    Data,
    /// An `event` line: the event's name.
    EventName,
    /// `id`, `retry` and fields that the standard does not know.
    Other,
    /// An empty line: the event before it is complete.
    Blank,
    /// The LF of a CRLF whose CR ended the chunk before; it belongs to the line before.
    LateLineFeed,
}

/// A line, or the part of it that lies in one chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinePiece {
    /// What the line is.
    pub kind: LineKind,
    /// All bytes of the piece in the chunk, line end included.
    pub bytes: Range<usize>,
    /// The part of the value in the chunk: after the colon and one blank, without the line end.
    pub value: Range<usize>,
    /// Whether the value starts in this piece.
    pub starts: bool,
    /// Whether the line ends in this piece.
    pub ends: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At the first byte of a line.
    Start,
    /// Inside a field name that began in an earlier chunk.
    Name,
    /// Inside a value; `started` is false while the optional blank may still come.
    Value { kind: LineKind, started: bool },
}

/// The splitter: feed it chunk after chunk.
///
/// ```
/// use fairlane_wire::sse::{LineKind, SseLines};
///
/// let mut lines = SseLines::default();
/// let chunk = b": ping\n\ndata: {}\n\n";
/// let mut at = 0;
/// let mut kinds = Vec::new();
/// while let Some(piece) = lines.next(chunk, at) {
///     at = piece.bytes.end;
///     kinds.push(piece.kind);
/// }
/// assert_eq!(kinds, [LineKind::Comment, LineKind::Blank, LineKind::Data, LineKind::Blank]);
/// ```
#[derive(Clone, Debug)]
pub struct SseLines {
    place: Place,
    name: [u8; NAME_BYTES_MAX],
    name_bytes: u8,
    name_too_long: bool,
    line_feed_may_follow: bool,
    first_line: bool,
}

impl Default for SseLines {
    fn default() -> Self {
        Self {
            place: Place::Start,
            name: [0; NAME_BYTES_MAX],
            name_bytes: 0,
            name_too_long: false,
            line_feed_may_follow: false,
            first_line: true,
        }
    }
}

impl SseLines {
    /// The piece of a line that starts at `from`, the end of the piece before. `None` at the end of the chunk.
    #[must_use]
    pub fn next(&mut self, chunk: &[u8], from: usize) -> Option<LinePiece> {
        let rest = chunk.get(from..).filter(|rest| !rest.is_empty())?;
        if self.line_feed_may_follow {
            self.line_feed_may_follow = false;
            if rest[0] == b'\n' {
                return Some(LinePiece {
                    kind: LineKind::LateLineFeed,
                    bytes: from..from + 1,
                    value: from..from,
                    starts: false,
                    ends: true,
                });
            }
        }
        Some(match self.place {
            Place::Start if rest.starts_with(b"data:") => {
                self.first_line = false;
                self.value(chunk, from, from + 5, (LineKind::Data, false))
            }
            Place::Start if rest.starts_with(b"event:") => {
                self.first_line = false;
                self.value(chunk, from, from + 6, (LineKind::EventName, false))
            }
            Place::Start | Place::Name => self.name(chunk, from),
            Place::Value { kind, started } => self.value(chunk, from, from, (kind, started)),
        })
    }

    fn name(&mut self, chunk: &[u8], from: usize) -> LinePiece {
        let rest = &chunk[from..];
        let stop = rest.iter().position(|byte| matches!(byte, b':' | b'\n' | b'\r'));
        let own = &rest[..stop.unwrap_or(rest.len())];
        self.remember_name(own);
        match stop.map(|stop| (from + stop, rest[stop])) {
            None => {
                self.place = Place::Name;
                LinePiece {
                    kind: if self.name_too_long { LineKind::Other } else { LineKind::Undecided },
                    bytes: from..chunk.len(),
                    value: chunk.len()..chunk.len(),
                    starts: false,
                    ends: false,
                }
            }
            Some((colon, b':')) => {
                let kind = self.named_kind();
                self.forget_name();
                self.value(chunk, from, colon + 1, (kind, false))
            }
            Some((end, _)) => {
                let mut kind = self.named_kind();
                if kind == LineKind::Comment {
                    // No colon: an empty name is an empty line.
                    kind = LineKind::Blank;
                }
                self.forget_name();
                self.value(chunk, from, end, (kind, true))
            }
        }
    }

    /// The rest of a line whose value goes on at `at`.
    fn value(
        &mut self,
        chunk: &[u8],
        from: usize,
        at: usize,
        (kind, started): (LineKind, bool),
    ) -> LinePiece {
        let blank = usize::from(!started && chunk.get(at) == Some(&b' '));
        let start = at + blank;
        let begins = !started && at < chunk.len();
        let Some(length) = memchr2(b'\n', b'\r', &chunk[start..]) else {
            self.place = Place::Value { kind, started: started || begins };
            return LinePiece {
                kind,
                bytes: from..chunk.len(),
                value: start..chunk.len(),
                starts: begins,
                ends: false,
            };
        };
        self.place = Place::Start;
        let end = start + length;
        let return_first = chunk[end] == b'\r';
        let both = return_first && chunk.get(end + 1) == Some(&b'\n');
        self.line_feed_may_follow = return_first && end + 1 == chunk.len();
        LinePiece {
            kind,
            bytes: from..end + 1 + usize::from(both),
            value: start..end,
            starts: begins,
            ends: true,
        }
    }

    fn remember_name(&mut self, part: &[u8]) {
        let from = usize::from(self.name_bytes);
        match self.name.get_mut(from..from + part.len()) {
            Some(room) => {
                room.copy_from_slice(part);
                self.name_bytes = u8::try_from(from + part.len()).unwrap_or(u8::MAX);
            }
            None => self.name_too_long = true,
        }
    }

    fn named_kind(&self) -> LineKind {
        if self.name_too_long {
            return LineKind::Other;
        }
        let name = &self.name[..usize::from(self.name_bytes)];
        let name = if self.first_line { name.strip_prefix(BYTE_ORDER_MARK).unwrap_or(name) } else { name };
        match name {
            b"" => LineKind::Comment,
            b"data" => LineKind::Data,
            b"event" => LineKind::EventName,
            _ => LineKind::Other,
        }
    }

    fn forget_name(&mut self) {
        self.name_bytes = 0;
        self.name_too_long = false;
        self.first_line = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kinds and values of whole lines, the stream cut at the given places.
    fn read(stream: &[u8], cuts: &[usize]) -> Vec<(LineKind, String)> {
        let mut lines = SseLines::default();
        let mut read: Vec<(LineKind, String)> = Vec::new();
        let mut open = false;
        let mut from = 0;
        for &cut in cuts.iter().chain([&stream.len()]) {
            let chunk = &stream[from..cut];
            let mut at = 0;
            while let Some(piece) = lines.next(chunk, at) {
                assert_eq!(piece.bytes.start, at);
                at = piece.bytes.end;
                let value = String::from_utf8_lossy(&chunk[piece.value.clone()]).into_owned();
                if piece.kind == LineKind::LateLineFeed {
                    continue;
                }
                if open {
                    let last = read.last_mut().unwrap();
                    last.0 = piece.kind;
                    last.1.push_str(&value);
                } else {
                    read.push((piece.kind, value));
                }
                open = !piece.ends;
            }
            assert_eq!(at, chunk.len());
            from = cut;
        }
        read
    }

    #[test]
    fn every_form_of_line_is_read_the_same_at_every_cut() {
        let stream = b"\xef\xbb\xbfevent: a\r\ndata:x\ndata:  y \rdata\n:\n: note: well\nid: 7\nretry:3\n\
            datax: no\nunknown-and-long: z\n\r\n\n\rdata: end";
        let expected = [
            (LineKind::EventName, "a"),
            (LineKind::Data, "x"),
            (LineKind::Data, " y "),
            (LineKind::Data, ""),
            (LineKind::Comment, ""),
            (LineKind::Comment, "note: well"),
            (LineKind::Other, "7"),
            (LineKind::Other, "3"),
            (LineKind::Other, "no"),
            (LineKind::Other, "z"),
            (LineKind::Blank, ""),
            (LineKind::Blank, ""),
            (LineKind::Blank, ""),
            (LineKind::Data, "end"),
        ]
        .map(|(kind, value)| (kind, value.to_owned()));
        assert_eq!(read(stream, &[]), expected);
        for first in 0..stream.len() {
            for second in first..stream.len() {
                assert_eq!(read(stream, &[first, second]), expected, "{first} {second}");
            }
        }
        let every: Vec<usize> = (1..stream.len()).collect();
        assert_eq!(read(stream, &every), expected);
    }

    #[test]
    fn the_line_feed_of_a_cut_crlf_is_no_blank_line() {
        let kinds: Vec<_> = read(b"data: x\r\n\r\n", &[8, 10]).into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(kinds, [LineKind::Data, LineKind::Blank]);
    }
}
