//! From a scenario file to the lab's scenario: bounds checked, names matched, policies resolved as a gateway would.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairlane_core::policy::{BackendId, Fit, Placement, Placing, Policy, PoolId};
use fairlane_core::units::{Micros, Moment, Tokens};
use fairlane_lab::world::{Comeback, Fault, Honesty, Manner};
use fairlane_lab::{Class, Clients, Pattern, Scenario, Shape, Size, Tenant};
use serde_json::json;

use super::raw::{self, Does, Rules};
use crate::config::{ConfigError, Count, Decimal, FileProblems, Name, NodePath, SourceFile, Surroundings};
use crate::config::{Source, raw as written};

/// Checks everything and fills in what is not written.
pub(super) fn scenario(file: SourceFile, document: raw::Document) -> Result<Scenario, ConfigError> {
    let mut reader = Reader { problems: FileProblems::of(&file) };
    let root = NodePath::default();
    let length = reader.span(&root.key("length"), document.length, LENGTH_USUAL, 1..=SPAN_MAX);
    let drain = reader.span(&root.key("drain"), document.drain, length, 0..=SPAN_MAX);
    let shape = reader.shape(&root.key("backends"), &document.backends);
    let replicas = root.key("backends").key("replicas");
    let replicas = reader.count(&replicas, document.backends.replicas, 4, 1..=REPLICAS_MAX);
    let mut clients = Vec::new();
    for (index, traffic) in document.traffic.iter().enumerate() {
        clients.extend(reader.clients(&root.key("traffic").index(index), traffic));
    }
    reader.check_clients(&root.key("traffic"), &clients, length);
    let faults = reader.faults(&root.key("faults"), &document.faults, replicas);
    if document.policies.is_empty() {
        reader.problems.add(&root.key("policies"), "there is no policy: name one, such as `reference: {}`");
    }
    reader.problems.finish()?;
    let policies =
        Policies { file: &file, shape, replicas, clients: &clients, work: &document.backends.work };
    let policies = policies.all(document.policies)?;
    Ok(Scenario {
        name: document.name.unwrap_or_else(|| file.name.display().to_string()),
        clients,
        length,
        drain,
        replicas: vec![shape; replicas as usize],
        faults,
        quiet_max: document.quiet_max.map(|span| span.0),
        policies,
    })
}

struct Reader<'a> {
    problems: FileProblems<'a>,
}

impl Reader<'_> {
    fn shape(&mut self, at: &NodePath, written: &raw::Backends) -> Shape {
        let usual = Shape::REFERENCE;
        let step = at.key("step");
        let span = |reader: &mut Self, key: &str, written, usual| {
            reader.span(&step.key(key), written, usual, 0..=STEP_MAX)
        };
        let shape = Shape {
            step_fixed: span(self, "fixed", written.step.fixed, usual.step_fixed),
            step_per_decoding: span(self, "per_sequence", written.step.per_sequence, usual.step_per_decoding),
            step_per_prompt_token: span(
                self,
                "per_prompt_token",
                written.step.per_prompt_token,
                usual.step_per_prompt_token,
            ),
            slots: self.count(&at.key("slots"), written.slots, usual.slots as u64, 1..=65_536) as usize,
            prefill_chunk: Tokens(self.count(
                &at.key("prefill_chunk"),
                written.prefill_chunk,
                usual.prefill_chunk.0,
                1..=1_000_000,
            )),
            kv: Tokens(self.count(&at.key("kv_tokens"), written.kv_tokens, usual.kv.0, 1..=4_000_000_000)),
        };
        if shape.step(1, 1) == Micros::ZERO {
            self.problems
                .add(&step, "a step takes no time: give it `fixed`, `per_sequence` or `per_prompt_token`");
        }
        shape
    }

    fn clients(&mut self, at: &NodePath, written: &raw::Traffic) -> Vec<Clients> {
        let copies = self.count(&at.key("copies"), written.copies, 1, 1..=TENANTS_MAX);
        let pattern = match written.arrivals.unwrap_or(raw::Arrivals::Poisson) {
            raw::Arrivals::Poisson => Pattern::Poisson,
            raw::Arrivals::Even => Pattern::Even { block: 1 },
            raw::Arrivals::Blocks(Count(block)) => {
                let block = self.count(&at.key("arrivals"), Some(Count(block)), 1, 1..=10_000);
                Pattern::Even { block: block as u32 }
            }
            raw::Arrivals::Gamma(variation) => {
                if !(100..=10_000).contains(&variation.millis) {
                    self.problems.add(&at.key("arrivals"), "the variation is outside its bound, 0.1 to 10");
                }
                Pattern::Gamma { variation: number(variation) }
            }
        };
        let traffic = Tenant {
            name: written.name.0.clone().into(),
            class: match written.class {
                Some(raw::Kind::Batch) => Class::Batch,
                Some(raw::Kind::Background) => Class::Background,
                Some(raw::Kind::Interactive) | None => Class::Interactive,
            },
            rate: number(written.rate),
            rate_changes: self.changes(&at.key("changes"), &written.changes),
            pattern,
            prompt: self.size(&at.key("prompt"), &written.prompt),
            output: self.size(&at.key("output"), &written.output),
            max_tokens: Tokens(self.count(&at.key("max_tokens"), written.max_tokens, 1_024, 1..=TOKENS_MAX)),
        };
        let comeback = comeback(written.refused);
        let patience = written.patience.map(|span| span.0);
        let named = |copy: u64| Clients {
            traffic: Tenant { name: copy_name(&written.name.0, copy, copies).into(), ..traffic.clone() },
            comeback,
            patience,
        };
        (0..copies).map(named).collect()
    }

    fn changes(&mut self, at: &NodePath, written: &[raw::Change]) -> Vec<(Moment, f64)> {
        if written.len() > CHANGES_MAX {
            self.problems.add(at, &format!("there are more than {CHANGES_MAX} changes of the rate"));
        }
        if written.windows(2).any(|pair| pair[0].at.0 >= pair[1].at.0) {
            self.problems.add(at, "the changes are not in the order of time: sort them by `at`");
        }
        written.iter().map(|change| (Moment(change.at.0.0), number(change.rate))).collect()
    }

    fn size(&mut self, at: &NodePath, written: &raw::Size) -> Size {
        let spread = written.spread.map_or(0.0, |share| f64::from(share.percent_millis) / 100_000.0);
        let size = match (written.mean, written.from, written.by, written.over) {
            (Some(mean), None, None, None) => {
                Size::Spread { mean: number(mean), low: 1.0 - spread, high: 1.0 + spread }
            }
            (None, Some(from), Some(by), Some(over)) if over.0 > Micros::ZERO && written.spread.is_none() => {
                Size::Growing { from: number(from), by: number(by), over: over.0 }
            }
            _ => {
                self.problems
                    .add(at, "a size is `{mean: 900, spread: 20%}` or `{from: 6000, by: 18000, over: 120s}`");
                Size::Spread { mean: 1.0, low: 1.0, high: 1.0 }
            }
        };
        let largest = match size {
            Size::Spread { mean, high, .. } => mean * high,
            Size::Growing { from, by, .. } => from + by,
        };
        if largest > TOKENS_MAX as f64 {
            self.problems.add(at, "a request has at most 10,000,000 tokens");
        }
        size
    }

    /// Names are given once, and the requests fit the memory.
    fn check_clients(&mut self, at: &NodePath, clients: &[Clients], length: Micros) {
        if clients.is_empty() {
            self.problems.add(at, "nobody sends anything: name at least one tenant");
        }
        if clients.len() as u64 > TENANTS_MAX {
            self.problems.add(at, &format!("there are more than {TENANTS_MAX} tenants"));
        }
        let mut names = std::collections::BTreeSet::new();
        for clients in clients {
            if !names.insert(clients.traffic.name.as_ref()) {
                let name = &clients.traffic.name;
                self.problems.add(at, &format!("the tenant \"{name}\" is named twice: rename one"));
            }
        }
        let requests: f64 = clients.iter().map(|clients| expected(&clients.traffic, length)).sum();
        if requests > REQUESTS_MAX {
            self.problems.add(
                at,
                &format!("that is about {requests:.0} requests: at most {REQUESTS_MAX:.0}, lower the rates or the length"),
            );
        }
    }

    fn faults(&mut self, at: &NodePath, written: &[raw::Fault], replicas: u64) -> Vec<(Moment, Fault)> {
        if written.len() > FAULTS_MAX {
            self.problems.add(at, &format!("there are more than {FAULTS_MAX} faults"));
        }
        let mut faults: Vec<(Moment, Fault)> = written
            .iter()
            .enumerate()
            .map(|(index, fault)| {
                let at = at.index(index);
                let replica = self.count(&at.key("replica"), fault.replica, 1, 1..=replicas);
                let backend = BackendId { pool: PoolId(0), index: (replica - 1) as u32 };
                (Moment(fault.at.0.0), self::fault(fault.does, backend))
            })
            .collect();
        faults.sort_by_key(|(at, _)| *at);
        faults
    }

    fn span(
        &mut self,
        at: &NodePath,
        written: Option<crate::config::TimeSpan>,
        usual: Micros,
        range: std::ops::RangeInclusive<u64>,
    ) -> Micros {
        let span = written.map_or(usual, |span| span.0);
        if !range.contains(&span.0) {
            let (least, most) = (Micros(*range.start()), Micros(*range.end()));
            let bound = format!("{} s to {} s", least.as_secs_f64(), most.as_secs_f64());
            self.problems.add(at, &format!("the value is outside its bound, {bound}"));
        }
        span
    }

    fn count(
        &mut self,
        at: &NodePath,
        written: Option<Count>,
        usual: u64,
        range: std::ops::RangeInclusive<u64>,
    ) -> u64 {
        let count = written.map_or(usual, |count| u64::from(count.0));
        if !range.contains(&count) {
            let (least, most) = range.into_inner();
            self.problems.add(at, &format!("the value is outside its bound, {least} to {most}"));
            return usual;
        }
        count
    }
}

/// Resolves policies as a gateway's configuration, with the scenario's own pool and tenants put in.
struct Policies<'a> {
    file: &'a SourceFile,
    shape: Shape,
    replicas: u64,
    clients: &'a [Clients],
    work: &'a Option<written::Work>,
}

impl Policies<'_> {
    fn all(&self, policies: BTreeMap<Name, raw::Policy>) -> Result<Vec<(String, Arc<Policy>)>, ConfigError> {
        let named = policies.into_iter().map(|(name, policy)| {
            let resolved = self.one(&name.0, policy)?;
            Ok((name.0, Arc::new(resolved)))
        });
        named.collect()
    }

    fn one(&self, name: &str, policy: raw::Policy) -> Result<Policy, ConfigError> {
        let at = NodePath::of("policies").key(name);
        let rules = policy.rules.unwrap_or_default();
        let internal = |error: serde_json::Error| self.file.problem_of(&at, &error.to_string());
        let mut tenants = policy.tenants;
        for clients in self.clients {
            let tenant_name = clients.traffic.name.as_ref();
            if !tenants.iter().any(|tenant| tenant.name.0 == tenant_name) {
                let tenant = json!({"name": tenant_name, "class": clients.traffic.class.name()});
                tenants.push(serde_json::from_value(tenant).map_err(internal)?);
            }
        }
        let mut classes = policy.classes;
        if classes.is_empty() && rules == Rules::Reference {
            for class in [Class::Interactive, Class::Batch, Class::Background] {
                let queue = json!({"requests": "1000000", "tokens": "4000000000"});
                let class = json!({"name": class.name(), "max_wait": "24h", "queue": queue});
                classes.push(serde_json::from_value(class).map_err(internal)?);
            }
        }
        let slots = policy.pool.slots.map_or(self.shape.slots as u64, |slots| u64::from(slots.0));
        let kv_tokens = policy.pool.kv_tokens.map_or(self.shape.kv.0, |tokens| u64::from(tokens.0));
        let backend = |replica: u64| json!({"name": format!("replica-{replica}"), "url": format!("http://replica-{replica}:8000")});
        let pool = json!({
            "name": "main",
            "models": ["sim"],
            "backends": (1..=self.replicas).map(backend).collect::<Vec<_>>(),
            "slots": slots.to_string(),
            "kv_tokens": kv_tokens.to_string(),
        });
        let mut pool: written::Pool = serde_json::from_value(pool).map_err(internal)?;
        pool.limits = policy.pool.limits;
        pool.stickiness = policy.pool.stickiness;
        pool.work = Some(self.work.clone().unwrap_or_else(|| usual_work(&self.shape)));
        let document = written::Document {
            order: policy.order.or_else(|| (rules == Rules::Reference).then_some(written::Order::Fifo)),
            service: policy.service,
            pools: vec![pool],
            classes,
            tiers: policy.tiers,
            teams: policy.teams,
            tenants,
            ..written::Document::default()
        };
        let around = Surroundings { env: &|_| None, discovered: &BTreeMap::new(), unix_secs: 0 };
        let source = Source::within(self.file.clone(), at, document);
        let mut policy = source.resolve(&around)?.policy;
        if rules == Rules::Reference {
            refer(&mut policy);
        }
        Ok(policy)
    }
}

/// The rules by which the rows of the lab's model were found.
fn refer(policy: &mut Policy) {
    policy.alpha_permille = 0;
    for pool in &mut policy.pools {
        pool.placing =
            Placing { fit: Fit::Reserved, placement: Placement::FewestRunning, slow_start: Micros::ZERO };
    }
}

fn comeback(written: Option<raw::Comeback>) -> Comeback {
    match written {
        None | Some(raw::Comeback::GivesUp) => Comeback::GivesUp,
        Some(raw::Comeback::After(after)) => {
            Comeback::After { wait: after.wait.0, tries_max: after.tries.0.min(TRIES_MAX) }
        }
        Some(raw::Comeback::AsTold(told)) => Comeback::AsTold {
            jitter_percent: told.jitter.map_or(0, |share| share.percent_millis / 1_000),
            tries_max: told.tries.0.min(TRIES_MAX),
        },
    }
}

fn fault(does: Does, backend: BackendId) -> Fault {
    match does {
        Does::Dies => Fault::Dies(backend),
        Does::Returns => Fault::Returns(backend),
        Does::Stalls(span) => Fault::Stalls(backend, span.0),
        Does::Slows(slowness) => Fault::Slows(backend, slowness.percent.0.clamp(1, 100_000)),
        Does::IsBusy(pause) => Fault::Answers(backend, Manner::IsBusy(Some(pause.0))),
        Does::Fails => Fault::Answers(backend, Manner::Fails),
        Does::Serves => Fault::Answers(backend, Manner::Serves),
        Does::HidesUsage => Fault::Reports(backend, Honesty::Silent),
        Does::ReportsUsage => Fault::Reports(backend, Honesty::Honest),
        Does::ClientsVanish(share) => Fault::ClientsVanish(share.percent_millis / 1_000),
    }
}

/// An output token in a full batch against an input token, as the replica's shape has it.
fn usual_work(shape: &Shape) -> written::Work {
    let million = Tokens(1_000_000);
    let input = shape.work(million, Tokens::ZERO).0;
    let output = shape.work(Tokens::ZERO, million).0;
    let millis = output.saturating_mul(1_000).checked_div(input).unwrap_or(1_000);
    let decimal = |millis: u64| Some(Decimal { millis: millis.clamp(1, 1_000_000) as u32 });
    written::Work { input: decimal(1_000), cached_input: decimal(1_000), output: decimal(millis) }
}

/// Requests that a tenant sends in the mean.
fn expected(traffic: &Tenant, length: Micros) -> f64 {
    let seconds = |moment: Moment| moment.0.min(length.0) as f64 / 1_000_000.0;
    let mut total = 0.0;
    let (mut from, mut rate) = (0.0, traffic.rate);
    for (at, next) in &traffic.rate_changes {
        total += (seconds(*at) - from).max(0.0) * rate;
        (from, rate) = (seconds(*at), *next);
    }
    total + (length.as_secs_f64() - from).max(0.0) * rate
}

/// `chat-a`, `chat-b` and so on, with numbers where letters do not suffice.
fn copy_name(name: &str, copy: u64, copies: u64) -> String {
    match copies {
        1 => name.to_owned(),
        2..=26 => format!("{name}-{}", char::from(b'a' + copy as u8)),
        _ => format!("{name}-{}", copy + 1),
    }
}

fn number(decimal: Decimal) -> f64 {
    f64::from(decimal.millis) / 1_000.0
}

const LENGTH_USUAL: Micros = Micros::from_secs(120);
const SPAN_MAX: u64 = 24 * 3_600 * 1_000_000;
const STEP_MAX: u64 = 10_000_000;
const REPLICAS_MAX: u64 = 256;
const TENANTS_MAX: u64 = 1_000;
const TOKENS_MAX: u64 = 10_000_000;
const CHANGES_MAX: usize = 10_000;
const FAULTS_MAX: usize = 10_000;
const TRIES_MAX: u32 = 100;
const REQUESTS_MAX: f64 = 2_000_000.0;
