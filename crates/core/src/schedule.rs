//! One pool's order: who goes next.
//!
//! Classes in strict order with minimum shares ([`lanes`]); inside a class the Virtual Token Counter of Sheng et al. (2024), one
//! rule for teams, tenants and runs ([`tree`]); inside a run first in, first out ([`line`]). The gate [pushes](Schedule::push)
//! what waits, asks for [candidates](Schedule::candidates) and tells what became of them.
//!
//! A flow's counter is c; its key in the order is (c + α·R) ÷ ω with its weight ω and R, the output work that is predicted for
//! what it has in flight and has not been made yet. c grows by the input at dispatch and by output as it streams, and is corrected
//! at the end. Whoever comes back, or gets a slot under a limit of its own again, is lifted to the least c ÷ ω of those that wait.

mod heap;
mod idle;
mod lanes;
mod line;
mod node;
mod pace;
mod parking;
mod tab;
mod tree;
mod window;

use alloc::vec::Vec;

use self::lanes::{Head, Lane};
use self::line::Entries;
use self::node::{Node, NodeId};
use self::parking::Parking;
use self::tree::{Lift, Tree};
use crate::gate::{RequestId, ShareView};
use crate::ledger::CellId;
use crate::policy::{ClassId, Order, Policy, Pool, TenantId};
use crate::units::{Moment, Tokens};

pub(crate) use self::lanes::{Candidate, Otherwise};
pub(crate) use self::line::EntryId;
pub(crate) use self::pace::Pace;
pub(crate) use self::tab::Tab;

/// A request's place by arrival: requests that come back after a refused dispatch keep theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn(pub(crate) u64);

/// What a tenant's requests are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Flow {
    /// An agent run.
    Run(u128),
    /// An end user, where no run is named.
    EndUser(u128),
    /// A key, where neither is.
    Key(u32),
    /// All of them.
    Tenant(TenantId),
    /// Those of several tenants.
    Several,
}

/// A request that waits. Work is in thousandths of the pool's work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) request: RequestId,
    pub(crate) turn: Turn,
    pub(crate) class: ClassId,
    /// Reserved tokens, for the bound of the queue.
    pub(crate) tokens: Tokens,
    /// The work of its input.
    pub(crate) input_millis: u64,
    /// The work of the output that is likely.
    pub(crate) output_millis: u64,
    pub(crate) arrived: Moment,
}

/// Whose requests a concurrency limit holds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Everybody's.
    All,
    /// Those of a team.
    Team,
    /// Those of a tenant.
    Tenant,
    /// Some of a tenant's or a team's.
    Some,
}

/// How much of a class waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) requests: u32,
    pub(crate) tokens: Tokens,
}

/// Requests waiting for a backend of one pool, and what those in flight have been charged.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    order: Order,
    /// Counts how often everything was put in order anew.
    edition: u32,
    lanes: Vec<Lane>,
    tree: Tree,
    entries: Entries,
    parking: Parking,
    sizes: Vec<Size>,
    /// How far a run may be passed over to stay on its backend, in thousandths of work; zero: not at all.
    stickiness_millis: u64,
    /// Lists that are filled at each look, kept for their room.
    heads: Vec<Head>,
    ranked: Vec<Candidate>,
}

impl Schedule {
    /// Takes on a policy. Counters stay as long as the order and the teams of tenants do.
    pub(crate) fn reload(&mut self, policy: &Policy, pool: &Pool) {
        self.stickiness_millis = pool.stickiness.0.saturating_mul(TOKEN_MILLIS);
        self.tree.alpha_permille = policy.alpha_permille;
        self.sizes.resize(policy.classes.len().max(self.sizes.len()), Size::default());
        if self.lanes.is_empty() || self.order != policy.order || self.has_moved(policy) {
            self.order = policy.order;
            self.rebuild(policy);
        }
        let lanes = if self.order.has_lanes() { policy.classes.len() } else { 1 };
        while self.lanes.len() < lanes {
            let root = self.tree.add(Node::new(NodeId::NONE, 1, Flow::Several).branching());
            self.lanes.push(Lane::new(root));
        }
        if self.order.has_lanes() {
            self.lanes.iter_mut().zip(&policy.classes).for_each(|(lane, class)| lane.reload(class));
        }
        self.reweigh(policy);
        self.unpark_all();
    }

    /// Puts a request in line.
    pub(crate) fn push(
        &mut self,
        policy: &Policy,
        (tenant, flow): (TenantId, Flow),
        waiting: Waiting,
    ) -> EntryId {
        self.sizes[waiting.class.0 as usize].add(waiting.tokens);
        let run = self.run_of(policy, waiting.class, (tenant, flow));
        let entry = self.entries.add(waiting, run);
        self.entries.line_up(entry, self.tree.of_mut(run));
        // Behind others of its run it changes nothing.
        if self.tree.of(run).head() == Some(entry) {
            self.tree.refresh(run, &self.entries, Lift::Least);
        }
        self.tree.queue(run, waiting.cost_millis());
        entry
    }

    /// Takes a request out of line: it does not wait any more.
    pub(crate) fn remove(&mut self, entry: EntryId) {
        let run = self.step_out(entry);
        self.tree.refresh(run, &self.entries, Lift::Least);
        self.tree.leave_run(run);
    }

    /// The request that an entry stands for.
    pub(crate) fn request(&self, entry: EntryId) -> RequestId {
        self.entries.of(entry).waiting.request
    }

    /// The backend that its run was on last, where runs are kept on theirs.
    pub(crate) fn home(&self, entry: EntryId) -> Option<u32> {
        let run = self.entries.of(entry).leaf;
        self.tree.of(run).home.filter(|_| self.stickiness_millis > 0)
    }

    pub(crate) fn size(&self, class: ClassId) -> Size {
        self.sizes.get(class.0 as usize).copied().unwrap_or_default()
    }

    /// All that wait, those held up by limits included.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// A request that is not admitted yet counts for the bound of its class's queue.
    pub(crate) fn hold(&mut self, class: ClassId, tokens: Tokens) {
        self.sizes[class.0 as usize].add(tokens);
    }

    pub(crate) fn unhold(&mut self, class: ClassId, tokens: Tokens) {
        self.sizes[class.0 as usize].take(tokens);
    }

    /// What each tenant has received.
    pub(crate) fn shares(&self) -> Vec<ShareView> {
        let of_lane = |(class, lane): (u32, &Lane)| {
            let known = (0..).zip(lane.tenants.clone()).filter(|(_, node)| node.exists());
            known
                .map(|(tenant, node)| ShareView {
                    class: ClassId(class),
                    tenant: TenantId(tenant),
                    received_millis: self.tree.of(node).served,
                    is_ready: self.tree.of(node).has_ready() && !self.tree.of(node).is_blocked,
                })
                .collect::<Vec<_>>()
        };
        (0..).zip(&self.lanes).flat_map(of_lane).collect()
    }

    /// How many lanes there are.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// The front of a lane: the first request of the flow that comes first.
    pub(crate) fn front(&mut self, lane: usize) -> Option<EntryId> {
        let root = self.lanes.get(lane)?.root;
        let run = self.tree.first_run(root)?;
        self.tree.of(run).head()
    }

    /// Whether a request is the front of its lane.
    pub(crate) fn is_front(&mut self, entry: EntryId) -> bool {
        let lane = self.lane_of(self.entries.of(entry).waiting.class);
        self.front(lane) == Some(entry)
    }

    /// The fronts of all lanes in the order in which they may go; hand the list back with [`Self::ranked`] when done.
    pub(crate) fn candidates(&mut self) -> Vec<Candidate> {
        let mut heads = core::mem::take(&mut self.heads);
        heads.clear();
        for lane in 0..self.lanes.len() {
            if let Some(entry) = self.front(lane) {
                let waiting = &self.entries.of(entry).waiting;
                let cost_millis = waiting.cost_millis();
                heads.push(Head { lane, entry, cost_millis, arrived: waiting.arrived });
            }
        }
        let mut order = core::mem::take(&mut self.ranked);
        lanes::rank(&mut self.lanes, &heads, &mut order);
        self.heads = heads;
        order
    }

    pub(crate) fn ranked(&mut self, order: Vec<Candidate>) {
        self.ranked = order;
    }

    /// The front of a lane meets a full limit: what that limit holds up is set aside until a slot is [free](Self::freed).
    pub(crate) fn hold_up(&mut self, entry: EntryId, cell: CellId, level: Level) {
        let run = self.entries.of(entry).leaf;
        let tenant = self.tree.of(run).parent;
        let team = self.tree.of(tenant).parent;
        let flow = match level {
            Level::Tenant => Some(tenant),
            Level::Team => Some(team).filter(|team| self.tree.of(*team).parent.exists()),
            Level::All | Level::Some => None,
        };
        match flow {
            Some(flow) => {
                self.parking.block(cell, flow);
                self.tree.of_mut(flow).is_blocked = true;
                self.tree.refresh(flow, &self.entries, Lift::Least);
            }
            None => self.park(entry, cell),
        }
    }

    /// A slot of a limit is free: whoever it held up is looked at again. Returns whether anybody was.
    pub(crate) fn freed(&mut self, cell: CellId) -> bool {
        if self.parking.is_empty() {
            return false;
        }
        let flows = self.parking.unblock(cell);
        for flow in &flows {
            self.tree.of_mut(*flow).is_blocked = false;
            self.tree.refresh(*flow, &self.entries, Lift::Least);
        }
        self.offer(cell) || !flows.is_empty()
    }

    /// A slot is free that single requests wait for: it is offered to the one whose turn it would be.
    pub(crate) fn offer(&mut self, cell: CellId) -> bool {
        let Some(parked) = self.parking.of(cell) else { return false };
        let first = |run: &NodeId| parked[run].first().map(|(turn, _)| *turn);
        let Some(run) = parked.keys().copied().min_by_key(|run| (self.standing(*run), first(run))) else {
            return false;
        };
        let Some((_, entry)) = parked[&run].first().copied() else { return false };
        let group: Vec<NodeId> = parked.keys().copied().collect();
        self.lift_group(run, &group);
        self.unpark(entry);
        true
    }

    /// Everything that limits held up is looked at again.
    pub(crate) fn unpark_all(&mut self) {
        for cell in self.parking.cells() {
            while self.freed(cell) {}
        }
    }

    /// Predicted work, in thousandths, that goes before a request at the end of its line: at each level at most what the flow's
    /// share lets pass meanwhile, and never more than all that waits there (`scheduling.md` §6.4). What classes above it have
    /// waiting comes first.
    pub(crate) fn ahead_millis(&self, entry: EntryId) -> u64 {
        let waiting = &self.entries.of(entry).waiting;
        let run = self.entries.of(entry).leaf;
        let root = self.tree.root(run);
        let own = waiting.cost_millis();
        let mut ahead = self.tree.of(run).queued.saturating_sub(own);
        for (_, node) in self.tree.path(run) {
            let parent = self.tree.of(node.parent);
            let weights = parent.branch.as_ref().map_or(0, |branch| branch.weights_millis);
            let weights = weights.max(u64::from(node.weight_millis));
            let passing = u128::from(ahead) * u128::from(weights) / u128::from(node.weight_millis);
            let all = parent.queued.saturating_sub(own);
            ahead = if self.order.is_fair() {
                u64::try_from(passing).map_or(all, |some| some.min(all))
            } else {
                all
            };
        }
        let above = self.lanes.iter().take_while(|lane| lane.root != root);
        above.fold(ahead, |sum, lane| sum.saturating_add(self.tree.of(lane.root).queued))
    }

    fn step_out(&mut self, entry: EntryId) -> NodeId {
        let line::Entry { waiting, leaf, parked, .. } = *self.entries.of(entry);
        match parked {
            Some(cell) => self.parking.unpark(cell, leaf, (waiting.turn, entry)),
            None => self.entries.step_out(entry, self.tree.of_mut(leaf)),
        }
        self.entries.forget(entry);
        self.tree.unqueue(leaf, waiting.cost_millis());
        self.sizes[waiting.class.0 as usize].take(waiting.tokens);
        leaf
    }

    fn line_up(&mut self, entry: EntryId, lift: Lift) {
        let run = self.entries.of(entry).leaf;
        self.entries.line_up(entry, self.tree.of_mut(run));
        self.tree.refresh(run, &self.entries, lift);
    }

    fn park(&mut self, entry: EntryId, cell: CellId) {
        let line::Entry { waiting, leaf, .. } = *self.entries.of(entry);
        self.entries.step_out(entry, self.tree.of_mut(leaf));
        self.entries.of_mut(entry).parked = Some(cell);
        self.parking.park(cell, leaf, (waiting.turn, entry));
        self.tree.refresh(leaf, &self.entries, Lift::Least);
    }

    fn unpark(&mut self, entry: EntryId) {
        let line::Entry { waiting, leaf, parked, .. } = *self.entries.of(entry);
        let Some(cell) = parked else { return };
        self.parking.unpark(cell, leaf, (waiting.turn, entry));
        self.entries.of_mut(entry).parked = None;
        self.line_up(entry, Lift::Done);
    }

    /// Lifts the run that gets a slot, and all that wait for the same one with it: a limit that several runs share holds them up
    /// together, and what one of them is behind another is not forgotten.
    fn lift_group(&mut self, run: NodeId, group: &[NodeId]) {
        let parent = self.tree.of(run).parent;
        let Some(least) = self.tree.least(parent, |left| group.contains(&left)) else { return };
        let behind = least.saturating_sub(self.tree.of(run).served);
        if behind <= 0 {
            return;
        }
        for flow in group {
            let node = self.tree.of_mut(*flow);
            if node.parent == parent && !node.has_ready() {
                node.served = node.served.saturating_add(behind);
            }
        }
    }

    /// What decides between runs whose parents are not in order: received by team, tenant and run.
    fn standing(&self, run: NodeId) -> (NodeId, [i64; DEPTH_MAX]) {
        let mut received = [i64::MIN; DEPTH_MAX];
        let depth = self.tree.path(run).count();
        for (place, (_, node)) in self.tree.path(run).enumerate() {
            received[depth - 1 - place] = node.served;
        }
        (self.tree.root(run), received)
    }

    fn lane_of(&self, class: ClassId) -> usize {
        if self.order.has_lanes() { class.0 as usize } else { 0 }
    }

    fn run_of(&mut self, policy: &Policy, class: ClassId, (tenant, flow): (TenantId, Flow)) -> NodeId {
        let lane = self.lane_of(class);
        let known = self.lanes[lane].tenants.get(tenant.0 as usize).copied().filter(|node| node.exists());
        let tenant = known.unwrap_or_else(|| self.make_tenant(policy, lane, tenant));
        self.tree.run(tenant, flow)
    }

    /// Whose flow it is.
    fn tenant_of(&self, tenant: NodeId) -> TenantId {
        match self.tree.of(tenant).flow {
            Flow::Tenant(id) => id,
            Flow::Run(_) | Flow::EndUser(_) | Flow::Key(_) | Flow::Several => TenantId(0),
        }
    }

    fn make_tenant(&mut self, policy: &Policy, lane: usize, id: TenantId) -> NodeId {
        let tenant = &policy.tenants[id.0 as usize];
        let mut parent = self.lanes[lane].root;
        if let Some(team) = tenant.team {
            let known = self.lanes[lane].teams.get(team.0 as usize).copied().filter(|node| node.exists());
            parent = known.unwrap_or_else(|| {
                let weight = policy.teams[team.0 as usize].weight_millis;
                let node = self.tree.add(Node::new(parent, weight, Flow::Several).branching());
                put(&mut self.lanes[lane].teams, team.0, node);
                node
            });
        }
        let node = self.tree.add(Node::new(parent, tenant.weight_millis, Flow::Tenant(id)).branching());
        put(&mut self.lanes[lane].tenants, id.0, node);
        node
    }

    /// Whether any tenant is in another team than before.
    fn has_moved(&self, policy: &Policy) -> bool {
        self.lanes.iter().any(|lane| {
            lane.tenants.iter().zip(&policy.tenants).filter(|(node, _)| node.exists()).any(
                |(node, tenant)| {
                    let team = tenant.team.and_then(|team| lane.teams.get(team.0 as usize)).copied();
                    let parent = match tenant.team {
                        Some(_) => team.unwrap_or(NodeId::NONE),
                        None => lane.root,
                    };
                    self.tree.of(*node).parent != parent
                },
            )
        })
    }

    fn reweigh(&mut self, policy: &Policy) {
        for lane in &self.lanes {
            let teams = lane.teams.iter().zip(policy.teams.iter().map(|team| team.weight_millis));
            let tenants = lane.tenants.iter().zip(policy.tenants.iter().map(|tenant| tenant.weight_millis));
            for (node, weight) in teams.chain(tenants).filter(|(node, _)| node.exists()) {
                self.tree.set_weight(*node, weight);
            }
        }
    }

    /// Puts everything that waits in order anew. What is in flight is charged to nobody any more.
    fn rebuild(&mut self, policy: &Policy) {
        let waiting: Vec<(EntryId, TenantId, Flow)> = self
            .entries
            .all()
            .into_iter()
            .map(|entry| {
                let run = self.tree.of(self.entries.of(entry).leaf);
                (entry, self.tenant_of(run.parent), run.flow)
            })
            .collect();
        self.edition = self.edition.wrapping_add(1);
        self.tree = Tree::default();
        self.tree.alpha_permille = policy.alpha_permille;
        self.parking = Parking::default();
        self.lanes.clear();
        let lanes = if self.order.has_lanes() { policy.classes.len() } else { 1 };
        for _ in 0..lanes {
            let root = self.tree.add(Node::new(NodeId::NONE, 1, Flow::Several).branching());
            self.lanes.push(Lane::new(root));
        }
        for (entry, tenant, flow) in waiting {
            let waiting = self.entries.of(entry).waiting;
            let run = self.run_of(policy, waiting.class, (tenant, flow));
            let place = self.entries.of_mut(entry);
            (place.leaf, place.parked) = (run, None);
            self.line_up(entry, Lift::Least);
            self.tree.queue(run, waiting.cost_millis());
        }
    }
}

impl Size {
    fn add(&mut self, tokens: Tokens) {
        self.requests += 1;
        self.tokens = self.tokens.plus(tokens);
    }

    fn take(&mut self, tokens: Tokens) {
        self.requests = self.requests.saturating_sub(1);
        self.tokens = self.tokens.minus(tokens);
    }
}

impl Waiting {
    /// All its work, as far as is known; at least one thousandth, so that shares are never owed for nothing.
    const fn cost_millis(&self) -> u64 {
        let cost = self.input_millis.saturating_add(self.output_millis);
        if cost == 0 { 1 } else { cost }
    }
}

fn put(list: &mut Vec<NodeId>, index: u32, node: NodeId) {
    let index = index as usize;
    if index >= list.len() {
        list.resize(index + 1, NodeId::NONE);
    }
    list[index] = node;
}

const TOKEN_MILLIS: u64 = 1_000;
/// Team, tenant, run.
const DEPTH_MAX: usize = 3;
