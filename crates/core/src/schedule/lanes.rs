//! Which class comes next: strict order, minimum shares, ageing.

use alloc::vec::Vec;

use super::line::EntryId;
use super::node::NodeId;
use crate::occupancy::{Headroom, ONE_PPM};
use crate::policy::Class;
use crate::units::{Micros, Moment};

/// One class, or all of them where the order knows none.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) root: NodeId,
    pub(super) teams: Vec<NodeId>,
    pub(super) tenants: Vec<NodeId>,
    share_ppm: u32,
    headroom: Headroom,
    ageing: Option<Micros>,
    /// Work that its minimum share has earned it, in thousandths of work times a million.
    credit: u128,
    /// The costliest request that has been at its front, in thousandths of work.
    cost_max_millis: u64,
}

/// The front of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) lane: usize,
    pub(super) entry: EntryId,
    pub(super) cost_millis: u64,
    pub(super) arrived: Moment,
}

/// A request that may go next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) entry: EntryId,
    /// What it leaves free.
    pub(crate) headroom: Headroom,
    /// What it means if it fits nowhere.
    pub(crate) otherwise: Otherwise,
}

/// What it means if a request fits nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Otherwise {
    /// Nothing goes: those behind it stay behind it.
    Stop,
    /// Others go on: it was brought forward by its class's minimum share, and that blocks nobody.
    Pass,
}

impl Lane {
    pub(super) const fn new(root: NodeId) -> Self {
        Self {
            root,
            teams: Vec::new(),
            tenants: Vec::new(),
            share_ppm: 0,
            headroom: Headroom::NONE,
            ageing: None,
            credit: 0,
            cost_max_millis: 0,
        }
    }

    pub(super) const fn reload(&mut self, class: &Class) {
        self.share_ppm = class.min_share_ppm;
        self.headroom = class.headroom;
        self.ageing = class.ageing;
    }

    /// Earns its share of work that was dispatched while it had something to send, at most what its costliest requests can use.
    pub(super) fn earn(&mut self, cost_millis: u64) {
        let earned = u128::from(cost_millis) * u128::from(self.share_ppm);
        let most = self.credit_max() + earned;
        self.credit = (self.credit + earned).min(most);
    }

    /// Work that was reckoned and not done earned nothing.
    pub(super) fn earn_less(&mut self, cost_millis: u64) {
        self.credit = self.credit.saturating_sub(u128::from(cost_millis) * u128::from(self.share_ppm));
    }

    /// Pays for work of its own with what it has, and returns how much that was.
    pub(super) fn spend(&mut self, cost_millis: u64) -> u64 {
        let cost = credit(cost_millis).min(self.credit);
        self.credit -= cost;
        (cost / u128::from(ONE_PPM)) as u64
    }

    /// Gets back what it paid for work that was not done.
    pub(super) fn give_back(&mut self, spent_millis: u64) {
        let most = self.credit_max().max(self.credit);
        self.credit = (self.credit + credit(spent_millis)).min(most);
    }

    fn is_owed(&self, head: &Head) -> bool {
        self.share_ppm > 0 && self.credit >= credit(head.cost_millis)
    }

    /// It has been passed over although its share was due: it fits nowhere because others keep taking what becomes free.
    fn is_overdue(&self, head: &Head) -> bool {
        self.credit >= credit(head.cost_millis.saturating_mul(OVERDUE_COSTS))
    }

    fn credit_max(&self) -> u128 {
        credit(self.cost_max_millis.saturating_mul(OVERDUE_COSTS))
    }
}

/// Puts the fronts into the order in which they are tried: what a minimum share owes, then the classes from the first to the last,
/// each aged one as if its front had come that much later instead.
pub(super) fn rank(lanes: &mut [Lane], heads: &[Head], order: &mut Vec<Candidate>) {
    order.clear();
    for head in heads {
        let lane = &mut lanes[head.lane];
        lane.cost_max_millis = lane.cost_max_millis.max(head.cost_millis);
        if lane.is_owed(head) {
            let otherwise = if lane.is_overdue(head) { Otherwise::Stop } else { Otherwise::Pass };
            order.push(Candidate { entry: head.entry, headroom: Headroom::NONE, otherwise });
        }
    }
    let owed = order.len();
    for (index, head) in heads.iter().enumerate() {
        let headroom = lanes[head.lane].headroom;
        let candidate = Candidate { entry: head.entry, headroom, otherwise: Otherwise::Stop };
        let place = match lanes[head.lane].ageing {
            Some(_) => owed + place_by_age(lanes, &heads[..index], &order[owed..], head),
            None => order.len(),
        };
        order.insert(place, candidate);
    }
}

/// The place of an aged lane among those above it: before all at the end of the order whose time comes later.
fn place_by_age(lanes: &[Lane], above: &[Head], order: &[Candidate], head: &Head) -> usize {
    let due = |head: &Head| head.arrived.after(lanes[head.lane].ageing.unwrap_or(Micros::ZERO));
    let due_of = |candidate: &Candidate| above.iter().find(|head| head.entry == candidate.entry).map(due);
    let later = order.iter().rev().take_while(|other| due_of(other).is_some_and(|other| due(head) < other));
    order.len() - later.count()
}

const fn credit(cost_millis: u64) -> u128 {
    cost_millis as u128 * ONE_PPM as u128
}

/// A share that is due so many times over is served before anything else.
const OVERDUE_COSTS: u64 = 2;
