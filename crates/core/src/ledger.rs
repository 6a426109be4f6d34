//! The token ledger: every bucket of a request reserved all or nothing, settled exactly once.
//!
//! This is the limit store that lives in memory. It is called through effects, so a store elsewhere can
//! take its place. Two laws hold at every moment. (1) reserved = settled + refunded + expired + outstanding, in tokens.
//! (2) For every cell: change of level = refill − lost to the brim − debits + credits.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::bucket::{Bucket, Shape};
use crate::scope::Limit;
use crate::units::{Amount, Micros, Moment, Tokens};

/// A cell of the ledger. The epoch tells a reused place from its earlier holder: an unknown epoch starts full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellId {
    /// Place in the table.
    pub index: u32,
    /// Which holder of that place.
    pub epoch: u32,
}

/// A reservation, settled by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationId(pub u64);

/// One cell's part of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Which cell.
    pub cell: CellId,
    /// Whose limit it is, and of what.
    pub limit: Limit,
    /// Its rate, capacity and debt under the policy of the moment.
    pub shape: Shape,
    /// Taken at admission, and by draws since.
    pub reserved: Amount,
    /// Used in the end; read by [`Ledger::settle`] alone.
    pub used: Amount,
    /// A shadow limit refuses nothing.
    pub shadow: bool,
}

/// A wish to take all charges, or none.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Reservation {
    /// Its id, never used before.
    pub id: ReservationId,
    /// What to take, the tenant's own cells before the shared ones.
    pub charges: Vec<Charge>,
    /// The tokens that it stands for in the first ledger law.
    pub tokens: Tokens,
}

/// The end of a reservation.
#[derive(Clone, Debug, PartialEq)]
pub struct Settlement {
    /// Which one.
    pub id: ReservationId,
    /// Its charges, with `used` filled in.
    pub charges: Vec<Charge>,
    /// Tokens that were used.
    pub used: Tokens,
    /// Whether the use was counted, or the reservation was closed without any count.
    pub closing: Closing,
}

/// How a reservation was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// With a count.
    Counted,
    /// By its lease, with no count at all: charged in full.
    Expired,
}

/// The answer to a [`Reservation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything was taken, except in the shadow cells named.
    Granted {
        /// Places in the list of charges where a shadow limit would have refused; nothing was taken there.
        shadowed: Vec<usize>,
    },
    /// Nothing was taken.
    Refused(Shortage),
}

/// The cell that bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Place in the list of charges: the one with the longest wait.
    pub charge: usize,
    /// The exact wait; `None` if waiting never helps.
    pub wait: Option<Micros>,
    /// What the cell holds.
    pub level: Amount,
}

/// The sums of the first ledger law, in tokens, and what went beyond reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Ever reserved.
    pub reserved: u64,
    /// Reserved and used.
    pub settled: u64,
    /// Reserved and not used.
    pub refunded: u64,
    /// Closed by a lease without a count.
    pub expired: u64,
    /// Reserved and not closed.
    pub outstanding: u64,
    /// Used beyond reservations.
    pub overrun: u64,
    /// The part of `overrun` that was not charged, because a debt reached its bound.
    pub forgiven: u64,
}

impl Totals {
    /// The first ledger law.
    #[must_use]
    pub const fn law_holds(&self) -> bool {
        self.reserved == self.settled + self.refunded + self.expired + self.outstanding
    }
}

/// All cells, and what is outstanding.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    cells: Vec<Option<Cell>>,
    outstanding: BTreeMap<ReservationId, Outstanding>,
    totals: Totals,
}

#[derive(Clone, Debug)]
struct Cell {
    epoch: u32,
    shape: Shape,
    bucket: Bucket,
}

#[derive(Clone, Debug)]
struct Outstanding {
    tokens: Tokens,
    /// Parts of draws that a bound on debt did not let through: never given back, as they were never taken.
    forgiven: Vec<(CellId, Amount)>,
}

impl Ledger {
    /// An empty ledger: every cell starts full at its first use.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes every charge, or none.
    ///
    /// # Panics
    /// If the id is outstanding already: an id stands for one reservation.
    pub fn reserve(&mut self, reservation: &Reservation, now: Moment) -> Verdict {
        assert!(!self.outstanding.contains_key(&reservation.id), "a reservation's id is used once");
        for charge in &reservation.charges {
            self.prepare(charge, now);
        }
        let verdict = judge(&reservation.charges, |charge| {
            // It has just been refilled.
            self.find(charge.cell).map_or_else(|| Bucket::full(&charge.shape, now), |cell| cell.bucket)
        });
        if let Verdict::Granted { shadowed } = &verdict {
            for (place, charge) in reservation.charges.iter().enumerate() {
                if !shadowed.contains(&place) {
                    let cell = self.cell(charge.cell);
                    cell.bucket.debit(&cell.shape, charge.reserved);
                }
            }
            self.totals.reserved += reservation.tokens.0;
            self.totals.outstanding += reservation.tokens.0;
            self.outstanding
                .insert(reservation.id, Outstanding { tokens: reservation.tokens, forgiven: Vec::new() });
        }
        verdict
    }

    /// What [`reserve`](Self::reserve) would answer, with nothing changed.
    #[must_use]
    pub fn peek(&self, charges: &[Charge], now: Moment) -> Verdict {
        judge(charges, |charge| self.bucket_at(charge, now))
    }

    /// Takes more for a reservation that is open: output tokens as they stream. May go into debt: then it tells which limit did not
    /// cover it, the one that takes longest to hold a token again.
    ///
    /// Draws on a reservation that is closed are ignored. Each charge's `reserved` is what this draw takes.
    pub fn draw(&mut self, id: ReservationId, charges: &[Charge], now: Moment) -> Option<Shortage> {
        if !self.outstanding.contains_key(&id) {
            return None;
        }
        let mut shortage: Option<Shortage> = None;
        for (place, charge) in charges.iter().enumerate() {
            let cell = self.refilled(charge, now);
            let debited = cell.bucket.debit(&cell.shape, charge.reserved);
            let (level, wait) = (cell.bucket.level(), cell.bucket.wait_for(&cell.shape, Amount::ONE));
            let is_short = level < Amount::ZERO || debited.forgiven > Amount::ZERO;
            if is_short && !charge.shadow && shortage.is_none_or(|longest| is_longer(wait, longest.wait)) {
                shortage = Some(Shortage { charge: place, wait, level });
            }
            if debited.forgiven > Amount::ZERO
                && let Some(outstanding) = self.outstanding.get_mut(&id)
            {
                outstanding.forgiven.push((charge.cell, debited.forgiven));
            }
        }
        shortage
    }

    /// Closes a reservation: gives back what was not used, takes what was used beyond. Returns whether it was open: a second
    /// settlement changes nothing.
    pub fn settle(&mut self, settlement: &Settlement, now: Moment) -> bool {
        let Some(outstanding) = self.outstanding.remove(&settlement.id) else {
            return false;
        };
        let mut forgiven = Amount::ZERO;
        for charge in &settlement.charges {
            forgiven = forgiven.max(self.settle_cell(charge, &outstanding, now));
        }
        self.count(&outstanding, settlement, forgiven);
        true
    }

    /// What a cell holds at `now`: full if it was never used.
    #[must_use]
    pub fn level(&self, cell: CellId, shape: &Shape, now: Moment) -> Amount {
        match self.find(cell) {
            Some(found) => found.bucket.level_at(&found.shape, now).min(shape.capacity),
            None => shape.capacity,
        }
    }

    /// A cell that has been used, as it is at `now`.
    #[must_use]
    pub fn holds(&self, cell: CellId, now: Moment) -> Option<(Shape, Bucket)> {
        self.find(cell).map(|found| {
            let mut bucket = found.bucket;
            bucket.refill(&found.shape, now);
            (found.shape, bucket)
        })
    }

    /// Puts back a balance from before the process began. A cell that holds less already keeps what it holds.
    pub fn restore(&mut self, cell: CellId, shape: Shape, bucket: Bucket, now: Moment) {
        if self.level(cell, &shape, now) > bucket.level() {
            self.put(cell, shape, bucket);
        }
    }

    /// Takes on a changed policy for one cell: balances stay.
    pub fn reshape(&mut self, cell: CellId, shape: Shape, now: Moment) {
        if let Some(Some(found)) = self.cells.get_mut(cell.index as usize)
            && found.epoch == cell.epoch
        {
            found.bucket.reshape(&found.shape, &shape, now);
            found.shape = shape;
        }
    }

    /// Raises what a cell holds and may hold: an operator's grant to a spent budget.
    pub fn grant(&mut self, cell: CellId, shape: Shape, amount: Amount, now: Moment) {
        if let Some(Some(found)) = self.cells.get_mut(cell.index as usize)
            && found.epoch == cell.epoch
        {
            found.bucket.refill(&found.shape, now);
            found.shape = shape;
            found.bucket.credit(&shape, amount);
        }
    }

    /// The sums.
    #[must_use]
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Reservations that are open.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    fn bucket_at(&self, charge: &Charge, now: Moment) -> Bucket {
        match self.find(charge.cell) {
            Some(cell) => {
                let mut bucket = cell.bucket;
                bucket.reshape(&cell.shape, &charge.shape, now);
                bucket
            }
            None => Bucket::full(&charge.shape, now),
        }
    }

    /// Puts the cell in its place, refilled, in the shape that the charge gives: a reservation brings the policy of the moment.
    fn prepare(&mut self, charge: &Charge, now: Moment) {
        let bucket = self.bucket_at(charge, now);
        self.put(charge.cell, charge.shape, bucket);
    }

    fn put(&mut self, cell: CellId, shape: Shape, bucket: Bucket) {
        let index = cell.index as usize;
        if index >= self.cells.len() {
            self.cells.resize(index + 1, None);
        }
        self.cells[index] = Some(Cell { epoch: cell.epoch, shape, bucket });
    }

    /// The cell, refilled, in the shape that it has: a settlement may bring an older policy's shape, which counts no more.
    fn refilled(&mut self, charge: &Charge, now: Moment) -> &mut Cell {
        if self.find(charge.cell).is_none() {
            self.prepare(charge, now);
        }
        let cell = self.cell(charge.cell);
        cell.bucket.refill(&cell.shape, now);
        cell
    }

    fn settle_cell(&mut self, charge: &Charge, outstanding: &Outstanding, now: Moment) -> Amount {
        let cell = self.refilled(charge, now);
        let unused = charge.reserved - charge.used;
        let never_taken = outstanding
            .forgiven
            .iter()
            .filter(|(cell, _)| *cell == charge.cell)
            .fold(Amount::ZERO, |sum, (_, amount)| sum + *amount);
        if unused > Amount::ZERO {
            cell.bucket.credit(&cell.shape, (unused - never_taken).max(Amount::ZERO));
            return (never_taken - unused).max(Amount::ZERO);
        }
        never_taken + cell.bucket.debit(&cell.shape, Amount::ZERO - unused).forgiven
    }

    fn count(&mut self, outstanding: &Outstanding, settlement: &Settlement, forgiven: Amount) {
        let reserved = outstanding.tokens.0;
        let used = settlement.used.0;
        self.totals.outstanding -= reserved;
        match settlement.closing {
            Closing::Expired => self.totals.expired += reserved,
            Closing::Counted => {
                self.totals.settled += used.min(reserved);
                self.totals.refunded += reserved.saturating_sub(used);
                self.totals.overrun += used.saturating_sub(reserved);
                self.totals.forgiven += forgiven.floor_units().unsigned_abs();
            }
        }
        assert!(self.totals.law_holds(), "reserved = settled + refunded + expired + outstanding");
    }

    fn find(&self, cell: CellId) -> Option<&Cell> {
        self.cells.get(cell.index as usize)?.as_ref().filter(|found| found.epoch == cell.epoch)
    }

    /// The cell, which [`refill`](Self::refill) has put there.
    fn cell(&mut self, cell: CellId) -> &mut Cell {
        self.cells[cell.index as usize]
            .as_mut()
            .filter(|found| found.epoch == cell.epoch)
            .expect("refilled before use")
    }
}

fn judge(charges: &[Charge], bucket_of: impl Fn(&Charge) -> Bucket) -> Verdict {
    let mut shadowed = Vec::new();
    let mut shortage: Option<Shortage> = None;
    for (place, charge) in charges.iter().enumerate() {
        let bucket = bucket_of(charge);
        let wait = bucket.wait_for(&charge.shape, charge.reserved);
        if wait == Some(Micros::ZERO) {
            continue;
        }
        if charge.shadow {
            shadowed.push(place);
        } else if shortage.is_none_or(|longest| is_longer(wait, longest.wait)) {
            shortage = Some(Shortage { charge: place, wait, level: bucket.level() });
        }
    }
    shortage.map_or(Verdict::Granted { shadowed }, Verdict::Refused)
}

fn is_longer(wait: Option<Micros>, than: Option<Micros>) -> bool {
    match (wait, than) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(wait), Some(than)) => wait > than,
    }
}
