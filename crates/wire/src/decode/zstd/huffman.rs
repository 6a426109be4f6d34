//! Huffman trees for literals (RFC 8878, 4.2).

use super::Corrupt;
use super::bits::{Backward, Cursor};
use super::fse::{Bounds, Table};

/// A tree as a table: the next `width` bits give a symbol and how many of them it takes.
#[derive(Clone)]
pub(super) struct Tree {
    cells: Vec<Cell>,
    width: u32,
}

#[derive(Clone, Copy, Default)]
struct Cell {
    symbol: u8,
    bits: u8,
}

impl Tree {
    /// Reads the description of a tree.
    pub(super) fn read(input: &mut Cursor<'_>) -> Result<Self, Corrupt> {
        let header = usize::from(input.byte()?);
        let weights = if header < 128 {
            weights_by_states(input.take(header)?)?
        } else {
            let count = header - 127;
            let packed = input.take(count.div_ceil(2))?;
            let nibbles = packed.iter().flat_map(|byte| [byte >> 4, byte & 0x0F]);
            nibbles.take(count).collect()
        };
        Self::from_weights(weights)
    }

    /// The weight of the last symbol is not written: it fills the tree.
    fn from_weights(mut weights: Vec<u8>) -> Result<Self, Corrupt> {
        if weights.iter().any(|&weight| u32::from(weight) > WIDTH_MAX) {
            return Err(Corrupt);
        }
        let share = |weight: u8| (1_u32 << weight) >> 1;
        let filled: u32 = weights.iter().map(|&weight| share(weight)).sum();
        let width = filled.checked_ilog2().ok_or(Corrupt)? + 1;
        let left = (1 << width) - filled;
        if width > WIDTH_MAX || !left.is_power_of_two() {
            return Err(Corrupt);
        }
        weights.push(left.ilog2() as u8 + 1);

        let mut cells = Vec::with_capacity(1 << width);
        for weight in 1..=width as u8 {
            let bits = (width + 1) as u8 - weight;
            for (symbol, _) in (0_u8..=u8::MAX).zip(&weights).filter(|(_, w)| **w == weight) {
                let end = cells.len() + share(weight) as usize;
                cells.resize(end, Cell { symbol, bits });
            }
        }
        if cells.len() == 1 << width { Ok(Self { cells, width }) } else { Err(Corrupt) }
    }

    /// Decodes exactly `count` symbols, which must use up the whole stream.
    pub(super) fn decode(&self, stream: &[u8], count: usize, out: &mut Vec<u8>) -> Result<(), Corrupt> {
        let mut bits = Backward::new(stream)?;
        for _ in 0..count {
            let cell = self.cells[bits.peek(self.width) as usize];
            bits.pass(u32::from(cell.bits))?;
            out.push(cell.symbol);
        }
        if bits.left() == 0 { Ok(()) } else { Err(Corrupt) }
    }
}

/// Weights written by two states of one table that take turns until the bits run out.
fn weights_by_states(bytes: &[u8]) -> Result<Vec<u8>, Corrupt> {
    let (table, used) = Table::read(bytes, WEIGHTS)?;
    let mut bits = Backward::new(bytes.get(used..).unwrap_or_default())?;
    let mut state = table.start(&mut bits)?;
    let mut other = table.start(&mut bits)?;
    let mut weights = Vec::with_capacity(SYMBOLS_MAX);
    loop {
        weights.push(table.symbol(state));
        if weights.len() >= SYMBOLS_MAX - 1 {
            return Err(Corrupt);
        }
        if table.step_bits(state) as usize > bits.left() {
            weights.push(table.symbol(other));
            return Ok(weights);
        }
        state = table.step(state, &mut bits)?;
        std::mem::swap(&mut state, &mut other);
    }
}

const WIDTH_MAX: u32 = 11;
const SYMBOLS_MAX: usize = 256;
const WEIGHTS: Bounds = Bounds { accuracy_max: 6, symbol_max: 12 };
