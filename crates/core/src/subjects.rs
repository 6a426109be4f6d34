//! End users and agent runs: cells that come with their first request and go when forgetting them changes nothing.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::ledger::CellId;
use crate::policy::TenantId;
use crate::scope::Limit;
use crate::units::{Amount, Micros, Moment};

/// An end user or a run of a tenant, by the edge's hash of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// An agent run.
    Run(TenantId, u128),
    /// An end user.
    EndUser(TenantId, u128),
    /// All end users of a tenant that came when no more could be kept.
    OtherEndUsers(TenantId),
}

/// End users and runs that are known.
#[derive(Debug, Default)]
pub(crate) struct Subjects {
    known: BTreeMap<Place, Subject>,
    idle: BTreeSet<(Moment, Place)>,
    idle_runs: BTreeSet<(TenantId, Moment, u128)>,
    live_runs: BTreeMap<TenantId, u32>,
    end_users: usize,
    end_users_max: usize,
    free: Vec<CellId>,
    next_cell: u32,
    /// Counts the policies taken on.
    edition: u32,
    /// Whose cells are whose, where cells are written down.
    tracked: Option<Tracked>,
}

/// Owners of cells, and cells that nobody owns any more.
#[derive(Debug, Default)]
struct Tracked {
    owners: BTreeMap<CellId, Place>,
    forgotten: Vec<CellId>,
}

/// What is known of one.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) cells: Vec<(Limit, CellId)>,
    /// The policy that its cells and its expiry are from.
    edition: u32,
    /// What an operator added to a run's budget.
    pub(crate) raised: Amount,
    /// Requests that are queued or running.
    live: u32,
    /// Requests that were admitted and did not give back all they took; without any, the subject is forgotten with its last request.
    admitted: u64,
    expiry: Micros,
    idle_until: Moment,
}

impl Place {
    /// Whose it is.
    #[must_use]
    pub const fn tenant(&self) -> TenantId {
        match self {
            Self::Run(tenant, _) | Self::EndUser(tenant, _) | Self::OtherEndUsers(tenant) => *tenant,
        }
    }
}

impl Subject {
    /// How long it is kept once nobody uses it. Limits that were taken away may come back: what was used of them is remembered as
    /// long as it would have been, so that a reload is never a refill.
    fn stay(&mut self, limits: &[Limit], expiry: Micros) {
        let has_more = self.cells.iter().any(|(held, _)| !limits.contains(held));
        self.expiry = if has_more { expiry.max(self.expiry) } else { expiry };
    }
}

impl Subjects {
    /// Another policy is in force: those that are known must be looked at again before their cells are relied on.
    pub(crate) const fn limit(&mut self, end_users_max: usize) {
        self.end_users_max = end_users_max;
        self.edition += 1;
    }

    /// What is known of one.
    pub(crate) fn of(&self, place: &Place) -> Option<&Subject> {
        self.known.get(place)
    }

    /// Counts one more request of one whose cells are those of the policy in force; false if there is more to do.
    pub(crate) fn readmit(&mut self, place: &Place) -> bool {
        let Some(subject) = self.known.get_mut(place).filter(|subject| subject.edition == self.edition)
        else {
            return false;
        };
        subject.live += 1;
        if subject.live == 1 {
            self.not_idle(place);
        }
        true
    }

    /// A cell that nobody else has.
    pub(crate) fn fresh_cell(&mut self) -> CellId {
        if let Some(CellId { index, epoch }) = self.free.pop() {
            return CellId { index, epoch: epoch.wrapping_add(1) };
        }
        let index = self.next_cell;
        self.next_cell += 1;
        CellId { index, epoch: 0 }
    }

    pub(crate) fn cell(&self, place: &Place, limit: Limit) -> Option<CellId> {
        self.known.get(place)?.cells.iter().find(|(known, _)| *known == limit).map(|(_, cell)| *cell)
    }

    pub(crate) fn is_known(&self, place: &Place) -> bool {
        self.known.contains_key(place)
    }

    pub(crate) fn live_runs(&self, tenant: TenantId) -> u32 {
        self.live_runs.get(&tenant).copied().unwrap_or(0)
    }

    /// The place for an end user: their own if it is known or can be kept, else the one that newcomers share.
    pub(crate) fn end_user(&self, tenant: TenantId, user: u128) -> Place {
        let place = Place::EndUser(tenant, user);
        if self.end_users < self.end_users_max || self.is_known(&place) {
            place
        } else {
            Place::OtherEndUsers(tenant)
        }
    }

    /// When the first run of a tenant ends if it stays idle.
    pub(crate) fn first_run_expiry(&self, tenant: TenantId) -> Option<Moment> {
        let (found, moment, _) = self.idle_runs.range((tenant, Moment(0), 0)..).next()?;
        (*found == tenant).then_some(*moment)
    }

    /// Makes the cells that are missing, and counts one more request.
    pub(crate) fn admit(&mut self, place: Place, limits: &[Limit], expiry: Micros, now: Moment) {
        if !self.known.contains_key(&place) {
            match place {
                Place::Run(tenant, _) => *self.live_runs.entry(tenant).or_default() += 1,
                Place::EndUser(..) => self.end_users += 1,
                Place::OtherEndUsers(_) => {}
            }
            let subject = Subject {
                cells: Vec::new(),
                edition: self.edition,
                raised: Amount::ZERO,
                live: 0,
                admitted: 0,
                expiry,
                idle_until: now,
            };
            self.known.insert(place, subject);
        }
        self.not_idle(&place);
        self.make_cells(&place, limits);
        let Some(subject) = self.known.get_mut(&place) else {
            return;
        };
        subject.live += 1;
        subject.stay(limits, expiry);
        subject.edition = self.edition;
    }

    /// Makes the cells that are missing; an idle one stays at least as long as the policy in force says, counted from `now`: how
    /// much its cells have refilled is not known here.
    pub(crate) fn keep(&mut self, place: &Place, limits: &[Limit], expiry: Micros, now: Moment) {
        self.make_cells(place, limits);
        self.not_idle(place);
        let Some(subject) = self.known.get_mut(place) else {
            return;
        };
        subject.stay(limits, expiry);
        if subject.live == 0 {
            let idle_until = subject.idle_until.max(now.after(subject.expiry));
            self.set_idle(place, idle_until);
        }
    }

    pub(crate) fn make_cells(&mut self, place: &Place, limits: &[Limit]) {
        let missing: Vec<Limit> =
            limits.iter().filter(|limit| self.cell(place, **limit).is_none()).copied().collect();
        let made: Vec<(Limit, CellId)> =
            missing.into_iter().map(|limit| (limit, self.fresh_cell())).collect();
        if let Some(subject) = self.known.get_mut(place) {
            if let Some(tracked) = &mut self.tracked {
                tracked.owners.extend(made.iter().map(|(_, cell)| (*cell, *place)));
            }
            subject.cells.extend(made);
        }
    }

    /// One request of it was admitted by all limits.
    pub(crate) fn granted(&mut self, place: &Place) {
        if let Some(subject) = self.known.get_mut(place) {
            subject.admitted += 1;
        }
    }

    /// An admitted request of it gave back all that it took. Returns whether none is left that took anything.
    pub(crate) fn undone(&mut self, place: &Place) -> bool {
        self.known.get_mut(place).is_some_and(|subject| {
            subject.admitted = subject.admitted.saturating_sub(1);
            subject.admitted == 0
        })
    }

    /// One request of it left.
    pub(crate) fn leave(&mut self, place: &Place, now: Moment) {
        let Some(subject) = self.known.get_mut(place) else {
            return;
        };
        subject.live = subject.live.saturating_sub(1);
        if subject.live > 0 {
            return;
        }
        if subject.admitted == 0 {
            self.forget(place);
            return;
        }
        let idle_until = now.after(subject.expiry);
        self.set_idle(place, idle_until);
    }

    /// Forgets those whose idle time has passed.
    pub(crate) fn expire(&mut self, now: Moment) {
        while let Some((moment, place)) = self.idle.first().copied() {
            if moment > now {
                return;
            }
            self.forget(&place);
        }
    }

    /// Adds to a run's budget; false if the run is not known.
    pub(crate) fn raise(&mut self, place: &Place, amount: Amount) -> bool {
        let Some(subject) = self.known.get_mut(place) else {
            return false;
        };
        subject.raised = Amount((subject.raised + amount).0.min(Amount::whole(Amount::WHOLE_MAX).0));
        true
    }

    /// Remembers from here on whose cells are whose, and those that are forgotten until they are [taken](Self::take_forgotten).
    pub(crate) fn track(&mut self) {
        let owned = self
            .known
            .iter()
            .flat_map(|(place, subject)| subject.cells.iter().map(|(_, cell)| (*cell, *place)));
        self.tracked = Some(Tracked { owners: owned.collect(), forgotten: Vec::new() });
    }

    /// Whose cell it is; `None` for those of fixed limits.
    pub(crate) fn owner_of(&self, cell: CellId) -> Option<Place> {
        self.tracked.as_ref()?.owners.get(&cell).copied()
    }

    /// Cells whose owners were forgotten since the last call.
    pub(crate) fn take_forgotten(&mut self) -> Vec<CellId> {
        self.tracked.as_mut().map(|tracked| core::mem::take(&mut tracked.forgotten)).unwrap_or_default()
    }

    /// What was added to its budget, and how long after its last use it is kept.
    pub(crate) fn memory_of(&self, place: &Place) -> (Amount, Micros) {
        self.known.get(place).map_or((Amount::ZERO, Micros::ZERO), |subject| (subject.raised, subject.expiry))
    }

    /// Whether requests of it are queued or running.
    pub(crate) fn is_in_use(&self, place: &Place) -> bool {
        self.known.get(place).is_some_and(|subject| subject.live > 0)
    }

    /// Makes one known again that had begun before the process did; false if no more can be kept.
    pub(crate) fn restore(
        &mut self,
        place: Place,
        raised: Amount,
        expiry: Micros,
        idle_until: Moment,
    ) -> bool {
        let is_user = matches!(place, Place::EndUser(..));
        if self.known.contains_key(&place) || is_user && self.end_users >= self.end_users_max {
            return false;
        }
        match place {
            Place::Run(tenant, _) => *self.live_runs.entry(tenant).or_default() += 1,
            Place::EndUser(..) => self.end_users += 1,
            Place::OtherEndUsers(_) => {}
        }
        // The edition before this one: its cells are looked at before they are relied on.
        let edition = self.edition.wrapping_sub(1);
        let subject =
            Subject { cells: Vec::new(), edition, raised, live: 0, admitted: 1, expiry, idle_until };
        self.known.insert(place, subject);
        self.set_idle(&place, idle_until);
        true
    }

    /// End users and runs that are known.
    pub(crate) fn places(&self) -> Vec<Place> {
        self.known.keys().copied().collect()
    }

    /// Whether requests of it have been admitted.
    pub(crate) fn has_begun(&self, place: &Place) -> bool {
        self.known.get(place).is_some_and(|subject| subject.admitted > 0)
    }

    /// Runs of a tenant, each with its queued and running requests.
    pub(crate) fn runs(&self, tenant: TenantId) -> impl Iterator<Item = (Place, u32)> {
        self.known
            .range(Place::Run(tenant, 0)..=Place::Run(tenant, u128::MAX))
            .map(|(place, subject)| (*place, subject.live))
    }

    /// End users and runs that are known.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    fn set_idle(&mut self, place: &Place, idle_until: Moment) {
        if let Some(subject) = self.known.get_mut(place) {
            subject.idle_until = idle_until;
        }
        self.idle.insert((idle_until, *place));
        if let Place::Run(tenant, run) = place {
            self.idle_runs.insert((*tenant, idle_until, *run));
        }
    }

    fn not_idle(&mut self, place: &Place) {
        let Some(subject) = self.known.get(place) else {
            return;
        };
        self.idle.remove(&(subject.idle_until, *place));
        if let Place::Run(tenant, run) = place {
            self.idle_runs.remove(&(*tenant, subject.idle_until, *run));
        }
    }

    fn forget(&mut self, place: &Place) {
        self.not_idle(place);
        let Some(subject) = self.known.remove(place) else {
            return;
        };
        if let Some(tracked) = &mut self.tracked {
            tracked.forgotten.extend(subject.cells.iter().map(|(_, cell)| *cell));
            for (_, cell) in &subject.cells {
                tracked.owners.remove(cell);
            }
        }
        self.free.extend(subject.cells.iter().map(|(_, cell)| *cell));
        match place {
            Place::Run(tenant, _) => {
                if let Some(live) = self.live_runs.get_mut(tenant) {
                    *live = live.saturating_sub(1);
                }
            }
            Place::EndUser(..) => self.end_users = self.end_users.saturating_sub(1),
            Place::OtherEndUsers(_) => {}
        }
    }
}
