//! Reads answers that a backend compressed although it was not asked to: a copy is decoded, the bytes pass as they came.

use std::io::{ErrorKind, Result, Write};

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

use super::summary::{EndOfStream, Outcome, Summary};
use crate::usage::UsageSource;

/// The copy is given up when it grows beyond this, however large the answer was.
const DECODED_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Above this size the copy is also given up when it is more than [`EXPANSION_MAX`] times the encoded bytes.
const EXPANSION_FROM_BYTES: u64 = 1024 * 1024;
const EXPANSION_MAX: u64 = 200;
/// So much is decoded at a time: deflate expands at most 1,032 times, which bounds what waits in memory.
const PART_BYTES: usize = 256;

/// A content coding that is not `identity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// `gzip`, `x-gzip`.
    Gzip,
    /// `deflate`, with or without the zlib wrapper.
    Deflate,
    /// Any other: the answer passes, its usage is estimated.
    Unreadable,
}

impl Coding {
    /// The coding named by a `content-encoding` header. `None` for `identity` and an empty value: the bytes are plain.
    #[must_use]
    pub fn from_header(value: &str) -> Option<Self> {
        let value = value.trim();
        if value.is_empty() || value.eq_ignore_ascii_case("identity") {
            None
        } else if value.eq_ignore_ascii_case("gzip") || value.eq_ignore_ascii_case("x-gzip") {
            Some(Self::Gzip)
        } else if value.eq_ignore_ascii_case("deflate") {
            Some(Self::Deflate)
        } else {
            Some(Self::Unreadable)
        }
    }
}

/// A reader that can be fed a decoded copy: [`StreamReader`](super::StreamReader) and [`ReplyReader`](crate::reply::ReplyReader).
pub trait AnswerReader {
    /// Reads plain bytes; nothing can be hidden from an encoded answer.
    fn read_plain(&mut self, bytes: &[u8]);
    /// The account at the end.
    fn finish_plain(&mut self, how: EndOfStream) -> Summary;
}

/// Decodes a copy of an encoded answer and feeds it to a reader.
///
/// The caller forwards the encoded bytes as they came, with their header. Hiding the usage-only chunk is impossible here.
#[derive(Debug)]
pub struct Encoded<R: AnswerReader> {
    reader: R,
    decoder: Decoder,
    encoded_bytes: u64,
    decoded_bytes: u64,
    /// The copy ended early: a bomb, a broken encoding, or one that cannot be read.
    lost: bool,
}

#[derive(Debug)]
enum Decoder {
    Gzip(MultiGzDecoder<Vec<u8>>),
    /// The first byte tells whether there is a zlib wrapper.
    Deflate,
    Zlib(ZlibDecoder<Vec<u8>>),
    Raw(DeflateDecoder<Vec<u8>>),
    Unreadable,
}

impl<R: AnswerReader> Encoded<R> {
    /// Wraps a reader for an answer in this coding.
    pub fn new(coding: Coding, reader: R) -> Self {
        let decoder = match coding {
            Coding::Gzip => Decoder::Gzip(MultiGzDecoder::new(Vec::new())),
            Coding::Deflate => Decoder::Deflate,
            Coding::Unreadable => Decoder::Unreadable,
        };
        Self { reader, decoder, encoded_bytes: 0, decoded_bytes: 0, lost: coding == Coding::Unreadable }
    }

    /// Reads a chunk. All of it is to be forwarded.
    pub fn feed(&mut self, chunk: &[u8]) {
        for part in chunk.chunks(PART_BYTES) {
            self.part(part, Flush::No);
        }
        if !chunk.is_empty() {
            self.part(&[], Flush::Yes);
        }
    }

    /// The reader, with what it knows so far.
    #[must_use]
    pub fn reader(&self) -> &R {
        &self.reader
    }

    /// The account at the end. If the copy was lost on the way, its end is the end of the bytes, and usage that was not seen is estimated.
    pub fn finish(&mut self, how: EndOfStream) -> Summary {
        let mut summary = self.reader.finish_plain(how);
        if !self.lost || summary.error.is_some() {
            return summary;
        }
        if summary.outcome != Outcome::Completed {
            summary.outcome = match how {
                EndOfStream::Clean => Outcome::Completed,
                EndOfStream::Broken => Outcome::Interrupted,
            };
        }
        if summary.source == UsageSource::None {
            summary.source = UsageSource::Estimated;
        }
        summary
    }

    fn part(&mut self, part: &[u8], flush: Flush) {
        if self.lost {
            return;
        }
        self.encoded_bytes = self.encoded_bytes.saturating_add(part.len() as u64);
        let Ok(decoded) = self.decoder.decode(part, flush) else {
            self.lost = true;
            return;
        };
        self.decoded_bytes = self.decoded_bytes.saturating_add(decoded.len() as u64);
        let bytes_max =
            self.encoded_bytes.saturating_mul(EXPANSION_MAX).clamp(EXPANSION_FROM_BYTES, DECODED_BYTES_MAX);
        if self.decoded_bytes > bytes_max {
            self.lost = true;
        } else {
            self.reader.read_plain(decoded);
        }
        decoded.clear();
        if self.lost {
            self.decoder = Decoder::Unreadable;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    Yes,
    No,
}

impl Decoder {
    /// What came out for this part; the caller empties it.
    fn decode(&mut self, part: &[u8], flush: Flush) -> Result<&mut Vec<u8>> {
        if let (Self::Deflate, Some(first)) = (&*self, part.first()) {
            // A zlib wrapper starts with method 8 and a window of at most 32 KiB. Encoders never start a raw stream with such a byte:
            // it would be a stored block with padding that is not zero.
            *self = if first & 0x0f == 8 && first >> 4 <= 7 {
                Self::Zlib(ZlibDecoder::new(Vec::new()))
            } else {
                Self::Raw(DeflateDecoder::new(Vec::new()))
            };
        }
        match self {
            Self::Gzip(decoder) => {
                through(decoder, part, flush)?;
                Ok(decoder.get_mut())
            }
            Self::Zlib(decoder) => {
                through(decoder, part, flush)?;
                Ok(decoder.get_mut())
            }
            Self::Raw(decoder) => {
                through(decoder, part, flush)?;
                Ok(decoder.get_mut())
            }
            Self::Deflate | Self::Unreadable => Err(ErrorKind::Unsupported.into()),
        }
    }
}

fn through(decoder: &mut impl Write, part: &[u8], flush: Flush) -> Result<()> {
    decoder.write_all(part)?;
    match flush {
        Flush::Yes => decoder.flush(),
        Flush::No => Ok(()),
    }
}
