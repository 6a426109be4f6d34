//! Finite state entropy tables (RFC 8878, 4.1).

use super::Corrupt;
use super::bits::{Backward, Forward};

/// A decoding table: a state gives a symbol and the way to the next state.
#[derive(Clone, Default)]
pub(super) struct Table {
    cells: Vec<Cell>,
    accuracy: u32,
}

#[derive(Clone, Copy, Default)]
struct Cell {
    symbol: u8,
    bits: u8,
    base: u16,
}

/// A position in a table.
#[derive(Clone, Copy)]
pub(super) struct State(usize);

/// What a table may be: its largest accuracy and its largest symbol.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) accuracy_max: u32,
    pub(super) symbol_max: u8,
}

impl Table {
    /// Reads the description of a table from the front of `bytes`; also tells its length.
    pub(super) fn read(bytes: &[u8], bounds: Bounds) -> Result<(Self, usize), Corrupt> {
        let mut bits = Forward::new(bytes);
        let accuracy = bits.read(4) + 5;
        if accuracy > bounds.accuracy_max {
            return Err(Corrupt);
        }
        let mut shares: Vec<i16> = Vec::with_capacity(usize::from(bounds.symbol_max) + 1);
        let mut left = 1_u32 << accuracy;
        while left > 0 {
            let share = share(&mut bits, left);
            left = left.checked_sub(u32::from(share.unsigned_abs())).ok_or(Corrupt)?;
            shares.push(share);
            if share == 0 {
                absent_symbols(&mut bits, &mut shares, bounds.symbol_max)?;
            }
            if shares.len() > usize::from(bounds.symbol_max) + 1 {
                return Err(Corrupt);
            }
        }
        if bits.bytes_used() > bytes.len() {
            return Err(Corrupt);
        }
        Ok((Self::new(&shares, accuracy)?, bits.bytes_used()))
    }

    /// A table that knows one symbol and costs no bits.
    pub(super) fn single(symbol: u8) -> Self {
        Self { cells: vec![Cell { symbol, bits: 0, base: 0 }], accuracy: 0 }
    }

    /// Spreads symbols by their shares of 2^accuracy cells; -1 is a share below one cell.
    pub(super) fn new(shares: &[i16], accuracy: u32) -> Result<Self, Corrupt> {
        let size = 1_usize << accuracy;
        let mut cells = vec![Cell::default(); size];
        let mut free_end = size;
        let mut next_state = [0_u32; 256];
        for (symbol, &share) in (0_u8..).zip(shares) {
            next_state[usize::from(symbol)] = u32::from(share.unsigned_abs());
            if share == -1 {
                free_end -= 1;
                cells[free_end].symbol = symbol;
            }
        }
        let step = (size >> 1) + (size >> 3) + 3;
        let mut at = 0;
        for (symbol, &share) in (0_u8..).zip(shares) {
            for _ in 0..share.max(0) {
                cells[at].symbol = symbol;
                at = (at + step) & (size - 1);
                while at >= free_end && free_end > 0 {
                    at = (at + step) & (size - 1);
                }
            }
        }
        for cell in &mut cells {
            let state = &mut next_state[usize::from(cell.symbol)];
            let bits = accuracy - state.checked_ilog2().ok_or(Corrupt)?;
            cell.bits = bits as u8;
            cell.base = ((*state << bits) - size as u32) as u16;
            *state += 1;
        }
        Ok(Self { cells, accuracy })
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    pub(super) fn start(&self, bits: &mut Backward<'_>) -> Result<State, Corrupt> {
        bits.read(self.accuracy).map(|state| State(state as usize))
    }

    pub(super) fn symbol(&self, state: State) -> u8 {
        self.cells[state.0].symbol
    }

    /// How many bits the step from this state takes.
    pub(super) fn step_bits(&self, state: State) -> u32 {
        u32::from(self.cells[state.0].bits)
    }

    pub(super) fn step(&self, state: State, bits: &mut Backward<'_>) -> Result<State, Corrupt> {
        let cell = self.cells[state.0];
        let low = bits.read(u32::from(cell.bits))?;
        Ok(State(usize::from(cell.base) + low as usize))
    }
}

/// One share, in the fewest bits that tell the values up to `left` + 1 apart.
fn share(bits: &mut Forward<'_>, left: u32) -> i16 {
    let values = left + 1;
    let width = values.ilog2() + 1;
    let low_mask = (1 << (width - 1)) - 1;
    let short_values = (1 << width) - 1 - values;
    let value = bits.peek(width);
    let value = if value & low_mask < short_values {
        bits.pass(width - 1);
        value & low_mask
    } else {
        bits.pass(width);
        if value > low_mask { value - short_values } else { value }
    };
    value as i16 - 1
}

/// After a share of zero: how many more zeros follow, two bits at a time.
fn absent_symbols(bits: &mut Forward<'_>, shares: &mut Vec<i16>, symbol_max: u8) -> Result<(), Corrupt> {
    loop {
        let zeros = bits.read(2);
        shares.extend((0..zeros).map(|_| 0));
        if shares.len() > usize::from(symbol_max) + 1 {
            return Err(Corrupt);
        }
        if zeros < 3 {
            return Ok(());
        }
    }
}
