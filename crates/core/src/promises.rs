//! Told waits: what refused callers were told, so that polite clients do not all return at the same instant.
//!
//! A promise is advice. It changes no cell and no admission; it only makes the next refused caller of the same cell wait behind
//! the amounts already promised.

use alloc::collections::{BTreeMap, VecDeque};

use crate::bucket::Shape;
use crate::ledger::CellId;
use crate::units::{Amount, Micros, Moment};

/// The promises of all cells. At most [`CELLS_MAX`] cells with at most [`PROMISES_PER_CELL_MAX`] promises each.
#[derive(Clone, Debug, Default)]
pub struct Promises {
    cells: BTreeMap<CellId, VecDeque<Promise>>,
}

#[derive(Clone, Copy, Debug)]
struct Promise {
    due: Moment,
    expires: Moment,
    amount: Amount,
}

impl Promises {
    /// The wait to tell a caller refused by `cell`: the exact wait for the first one, behind the promised amounts for the next.
    /// Makes the promise. `exact` is the store's answer for `cost`.
    pub fn tell(&mut self, cell: CellId, shape: &Shape, cost: Amount, exact: Micros, now: Moment) -> Micros {
        if !self.cells.contains_key(&cell) && self.cells.len() >= CELLS_MAX {
            self.drop_expired(now);
            if self.cells.len() >= CELLS_MAX {
                return exact;
            }
        }
        let promises = self.cells.entry(cell).or_default();
        promises.retain(|promise| promise.expires > now);
        let promised =
            promises.iter().fold(0u64, |sum, promise| sum.saturating_add(promise.amount.0.unsigned_abs()));
        let behind = Micros(shape.rate.span_of(promised));
        let wait = Micros(exact.0.saturating_add(behind.0));
        if promises.len() < PROMISES_PER_CELL_MAX {
            let due = now.after(wait);
            promises.push_back(Promise { due, expires: due.after(grace(wait)), amount: cost });
        }
        wait
    }

    /// Somebody was admitted by `cell`: the earliest promise that is due has been kept.
    pub fn keep(&mut self, cell: CellId, now: Moment) {
        if self.cells.is_empty() {
            return;
        }
        let Some(promises) = self.cells.get_mut(&cell) else {
            return;
        };
        promises.retain(|promise| promise.expires > now);
        if promises.front().is_some_and(|first| first.due <= now) {
            promises.pop_front();
        }
        if promises.is_empty() {
            self.cells.remove(&cell);
        }
    }

    fn drop_expired(&mut self, now: Moment) {
        self.cells.retain(|_, promises| promises.back().is_some_and(|last| last.expires > now));
    }
}

/// How long after its due moment a promise still counts: clients round up to whole seconds and add jitter.
fn grace(wait: Micros) -> Micros {
    Micros(GRACE_MIN.0 + wait.0 / 4)
}

const GRACE_MIN: Micros = Micros::from_secs(2);
/// Cells that remember promises; beyond it callers are told the exact wait.
pub const CELLS_MAX: usize = 10_000;
/// Promises remembered per cell; beyond it callers are told the wait behind these.
pub const PROMISES_PER_CELL_MAX: usize = 256;
