//! Putting balances back after a restart.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::claims::{Claims, Kept};
use super::name::{CellName, OwnerName};
use super::saved::Saved;
use crate::gate::{Gate, LimitView};
use crate::ledger::Ledger;
use crate::policy::TenantId;
use crate::subjects::Place;
use crate::units::{Amount, Moment};

/// What found no place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftover {
    /// Rows of limits that the policy does not have: a later one may.
    pub unknown: BTreeMap<CellName, Saved>,
    /// Rows of end users and runs that were idle for too long, and of other limits that are full: they can go.
    pub over: Vec<CellName>,
}

impl Claims {
    /// Puts the balances of `saved` into a gate and a ledger at `now`, each as it is left after the time away. It never raises
    /// what a cell holds.
    pub fn restore(
        &mut self,
        gate: &mut Gate,
        ledger: &mut Ledger,
        mut saved: BTreeMap<CellName, Saved>,
        now: Moment,
    ) -> Leftover {
        let wall = self.wall(now);
        let mut leftover = Leftover::default();
        let policy = gate.policy().clone();
        if !saved.is_empty() {
            for view in gate.all_limits() {
                let name = CellName::of(&policy, &view.limit, None);
                if let Some(found) = name.and_then(|name| saved.remove(&name)) {
                    self.put(ledger, (&view, None), found, now);
                }
            }
        }
        let tenants: BTreeMap<&str, TenantId> =
            policy.tenants.iter().map(|tenant| tenant.name.as_str()).zip((0..).map(TenantId)).collect();
        for (owner, rows) in by_subject(saved, &mut leftover) {
            if rows.values().all(|row| row.is_expired(wall)) {
                leftover.over.extend(rows.into_keys());
                continue;
            }
            let tenant = owner.subject_of().and_then(|name| tenants.get(name));
            let rows = match tenant.and_then(|tenant| owner.place(&policy, *tenant)) {
                Some(place) => self.restore_subject(gate, ledger, (place, rows), now),
                None => rows,
            };
            leftover.unknown.extend(rows);
        }
        leftover.settle(wall);
        leftover
    }

    /// Returns the rows that found no place.
    fn restore_subject(
        &mut self,
        gate: &mut Gate,
        ledger: &mut Ledger,
        (place, mut rows): (Place, BTreeMap<CellName, Saved>),
        now: Moment,
    ) -> BTreeMap<CellName, Saved> {
        let policy = gate.policy().clone();
        let raised = rows.values().map(|row| row.raised).max().unwrap_or_default();
        let expiry = rows.values().map(|row| row.expiry).max().unwrap_or_default();
        let until = rows.values().map(Saved::idle_until).max().unwrap_or_default();
        let idle = until.since(self.wall(now)).min(expiry);
        let Some(views) = gate.restore_subject(place, raised, idle, now) else { return rows };
        for view in views {
            let name = CellName::of(&policy, &view.limit, Some(&place));
            if let Some(found) = name.and_then(|name| rows.remove(&name)) {
                self.put(ledger, (&view, Some(place)), found, now);
            }
        }
        rows
    }

    fn put(
        &mut self,
        ledger: &mut Ledger,
        (view, place): (&LimitView, Option<Place>),
        row: Saved,
        now: Moment,
    ) {
        if self.cells.contains_key(&view.cell) {
            return;
        }
        ledger.restore(view.cell, view.shape, row.bucket_at(&view.shape, self.wall(now), now), now);
        self.cells.insert(view.cell, Kept { limit: view.limit, place, durable: Some(row), pending: None });
        // The row goes on to be true, and whoever debits the cell first has it renewed; but not under another rate.
        if row.shape != view.shape {
            self.reshaped(view.cell);
        }
    }
}

impl Leftover {
    /// Nobody spends of these: what was claimed is gone for good, and what is full says nothing.
    fn settle(&mut self, wall: Moment) {
        for (name, row) in core::mem::take(&mut self.unknown) {
            if row.is_full(wall) {
                self.over.push(name);
            } else {
                let level = row.level_at(&row.shape, wall);
                self.unknown.insert(name, Saved { level, claim: Amount::ZERO, time: wall, ..row });
            }
        }
    }
}

/// Rows of end users and runs, together for each of them; others are left over.
fn by_subject(
    saved: BTreeMap<CellName, Saved>,
    leftover: &mut Leftover,
) -> BTreeMap<OwnerName, BTreeMap<CellName, Saved>> {
    let mut subjects: BTreeMap<OwnerName, BTreeMap<CellName, Saved>> = BTreeMap::new();
    for (name, row) in saved {
        if name.owner.subject_of().is_some() {
            subjects.entry(name.owner.clone()).or_default().insert(name, row);
        } else {
            leftover.unknown.insert(name, row);
        }
    }
    subjects
}
