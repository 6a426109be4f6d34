//! Bytes read forward, and the two bit orders of Zstandard: forward, and backward from the end.

use super::Corrupt;

/// Bytes read from the front.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) const fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Corrupt> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(Corrupt)?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Corrupt> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// A number of up to eight bytes, the lowest first.
    pub(super) fn little_endian(&mut self, count: usize) -> Result<u64, Corrupt> {
        let bytes = self.take(count)?;
        Ok(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }
}

/// Bits read from the front, the lowest of each byte first. Beyond the end they are zero, which
/// the reader of a table notices when it asks how many bytes were used.
pub(super) struct Forward<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Forward<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next `count` bits, at most 32, without passing them.
    pub(super) fn peek(&self, count: u32) -> u32 {
        window(self.bytes, self.at, count)
    }

    pub(super) const fn pass(&mut self, count: u32) {
        self.at += count as usize;
    }

    pub(super) fn read(&mut self, count: u32) -> u32 {
        let value = self.peek(count);
        self.pass(count);
        value
    }

    /// How many bytes were begun.
    pub(super) const fn bytes_used(&self) -> usize {
        self.at.div_ceil(8)
    }
}

/// Bits read from the end towards the front. The highest bit set in the last byte marks the end.
pub(super) struct Backward<'a> {
    bytes: &'a [u8],
    left: usize,
}

impl<'a> Backward<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, Corrupt> {
        let last = bytes.last().copied().unwrap_or_default();
        let marker = last.checked_ilog2().ok_or(Corrupt)?;
        let left = (bytes.len() - 1) * 8 + marker as usize;
        Ok(Self { bytes, left })
    }

    /// The next `count` bits, at most 32; where fewer are left, zeros follow them.
    pub(super) fn peek(&self, count: u32) -> u32 {
        let wanted = count as usize;
        if wanted <= self.left {
            window(self.bytes, self.left - wanted, count)
        } else {
            let missing = (wanted - self.left) as u32;
            window(self.bytes, 0, self.left as u32).checked_shl(missing).unwrap_or(0)
        }
    }

    pub(super) fn pass(&mut self, count: u32) -> Result<(), Corrupt> {
        self.left = self.left.checked_sub(count as usize).ok_or(Corrupt)?;
        Ok(())
    }

    pub(super) fn read(&mut self, count: u32) -> Result<u32, Corrupt> {
        let value = self.peek(count);
        self.pass(count)?;
        Ok(value)
    }

    pub(super) const fn left(&self) -> usize {
        self.left
    }
}

/// `count` bits from bit `from` on, at most 32; bits beyond the end are zero.
fn window(bytes: &[u8], from: usize, count: u32) -> u32 {
    let start = from / 8;
    let word = match bytes.get(start..start + 8) {
        Some(eight) => eight.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
        None => bytes
            .get(start..)
            .unwrap_or_default()
            .iter()
            .rev()
            .fold(0, |word, &byte| word << 8 | u64::from(byte)),
    };
    let mask = (1_u64 << count) - 1;
    (word >> (from % 8) & mask) as u32
}
