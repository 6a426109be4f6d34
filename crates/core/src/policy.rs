//! What the configuration resolves to: limits that cannot be built wrong, and who they apply to.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::bucket::{Rate, Shape};
use crate::occupancy::Headroom;
use crate::units::{Amount, Micros, Tokens};

/// Index of a tenant in [`Policy::tenants`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);
/// Index of a key in [`Tenant::keys`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u32);
/// Index of a team in [`Policy::teams`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TeamId(pub u32);
/// Index of a pool in [`Policy::pools`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u32);
/// Index of a backend in [`Pool::backends`], with its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackendId {
    /// The pool.
    pub pool: PoolId,
    /// The place in the pool's list.
    pub index: u32,
}
/// Index of a model in [`Policy::models`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelId(pub u32);
/// Index of a class in [`Policy::classes`]; lower is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u32);

/// Everything the decisions need to know of the configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// Limits over all traffic.
    pub service: Limits,
    /// Pools of backends.
    pub pools: Vec<Pool>,
    /// Models that may be asked for, each served by one pool.
    pub models: Vec<Model>,
    /// Classes in order of service; never empty once resolved.
    pub classes: Vec<Class>,
    /// Parents of tenants.
    pub teams: Vec<Team>,
    /// Who may ask.
    pub tenants: Vec<Tenant>,
    /// In which order requests wait.
    pub order: Order,
    /// α of the fair order: how much of the output that is likely to come counts already, in thousandths.
    pub alpha_permille: u32,
    /// End users kept at the same time; beyond it newcomers of a tenant share one set of limits.
    pub end_users_max: u32,
}

/// In which order requests wait. In every order the limits on requests at the same time set aside what they hold up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// First in, first out.
    Fifo,
    /// By class; inside a class first in, first out.
    Lanes,
    /// By work received, by weight: teams, tenants, runs.
    Fair,
    /// By class; inside a class by work received.
    #[default]
    LanesFair,
}

/// A dimension that a rate limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dimension {
    /// Requests.
    Requests,
    /// Input and output tokens together.
    Tokens,
    /// Input tokens.
    InputTokens,
    /// Output tokens.
    OutputTokens,
    /// Weighted tokens in the pool's own weights.
    Work,
    /// Requests at the same time.
    ConcurrentRequests,
    /// All tokens an agent run may ever use.
    RunBudget,
    /// All steps an agent run may ever make.
    RunSteps,
    /// Runs a tenant may begin.
    NewRuns,
}

/// What a rate limits, in the order the configuration lists them.
pub const RATED: [Dimension; 5] = [
    Dimension::Requests,
    Dimension::Tokens,
    Dimension::InputTokens,
    Dimension::OutputTokens,
    Dimension::Work,
];

/// A rate with its burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// What is limited.
    pub dimension: Dimension,
    /// Rate, capacity and debt.
    pub shape: Shape,
    /// Counts what it would have refused, and refuses nothing.
    pub shadow: bool,
}

/// What becomes of a request over a concurrency limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExcess {
    /// It waits in the queue.
    #[default]
    Queue,
    /// It is refused.
    Reject,
}

/// What becomes of an asked output above the cap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnOutputExcess {
    /// It is lowered to the cap, and the client is told.
    #[default]
    Clamp,
    /// The request is refused.
    Reject,
}

/// A bound on requests at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// How many.
    pub limit: u32,
    /// What happens above it.
    pub on_excess: OnExcess,
    /// Counts what it would have refused, and refuses nothing.
    pub shadow: bool,
}

/// The limits of one scope. Absent means no limit, zero means nobody.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Rates, at most one per dimension.
    pub rates: Vec<RateLimit>,
    /// Requests at the same time.
    pub concurrency: Option<Concurrency>,
    /// Largest input of one request.
    pub max_input: Option<Tokens>,
    /// Largest output of one choice.
    pub max_output: Option<Tokens>,
    /// Output bound of a choice that names none.
    pub default_max_output: Option<Tokens>,
    /// What to do above `max_output`.
    pub on_output_excess: OnOutputExcess,
    /// A request that a rate refuses waits in its place where the budget returns within this span. Zero: it is refused.
    pub hold: Micros,
    /// What a cached input token weighs in this block's token limits, in thousandths; absent: as much as any other.
    pub cached_input_weight_millis: Option<u32>,
}

/// Limits for everything, and further ones for single models; both apply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScopeLimits {
    /// For every request.
    pub all: Limits,
    /// For requests of one model, besides.
    pub models: BTreeMap<ModelId, Limits>,
}

/// How a tenant is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charging {
    /// Input and output bound up front, the rest refunded.
    #[default]
    Reserve,
    /// Input and the 90th percentile of recent outputs up front, the difference settled.
    Quantile,
    /// Input up front, each output token as it streams.
    Postpay,
}

/// What becomes of an answer whose client has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnClientGone {
    /// Its backend is told to stop; what was made is charged.
    #[default]
    Cancel,
    /// It is read to its end, within bounds, and its real usage is charged.
    Drain,
}

/// What becomes of a stream that uses up a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnBudgetEnd {
    /// It finishes; the next request is refused.
    #[default]
    Finish,
    /// It is cut, as soon as its output is not covered any more.
    Stop,
}

/// A parent of tenants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Team {
    /// Name.
    pub name: String,
    /// Share beside other teams, in thousandths of the usual weight.
    pub weight_millis: u32,
    /// Shared by its tenants.
    pub limits: ScopeLimits,
}

/// Who is charged.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// Name.
    pub name: String,
    /// Parent.
    pub team: Option<TeamId>,
    /// Usual class, and the best one it may ask for.
    pub class: ClassId,
    /// Share beside other tenants, in thousandths of the usual weight.
    pub weight_millis: u32,
    /// Its limits.
    pub limits: ScopeLimits,
    /// How it is charged.
    pub charging: Charging,
    /// What becomes of its answers when their clients leave.
    pub on_client_gone: OnClientGone,
    /// What becomes of its streams when they use up a budget.
    pub on_budget_end: OnBudgetEnd,
    /// Models it may use; all if absent.
    pub allowed_models: Option<Vec<ModelId>>,
    /// Its credentials.
    pub keys: Vec<Key>,
    /// Rules for agent runs.
    pub runs: Option<Runs>,
    /// Limits for each of its end users.
    pub end_users: Option<ScopeLimits>,
}

/// A credential's own limits; the secret itself is the edge's business.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Key {
    /// Name.
    pub name: String,
    /// Limits besides the tenant's.
    pub limits: ScopeLimits,
}

/// Where a request without a run id belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithoutRunId {
    /// To one run per key.
    #[default]
    Shared,
    /// To one run per end user.
    EndUser,
    /// Nowhere: it is refused.
    Refuse,
}

/// Rules for agent runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Runs {
    /// Tokens a run may use in all.
    pub token_budget: Option<Tokens>,
    /// Steps a run may make.
    pub max_steps: Option<u32>,
    /// Rates and concurrency of each run.
    pub limits: ScopeLimits,
    /// A run ends when it makes no step for so long.
    pub idle_expiry: Micros,
    /// Live runs per tenant.
    pub max_live: u32,
    /// Runs a tenant may begin, as a rate.
    pub new_runs: Option<Shape>,
    /// Requests that name no run.
    pub without_id: WithoutRunId,
}

/// Weights of a pool's work, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Per input token that is not cached.
    pub input_millis: u32,
    /// Per cached input token.
    pub cached_input_millis: u32,
    /// Per output token.
    pub output_millis: u32,
}

/// Backends that serve the same models.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Name.
    pub name: String,
    /// Limits debited at dispatch.
    pub limits: Limits,
    /// Backends.
    pub backends: Vec<Backend>,
    /// Weights of its work.
    pub work: Work,
    /// A run is kept on its backend while others are ahead of it by at most so much work. Zero: it goes wherever there is room.
    pub stickiness: Tokens,
    /// How its backends are filled.
    pub placing: Placing,
}

/// How the backends of a pool are filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placing {
    /// What the fit test takes a request for.
    pub fit: Fit,
    /// Which of the backends that have room is taken.
    pub placement: Placement,
    /// A backend that comes back beside others is given all its slots after this span, a tenth at first. Zero: at once.
    pub slow_start: Micros,
}

/// What the fit test takes a request for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fit {
    /// Its input and the likely output.
    #[default]
    Predicted,
    /// Its input and the output bound.
    Reserved,
}

/// Which of the backends that have room is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// The one with most room: KV tokens where all of them tell theirs, else slots.
    #[default]
    MostRoom,
    /// The one with the fewest requests.
    FewestRunning,
}

/// How many requests a backend is given at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// Its slots.
    #[default]
    Fixed,
    /// As many as its time to first token allows, at most its slots: for hosted backends without metrics.
    Adaptive,
}

/// One backend.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// Name in metrics and answers of the admin API.
    pub name: String,
    /// Requests it runs at the same time.
    pub slots: u32,
    /// Tokens that its KV cache holds; absent: as its metrics say, else slots alone.
    pub kv_tokens: Option<Tokens>,
    /// Whether its slots are all it is given.
    pub pacing: Pacing,
    /// It is not there until [`Event::BackendUp`](crate::gate::Event::BackendUp).
    pub is_awaited: bool,
    /// Limits debited at dispatch.
    pub limits: Limits,
}

/// A model that may be asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Name in requests.
    pub name: String,
    /// Who serves it.
    pub pool: PoolId,
    /// Largest output of one choice.
    pub max_output: Option<Tokens>,
}

/// A class of service.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Name.
    pub name: String,
    /// Longest wait in the queue.
    pub wait_max: Micros,
    /// Most requests in its queue, per pool.
    pub queue_requests_max: u32,
    /// Most reserved tokens in its queue, per pool.
    pub queue_tokens_max: Tokens,
    /// The share of the dispatched work that it gets while it has something waiting, in millionths.
    pub min_share_ppm: u32,
    /// What it leaves free on each backend for the classes above it. Work that its minimum share owes it is exempt.
    pub headroom: Headroom,
    /// It is ordered as if its requests had come that much later, instead of strictly after the classes above it.
    pub ageing: Option<Micros>,
    /// A request of it that has delivered nothing yet may be taken off its backend, once, where one of a class above would else not
    /// start in time.
    pub is_evictable: bool,
    /// Largest output of one choice.
    pub max_output: Option<Tokens>,
}

/// The output bound that a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputBound {
    /// Tokens per choice.
    pub per_choice: Tokens,
    /// The asked bound was above the cap and has been lowered.
    pub clamped: bool,
}

/// The asked output is above the cap, and the policy refuses instead of lowering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputExcess {
    /// What was asked, per choice.
    pub asked: Tokens,
    /// The cap.
    pub cap: Tokens,
}

impl Order {
    /// Whether classes go before each other.
    #[must_use]
    pub const fn has_lanes(self) -> bool {
        matches!(self, Self::Lanes | Self::LanesFair)
    }

    /// Whether those who have received less go before others.
    #[must_use]
    pub const fn is_fair(self) -> bool {
        matches!(self, Self::Fair | Self::LanesFair)
    }
}

impl Policy {
    /// The model of that name.
    #[must_use]
    pub fn model(&self, name: &str) -> Option<ModelId> {
        self.models.iter().position(|model| model.name == name).map(|index| ModelId(index as u32))
    }

    /// The output bound of a choice: what was asked, else the default, never above the cap (the least of tenant, key, team,
    /// class and model).
    ///
    /// # Errors
    /// The asked output is above the cap and the tenant's limits say `on_output_excess: reject`.
    pub fn output_bound(&self, asker: &Asker, asked: Option<Tokens>) -> Result<OutputBound, OutputExcess> {
        let tenant = &self.tenants[asker.tenant.0 as usize];
        let mut cap =
            [self.classes[asker.class.0 as usize].max_output, self.models[asker.model.0 as usize].max_output]
                .into_iter()
                .flatten()
                .min();
        let mut default = None;
        let mut on_excess = OnOutputExcess::Clamp;
        for limits in self.limits_of(asker) {
            cap = [cap, limits.max_output].into_iter().flatten().min();
            default = [default, limits.default_max_output].into_iter().flatten().min();
            if limits.on_output_excess == OnOutputExcess::Reject {
                on_excess = OnOutputExcess::Reject;
            }
        }
        debug_assert!(!tenant.name.is_empty());
        let Some(asked) = asked else {
            let default = default.unwrap_or(DEFAULT_MAX_OUTPUT);
            return Ok(OutputBound {
                per_choice: cap.map_or(default, |cap| cap.min(default)),
                clamped: false,
            });
        };
        match cap {
            Some(cap) if asked > cap && on_excess == OnOutputExcess::Reject => {
                Err(OutputExcess { asked, cap })
            }
            Some(cap) if asked > cap => Ok(OutputBound { per_choice: cap, clamped: true }),
            _ => Ok(OutputBound { per_choice: asked, clamped: false }),
        }
    }

    /// The largest input allowed, if any scope limits it.
    #[must_use]
    pub fn input_max(&self, asker: &Asker) -> Option<Tokens> {
        self.limits_of(asker).filter_map(|limits| limits.max_input).min()
    }

    /// Whether any limit that applies counts output, so that an output bound must be known and sent on.
    #[must_use]
    pub fn counts_output(&self, asker: &Asker) -> bool {
        let tenant = &self.tenants[asker.tenant.0 as usize];
        let pool = &self.pools[self.models[asker.model.0 as usize].pool.0 as usize];
        tenant.runs.as_ref().is_some_and(|runs| runs.token_budget.is_some())
            || self
                .limits_of(asker)
                .chain([&self.service, &pool.limits])
                .chain(pool.backends.iter().map(|backend| &backend.limits))
                .any(Limits::counts_output)
    }

    /// Every block of limits on the asker's side: key, run, end user, tenant and team, each for all models and for this one.
    fn limits_of<'a>(&'a self, asker: &Asker) -> impl Iterator<Item = &'a Limits> + use<'a> {
        let tenant = &self.tenants[asker.tenant.0 as usize];
        let model = asker.model;
        [
            asker.key.and_then(|key| tenant.keys.get(key.0 as usize)).map(|key| &key.limits),
            tenant.runs.as_ref().map(|runs| &runs.limits),
            tenant.end_users.as_ref(),
            Some(&tenant.limits),
            tenant.team.map(|team| &self.teams[team.0 as usize].limits),
        ]
        .into_iter()
        .flatten()
        .flat_map(move |scope| core::iter::once(&scope.all).chain(scope.models.get(&model)))
    }
}

/// Who asks for what, as far as the static policy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Who is charged.
    pub tenant: TenantId,
    /// By which credential.
    pub key: Option<KeyId>,
    /// In which class.
    pub class: ClassId,
    /// For which model.
    pub model: ModelId,
}

impl Limits {
    fn counts_output(&self) -> bool {
        self.rates.iter().any(|rate| rate.dimension.counts_output())
    }
}

impl RateLimit {
    /// A rate with `capacity = rate × burst` whole units and the usual bound on debt: ten buckets.
    ///
    /// `None` if a bucket or its debt would pass [`BUCKET_UNITS_MAX`].
    #[must_use]
    pub fn new(dimension: Dimension, rate: Rate, burst: Micros) -> Option<Self> {
        let capacity = rate.units_over(burst);
        // A bucket that cannot hold one unit would refuse everything although the rate is not zero.
        let capacity = if rate.is_never() { 0 } else { capacity.max(1) };
        (capacity <= BUCKET_UNITS_MAX).then_some(())?;
        let debt = capacity.saturating_mul(DEBT_BUCKETS).min(BUCKET_UNITS_MAX);
        let shape = Shape { rate, capacity: Amount::whole(capacity), debt_max: Amount::whole(debt) };
        Some(Self { dimension, shape, shadow: false })
    }
}

impl Dimension {
    /// Whether it counts tokens of any kind.
    #[must_use]
    pub const fn counts_tokens(self) -> bool {
        matches!(self, Self::InputTokens) || self.counts_output()
    }

    /// Whether output tokens count in it.
    #[must_use]
    pub const fn counts_output(self) -> bool {
        matches!(self, Self::Tokens | Self::OutputTokens | Self::Work | Self::RunBudget)
    }

    /// The name in the configuration, in headers and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
            Self::Work => "work",
            Self::ConcurrentRequests => "concurrent_requests",
            Self::RunBudget => "token_budget",
            Self::RunSteps => "max_steps",
            Self::NewRuns => "new_runs",
        }
    }
}

/// The largest bucket or debt: 4 billion units, so that micro-units stay below 2^53.
pub const BUCKET_UNITS_MAX: u64 = 4_000_000_000;
/// Output bound of a choice that names none, where the configuration gives no other.
pub const DEFAULT_MAX_OUTPUT: Tokens = Tokens(1_024);
/// The α that the smallest worst gap was measured with, see `docs/scheduling.md`.
pub const ALPHA_PERMILLE: u32 = 250;
/// Debt allowed by default, in buckets.
pub const DEBT_BUCKETS: u64 = 10;
/// The usual weight of a tenant or a team, in thousandths.
pub const WEIGHT_ONE_MILLIS: u32 = 1_000;

impl Default for Work {
    fn default() -> Self {
        Self { input_millis: 1_000, cached_input_millis: 1_000, output_millis: 1_000 }
    }
}

impl Default for Runs {
    fn default() -> Self {
        Self {
            token_budget: None,
            max_steps: None,
            limits: ScopeLimits::default(),
            idle_expiry: Micros::from_secs(30 * 60),
            max_live: 1_000,
            new_runs: None,
            without_id: WithoutRunId::Shared,
        }
    }
}
