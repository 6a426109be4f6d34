//! Lane, team, tenant, run: flows in flows, with one rule at each level. The flow that has received least for its weight is first.
//!
//! Keys in the orders may be too low, never too high: streamed output raises what a flow has received without a move, and whoever
//! comes to the front is looked at again before it is believed. What lowers a key (a correction, an end) moves it at once.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::heap::{Places, Rank};
use super::idle::Idle;
use super::line::{Entries, EntryId};
use super::node::{Branch, Node, NodeId};
use super::{Flow, Turn};

/// All flows of a pool.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    free: Vec<NodeId>,
    by_key: Places,
    by_served: Places,
    runs: BTreeMap<(NodeId, Flow), NodeId>,
    idle: Idle,
    /// α in thousandths.
    pub(super) alpha_permille: u32,
}

/// What a flow that comes into its parent's order may not stay behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lift {
    /// The least that any flow in the order has received, or the one that left last.
    Least,
    /// Nothing: it has been seen to already.
    Done,
}

impl Tree {
    pub(super) fn of(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    pub(super) fn of_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }

    pub(super) fn add(&mut self, node: Node) -> NodeId {
        match self.free.pop() {
            Some(id) => {
                let idled = self.of(id).idled;
                *self.of_mut(id) = node;
                self.of_mut(id).idled = idled;
                id
            }
            None => {
                self.nodes.push(node);
                NodeId(self.nodes.len() as u32 - 1)
            }
        }
    }

    /// A run of a tenant, known or made known, with one more request that lives.
    pub(super) fn run(&mut self, tenant: NodeId, flow: Flow) -> NodeId {
        if let Some(run) = self.known_run(tenant, flow) {
            if self.of(run).live == 0 {
                self.idle.leave(&mut self.nodes[run.index()]);
            }
            self.of_mut(run).live += 1;
            return run;
        }
        let mut node = Node::new(tenant, RUN_WEIGHT_MILLIS, flow);
        node.live = 1;
        node.served = self.least(tenant, |_| false).unwrap_or(0);
        let run = self.add(node);
        self.runs.insert((tenant, flow), run);
        self.set_last_run(tenant, run);
        run
    }

    /// Requests of a tenant mostly follow others of the same flow.
    fn known_run(&mut self, tenant: NodeId, flow: Flow) -> Option<NodeId> {
        let last = self.of(tenant).branch.as_ref()?.last_run;
        if last.exists() && self.of(last).parent == tenant && self.of(last).flow == flow {
            return Some(last);
        }
        let run = self.runs.get(&(tenant, flow)).copied()?;
        self.set_last_run(tenant, run);
        Some(run)
    }

    fn set_last_run(&mut self, tenant: NodeId, run: NodeId) {
        if let Some(branch) = &mut self.of_mut(tenant).branch {
            branch.last_run = run;
        }
    }

    /// A request of a run is over. A run without any is forgotten as soon as that changes nothing.
    pub(super) fn leave_run(&mut self, run: NodeId) {
        self.of_mut(run).live -= 1;
        if self.of(run).live > 0 {
            return;
        }
        let Node { parent, served, .. } = *self.of(run);
        if self.least(parent, |_| false).is_some_and(|least| served <= least) {
            return self.forget(run);
        }
        self.idle.enter(run, &mut self.nodes[run.index()]);
        while let Some(oldest) = self.idle.over(&self.nodes) {
            self.forget(oldest);
        }
    }

    /// Goes over the way from a flow to its lane: into, out of and within each order, as it has something to send or not.
    pub(super) fn refresh(&mut self, from: NodeId, entries: &Entries, mut lift: Lift) {
        let mut id = from;
        loop {
            self.set_turn(id, entries);
            let Node { parent, is_blocked, .. } = *self.of(id);
            if !parent.exists() {
                return;
            }
            let (should, is_in) = (self.of(id).has_ready() && !is_blocked, self.by_key.holds(id));
            match (should, is_in) {
                (true, true) => self.shift(id),
                (true, false) => self.join(id, lift),
                (false, true) => self.leave(id),
                // What was corrected here counts above, where others of the same parent wait.
                (false, false) => {}
            }
            (id, lift) = (parent, Lift::Least);
        }
    }

    /// Charges a flow and all above it.
    pub(super) fn charge(&mut self, run: NodeId, work_millis: i64) {
        let mut most = i64::MIN;
        self.up(run, |node| {
            node.charge(work_millis);
            most = most.max(node.served);
        });
        if most > REBASE_ABOVE {
            self.rebase();
        }
    }

    pub(super) fn set_weight(&mut self, id: NodeId, weight_millis: u32) {
        let before = u64::from(self.of(id).weight_millis);
        self.of_mut(id).set_weight(weight_millis);
        let Node { parent, weight_millis, .. } = *self.of(id);
        if self.by_key.holds(id)
            && let Some(branch) = &mut self.of_mut(parent).branch
        {
            branch.weights_millis = branch.weights_millis - before + u64::from(weight_millis);
        }
    }

    /// Work that is expected, but not made yet, of what a flow has in flight.
    pub(super) fn expect(&mut self, run: NodeId, more_millis: u64) {
        self.up(run, |node| node.pending = node.pending.saturating_add(more_millis));
    }

    pub(super) fn expect_less(&mut self, run: NodeId, less_millis: u64) {
        self.up(run, |node| node.pending = node.pending.saturating_sub(less_millis));
    }

    pub(super) fn queue(&mut self, run: NodeId, work_millis: u64) {
        self.up(run, |node| node.queued = node.queued.saturating_add(work_millis));
    }

    pub(super) fn unqueue(&mut self, run: NodeId, work_millis: u64) {
        self.up(run, |node| node.queued = node.queued.saturating_sub(work_millis));
    }

    /// The first run in order below a flow.
    pub(super) fn first_run(&mut self, id: NodeId) -> Option<NodeId> {
        let mut id = id;
        while self.of(id).branch.is_some() {
            id = self.first_child(id)?;
        }
        Some(id)
    }

    /// The child with the least key, looked at again until it is known to be right.
    pub(super) fn first_child(&mut self, id: NodeId) -> Option<NodeId> {
        loop {
            let (rank, child) = self.of(id).branch.as_ref()?.by_key.first()?;
            let actual = self.rank(child);
            if actual <= rank {
                return Some(child);
            }
            self.shift(child);
        }
    }

    /// What a flow that comes into the order of `parent` may not stay behind: the least of those in it; where there is none, the
    /// one that left last, unless `is_exempt`.
    pub(super) fn least(&mut self, parent: NodeId, is_exempt: impl Fn(NodeId) -> bool) -> Option<i64> {
        loop {
            let branch = self.of(parent).branch.as_ref()?;
            let Some((rank, child)) = branch.by_served.first() else {
                let last = branch.last_left;
                let served = if last.exists() { Some(self.of(last).served) } else { branch.floor };
                return served.filter(|_| !is_exempt(last));
            };
            let served = self.of(child).served;
            if served <= rank.key {
                return Some(served);
            }
            self.shift(child);
        }
    }

    pub(super) fn rank(&self, id: NodeId) -> Rank {
        let node = self.of(id);
        Rank { key: node.key(self.alpha_permille), turn: node.turn }
    }

    /// The flows from a run up to below its lane.
    pub(super) fn path(&self, run: NodeId) -> impl Iterator<Item = (NodeId, &Node)> {
        core::iter::successors(Some(run), |id| Some(self.of(*id).parent))
            .map(|id| (id, self.of(id)))
            .take_while(|(_, node)| node.parent.exists())
    }

    /// The lane that a flow is in.
    pub(super) fn root(&self, mut id: NodeId) -> NodeId {
        while self.of(id).parent.exists() {
            id = self.of(id).parent;
        }
        id
    }

    fn up(&mut self, run: NodeId, mut change: impl FnMut(&mut Node)) {
        let mut id = run;
        while id.exists() {
            let node = self.of_mut(id);
            change(node);
            id = node.parent;
        }
    }

    fn set_turn(&mut self, id: NodeId, entries: &Entries) {
        let node = self.of(id);
        let turn = match &node.branch {
            Some(branch) => branch.by_key.first().map(|(rank, _)| rank.turn),
            None if node.first.exists() => Some(entries.turn(node.first)),
            None => None,
        };
        if let Some(turn) = turn {
            self.of_mut(id).turn = turn;
        }
    }

    fn join(&mut self, id: NodeId, lift: Lift) {
        let parent = self.of(id).parent;
        if lift == Lift::Least
            && let Some(least) = self.least(parent, |_| false)
        {
            self.of_mut(id).lift(least);
        }
        let (rank, served, weight) = self.standing(id);
        let Self { nodes, by_key, by_served, .. } = self;
        if let Some(branch) = &mut nodes[parent.index()].branch {
            branch.by_key.push(id, rank, by_key);
            branch.by_served.push(id, served, by_served);
            branch.weights_millis += weight;
        }
    }

    fn leave(&mut self, id: NodeId) {
        let (_, _, weight) = self.standing(id);
        let parent = self.of(id).parent;
        let Self { nodes, by_key, by_served, .. } = self;
        if let Some(branch) = &mut nodes[parent.index()].branch {
            branch.by_key.remove(id, by_key);
            branch.by_served.remove(id, by_served);
            branch.weights_millis -= weight;
            branch.last_left = id;
        }
    }

    fn shift(&mut self, id: NodeId) {
        let (rank, served, _) = self.standing(id);
        let parent = self.of(id).parent;
        let Self { nodes, by_key, by_served, .. } = self;
        if let Some(branch) = &mut nodes[parent.index()].branch {
            branch.by_key.shift(id, rank, by_key);
            branch.by_served.shift(id, served, by_served);
        }
    }

    fn standing(&self, id: NodeId) -> (Rank, Rank, u64) {
        let Node { served, weight_millis, .. } = *self.of(id);
        (self.rank(id), Rank { key: served, turn: Turn(0) }, u64::from(weight_millis))
    }

    fn forget(&mut self, run: NodeId) {
        let Node { parent, flow, served, .. } = *self.of(run);
        self.runs.remove(&(parent, flow));
        if let Some(branch) = &mut self.of_mut(parent).branch
            && branch.last_left == run
        {
            branch.last_left = NodeId::NONE;
            branch.floor = Some(served);
        }
        let node = self.of_mut(run);
        node.idled = node.idled.wrapping_add(1);
        node.parent = NodeId::NONE;
        self.free.push(run);
    }

    /// Takes the same amount off everything received below each flow, so that it stays far from the end of 64 bits. Differences,
    /// which are all that decides, stay, save for whoever is so far behind that it can only be lifted.
    fn rebase(&mut self) {
        let amounts: Vec<i64> = (0..self.nodes.len() as u32)
            .map(|index| self.least(NodeId(index), |_| false).unwrap_or(0).max(0))
            .collect();
        for (node, amount) in self.nodes.iter_mut().zip(&amounts) {
            if let Some(branch) = &mut node.branch {
                branch.lower_all(*amount);
            }
        }
        for node in &mut self.nodes {
            if node.parent.exists() {
                let lowered = node.served.saturating_sub(amounts[node.parent.index()]);
                node.served = lowered.max(-REBASE_ABOVE);
            }
        }
    }
}

impl Branch {
    fn lower_all(&mut self, amount: i64) {
        self.by_key.lower_all(amount);
        self.by_served.lower_all(amount);
        self.floor = self.floor.map(|floor| floor.saturating_sub(amount));
    }
}

impl Node {
    /// Its first request, for a run.
    pub(super) fn head(&self) -> Option<EntryId> {
        self.first.exists().then_some(self.first)
    }
}

const RUN_WEIGHT_MILLIS: u32 = 1_000;
/// Far from the end of 64 bits: a million times what a busy pool serves in a year.
const REBASE_ABOVE: i64 = 1 << 60;
