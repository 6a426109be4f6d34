//! Claims ahead: which cells are written down when, and what must be sure before a request may go.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::name::CellName;
use super::saved::{Saved, claim_of};
use crate::bucket::Shape;
use crate::gate::Gate;
use crate::ledger::{CellId, Charge, Ledger};
use crate::policy::{Dimension, Policy};
use crate::scope::Limit;
use crate::subjects::Place;
use crate::units::{Amount, Micros, Moment};

/// A number of rows that become sure together; later ones are larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Batch(pub u64);

/// What is known of the cells that outlive the process.
///
/// Of each slow cell a row is durable that says how much it held and how much of that is claimed: may be spent from memory alone.
/// As long as the cell holds no less than the row promises, a crash cannot make it larger. What would take it below has to wait
/// until the next row is sure ([`Claims::moved`]); rows are renewed before that happens, when half a claim is spent.
#[derive(Debug)]
pub struct Claims {
    /// Wall clock less the gate's clock, in microseconds. It only grows: a wall clock that is set back stamps no row earlier.
    wall_ahead: u64,
    pub(super) cells: BTreeMap<CellId, Kept>,
    /// Cells that hold less than their durable row promises.
    exposed: BTreeSet<CellId>,
    /// Cells whose row should be renewed.
    stale: BTreeSet<CellId>,
    in_flight: Vec<CellId>,
    gathering: Batch,
    /// Where the search for rows that have become old goes on.
    looked_until: CellId,
}

/// One cell that has a row, or should have one.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) limit: Limit,
    pub(super) place: Option<Place>,
    pub(super) durable: Option<Saved>,
    /// The row in the batch that is on its way.
    pub(super) pending: Option<Saved>,
}

/// Rows to be stored together.
#[derive(Debug)]
#[must_use]
pub struct Gathered {
    /// Their batch, for [`Claims::committed`].
    pub batch: Batch,
    rows: Vec<Row>,
    policy: Arc<Policy>,
}

#[derive(Debug)]
struct Row {
    limit: Limit,
    place: Option<Place>,
    /// `None` takes the row away: the cell is full.
    saved: Option<Saved>,
}

impl Claims {
    /// Nothing is kept yet. `wall` is the wall clock at `now`, in microseconds since 1970, and not before the latest stored row.
    #[must_use]
    pub fn new(gate: &mut Gate, wall: Moment, now: Moment) -> Self {
        gate.track_subjects();
        Self {
            wall_ahead: wall.0.saturating_sub(now.0),
            cells: BTreeMap::new(),
            exposed: BTreeSet::new(),
            stale: BTreeSet::new(),
            in_flight: Vec::new(),
            gathering: Batch(1),
            looked_until: CellId { index: 0, epoch: 0 },
        }
    }

    /// The wall clock at `now`, as rows are stamped.
    #[must_use]
    pub const fn wall(&self, now: Moment) -> Moment {
        Moment(now.0.saturating_add(self.wall_ahead))
    }

    /// Takes note that these charges were taken or given back. What was taken may only be used when the batch that is returned is
    /// sure; `None` is at once.
    pub fn moved(&mut self, gate: &Gate, ledger: &Ledger, charges: &[Charge], now: Moment) -> Option<Batch> {
        let mut needed = None;
        for charge in charges {
            if let Some((shape, bucket)) = ledger.holds(charge.cell, now) {
                needed = needed.max(self.look(gate, charge, (&shape, bucket.level()), now));
            }
        }
        needed
    }

    /// A cell has another shape, or more was granted to it.
    pub fn reshaped(&mut self, cell: CellId) {
        if self.cells.contains_key(&cell) {
            self.stale.insert(cell);
        }
    }

    /// The rows to store next: all that requests wait for, and a bounded number of others. `wall` is the wall clock at `now` or
    /// later. One batch is on its way at a time.
    pub fn gather(
        &mut self,
        gate: &mut Gate,
        ledger: &Ledger,
        wall: Moment,
        now: Moment,
    ) -> Option<Gathered> {
        self.wall_ahead = self.wall_ahead.max(wall.0.saturating_sub(now.0));
        let mut rows = self.forget(gate);
        self.find_old(gate, now);
        let mut cells = core::mem::take(&mut self.exposed);
        while cells.len() < ROWS_MAX
            && let Some(cell) = self.stale.pop_first()
        {
            cells.insert(cell);
        }
        for cell in cells {
            self.stale.remove(&cell);
            rows.extend(self.row(gate, ledger, cell, now));
            self.in_flight.push(cell);
        }
        if rows.is_empty() {
            return None;
        }
        let batch = self.gathering;
        self.gathering = Batch(batch.0 + 1);
        Some(Gathered { batch, rows, policy: Arc::clone(gate.policy()) })
    }

    /// The batch is sure.
    pub fn committed(&mut self, batch: Batch) {
        debug_assert!(batch < self.gathering, "only what was gathered can be sure");
        for cell in core::mem::take(&mut self.in_flight) {
            let Some(kept) = self.cells.get_mut(&cell) else { continue };
            kept.durable = kept.pending.take();
            let is_wanted = self.stale.contains(&cell) || self.exposed.contains(&cell);
            if kept.durable.is_none() && !is_wanted {
                self.cells.remove(&cell);
            }
        }
    }

    /// The last rows, when nothing more is taken or given back: every cell with what it holds and no claim, those that are full
    /// not at all.
    pub fn close(&mut self, gate: &mut Gate, ledger: &Ledger, wall: Moment, now: Moment) -> Gathered {
        self.wall_ahead = self.wall_ahead.max(wall.0.saturating_sub(now.0));
        let mut rows = self.forget(gate);
        let cells: Vec<CellId> = self.cells.keys().copied().collect();
        for cell in cells {
            rows.extend(
                self.row(gate, ledger, cell, now)
                    .map(|row| Row { saved: row.saved.and_then(unclaimed), ..row }),
            );
        }
        let batch = self.gathering;
        self.gathering = Batch(batch.0 + 1);
        Gathered { batch, rows, policy: Arc::clone(gate.policy()) }
    }

    fn look(
        &mut self,
        gate: &Gate,
        charge: &Charge,
        (shape, level): (&Shape, Amount),
        now: Moment,
    ) -> Option<Batch> {
        let (cell, limit) = (charge.cell, charge.limit);
        let Some(claim) = claim_of(limit.dimension, shape) else {
            self.look_at_debt(gate, charge, level);
            return None;
        };
        let wall = self.wall(now);
        let kept = self.cells.entry(cell).or_insert_with(|| Kept::of(limit, gate.place_of(cell)));
        // What has no row starts full.
        let promised = kept.durable.map_or(shape.capacity, |saved| saved.level_at(shape, wall));
        if promised <= level {
            let margin = level - promised;
            if margin.0 < claim.0 / 2 || margin.0 > claim.0.saturating_mul(2) || kept.is_old(wall) {
                self.stale.insert(cell);
            }
            return None;
        }
        if kept.pending.is_some_and(|saved| saved.level_at(shape, wall) <= level) {
            return Some(Batch(self.gathering.0 - 1));
        }
        self.exposed.insert(cell);
        Some(self.gathering)
    }

    /// A bucket that fills soon starts full, unless it is in debt. Nobody has to wait for that row: nothing is admitted in debt.
    fn look_at_debt(&mut self, gate: &Gate, charge: &Charge, level: Amount) {
        if charge.limit.dimension == Dimension::ConcurrentRequests {
            return;
        }
        if level < Amount::ZERO {
            self.cells
                .entry(charge.cell)
                .or_insert_with(|| Kept::of(charge.limit, gate.place_of(charge.cell)));
            self.stale.insert(charge.cell);
        } else {
            self.reshaped(charge.cell);
        }
    }

    /// Rows of end users and runs that are forgotten go.
    fn forget(&mut self, gate: &mut Gate) -> Vec<Row> {
        let mut rows = Vec::new();
        for cell in gate.take_forgotten() {
            self.exposed.remove(&cell);
            self.stale.remove(&cell);
            if let Some(Kept { limit, place, .. }) = self.cells.remove(&cell) {
                rows.push(Row { limit, place, saved: None });
            }
        }
        rows
    }

    /// Looks at some cells in turn: a run that streams for long is in use, though nothing is taken from it.
    fn find_old(&mut self, gate: &Gate, now: Moment) {
        let wall = self.wall(now);
        let from = self.looked_until;
        let looked: Vec<CellId> = self.cells.range(from..).map(|(cell, _)| *cell).take(LOOKED_AT).collect();
        for cell in &looked {
            let Some(kept) = self.cells.get(cell) else { continue };
            if kept.is_old(wall) && kept.place.is_some_and(|place| gate.is_in_use(&place)) {
                self.stale.insert(*cell);
            }
        }
        let start = CellId { index: 0, epoch: 0 };
        self.looked_until = match looked.last() {
            Some(last) if looked.len() == LOOKED_AT => CellId { epoch: last.epoch.wrapping_add(1), ..*last },
            _ => start,
        };
    }

    fn row(&mut self, gate: &Gate, ledger: &Ledger, cell: CellId, now: Moment) -> Option<Row> {
        let time = self.wall(now);
        let kept = self.cells.get_mut(&cell)?;
        let (shape, bucket) = ledger.holds(cell, now)?;
        let level = bucket.level();
        let claim = claim_of(kept.limit.dimension, &shape);
        let (raised, expiry) =
            kept.place.map_or((Amount::ZERO, Micros::ZERO), |place| gate.memory_of(&place));
        let whole = Saved {
            level,
            remainder: bucket.remainder(),
            claim: claim.unwrap_or_default(),
            time,
            shape,
            raised,
            expiry,
        };
        // A bucket that fills soon is written down for its debt alone.
        kept.pending = (claim.is_some() || level < Amount::ZERO).then_some(whole);
        Some(Row { limit: kept.limit, place: kept.place, saved: kept.pending })
    }
}

impl Kept {
    const fn of(limit: Limit, place: Option<Place>) -> Self {
        Self { limit, place, durable: None, pending: None }
    }

    fn is_old(&self, wall: Moment) -> bool {
        let has_aged = |saved: Saved| wall.since(saved.time) > saved.refresh();
        self.place.is_some() && self.durable.is_some_and(has_aged)
    }
}

/// The row of a cell that nothing more is taken from; none if it is full.
fn unclaimed(row: Saved) -> Option<Saved> {
    (row.level < row.shape.capacity).then_some(Saved { claim: Amount::ZERO, ..row })
}

impl Gathered {
    /// Every row under its name; `None` takes the row of that name away.
    pub fn rows(&self) -> impl Iterator<Item = (CellName, Option<Saved>)> {
        self.rows.iter().filter_map(|row| {
            let name = CellName::of(&self.policy, &row.limit, row.place.as_ref())?;
            Some((name, row.saved))
        })
    }
}

/// Rows that nobody waits for, in one batch.
const ROWS_MAX: usize = 1_000;
/// Cells looked at for their age, per batch.
const LOOKED_AT: usize = 64;
