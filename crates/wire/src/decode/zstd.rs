//! Zstandard (RFC 8878) for request bodies: frames and blocks, decoded straight into the output.
//!
//! Our own, because a body is hostile: a block of a few kilobytes can ask for gigabytes, and the
//! decoder must stop at the limit, keep no window besides the output, and never panic. Content
//! checksums are passed over: the transport has its own, and a wrong body fails as JSON.

mod bits;
mod fse;
mod huffman;
mod literals;
mod sequences;

use super::{DecodeError, grow};
use bits::Cursor;
use literals::Literals;
use sequences::Sequences;

/// The input is not what the format allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Corrupt;

/// The most that one block may produce (RFC 8878, 3.1.1.2.4).
const BLOCK_BYTES_MAX: usize = 128 * 1024;

/// Decodes all frames of a body.
pub(super) fn decode(body: &[u8], limit_bytes: usize) -> Result<Vec<u8>, DecodeError> {
    let mut output = Output { bytes: Vec::new(), limit_bytes, block_end_max: 0 };
    let mut input = Cursor::new(body);
    while !input.is_empty() {
        frame(&mut input, &mut output)?;
    }
    // A body without a frame is not a compressed empty body: that one has a frame.
    if body.is_empty() {
        return Err(Corrupt.into());
    }
    Ok(output.bytes)
}

impl From<Corrupt> for DecodeError {
    fn from(Corrupt: Corrupt) -> Self {
        Self::Malformed { encoding: "zstd" }
    }
}

/// What was decoded so far, of all frames.
struct Output {
    bytes: Vec<u8>,
    limit_bytes: usize,
    /// How long `bytes` may be at the end of the block at hand.
    block_end_max: usize,
}

impl Output {
    fn begin_block(&mut self) {
        self.block_end_max = self.bytes.len().saturating_add(BLOCK_BYTES_MAX);
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        self.make_room(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn repeat(&mut self, byte: u8, count: usize) -> Result<(), DecodeError> {
        self.make_room(count)?;
        self.bytes.resize(self.bytes.len() + count, byte);
        Ok(())
    }

    /// Copies `count` bytes from `offset` bytes back; the copy may run into itself.
    fn copy_back(&mut self, offset: usize, count: usize) -> Result<(), DecodeError> {
        self.make_room(count)?;
        let mut left = count;
        let from = self.bytes.len() - offset;
        while left > 0 {
            let step = left.min(self.bytes.len() - from);
            self.bytes.extend_from_within(from..from + step);
            left -= step;
        }
        Ok(())
    }

    fn make_room(&mut self, count: usize) -> Result<(), DecodeError> {
        if self.bytes.len().saturating_add(count) > self.block_end_max {
            return Err(Corrupt.into());
        }
        grow(&mut self.bytes, count, self.limit_bytes)
    }
}

fn frame(input: &mut Cursor<'_>, output: &mut Output) -> Result<(), DecodeError> {
    let magic = input.little_endian(4)?;
    if magic & 0xFFFF_FFF0 == SKIPPABLE_MAGIC {
        let bytes = input.little_endian(4)?;
        input.take(usize::try_from(bytes).map_err(|_| Corrupt)?)?;
        return Ok(());
    }
    if magic != MAGIC {
        return Err(Corrupt.into());
    }
    let descriptor = input.byte()?;
    let content_bytes = frame_content_size(input, descriptor)?;
    if let Some(bytes) = content_bytes
        && bytes > (output.limit_bytes - output.bytes.len()) as u64
    {
        let limit_bytes = output.limit_bytes;
        return Err(DecodeError::TooLarge { limit_bytes });
    }
    let start = output.bytes.len();
    blocks(input, output)?;
    let has_checksum = descriptor & 0b100 != 0;
    if has_checksum {
        input.take(4)?;
    }
    if content_bytes.is_some_and(|bytes| bytes != (output.bytes.len() - start) as u64) {
        return Err(Corrupt.into());
    }
    Ok(())
}

/// Reads the frame header after its descriptor: the size of the content, if it is told.
fn frame_content_size(input: &mut Cursor<'_>, descriptor: u8) -> Result<Option<u64>, Corrupt> {
    let is_reserved = descriptor & 0b1000 != 0;
    if is_reserved {
        return Err(Corrupt);
    }
    let is_single_segment = descriptor & 0b10_0000 != 0;
    if !is_single_segment {
        // The window, which matters only to decoders that forget: this one keeps all its output.
        input.byte()?;
    }
    let dictionary = input.little_endian([0, 1, 2, 4][usize::from(descriptor & 0b11)])?;
    if dictionary != 0 {
        return Err(Corrupt);
    }
    match (descriptor >> 6, is_single_segment) {
        (0, false) => Ok(None),
        (0, true) => input.little_endian(1).map(Some),
        (1, _) => input.little_endian(2).map(|size| Some(size + 256)),
        (2, _) => input.little_endian(4).map(Some),
        (_, _) => input.little_endian(8).map(Some),
    }
}

fn blocks(input: &mut Cursor<'_>, output: &mut Output) -> Result<(), DecodeError> {
    let frame_start = output.bytes.len();
    let mut literals = Literals::default();
    let mut sequences = Sequences::default();
    loop {
        let header = input.little_endian(3)?;
        let size = (header >> 3) as usize;
        output.begin_block();
        match header >> 1 & 0b11 {
            0 => output.append(input.take(size)?)?,
            1 => output.repeat(input.byte()?, size)?,
            2 if size <= BLOCK_BYTES_MAX => {
                let mut block = Cursor::new(input.take(size)?);
                literals.read(&mut block)?;
                sequences.run(block, literals.bytes(), (output, frame_start))?;
            }
            _ => return Err(Corrupt.into()),
        }
        let is_last = header & 1 == 1;
        if is_last {
            return Ok(());
        }
    }
}

const MAGIC: u64 = 0xFD2F_B528;
const SKIPPABLE_MAGIC: u64 = 0x184D_2A50;

#[cfg(test)]
mod tests;
