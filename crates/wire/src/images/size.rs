//! The size of an image, read from the beginning of its data.

use crate::request::Base64;

/// Width and height in pixels, at least one and at most 2³² each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) width: u64,
    pub(super) height: u64,
}

impl Size {
    /// The same shape with the side `side` not above `side_max`.
    pub(super) fn shrunk_to(self, side: u64, side_max: u64) -> Self {
        if side <= side_max {
            return self;
        }
        let shrink = |length: u64| (length * side_max / side).max(1);
        Self { width: shrink(self.width), height: shrink(self.height) }
    }
}

/// The size of a PNG, GIF, WebP or JPEG image, or `None` for anything else.
pub(super) fn read(data: Base64<'_>) -> Option<Size> {
    let head = data.first_bytes(HEAD_BYTES);
    let (width, height) = if let Some(rest) = head.strip_prefix(b"\x89PNG\r\n\x1a\n") {
        (big(rest.get(8..12)?), big(rest.get(12..16)?))
    } else if head.starts_with(b"GIF8") {
        (little(head.get(6..8)?), little(head.get(8..10)?))
    } else if head.starts_with(b"RIFF") && head.get(8..12)? == b"WEBP" {
        webp(&head)?
    } else if head.starts_with(&[0xFF, 0xD8]) {
        jpeg(&head).or_else(|| jpeg(&data.first_bytes(JPEG_HEAD_BYTES)))?
    } else {
        return None;
    };
    (width > 0 && height > 0).then_some(Size { width, height })
}

fn webp(head: &[u8]) -> Option<(u64, u64)> {
    let chunk = head.get(12..16)?;
    if chunk == b"VP8X" {
        return Some((little(head.get(24..27)?) + 1, little(head.get(27..30)?) + 1));
    }
    if chunk == b"VP8L" {
        let bits = little(head.get(21..25)?);
        return Some(((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1));
    }
    (chunk == b"VP8 ").then_some(())?;
    Some((little(head.get(26..28)?) & 0x3FFF, little(head.get(28..30)?) & 0x3FFF))
}

/// Walks the segments of a JPEG up to the frame header, which holds the size.
fn jpeg(head: &[u8]) -> Option<(u64, u64)> {
    let mut rest = head.get(2..)?;
    loop {
        while rest.starts_with(&[0xFF, 0xFF]) {
            rest = &rest[1..];
        }
        let (&[0xFF, marker], segment) = rest.split_first_chunk()? else { return None };
        match marker {
            0xC4 | 0xC8 | 0xCC => {}
            0xC0..=0xCF => return Some((big(segment.get(5..7)?), big(segment.get(3..5)?))),
            0x01 | 0xD0..=0xD7 => {
                rest = segment;
                continue;
            }
            0xD8..=0xDA => return None,
            _ => {}
        }
        let length = usize::try_from(big(segment.get(..2)?)).ok()?;
        rest = segment.get(length.max(2)..)?;
    }
}

fn big(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// Enough for all formats but a JPEG with a long preface.
const HEAD_BYTES: usize = 512;
/// A JPEG may carry a preview and a colour profile before its size.
const JPEG_HEAD_BYTES: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jpeg_is_walked_over_its_preface() {
        let mut head = vec![0xFF, 0xD8, 0xFF, 0xE1, 0x01, 0x00];
        head.extend([0; 254]);
        head.extend([0xFF, 0xFF, 0xC4, 0, 3, 9, 0xFF, 0xC2, 0, 17, 8, 0x04, 0x38, 0x07, 0x80]);
        assert_eq!(jpeg(&head), Some((1_920, 1_080)));
    }

    #[test]
    fn a_broken_jpeg_has_no_size() {
        let frame = [0xFF, 0xD8, 0xFF, 0xC0, 0, 17, 8, 1, 2, 3, 4];
        for end in 0..frame.len() {
            assert_eq!(jpeg(&frame[..end]), None);
        }
        assert_eq!(jpeg(&[0xFF, 0xD8, 0xFF, 0xDA, 0, 2]), None);
        assert_eq!(jpeg(&[0xFF, 0xD8, 0, 0, 0, 0]), None);
    }
}
