//! An independent keeper of every cell's level: exact rationals in 128 bits, fed with effects and times alone.
//!
//! It shares no arithmetic with the crate. It is the reference of law L5 and the recorder of the second ledger law.

use std::collections::{BTreeMap, BTreeSet};

use fairlane_core::bucket::{Rate, Shape};
use fairlane_core::ledger::{CellId, Charge, Ledger, Reservation, ReservationId, Settlement, Verdict};
use fairlane_core::policy::Dimension;
use fairlane_core::units::{Amount, Micros, Moment};

#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder {
    cells: BTreeMap<CellId, Exact>,
    open: BTreeMap<ReservationId, Open>,
    closed: BTreeMap<ReservationId, u32>,
    dimensions: BTreeMap<CellId, Dimension>,
    /// Every change of a cell other than its refill, in order: what was drawn, negative for a refund.
    pub(crate) draws: Vec<(CellId, Moment, i128)>,
    /// Cells of which some was used in the end.
    used: BTreeSet<CellId>,
}

#[derive(Clone, Debug)]
struct Open {
    tokens: u64,
    /// Per cell: taken, and not taken because the debt had reached its bound.
    cells: BTreeMap<CellId, (i128, i128)>,
}

/// A level as `numerator / denominator` micro-units.
#[derive(Clone, Copy, Debug)]
struct Exact {
    shape: Shape,
    numerator: i128,
    denominator: i128,
    time: Moment,
}

impl Exact {
    fn full(shape: &Shape, now: Moment) -> Self {
        let (_, denominator) = fraction(shape.rate);
        let numerator = i128::from(shape.capacity.0) * denominator;
        Self { shape: *shape, numerator, denominator, time: now }
    }

    fn at(mut self, now: Moment) -> Self {
        if now > self.time {
            let elapsed = i128::from(now.0 - self.time.0);
            let brim = i128::from(self.shape.capacity.0) * self.denominator;
            let (gain, _) = fraction(self.shape.rate);
            self.numerator = brim.min(self.numerator + gain * elapsed).max(self.numerator);
            self.time = now;
        }
        self
    }

    fn shaped(self, shape: &Shape, now: Moment) -> Self {
        let aged = self.at(now);
        if aged.shape == *shape {
            return aged;
        }
        let mut level = aged.floor();
        if aged.shape.rate.is_never() && shape.rate.is_never() {
            // A count that never refills: what is used stays used under another bound.
            let used = i128::from(aged.shape.capacity.0) - level;
            level = i128::from(shape.capacity.0) - used;
        }
        let level = level.min(i128::from(shape.capacity.0)).max(-i128::from(shape.debt_max.0));
        let (_, denominator) = fraction(shape.rate);
        Self { shape: *shape, numerator: level * denominator, denominator, time: aged.time }
    }

    fn floor(&self) -> i128 {
        self.numerator.div_euclid(self.denominator)
    }

    /// Takes the most whole micro-units of `cost` that keep the level above the bound on debt.
    fn take(&mut self, cost: i128) -> i128 {
        let most = (self.floor() + i128::from(self.shape.debt_max.0)).max(0);
        let taken = cost.min(most);
        self.numerator -= taken * self.denominator;
        taken
    }

    /// Gives back as much of `amount` as fits under the brim.
    fn give(&mut self, amount: i128) -> i128 {
        let brim = i128::from(self.shape.capacity.0) * self.denominator;
        let before = self.numerator;
        self.numerator = (before + amount * self.denominator).min(brim.max(before));
        // What was earned of the next micro-unit is lost to the brim, not part of what was given.
        -(before - self.numerator).div_euclid(self.denominator)
    }

    fn wait(&self, cost: i128) -> Option<Micros> {
        let missing = cost * self.denominator - self.numerator;
        if missing <= 0 {
            return Some(Micros::ZERO);
        }
        let (gain, _) = fraction(self.shape.rate);
        if cost > i128::from(self.shape.capacity.0) || gain == 0 {
            return None;
        }
        Some(Micros(u64::try_from((missing + gain - 1) / gain).unwrap_or(u64::MAX)))
    }
}

impl Recorder {
    /// The decision that exact arithmetic makes on these charges: shadowed places, or the longest wait with its place.
    pub(crate) fn judge(
        &self,
        charges: &[Charge],
        now: Moment,
    ) -> Result<Vec<usize>, (usize, Option<Micros>)> {
        let waits: Vec<(usize, bool, Option<Micros>)> = charges
            .iter()
            .enumerate()
            .map(|(place, charge)| {
                let wait = self.cell(charge, now).wait(i128::from(charge.reserved.0));
                (place, charge.shadow, wait)
            })
            .filter(|(_, _, wait)| *wait != Some(Micros::ZERO))
            .collect();
        // `None` is for ever; of equal waits the first one binds.
        let length = |wait: Option<Micros>| wait.map_or(u128::MAX, |wait| u128::from(wait.0));
        let binding = waits
            .iter()
            .filter(|(_, shadow, _)| !shadow)
            .max_by_key(|(place, _, wait)| (length(*wait), usize::MAX - place));
        match binding {
            Some((place, _, wait)) => Err((*place, *wait)),
            None => Ok(waits.iter().map(|(place, _, _)| *place).collect()),
        }
    }

    /// Follows a reservation; the store's verdict must be the exact one.
    pub(crate) fn reserve(&mut self, reservation: &Reservation, verdict: &Verdict, now: Moment) {
        for charge in &reservation.charges {
            self.retire(charge, now);
        }
        let exact = self.judge(&reservation.charges, now);
        match (verdict, &exact) {
            (Verdict::Granted { shadowed }, Ok(places)) => assert_eq!(shadowed, places, "shadowed places"),
            (Verdict::Refused(shortage), Err((place, wait))) => {
                assert_eq!((shortage.charge, shortage.wait), (*place, *wait), "binding cell and exact wait");
            }
            _ => panic!("the store says {verdict:?}, exact arithmetic says {exact:?}"),
        }
        for charge in &reservation.charges {
            let cell = self.cell(charge, now);
            self.cells.insert(charge.cell, cell);
        }
        let Ok(shadowed) = exact else { return };
        let mut cells = BTreeMap::new();
        for (place, charge) in reservation.charges.iter().enumerate() {
            if !shadowed.contains(&place) {
                let taken = self.take(charge, i128::from(charge.reserved.0), now);
                assert_eq!(taken, i128::from(charge.reserved.0), "an admission takes its whole cost");
                cells.insert(charge.cell, (taken, 0));
            }
        }
        let open = Open { tokens: reservation.tokens.0, cells };
        assert!(!self.closed.contains_key(&reservation.id), "an id stands for one reservation");
        assert!(self.open.insert(reservation.id, open).is_none(), "an id stands for one reservation");
    }

    /// Follows a draw on an open reservation; others change nothing.
    pub(crate) fn draw(&mut self, id: ReservationId, charges: &[Charge], now: Moment) {
        if !self.open.contains_key(&id) {
            return;
        }
        for charge in charges {
            let wanted = i128::from(charge.reserved.0);
            let taken = self.take(charge, wanted, now);
            let held = self.open.get_mut(&id).unwrap().cells.entry(charge.cell).or_default();
            held.0 += taken;
            held.1 += wanted - taken;
        }
    }

    /// Follows a settlement. What was taken beyond the use comes back, what was used beyond is taken; what a bound on debt has
    /// forgiven stays forgiven.
    pub(crate) fn settle(&mut self, settlement: &Settlement, now: Moment) {
        let open = self.open.remove(&settlement.id).expect("only an open reservation is settled");
        *self.closed.entry(settlement.id).or_default() += 1;
        let named: Vec<CellId> = settlement.charges.iter().map(|charge| charge.cell).collect();
        let held: Vec<CellId> = open.cells.keys().copied().collect();
        assert_eq!(sorted(named), held, "a settlement names the cells that were taken from, and no other");
        for charge in &settlement.charges {
            let (taken, forgiven) = open.cells[&charge.cell];
            let used = i128::from(charge.used.0);
            if used > 0 {
                self.used.insert(charge.cell);
            }
            if used > taken + forgiven {
                self.take(charge, used - taken - forgiven, now);
                continue;
            }
            let mut cell = self.settled(charge, now);
            let given = cell.give((taken - used).max(0));
            self.cells.insert(charge.cell, cell);
            self.draws.push((charge.cell, now, -given));
        }
    }

    pub(crate) fn reshape(&mut self, cell: CellId, shape: &Shape, now: Moment) {
        if let Some(known) = self.cells.get_mut(&cell) {
            *known = known.shaped(shape, now);
        }
    }

    pub(crate) fn grant(&mut self, cell: CellId, shape: &Shape, amount: Amount, now: Moment) {
        if let Some(known) = self.cells.get_mut(&cell) {
            *known = known.at(now);
            known.shape = *shape;
            known.give(i128::from(amount.0));
        }
    }

    /// Tokens in open reservations.
    pub(crate) fn outstanding(&self) -> u64 {
        self.open.values().map(|open| open.tokens).sum()
    }

    /// Tokens of an open reservation.
    pub(crate) fn reserved(&self, id: ReservationId) -> u64 {
        self.open[&id].tokens
    }

    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// The second ledger law, and L1: every cell's level is what exact arithmetic says, between the deepest debt and the brim.
    pub(crate) fn check(&self, ledger: &Ledger, now: Moment) {
        for (id, cell) in &self.cells {
            let exact = cell.at(now).floor();
            let level = ledger.level(*id, &cell.shape, now).0;
            assert_eq!(i128::from(level), exact, "level of {id:?} at {now:?}");
            assert!(level <= cell.shape.capacity.0, "{id:?} above its brim");
            assert!(level >= -cell.shape.debt_max.0, "{id:?} below its deepest debt");
        }
        assert!(ledger.totals().law_holds(), "{:?}", ledger.totals());
        assert_eq!(ledger.totals().outstanding, self.outstanding(), "outstanding tokens");
        assert_eq!(ledger.outstanding(), self.open(), "open reservations");
    }

    /// Levels of all cells at a moment.
    pub(crate) fn levels(&self, ledger: &Ledger, now: Moment) -> Vec<(CellId, Amount)> {
        self.cells.iter().map(|(id, cell)| (*id, ledger.level(*id, &cell.shape, now))).collect()
    }

    /// L2 for every window that begins and ends at a change: net draw ≤ capacity + rate × window (+ `debt`), in exact integers.
    pub(crate) fn check_windows(&self, shapes: &BTreeMap<CellId, Shape>, with_debt: bool) {
        for (id, shape) in shapes {
            let (gain, denominator) = fraction(shape.rate);
            let debt = if with_debt { shape.debt_max.0 } else { 0 };
            let draws: Vec<(Moment, i128)> =
                self.draws.iter().filter(|draw| draw.0 == *id).map(|draw| (draw.1, draw.2)).collect();
            for first in 0..draws.len() {
                let mut net = 0;
                for (moment, drawn) in &draws[first..] {
                    net += drawn;
                    let window = i128::from(moment.0.saturating_sub(draws[first].0.0));
                    let most = i128::from(shape.capacity.0 + debt) * denominator + gain * window;
                    assert!(net * denominator <= most, "net draw of {net} from {id:?} within {window} µs");
                }
            }
        }
    }

    fn cell(&self, charge: &Charge, now: Moment) -> Exact {
        match self.cells.get(&charge.cell) {
            Some(cell) => cell.shaped(&charge.shape, now),
            None => Exact::full(&charge.shape, now),
        }
    }

    /// A place in the ledger that goes to another holder: what is forgotten must be full, unless a run has ended or nothing was used
    /// of it (a policy that came since may hold more, and a cell of its own would).
    fn retire(&mut self, charge: &Charge, now: Moment) {
        self.dimensions.insert(charge.cell, charge.limit.dimension);
        let first = CellId { index: charge.cell.index, epoch: 0 };
        let gone: Vec<CellId> = self.cells.range(first..charge.cell).map(|(id, _)| *id).collect();
        for id in gone {
            let cell = self.cells.remove(&id).unwrap().at(now);
            let is_unused = !self.used.remove(&id);
            let ends = matches!(self.dimensions[&id], Dimension::RunBudget | Dimension::RunSteps);
            assert!(
                ends || is_unused || cell.floor() == i128::from(cell.shape.capacity.0),
                "{id:?} ({:?}) forgotten before it was full: {cell:?}",
                self.dimensions[&id]
            );
        }
    }

    /// The cell in the shape that it has: settlements may bring an older one.
    fn settled(&self, charge: &Charge, now: Moment) -> Exact {
        match self.cells.get(&charge.cell) {
            Some(cell) => cell.at(now),
            None => Exact::full(&charge.shape, now),
        }
    }

    fn take(&mut self, charge: &Charge, amount: i128, now: Moment) -> i128 {
        let mut cell = self.settled(charge, now);
        let taken = cell.take(amount);
        self.cells.insert(charge.cell, cell);
        self.draws.push((charge.cell, now, taken));
        taken
    }
}

/// Micro-units per microsecond, from what the rate yields over a span that divides evenly.
pub(crate) fn fraction(rate: Rate) -> (i128, i128) {
    for span in [86_400_000_000u64, 60_000_000, 1_000_000] {
        let units = rate.units_over(Micros(span));
        if units < Amount::WHOLE_MAX {
            return (i128::from(units) * 1_000_000, i128::from(span));
        }
    }
    panic!("{rate:?} is too fast for the reference");
}

fn sorted(mut cells: Vec<CellId>) -> Vec<CellId> {
    cells.sort();
    cells
}
