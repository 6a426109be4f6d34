//! The lines of an event stream beside a plain reading of the standard, at every choice of cuts.

use fairlane_wire::sse::{LineKind, SseLines};

use super::input::{Input, pieces};

/// Reads `input` as cuts and stream.
pub fn check(input: &[u8]) {
    let mut input = Input::new(input);
    let cuts = input.cuts();
    let stream = input.rest();
    let expected = plain(stream);
    assert_eq!(read(&[stream]), expected);
    assert_eq!(read(&pieces(stream, &cuts)), expected);
}

/// Kinds and values of the lines as the splitter gives them; the last may be unfinished.
fn read(chunks: &[&[u8]]) -> Vec<(LineKind, Vec<u8>)> {
    let mut lines = SseLines::default();
    let mut found: Vec<(LineKind, Vec<u8>)> = Vec::new();
    let mut is_open = false;
    for chunk in chunks {
        let mut at = 0;
        while let Some(piece) = lines.next(chunk, at) {
            assert_eq!(piece.bytes.start, at, "pieces follow each other");
            assert!(piece.bytes.end > at, "every piece has a byte");
            assert!(piece.bytes.start <= piece.value.start && piece.value.end <= piece.bytes.end);
            at = piece.bytes.end;
            if piece.kind == LineKind::LateLineFeed {
                assert!(!is_open);
                continue;
            }
            let value = &chunk[piece.value];
            match found.last_mut().filter(|_| is_open) {
                Some(last) => {
                    last.0 = piece.kind;
                    last.1.extend_from_slice(value);
                }
                None => found.push((piece.kind, value.to_vec())),
            }
            is_open = !piece.ends;
        }
        assert_eq!(at, chunk.len(), "every byte is in a piece");
    }
    // What an unfinished line is, is open until its colon.
    if is_open && found.last().is_some_and(|last| last.0 == LineKind::Undecided || last.1.is_empty()) {
        found.pop();
    }
    found
}

/// The same from the whole stream, as the standard says it: split into lines, then each at its colon.
fn plain(stream: &[u8]) -> Vec<(LineKind, Vec<u8>)> {
    let mut lines = Vec::new();
    let mut line = Vec::new();
    let mut bytes = stream.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\n' => lines.push(std::mem::take(&mut line)),
            b'\r' => {
                bytes.next_if_eq(&b'\n');
                lines.push(std::mem::take(&mut line));
            }
            byte => line.push(byte),
        }
    }
    let mut found: Vec<_> = lines.iter().enumerate().map(|(index, line)| field(line, index == 0)).collect();
    let unfinished = field(&line, found.is_empty());
    if !unfinished.1.is_empty() {
        found.push(unfinished);
    }
    found
}

fn field(line: &[u8], is_first: bool) -> (LineKind, Vec<u8>) {
    let line = if is_first { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
    if line.is_empty() {
        return (LineKind::Blank, Vec::new());
    }
    let colon = line.iter().position(|byte| *byte == b':');
    let (name, value) = match colon {
        Some(colon) => (&line[..colon], &line[colon + 1..]),
        None => (line, &b""[..]),
    };
    let kind = match name {
        b"" => LineKind::Comment,
        b"data" => LineKind::Data,
        b"event" => LineKind::EventName,
        _ => LineKind::Other,
    };
    (kind, value.strip_prefix(b" ").unwrap_or(value).to_vec())
}
