//! An independent keeper of every cell's level: exact fractions in 128 bits, fed with effects and times alone.
//!
//! It shares no arithmetic with the ledger that it watches. The second ledger law is that both always agree: change of level =
//! refill − lost to the brim − debits + credits.

use std::collections::BTreeMap;

use fairlane_core::bucket::{Rate, Shape};
use fairlane_core::ledger::{CellId, Charge, Ledger, Reservation, ReservationId, Settlement, Verdict};
use fairlane_core::policy::Dimension;
use fairlane_core::units::{Amount, Micros, Moment};

/// What the ledger must hold, by its own reckoning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder {
    cells: BTreeMap<CellId, Level>,
    dimensions: BTreeMap<CellId, Dimension>,
    /// What was used of each cell on balance: taken and not given back.
    used: BTreeMap<CellId, i128>,
    open: BTreeMap<ReservationId, Open>,
    /// Cells that changed since the last check; those that only refill are looked at in turn.
    touched: Vec<CellId>,
    next_looked_at: Option<CellId>,
}

#[derive(Clone, Debug)]
struct Open {
    tokens: u64,
    /// Per cell: taken, and not taken because the debt had reached its bound.
    cells: BTreeMap<CellId, (i128, i128)>,
}

/// A level in parts of a micro-unit, as many parts as the rate's period has microseconds.
#[derive(Clone, Copy, Debug)]
struct Level {
    shape: Shape,
    parts: i128,
    time: Moment,
}

impl Recorder {
    /// Follows a reservation; the store's verdict must be the exact one.
    pub(crate) fn reserve(
        &mut self,
        reservation: &Reservation,
        verdict: &Verdict,
        now: Moment,
    ) -> Result<(), String> {
        for charge in &reservation.charges {
            self.retire(charge, now)?;
        }
        let waits: Vec<Option<Micros>> = reservation
            .charges
            .iter()
            .map(|charge| self.shaped(charge, now).wait(i128::from(charge.reserved.0)))
            .collect();
        self.judge(reservation, verdict, &waits)?;
        for charge in &reservation.charges {
            let level = self.shaped(charge, now);
            self.put(charge.cell, level);
        }
        let Verdict::Granted { shadowed } = verdict else { return Ok(()) };
        let mut cells = BTreeMap::new();
        for (place, charge) in reservation.charges.iter().enumerate() {
            if shadowed.contains(&place) {
                continue;
            }
            let taken = self.take(charge, i128::from(charge.reserved.0), now);
            if taken != i128::from(charge.reserved.0) {
                return Err(format!("an admission takes its whole cost, {:?} gave {taken}", charge.cell));
            }
            cells.insert(charge.cell, (taken, 0));
        }
        let open = Open { tokens: reservation.tokens.0, cells };
        match self.open.insert(reservation.id, open) {
            None => Ok(()),
            Some(_) => Err(format!("{:?} stands for two reservations", reservation.id)),
        }
    }

    /// Follows a draw on an open reservation; others change nothing.
    pub(crate) fn draw(&mut self, id: ReservationId, charges: &[Charge], now: Moment) {
        if !self.open.contains_key(&id) {
            return;
        }
        for charge in charges {
            let wanted = i128::from(charge.reserved.0);
            let taken = self.take(charge, wanted, now);
            if let Some(open) = self.open.get_mut(&id) {
                let held = open.cells.entry(charge.cell).or_default();
                held.0 += taken;
                held.1 += wanted - taken;
            }
        }
    }

    /// Follows a settlement: what was taken and not used comes back, what was used and not taken is taken, and what a bound on
    /// debt has forgiven stays forgiven.
    pub(crate) fn settle(&mut self, settlement: &Settlement, now: Moment) -> Result<(), String> {
        let id = settlement.id;
        let open = self.open.remove(&id).ok_or_else(|| format!("{id:?} is settled and was not open"))?;
        let mut named: Vec<CellId> = settlement.charges.iter().map(|charge| charge.cell).collect();
        named.sort_unstable();
        if !named.iter().eq(open.cells.keys()) {
            return Err(format!("{id:?} took from {:?} and is settled in {named:?}", open.cells.keys()));
        }
        for charge in &settlement.charges {
            let (taken, forgiven) = open.cells[&charge.cell];
            let used = i128::from(charge.used.0);
            if used > taken + forgiven {
                self.take(charge, used - taken - forgiven, now);
                continue;
            }
            let mut level = self.level(charge, now);
            let unused = (taken - used).max(0);
            level.give(unused);
            *self.used.entry(charge.cell).or_default() -= unused;
            self.put(charge.cell, level);
        }
        Ok(())
    }

    /// Follows a change of policy.
    pub(crate) fn reshape(&mut self, cell: CellId, shape: &Shape, now: Moment) {
        if let Some(level) = self.cells.get(&cell) {
            self.put(cell, level.shaped(shape, now));
        }
    }

    /// Follows a raised budget.
    pub(crate) fn grant(&mut self, cell: CellId, shape: &Shape, amount: Amount, now: Moment) {
        if let Some(level) = self.cells.get(&cell) {
            let mut level = level.at(now);
            level.shape = *shape;
            level.give(i128::from(amount.0));
            self.put(cell, level);
        }
    }

    /// Both ledger laws. Cells that were touched are compared, and a few more in turn: all of them within a few events.
    pub(crate) fn check(&mut self, ledger: &Ledger, now: Moment) -> Result<(), String> {
        let totals = ledger.totals();
        if !totals.law_holds() {
            return Err(format!("reserved = settled + refunded + expired + outstanding: {totals:?}"));
        }
        let outstanding: u64 = self.open.values().map(|open| open.tokens).sum();
        if (totals.outstanding, ledger.outstanding()) != (outstanding, self.open.len()) {
            return Err(format!("{totals:?} for {outstanding} tokens in {} reservations", self.open.len()));
        }
        let mut looked_at = std::mem::take(&mut self.touched);
        let from = self.next_looked_at.unwrap_or(CellId { index: 0, epoch: 0 });
        looked_at.extend(self.cells.range(from..).map(|(cell, _)| *cell).take(IN_TURN));
        self.next_looked_at = self.cells.range(from..).nth(IN_TURN).map(|(cell, _)| *cell);
        looked_at.iter().try_for_each(|cell| self.check_cell(*cell, ledger, now))
    }

    /// Every cell, besides what [`check`](Self::check) does.
    pub(crate) fn check_all(&mut self, ledger: &Ledger, now: Moment) -> Result<(), String> {
        self.check(ledger, now)?;
        self.cells.keys().try_for_each(|cell| self.check_cell(*cell, ledger, now))
    }

    fn check_cell(&self, cell: CellId, ledger: &Ledger, now: Moment) -> Result<(), String> {
        let Some(level) = self.cells.get(&cell) else { return Ok(()) };
        let exact = level.at(now).floor();
        let shown = ledger.level(cell, &level.shape, now);
        let Shape { capacity, debt_max, .. } = level.shape;
        if i128::from(shown.0) != exact {
            let dimension = self.dimensions.get(&cell);
            return Err(format!(
                "{cell:?} ({dimension:?}) holds {} and should hold {exact} at {now:?}",
                shown.0
            ));
        }
        if shown > capacity || shown.0 < -debt_max.0 {
            return Err(format!("{cell:?} holds {shown:?}, outside its bounds {:?}", level.shape));
        }
        Ok(())
    }

    /// The store must name the charges that fall short, and the longest exact wait; of equal waits the first.
    fn judge(
        &self,
        reservation: &Reservation,
        verdict: &Verdict,
        waits: &[Option<Micros>],
    ) -> Result<(), String> {
        let mut shadowed = Vec::new();
        let mut binding: Option<(usize, Option<Micros>)> = None;
        for (place, (charge, wait)) in reservation.charges.iter().zip(waits).enumerate() {
            // `None` is for ever.
            let length = |wait: Option<Micros>| wait.map_or(u64::MAX, |wait| wait.0);
            if *wait == Some(Micros::ZERO) {
                continue;
            } else if charge.shadow {
                shadowed.push(place);
            } else if binding.is_none_or(|(_, longest)| length(*wait) > length(longest)) {
                binding = Some((place, *wait));
            }
        }
        let agrees = match (verdict, binding) {
            (Verdict::Granted { shadowed: told }, None) => *told == shadowed,
            (Verdict::Refused(shortage), Some(exact)) => (shortage.charge, shortage.wait) == exact,
            (Verdict::Granted { .. }, Some(_)) | (Verdict::Refused(_), None) => false,
        };
        if agrees {
            return Ok(());
        }
        Err(format!("the store says {verdict:?}, exact arithmetic says {binding:?}, in shadow {shadowed:?}"))
    }

    /// A place in the ledger that goes to another holder: what is forgotten must be full, unless a run has ended or nothing was
    /// ever used of it.
    fn retire(&mut self, charge: &Charge, now: Moment) -> Result<(), String> {
        self.dimensions.insert(charge.cell, charge.limit.dimension);
        let first = CellId { index: charge.cell.index, epoch: 0 };
        let gone: Vec<CellId> = self.cells.range(first..charge.cell).map(|(id, _)| *id).collect();
        for id in gone {
            let Some(level) = self.cells.remove(&id) else { continue };
            let dimension = self.dimensions.remove(&id);
            let is_unused = self.used.remove(&id).unwrap_or(0) == 0;
            let ends = matches!(dimension, Some(Dimension::RunBudget | Dimension::RunSteps));
            if !ends && !is_unused && level.at(now).floor() != i128::from(level.shape.capacity.0) {
                return Err(format!("{id:?} ({dimension:?}) is forgotten before it is full"));
            }
        }
        Ok(())
    }

    /// The cell's level in the shape that a reservation brings.
    fn shaped(&self, charge: &Charge, now: Moment) -> Level {
        let known = self.cells.get(&charge.cell);
        known.map_or_else(|| Level::full(&charge.shape, now), |level| level.shaped(&charge.shape, now))
    }

    /// The cell's level in the shape that it has: settlements may bring an older one.
    fn level(&self, charge: &Charge, now: Moment) -> Level {
        let known = self.cells.get(&charge.cell);
        known.map_or_else(|| Level::full(&charge.shape, now), |level| level.at(now))
    }

    fn take(&mut self, charge: &Charge, amount: i128, now: Moment) -> i128 {
        let mut level = self.level(charge, now);
        let taken = level.take(amount);
        *self.used.entry(charge.cell).or_default() += taken;
        self.put(charge.cell, level);
        taken
    }

    fn put(&mut self, cell: CellId, level: Level) {
        self.cells.insert(cell, level);
        self.touched.push(cell);
    }
}

impl Level {
    fn full(shape: &Shape, now: Moment) -> Self {
        let (_, period) = fraction(shape.rate);
        Self { shape: *shape, parts: i128::from(shape.capacity.0) * period, time: now }
    }

    fn at(mut self, now: Moment) -> Self {
        // A clock that went back earns nothing until it has caught up.
        if now > self.time {
            let (gain, period) = fraction(self.shape.rate);
            let brim = i128::from(self.shape.capacity.0) * period;
            let earned = gain * i128::from(now.0 - self.time.0);
            self.parts = brim.min(self.parts + earned).max(self.parts);
            self.time = now;
        }
        self
    }

    fn shaped(self, shape: &Shape, now: Moment) -> Self {
        let aged = self.at(now);
        if aged.shape == *shape {
            return aged;
        }
        let (brim, deepest) = (i128::from(shape.capacity.0), -i128::from(shape.debt_max.0));
        let level = if aged.shape.rate.is_never() && shape.rate.is_never() {
            // A count that never refills: what is used stays used under another bound.
            aged.floor() + brim - i128::from(aged.shape.capacity.0)
        } else {
            aged.floor()
        };
        let (_, period) = fraction(shape.rate);
        Self { shape: *shape, parts: level.min(brim).max(deepest) * period, time: aged.time }
    }

    fn floor(&self) -> i128 {
        let (_, period) = fraction(self.shape.rate);
        self.parts.div_euclid(period)
    }

    /// Takes the most whole micro-units of `cost` that keep the level above the bound on debt.
    fn take(&mut self, cost: i128) -> i128 {
        let (_, period) = fraction(self.shape.rate);
        let taken = cost.min((self.floor() + i128::from(self.shape.debt_max.0)).max(0));
        self.parts -= taken * period;
        taken
    }

    /// Gives back as much of `amount` as fits under the brim.
    fn give(&mut self, amount: i128) {
        let (_, period) = fraction(self.shape.rate);
        let brim = i128::from(self.shape.capacity.0) * period;
        self.parts = (self.parts + amount * period).min(brim.max(self.parts));
    }

    /// The exact wait until `cost` can be taken; `None` if waiting never helps.
    fn wait(&self, cost: i128) -> Option<Micros> {
        let (gain, period) = fraction(self.shape.rate);
        let missing = cost * period - self.parts;
        if missing <= 0 {
            return Some(Micros::ZERO);
        }
        if cost > i128::from(self.shape.capacity.0) || gain == 0 {
            return None;
        }
        Some(Micros(u64::try_from((missing + gain - 1) / gain).unwrap_or(u64::MAX)))
    }
}

/// Micro-units per period, and the period in microseconds.
fn fraction(rate: Rate) -> (i128, i128) {
    let (units, period_secs) = rate.parts();
    (i128::from(units) * 1_000_000, i128::from(period_secs) * 1_000_000)
}

/// Cells compared at each check besides those that were touched.
const IN_TURN: usize = 8;
