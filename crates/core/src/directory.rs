//! Which cells a request touches: the fixed ones of the policy, and those of end users and runs that come and go.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::bucket::{Rate, Shape};
use crate::ledger::CellId;
use crate::policy::{
    BackendId, Concurrency, Dimension, KeyId, Limits, ModelId, OnExcess, Policy, PoolId, Runs, ScopeLimits,
    TeamId, TenantId,
};
use crate::scope::{Limit, Owner};
use crate::subjects::{Place, Subjects};
use crate::units::{Amount, Micros, Moment};

/// One limit with its cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) limit: Limit,
    pub(crate) cell: CellId,
    pub(crate) shape: Shape,
    pub(crate) shadow: bool,
    pub(crate) cached_weight_millis: Option<u32>,
    /// Enforced by the queue instead of the ledger: requests over it wait.
    pub(crate) queues: bool,
}

/// Cells of every limit. Ids of a policy's parts must not change meaning between [`Directory::reload`]s.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    service: Vec<Line>,
    teams: Vec<Vec<Line>>,
    tenants: Vec<TenantLines>,
    pools: Vec<Vec<Line>>,
    backends: BTreeMap<BackendId, Vec<Line>>,
    cells: BTreeMap<Limit, CellId>,
    pub(crate) subjects: Subjects,
}

#[derive(Debug, Default)]
struct TenantLines {
    own: Vec<Line>,
    keys: Vec<Vec<Line>>,
    new_runs: Vec<Line>,
}

impl Directory {
    /// Takes on a policy; cells of limits that stay keep their ids.
    pub(crate) fn reload(&mut self, policy: &Policy) {
        self.service = self.scope_lines(Owner::Service, &[(None, &policy.service)]);
        self.teams = (0..)
            .zip(&policy.teams)
            .map(|(id, team)| self.scope_lines(Owner::Team(TeamId(id)), &blocks(&team.limits)))
            .collect();
        self.tenants = (0..)
            .zip(&policy.tenants)
            .map(|(id, tenant)| {
                let id = TenantId(id);
                let new_runs = tenant.runs.as_ref().and_then(|runs| runs.new_runs);
                TenantLines {
                    own: self.scope_lines(Owner::Tenant(id), &blocks(&tenant.limits)),
                    keys: (0..)
                        .zip(&tenant.keys)
                        .map(|(key, limits)| {
                            self.scope_lines(Owner::Key(id, KeyId(key)), &blocks(&limits.limits))
                        })
                        .collect(),
                    new_runs: new_runs.into_iter().map(|shape| self.new_runs_line(id, shape)).collect(),
                }
            })
            .collect();
        self.pools = Vec::new();
        self.backends = BTreeMap::new();
        for (id, pool) in (0..).zip(&policy.pools) {
            let id = PoolId(id);
            let lines = self.scope_lines(Owner::Pool(id), &[(None, &pool.limits)]);
            self.pools.push(lines);
            for (index, backend) in (0..).zip(&pool.backends) {
                let id = BackendId { pool: id, index };
                let lines = self.scope_lines(Owner::Backend(id), &[(None, &backend.limits)]);
                self.backends.insert(id, lines);
            }
        }
        self.subjects.limit(policy.end_users_max as usize);
    }

    /// The fixed lines for a request of this key and model, the tenant's own before the shared ones.
    pub(crate) fn fixed(
        &self,
        policy: &Policy,
        tenant: TenantId,
        key: Option<KeyId>,
        model: ModelId,
    ) -> impl Iterator<Item = &Line> {
        let lines = &self.tenants[tenant.0 as usize];
        let team = policy.tenants[tenant.0 as usize].team;
        key.and_then(|key| lines.keys.get(key.0 as usize))
            .into_iter()
            .chain([&lines.own])
            .chain(team.map(|team| &self.teams[team.0 as usize]))
            .chain([&self.service])
            .flatten()
            .filter(move |line| line.limit.model.is_none_or(|only| only == model))
    }

    /// The line that counts begun runs.
    pub(crate) fn new_runs(&self, tenant: TenantId) -> &[Line] {
        &self.tenants[tenant.0 as usize].new_runs
    }

    /// What a pool and one of its backends are debited at dispatch.
    pub(crate) fn dispatch(&self, backend: BackendId) -> impl Iterator<Item = &Line> {
        self.backends.get(&backend).into_iter().chain(self.pools.get(backend.pool.0 as usize)).flatten()
    }

    /// A pool's own lines.
    pub(crate) fn pool(&self, pool: PoolId) -> &[Line] {
        self.pools.get(pool.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// The lines of an end user or a run, for this model.
    pub(crate) fn subject_lines(&self, policy: &Policy, place: &Place, model: ModelId) -> Vec<Line> {
        let mut lines = Vec::new();
        self.for_each_subject_line(policy, place, |line| {
            if line.limit.model.is_none_or(|only| only == model) {
                lines.push(*line);
            }
        });
        lines
    }

    /// The lines of an end user or a run, for all models.
    pub(crate) fn for_each_subject_line(&self, policy: &Policy, place: &Place, mut each: impl FnMut(&Line)) {
        let subject = self.subjects.of(place);
        // Cells are made in the order of the limits, so the next one is nearly always the one that is looked for.
        let mut cells = subject.map_or(&[][..], |subject| &subject.cells).iter().cycle();
        let count = subject.map_or(0, |subject| subject.cells.len());
        for_each_subject_line(policy, place, |limit, mut block| {
            if limit.dimension == Dimension::RunBudget {
                block.shape.capacity += subject.map_or(Amount::ZERO, |subject| subject.raised);
            }
            let found = cells.by_ref().take(count).find(|(known, _)| *known == limit);
            each(&block.line(limit, found.map_or(FRESH, |(_, cell)| *cell)));
        });
    }

    /// Takes on a changed policy for the end users and runs that are known: cells for limits that came, a longer memory where a
    /// cell takes longer to fill. Returns their lines.
    pub(crate) fn reload_subjects(&mut self, policy: &Policy, now: Moment) -> Vec<Line> {
        let mut lines = Vec::new();
        for place in self.subjects.places() {
            let limits = subject_limits(policy, &place);
            self.subjects.keep(&place, &limits, idle_expiry(policy, &place), now);
            self.for_each_subject_line(policy, &place, |line| lines.push(*line));
        }
        lines
    }

    /// Makes an end user or a run known that had begun before the process did, idle for at least `idle` more. Returns its lines;
    /// `None` if it has no limits or cannot be kept.
    pub(crate) fn restore_subject(
        &mut self,
        policy: &Policy,
        (place, raised): (Place, Amount),
        idle: Micros,
        now: Moment,
    ) -> Option<Vec<Line>> {
        let limits = subject_limits(policy, &place);
        let expiry = idle_expiry(policy, &place);
        if limits.is_empty() || !self.subjects.restore(place, raised, expiry, now.after(idle)) {
            return None;
        }
        self.subjects.make_cells(&place, &limits);
        let mut lines = Vec::new();
        self.for_each_subject_line(policy, &place, |line| lines.push(*line));
        Some(lines)
    }

    /// Makes cells for an end user or a run that has none.
    pub(crate) fn admit_subject(&mut self, policy: &Policy, place: Place, now: Moment) {
        if self.subjects.readmit(&place) {
            return;
        }
        let limits = subject_limits(policy, &place);
        self.subjects.admit(place, &limits, idle_expiry(policy, &place), now);
    }

    /// Every fixed line, for reading levels.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &Line> {
        self.service
            .iter()
            .chain(self.teams.iter().flatten())
            .chain(self.tenants.iter().flat_map(|tenant| {
                tenant.own.iter().chain(tenant.keys.iter().flatten()).chain(&tenant.new_runs)
            }))
            .chain(self.pools.iter().flatten())
            .chain(self.backends.values().flatten())
    }

    fn scope_lines(&mut self, owner: Owner, blocks: &[(Option<ModelId>, &Limits)]) -> Vec<Line> {
        let mut lines = Vec::new();
        for (model, limits) in blocks {
            for_each_line(limits, |dimension, mut block| {
                let limit = Limit { owner, model: *model, dimension };
                // What is already in the queue can only wait for a pool or a backend.
                block.queues |= dimension == Dimension::ConcurrentRequests
                    && !block.shadow
                    && matches!(owner, Owner::Pool(_) | Owner::Backend(_));
                let cell = self.fixed_cell(limit);
                lines.push(block.line(limit, cell));
            });
        }
        lines
    }

    fn new_runs_line(&mut self, tenant: TenantId, shape: Shape) -> Line {
        let limit = Limit { owner: Owner::Tenant(tenant), model: None, dimension: Dimension::NewRuns };
        let cell = self.fixed_cell(limit);
        LineBlock { shape, ..LineBlock::default() }.line(limit, cell)
    }

    fn fixed_cell(&mut self, limit: Limit) -> CellId {
        let subjects = &mut self.subjects;
        *self.cells.entry(limit).or_insert_with(|| subjects.fresh_cell())
    }
}

/// A limit without its cell.
#[derive(Clone, Copy, Debug)]
struct LineBlock {
    shape: Shape,
    shadow: bool,
    cached_weight_millis: Option<u32>,
    queues: bool,
}

impl LineBlock {
    const fn line(self, limit: Limit, cell: CellId) -> Line {
        let Self { shape, shadow, cached_weight_millis, queues } = self;
        Line { limit, cell, shape, shadow, cached_weight_millis, queues }
    }

    /// A count that never refills by itself: slots, steps, budgets.
    ///
    /// Its debt has no bound: what is already running may overrun a budget, and a count that is lowered keeps what is used. Nothing
    /// starts in debt.
    const fn count(capacity: Amount) -> Self {
        let debt_max = Amount::whole(Amount::WHOLE_MAX);
        let shape = Shape { rate: Rate::NEVER, capacity, debt_max };
        Self { shape, shadow: false, cached_weight_millis: None, queues: false }
    }
}

impl Default for LineBlock {
    fn default() -> Self {
        Self::count(Amount::ZERO)
    }
}

fn for_each_line(limits: &Limits, mut each: impl FnMut(Dimension, LineBlock)) {
    let cached_weight_millis = limits.cached_input_weight_millis;
    for rate in &limits.rates {
        each(
            rate.dimension,
            LineBlock { shape: rate.shape, shadow: rate.shadow, cached_weight_millis, queues: false },
        );
    }
    if let Some(Concurrency { limit, on_excess, shadow }) = limits.concurrency {
        let count = LineBlock::count(Amount::whole(u64::from(limit)));
        // A limit of zero means nobody, and a queue for nobody would never move: it is refused at once.
        let queues = on_excess == OnExcess::Queue && !shadow && limit > 0;
        each(Dimension::ConcurrentRequests, LineBlock { shadow, queues, ..count });
    }
}

fn for_each_subject_line(policy: &Policy, place: &Place, mut each: impl FnMut(Limit, LineBlock)) {
    let tenant = &policy.tenants[place.tenant().0 as usize];
    let (owner, scope) = match place {
        Place::Run(id, _) => {
            let Some(runs) = &tenant.runs else { return };
            let owner = Owner::Run(*id);
            for_each_run_count(runs, |dimension, block| each(Limit { owner, model: None, dimension }, block));
            (owner, &runs.limits)
        }
        Place::EndUser(id, _) | Place::OtherEndUsers(id) => {
            let Some(scope) = &tenant.end_users else {
                return;
            };
            (Owner::EndUser(*id), scope)
        }
    };
    for_each_line(&scope.all, |dimension, block| each(Limit { owner, model: None, dimension }, block));
    for (model, limits) in &scope.models {
        let model = Some(*model);
        for_each_line(limits, |dimension, block| each(Limit { owner, model, dimension }, block));
    }
}

fn subject_limits(policy: &Policy, place: &Place) -> Vec<Limit> {
    let mut limits = Vec::new();
    for_each_subject_line(policy, place, |limit, _| limits.push(limit));
    limits
}

fn for_each_run_count(runs: &Runs, mut each: impl FnMut(Dimension, LineBlock)) {
    if let Some(budget) = runs.token_budget {
        // What is already running may overrun a budget; nothing starts in debt, and nothing is forgiven.
        each(Dimension::RunBudget, LineBlock::count(budget.amount()));
    }
    if let Some(steps) = runs.max_steps {
        each(Dimension::RunSteps, LineBlock::count(Amount::whole(u64::from(steps))));
    }
}

/// How long after its last use an end user's or a run's cells must be kept, in microseconds.
fn idle_expiry(policy: &Policy, place: &Place) -> Micros {
    let mut longest = match place {
        Place::Run(tenant, _) => {
            policy.tenants[tenant.0 as usize].runs.as_ref().map_or(0, |runs| runs.idle_expiry.0)
        }
        Place::EndUser(..) | Place::OtherEndUsers(_) => 0,
    };
    for_each_subject_line(policy, place, |_, block| {
        if !block.shape.rate.is_never() {
            // From the deepest debt to the brim: after that the cell is full, and forgetting it changes nothing.
            let depth = (block.shape.capacity + block.shape.debt_max).0.unsigned_abs();
            longest = longest.max(block.shape.rate.span_of(depth));
        }
    });
    Micros(longest)
}

fn blocks(scope: &ScopeLimits) -> Vec<(Option<ModelId>, &Limits)> {
    core::iter::once((None, &scope.all))
        .chain(scope.models.iter().map(|(id, limits)| (Some(*id), limits)))
        .collect()
}

/// A cell that nobody has used: full.
const FRESH: CellId = CellId { index: u32::MAX, epoch: u32::MAX };
