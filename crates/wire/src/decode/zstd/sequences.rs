//! The sequences section of a block (RFC 8878, 3.1.1.3.2): literals and copies in turn.

use super::bits::{Backward, Cursor};
use super::fse::{Bounds, State, Table};
use super::{Corrupt, Output};
use crate::decode::DecodeError;

/// What a later block of the frame may use again.
pub(super) struct Sequences {
    tables: Tables,
    recent: [usize; 3],
}

#[derive(Default)]
struct Tables {
    literal_lengths: Table,
    offsets: Table,
    match_lengths: Table,
}

impl Default for Sequences {
    fn default() -> Self {
        Self { tables: Tables::default(), recent: [1, 4, 8] }
    }
}

impl Sequences {
    /// Runs what stands in a block after its literals.
    pub(super) fn run(
        &mut self,
        mut block: Cursor<'_>,
        mut literals: &[u8],
        (output, frame_start): (&mut Output, usize),
    ) -> Result<(), DecodeError> {
        let count = sequence_count(&mut block)?;
        if count == 0 {
            if !block.is_empty() {
                return Err(Corrupt.into());
            }
            return output.append(literals);
        }
        self.tables.read(&mut block)?;
        let mut steps = Steps::new(&self.tables, block.rest())?;
        for left in (0..count).rev() {
            let step = steps.next(left)?;
            let (first, rest) = literals.split_at_checked(step.literals).ok_or(Corrupt)?;
            literals = rest;
            output.append(first)?;
            let offset = recall(&mut self.recent, &step)?;
            if offset > output.bytes.len() - frame_start {
                return Err(Corrupt.into());
            }
            output.copy_back(offset, step.copied)?;
        }
        steps.end()?;
        output.append(literals)
    }
}

impl Tables {
    fn read(&mut self, block: &mut Cursor<'_>) -> Result<(), Corrupt> {
        let modes = block.byte()?;
        if modes & 0b11 != 0 {
            return Err(Corrupt);
        }
        let kinds = [
            (&mut self.literal_lengths, &LITERAL_LENGTHS),
            (&mut self.offsets, &OFFSETS),
            (&mut self.match_lengths, &MATCH_LENGTHS),
        ];
        for ((table, kind), shift) in kinds.into_iter().zip([6, 4, 2]) {
            match modes >> shift & 0b11 {
                0 => *table = Table::new(kind.shares, kind.accuracy)?,
                1 => {
                    let symbol = block.byte()?;
                    if symbol > kind.bounds.symbol_max {
                        return Err(Corrupt);
                    }
                    *table = Table::single(symbol);
                }
                2 => {
                    let (read, used) = Table::read(block.rest(), kind.bounds)?;
                    block.take(used)?;
                    *table = read;
                }
                _ if table.is_empty() => return Err(Corrupt),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The steps of one block: literals, then a copy.
struct Steps<'a> {
    tables: &'a Tables,
    bits: Backward<'a>,
    literal_length: State,
    offset: State,
    match_length: State,
}

struct Step {
    literals: usize,
    offset_value: usize,
    copied: usize,
}

impl<'a> Steps<'a> {
    fn new(tables: &'a Tables, stream: &'a [u8]) -> Result<Self, Corrupt> {
        let mut bits = Backward::new(stream)?;
        Ok(Self {
            literal_length: tables.literal_lengths.start(&mut bits)?,
            offset: tables.offsets.start(&mut bits)?,
            match_length: tables.match_lengths.start(&mut bits)?,
            tables,
            bits,
        })
    }

    fn next(&mut self, left: usize) -> Result<Step, Corrupt> {
        let tables = self.tables;
        let offset_bits = u32::from(tables.offsets.symbol(self.offset));
        let offset_value = (1 << offset_bits) + self.bits.read(offset_bits)? as usize;
        let match_code = tables.match_lengths.symbol(self.match_length);
        let copied = self.length(MATCH_LENGTH_CODES[usize::from(match_code)])?;
        let literal_code = tables.literal_lengths.symbol(self.literal_length);
        let literals = self.length(LITERAL_LENGTH_CODES[usize::from(literal_code)])?;
        if left > 0 {
            let bits = &mut self.bits;
            self.literal_length = tables.literal_lengths.step(self.literal_length, bits)?;
            self.match_length = tables.match_lengths.step(self.match_length, bits)?;
            self.offset = tables.offsets.step(self.offset, bits)?;
        }
        Ok(Step { literals, offset_value, copied })
    }

    fn length(&mut self, (base, bits): (u32, u32)) -> Result<usize, Corrupt> {
        Ok((base + self.bits.read(bits)?) as usize)
    }

    fn end(&self) -> Result<(), Corrupt> {
        if self.bits.left() == 0 { Ok(()) } else { Err(Corrupt) }
    }
}

fn sequence_count(block: &mut Cursor<'_>) -> Result<usize, Corrupt> {
    let first = u64::from(block.byte()?);
    let count = match first {
        0..=127 => first,
        128..=254 => ((first - 128) << 8) + block.little_endian(1)?,
        _ => block.little_endian(2)? + 0x7F00,
    };
    Ok(count as usize)
}

/// The offset that a value stands for: values up to three name a recent one.
fn recall(recent: &mut [usize; 3], step: &Step) -> Result<usize, Corrupt> {
    let shifted = step.offset_value + usize::from(step.literals == 0);
    let (offset, moved) = match (step.offset_value, shifted) {
        (4.., _) => (step.offset_value - 3, 2),
        (_, 1) => return Ok(recent[0]),
        (_, 2) => (recent[1], 1),
        (_, 3) => (recent[2], 2),
        _ => (recent[0] - 1, 2),
    };
    if offset == 0 {
        return Err(Corrupt);
    }
    recent.copy_within(0..moved, 1);
    recent[0] = offset;
    Ok(offset)
}

struct Kind {
    bounds: Bounds,
    shares: &'static [i16],
    accuracy: u32,
}

const LITERAL_LENGTHS: Kind = Kind {
    bounds: Bounds { accuracy_max: 9, symbol_max: 35 },
    shares: &[
        4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1,
        -1, -1, -1,
    ],
    accuracy: 6,
};

const MATCH_LENGTHS: Kind = Kind {
    bounds: Bounds { accuracy_max: 9, symbol_max: 52 },
    shares: &[
        1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1,
    ],
    accuracy: 6,
};

const OFFSETS: Kind = Kind {
    bounds: Bounds { accuracy_max: 8, symbol_max: 31 },
    shares: &[1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1],
    accuracy: 5,
};

/// The base of a length and how many bits are added to it, by code.
const LITERAL_LENGTH_CODES: [(u32, u32); 36] = [
    (0, 0),
    (1, 0),
    (2, 0),
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 0),
    (12, 0),
    (13, 0),
    (14, 0),
    (15, 0),
    (16, 1),
    (18, 1),
    (20, 1),
    (22, 1),
    (24, 2),
    (28, 2),
    (32, 3),
    (40, 3),
    (48, 4),
    (64, 6),
    (128, 7),
    (256, 8),
    (512, 9),
    (1024, 10),
    (2048, 11),
    (4096, 12),
    (8192, 13),
    (16384, 14),
    (32768, 15),
    (65536, 16),
];

const MATCH_LENGTH_CODES: [(u32, u32); 53] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 0),
    (12, 0),
    (13, 0),
    (14, 0),
    (15, 0),
    (16, 0),
    (17, 0),
    (18, 0),
    (19, 0),
    (20, 0),
    (21, 0),
    (22, 0),
    (23, 0),
    (24, 0),
    (25, 0),
    (26, 0),
    (27, 0),
    (28, 0),
    (29, 0),
    (30, 0),
    (31, 0),
    (32, 0),
    (33, 0),
    (34, 0),
    (35, 1),
    (37, 1),
    (39, 1),
    (41, 1),
    (43, 2),
    (47, 2),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 5),
    (131, 7),
    (259, 8),
    (515, 9),
    (1027, 10),
    (2051, 11),
    (4099, 12),
    (8195, 13),
    (16387, 14),
    (32771, 15),
    (65539, 16),
];
