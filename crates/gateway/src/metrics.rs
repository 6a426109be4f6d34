//! Counters and histograms under the names that dashboards use. Label sets are bounded: tenants by their place in the
//! configuration, models by the configuration's list, never end users or runs.

use std::fmt;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use fairlane_core::gate::{Account, Outcome};
use fairlane_core::policy::{ClassId, ModelId, Policy, PoolId, TenantId};
use fairlane_core::refusal::Refusal;
use fairlane_core::units::Micros;
use fairlane_wire::answer::Problem;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::data::Counters as DataCounters;
use crate::driver::Level;
use crate::gateway::Gateway;
use crate::live::Live;

mod meters;

pub use meters::Meters;

/// A family of counters under one set of labels.
type Counters<L> = Family<L, Counter>;
/// A family of gauges.
type Gauges<L> = Family<L, Gauge>;
/// A family of histograms.
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// A counter of fractions.
type FloatCounter = Counter<f64, AtomicU64>;

/// What a request is, as metrics tell requests apart.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Who sent it.
    pub tenant: TenantId,
    /// The class that it runs in.
    pub class: ClassId,
    /// What it asks for.
    pub model: ModelId,
    /// Where that is served.
    pub pool: PoolId,
}

/// All metrics of the process.
pub struct Metrics {
    registry: Mutex<Registry>,
    requests: Counters<RequestLabels>,
    refusals: Counters<RefusalLabels>,
    rejected: Counters<RejectedLabels>,
    tokens: Counters<TokenLabels>,
    work: Family<WorkLabels, FloatCounter>,
    queue_wait: Histograms<PoolClassLabels>,
    first_token: Histograms<ClassModelLabels>,
    output_pace: Histograms<ClassModelLabels>,
    attempts: Counters<AttemptLabels>,
    clamped: Counters<TenantLabels>,
    counted_exactly: Counter,
    backend_unreachable: Counter,
    reloads: Counters<ResultLabels>,
    limit_tokens: Gauges<LimitLabels>,
    level_tokens: Gauges<LimitLabels>,
    queue_requests: Gauges<PoolClassLabels>,
    backend_inflight: Gauges<BackendLabels>,
    backend_up: Gauges<BackendLabels>,
    backend_kv_tokens: Gauges<BackendLabels>,
    ledger: Counters<StateLabels>,
    ledger_outstanding: Gauge,
    estimate_ratio: Family<ModelLabels, Gauge<f64, AtomicU64>>,
    store_up: Gauge,
    /// About the data file.
    pub data: DataCounters,
}

macro_rules! labels {
    ($($(#[$doc:meta])* $name:ident { $($field:ident),+ })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
        struct $name { $($field: String),+ }
    )+};
}

labels! {
    RequestLabels { tenant, class, outcome }
    RefusalLabels { tenant, class, limit, reason }
    RejectedLabels { reason }
    TokenLabels { tenant, model, kind }
    WorkLabels { tenant, pool }
    PoolClassLabels { pool, class }
    ClassModelLabels { class, model }
    AttemptLabels { tenant, kind }
    TenantLabels { tenant }
    LimitLabels { tenant, limit }
    BackendLabels { pool, backend }
    StateLabels { state }
    ModelLabels { model }
    ResultLabels { result }
}

impl Metrics {
    /// A request has ended, with or without having been admitted.
    pub fn ended(&self, live: &Live, whose: (TenantId, ClassId), outcome: Outcome) {
        live.meters.outcome(self, &live.policy, whose, outcome).inc();
    }

    /// An admitted request has been settled.
    pub fn finished(&self, live: &Live, kind: &Kind, account: &Account) {
        let (meters, policy) = (&live.meters, &live.policy);
        let used = &account.used;
        let [uncached, cached, output] = meters.tokens(self, policy, kind.tenant, kind.model);
        uncached.inc_by(used.input.minus(used.cached).0);
        cached.inc_by(used.cached.0);
        output.inc_by(used.output.0);
        meters.work(self, policy, kind.tenant, kind.pool).inc_by(account.work_millis as f64 / 1_000.0);
        meters.queue_wait(self, policy, kind.class, kind.pool).observe(account.queued.as_secs_f64());
    }

    /// The gate refused a request.
    pub fn refused(&self, policy: &Policy, tenant: TenantId, class: &str, refusal: &Refusal) {
        let limit = refusal.limit.map_or_else(
            || "none".to_owned(),
            |limit| {
                if limit.owner.is_shared() || (tenant.0 as usize) < TENANTS_MAX {
                    limit.name(policy)
                } else {
                    OTHER.to_owned()
                }
            },
        );
        let labels = RefusalLabels {
            tenant: tenant_label(policy, tenant),
            class: class.to_owned(),
            limit,
            reason: refusal.reason.name().to_owned(),
        };
        self.refusals.get_or_create(&labels).inc();
    }

    /// A request was answered without a decision: it could not be understood, or nobody knows its key, path or model.
    pub fn rejected(&self, problem: &Problem) {
        let labels = RejectedLabels { reason: problem_label(problem).to_owned() };
        self.rejected.get_or_create(&labels).inc();
    }

    /// A request arrived: its client's first try, or a retry.
    pub fn attempt(&self, live: &Live, tenant: TenantId, retry_count: Option<u32>) {
        let [first, retry] = live.meters.attempts(self, &live.policy, tenant);
        if retry_count.unwrap_or(0) == 0 {
            first.inc()
        } else {
            retry.inc()
        };
    }

    /// An output bound was lowered.
    pub fn clamped(&self, policy: &Policy, tenant: TenantId) {
        self.clamped.get_or_create(&TenantLabels { tenant: tenant_label(policy, tenant) }).inc();
    }

    /// A decision needed an exact count of the input.
    pub fn counted_exactly(&self) {
        self.counted_exactly.inc();
    }

    /// A backend could not be connected to.
    pub fn backend_unreachable(&self) {
        self.backend_unreachable.inc();
    }

    /// The configuration was read again.
    pub fn reloaded(&self, result: &str) {
        self.reloads.get_or_create(&ResultLabels { result: result.to_owned() }).inc();
    }

    /// Time from arrival to the first token.
    pub fn first_token(&self, live: &Live, kind: &Kind, time: Micros) {
        let histogram = live.meters.first_token(self, &live.policy, kind.class, kind.model);
        histogram.observe(time.as_secs_f64());
    }

    /// Time per output token after the first, in seconds.
    pub fn output_pace(&self, live: &Live, kind: &Kind, secs: f64) {
        live.meters.output_pace(self, &live.policy, kind.class, kind.model).observe(secs);
    }

    /// All metrics in Prometheus's text format, gauges read at this moment.
    #[must_use]
    pub fn text(&self, gateway: &Gateway) -> String {
        self.read_gauges(gateway);
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &registry);
        text
    }

    fn read_gauges(&self, gateway: &Gateway) {
        let live = gateway.live();
        let policy = &live.policy;
        self.limit_tokens.clear();
        self.level_tokens.clear();
        for Level { view, level } in gateway.driver.all_limits() {
            let tenant = match limit_tenant(&view.limit.owner) {
                Some(tenant) if tenant.0 as usize >= TENANTS_MAX => continue,
                Some(tenant) => tenant_label(policy, tenant),
                None => String::new(),
            };
            let labels = LimitLabels { tenant, limit: view.limit.name(policy) };
            self.limit_tokens.get_or_create(&labels).set(view.shape.capacity.floor_units());
            self.level_tokens.get_or_create(&labels).set(level.floor_units());
        }
        self.backend_inflight.clear();
        self.backend_up.clear();
        self.backend_kv_tokens.clear();
        for pool in gateway.driver.pools() {
            let Some(name) = policy.pools.get(pool.pool.0 as usize).map(|pool| pool.name.clone()) else {
                continue;
            };
            for (class, queued, ..) in &pool.classes {
                let class = policy.classes[class.0 as usize].name.clone();
                let labels = PoolClassLabels { pool: name.clone(), class };
                self.queue_requests.get_or_create(&labels).set(i64::from(*queued));
            }
            for view in pool.backends {
                let Some((_, backend)) = live.backend(view.backend) else { continue };
                if !backend.is_there() && view.in_flight == 0 {
                    continue;
                }
                let labels = BackendLabels { pool: name.clone(), backend: backend.name.clone() };
                self.backend_inflight.get_or_create(&labels).set(i64::from(view.in_flight));
                self.backend_up.get_or_create(&labels).set(i64::from(view.is_alive));
                self.backend_kv_tokens.get_or_create(&labels).set(view.occupied.0 as i64);
            }
        }
        self.read_ledger(gateway);
        for pool in &policy.pools {
            let id = policy.pools.iter().position(|other| other.name == pool.name).unwrap_or(0) as u32;
            let Some(counter) = live.counter(PoolId(id)) else { continue };
            for (model, millionths) in counter.ratios_millionths() {
                self.estimate_ratio.get_or_create(&ModelLabels { model }).set(millionths as f64 / 1e6);
            }
        }
        self.store_up.set(1);
    }

    fn read_ledger(&self, gateway: &Gateway) {
        let totals = gateway.driver.totals();
        let states = [
            ("reserved", totals.reserved),
            ("settled", totals.settled),
            ("refunded", totals.refunded),
            ("expired", totals.expired),
            ("overrun", totals.overrun),
            ("forgiven", totals.forgiven),
        ];
        for (state, tokens) in states {
            let labels = StateLabels { state: state.to_owned() };
            // The ledger keeps the sums, which only grow; the counter shows them.
            self.ledger.get_or_create(&labels).inner().store(tokens, Ordering::Relaxed);
        }
        self.ledger_outstanding.set(i64::try_from(totals.outstanding).unwrap_or(i64::MAX));
    }

    fn register(&self) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let fairlane = registry.sub_registry_with_prefix("fairlane");
        fairlane.register("requests", "Requests that ended", self.requests.clone());
        fairlane.register(
            "refusals",
            "Refusals by the limit that bound and the reason",
            self.refusals.clone(),
        );
        fairlane.register("rejected", "Requests answered without a decision", self.rejected.clone());
        fairlane.register("tokens", "Tokens used", self.tokens.clone());
        fairlane.register("work", "Weighted tokens used, in the pool's own weights", self.work.clone());
        fairlane.register(
            "queue_wait_seconds",
            "Time from arrival to the first dispatch",
            self.queue_wait.clone(),
        );
        fairlane.register(
            "time_to_first_token_seconds",
            "Time from arrival to the first content delivered",
            self.first_token.clone(),
        );
        fairlane.register(
            "time_per_output_token_seconds",
            "Time per output token after the first, of complete streams",
            self.output_pace.clone(),
        );
        fairlane.register("attempts", "Requests by their client's attempt", self.attempts.clone());
        fairlane.register("clamped", "Output bounds that were lowered", self.clamped.clone());
        fairlane.register(
            "exact_counts",
            "Decisions that needed an exact count of the input",
            self.counted_exactly.clone(),
        );
        fairlane.register(
            "backend_unreachable",
            "Connections to backends that could not be made",
            self.backend_unreachable.clone(),
        );
        fairlane.register("config_reloads", "Configurations read again", self.reloads.clone());
        fairlane.register("limit_tokens", "Capacity of a limit, in its own unit", self.limit_tokens.clone());
        fairlane.register("level_tokens", "What a limit holds; negative is debt", self.level_tokens.clone());
        fairlane.register("queue_requests", "Requests waiting", self.queue_requests.clone());
        fairlane.register("backend_inflight", "Requests on a backend", self.backend_inflight.clone());
        fairlane.register("backend_up", "Whether a backend is alive", self.backend_up.clone());
        let kv_tokens = self.backend_kv_tokens.clone();
        fairlane.register(
            "backend_kv_tokens",
            "Tokens in a backend's KV cache, as far as is known",
            kv_tokens,
        );
        fairlane.register(
            "ledger_tokens",
            "Tokens by state of the ledger since the start",
            self.ledger.clone(),
        );
        fairlane.register(
            "ledger_outstanding_tokens",
            "Tokens in open reservations",
            self.ledger_outstanding.clone(),
        );
        fairlane.register(
            "estimate_ratio",
            "Reported input over estimated input",
            self.estimate_ratio.clone(),
        );
        fairlane.register("store_up", "Whether the limit store answers", self.store_up.clone());
        self.data.register(fairlane);
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let waits: fn() -> Histogram = || Histogram::new(WAIT_SECONDS);
        let paces: fn() -> Histogram = || Histogram::new(PACE_SECONDS);
        let metrics = Self {
            registry: Mutex::default(),
            requests: Counters::default(),
            refusals: Counters::default(),
            rejected: Counters::default(),
            tokens: Counters::default(),
            work: Family::default(),
            queue_wait: Histograms::new_with_constructor(waits),
            first_token: Histograms::new_with_constructor(waits),
            output_pace: Histograms::new_with_constructor(paces),
            attempts: Counters::default(),
            clamped: Counters::default(),
            counted_exactly: Counter::default(),
            backend_unreachable: Counter::default(),
            reloads: Counters::default(),
            limit_tokens: Gauges::default(),
            level_tokens: Gauges::default(),
            queue_requests: Gauges::default(),
            backend_inflight: Gauges::default(),
            backend_up: Gauges::default(),
            backend_kv_tokens: Gauges::default(),
            ledger: Counters::default(),
            ledger_outstanding: Gauge::default(),
            estimate_ratio: Family::default(),
            store_up: Gauge::default(),
            data: DataCounters::default(),
        };
        metrics.register();
        // There before the first reload, so that an alert on its failure has something to compare with.
        for result in ["ok", "error"] {
            let _counter = metrics.reloads.get_or_create(&ResultLabels { result: result.to_owned() });
        }
        metrics
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

fn tenant_label(policy: &Policy, tenant: TenantId) -> String {
    match policy.tenants.get(tenant.0 as usize) {
        Some(found) if (tenant.0 as usize) < TENANTS_MAX => found.name.clone(),
        _ => OTHER.to_owned(),
    }
}

const fn limit_tenant(owner: &fairlane_core::scope::Owner) -> Option<TenantId> {
    use fairlane_core::scope::Owner;
    match owner {
        Owner::EndUser(id) | Owner::Run(id) | Owner::Key(id, _) | Owner::Tenant(id) => Some(*id),
        Owner::Team(_) | Owner::Pool(_) | Owner::Backend(_) | Owner::Service => None,
    }
}

const fn problem_label(problem: &Problem) -> &'static str {
    match problem {
        Problem::Malformed { .. } => "malformed",
        Problem::Unauthorized { .. } => "unauthorized",
        Problem::NotFound { .. } => "not_found",
        Problem::BodyTooLarge { .. } => "body_too_large",
        Problem::UnknownEncoding { .. } => "unknown_encoding",
        Problem::BodyTimeout => "body_timeout",
        Problem::Refused { .. } => "refused",
        Problem::BadGateway { .. } | Problem::BackendError { .. } => "bad_gateway",
        Problem::GatewayTimeout => "gateway_timeout",
    }
}

/// Tenants with labels of their own; the rest share one.
const TENANTS_MAX: usize = 200;
const OTHER: &str = "other";
const WAIT_SECONDS: [f64; 16] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0];
const PACE_SECONDS: [f64; 13] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5];
