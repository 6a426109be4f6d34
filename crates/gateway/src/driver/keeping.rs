//! Balances that outlive the process: what is written down when, and who waits for it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use fairlane_core::gate::RequestId;
use fairlane_core::ledger::{CellId, Charge, Reservation};
use fairlane_core::snapshot::{Batch, CellName, Claims, Gathered, Leftover, Saved};
use fairlane_core::units::Moment;

use super::{Driver, State};
use crate::clock;
use crate::data::Sender;

/// What is written down, and for whom.
#[derive(Debug)]
pub(super) struct Keeping {
    claims: Claims,
    /// Requests that took more than is claimed, and the batch that makes it sure.
    exposed: HashMap<RequestId, Batch>,
    /// Balances of limits that no policy had yet.
    unknown: BTreeMap<CellName, Saved>,
    writer: Sender,
    /// The writer knows that somebody waits.
    is_hurried: bool,
}

/// The way to the writer's counters, for those who wait outside the lock.
#[derive(Debug)]
pub(super) struct Wall {
    writer: Sender,
}

impl Driver {
    /// Puts back balances from before the process began, and writes down what changes from here on. `stamp` is the wall clock of
    /// the latest commit, in microseconds since 1970.
    #[must_use]
    pub fn keep(&self, saved: BTreeMap<CellName, Saved>, stamp: Moment, writer: Sender) -> Leftover {
        // First the wall clock: time that passes between the two readings refills nothing.
        let wall = unix_micros().max(stamp);
        let now = self.clock.now();
        let _ = self.wall.set(Wall { writer: writer.clone() });
        self.with(|state| {
            let mut claims = Claims::new(&mut state.gate, wall, now);
            let leftover = claims.restore(&mut state.gate, &mut state.ledger, saved, now);
            state.keeping = Some(Keeping {
                claims,
                exposed: HashMap::new(),
                unknown: leftover.unknown.clone(),
                writer,
                is_hurried: false,
            });
            leftover
        })
    }

    /// The rows to store next.
    #[must_use]
    pub fn gather(&self) -> Option<Gathered> {
        let now = self.clock.now();
        let wall = unix_micros_ceil();
        self.with(|state| {
            let State { gate, ledger, keeping, .. } = state;
            let keeping = keeping.as_mut()?;
            keeping.is_hurried = false;
            keeping.claims.gather(gate, ledger, wall, now)
        })
    }

    /// A batch of rows is stored.
    pub fn committed(&self, batch: Batch) {
        self.with(|state| {
            if let Some(keeping) = &mut state.keeping {
                keeping.claims.committed(batch);
            }
        });
        self.durable.send_replace(batch);
    }

    /// The last rows, and nothing is written down after them.
    #[must_use]
    pub fn last_rows(&self) -> Option<Gathered> {
        let now = self.clock.now();
        let wall = unix_micros_ceil();
        self.with(|state| {
            let mut keeping = state.keeping.take()?;
            Some(keeping.claims.close(&mut state.gate, &state.ledger, wall, now))
        })
    }

    /// The wall clock as rows are stamped, in microseconds since 1970: it never goes back.
    #[must_use]
    pub fn wall(&self) -> Moment {
        let now = self.clock.now();
        let stamped = self.with(|state| state.keeping.as_ref().map(|keeping| keeping.claims.wall(now)));
        stamped.map_or_else(unix_micros_ceil, |stamped| stamped.max(unix_micros_ceil()))
    }

    /// Waits until a batch is stored. A disk that does not answer in time makes nobody wait longer: limits hold in memory, and only
    /// a crash before the commit would forget what was taken.
    pub(super) async fn sure(&self, batch: Batch) {
        let mut durable = self.durable.subscribe();
        if *durable.borrow_and_update() >= batch {
            return;
        }
        if let Some(Wall { writer }) = self.wall.get() {
            writer.counters().waited();
            if tokio::time::timeout(SURE_WITHIN, durable.wait_for(|sure| *sure >= batch)).await.is_err() {
                writer.counters().late();
            }
        }
    }
}

impl State {
    /// A reservation was granted.
    pub(super) fn reserved(&mut self, reservation: &Reservation, now: Moment) {
        let Some(keeping) = &mut self.keeping else { return };
        let needed = keeping.claims.moved(&self.gate, &self.ledger, &reservation.charges, now);
        if let (Some(batch), Some(request)) = (needed, self.gate.request_of(reservation.id)) {
            let known = keeping.exposed.entry(request).or_insert(batch);
            *known = batch.max(*known);
            if !keeping.is_hurried {
                keeping.is_hurried = true;
                keeping.writer.hurry();
            }
        }
    }

    /// Charges were taken or given back, for which nobody waits.
    pub(super) fn moved(&mut self, charges: &[Charge], now: Moment) {
        if let Some(keeping) = &mut self.keeping {
            let _ = keeping.claims.moved(&self.gate, &self.ledger, charges, now);
        }
    }

    pub(super) fn reshaped(&mut self, cell: CellId) {
        if let Some(keeping) = &mut self.keeping {
            keeping.claims.reshaped(cell);
        }
    }

    /// The batch that a request has to wait for. It is asked once.
    pub(super) fn sure_with(&mut self, request: RequestId) -> Option<Batch> {
        self.keeping.as_mut().and_then(|keeping| keeping.exposed.remove(&request))
    }

    /// Another policy may have limits whose balances found no place before.
    pub(super) fn restore_unknown(&mut self, now: Moment) {
        if let Some(keeping) = &mut self.keeping
            && !keeping.unknown.is_empty()
        {
            let unknown = std::mem::take(&mut keeping.unknown);
            let leftover = keeping.claims.restore(&mut self.gate, &mut self.ledger, unknown, now);
            keeping.unknown = leftover.unknown;
        }
    }
}

fn unix_micros() -> Moment {
    Moment(clock::unix_millis().saturating_mul(1_000))
}

/// Rows are stamped with the end of the millisecond, so that no part of one refills twice.
fn unix_micros_ceil() -> Moment {
    Moment(clock::unix_millis().saturating_add(1).saturating_mul(1_000))
}

/// The longest that a request waits for a commit.
const SURE_WITHIN: Duration = Duration::from_secs(2);
