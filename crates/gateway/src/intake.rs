//! From an HTTP request to an arrival at the gate: body, facts, bounds and counts.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fairlane_core::gate::{Arrival, RequestId};
use fairlane_core::policy::{Asker, ClassId, KeyId, ModelId, PoolId, TenantId};
use fairlane_core::refusal::{Reason, Refusal};
use fairlane_core::units::{Micros, Tokens};
use fairlane_wire::answer::Problem;
use fairlane_wire::count::InputEstimate;
use fairlane_wire::decode::decode;
use fairlane_wire::dialect::Endpoint;
use fairlane_wire::identity;
use fairlane_wire::request::{RequestFacts, read};
use fairlane_wire::splice::{ChatBound, Edits, UsageChunk, splice};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::config::{Engine, TokenizerMode};
use crate::counter::Counter;
use crate::gateway::Gateway;
use crate::live::Live;
use crate::priority;
use crate::problem;

/// A request that has been read, and what goes to a backend in its place.
#[derive(Debug)]
pub struct Intake {
    /// For the gate.
    pub arrival: Arrival,
    /// The least that the input can be, where `arrival.input` is an estimate's most.
    pub input_least: Option<Tokens>,
    /// What the input was thought to be.
    pub estimate: InputEstimate,
    /// The body as it is forwarded.
    pub body: Bytes,
    /// The client does not expect the usage-only chunk that the gateway asked for.
    pub hides_usage: bool,
    /// The output bound of a choice as it was lowered, where it was.
    pub clamped: Option<u64>,
    /// The header that tells the engine the request's class.
    pub priority: Option<(HeaderName, HeaderValue)>,
    /// What the client should know.
    pub warning: Option<&'static str>,
    /// Which attempt of its client this is, where it says.
    pub retry_count: Option<u32>,
    /// Choices that a stream must finish.
    pub choices: u32,
    /// A stream was asked for.
    pub is_streaming: bool,
}

/// Who asks, as found before the body is read.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    /// Tenant.
    pub tenant: TenantId,
    /// Key.
    pub key: Option<KeyId>,
    /// Class.
    pub class: ClassId,
}

/// Reads a body whole.
///
/// # Errors
/// It is larger than `bytes_max`, or a pause in it is longer than `pause_max`, or the client broke off.
pub async fn read_body(mut body: Incoming, bytes_max: usize, pause_max: Duration) -> Result<Bytes, Problem> {
    let too_large = || Problem::BodyTooLarge { limit_bytes: bytes_max as u64 };
    // What its length tells, if it has one; 0 of a chunked body.
    let told_bytes = http_body::Body::size_hint(&body).lower();
    if told_bytes > bytes_max as u64 {
        return Err(too_large());
    }
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    loop {
        let frame = tokio::time::timeout(pause_max, body.frame()).await.map_err(|_| Problem::BodyTimeout)?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| Problem::Malformed {
            message: format!("the request body broke off: {error}"),
            param: None,
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + rest.len() + data.len() > bytes_max {
            return Err(too_large());
        }
        if first.is_empty() && rest.is_empty() {
            first = data;
            continue;
        }
        if rest.is_empty() {
            // Growing step by step would hold the body three times over. Untouched memory is not resident.
            rest.reserve(told_bytes as usize);
        }
        rest.extend_from_slice(&std::mem::take(&mut first));
        rest.extend_from_slice(&data);
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// Reads a request of the APIs that the gateway understands.
///
/// # Errors
/// What is wrong with it.
pub async fn take_in(
    gateway: &Gateway,
    live: &Arc<Live>,
    endpoint: Endpoint,
    (sender, headers): (Sender, &HeaderMap),
    body: Bytes,
) -> Result<Intake, Problem> {
    let encoding = headers.get(header::CONTENT_ENCODING).map(|value| value.to_str().unwrap_or("unknown"));
    let decoded = decode(encoding, &body, live.edge.bounds.body_bytes_max)
        .map_err(|error| problem::undecodable(&error, encoding.unwrap_or_default()))?;
    let body = match decoded {
        std::borrow::Cow::Borrowed(_) => body.clone(),
        std::borrow::Cow::Owned(decoded) => Bytes::from(decoded),
    };
    let facts = read(endpoint, &body).map_err(|error| problem::malformed(&error))?;
    let asker = asker(live, sender, &facts)?;
    let pool = live.policy.models[asker.model.0 as usize].pool;
    let bounded = bound(live, &asker, &facts)?;
    let counter = live.counter(pool).ok_or_else(|| unknown_model(&facts.model))?;
    let (estimate, interval) = counter.estimate(&facts.model, &facts);
    let choices = u32::try_from(facts.generations()).unwrap_or(u32::MAX);
    let claims = Claims::new(headers);
    let lookup = |name: &str| claims.get(name);
    let mut arrival = Arrival {
        request: RequestId(0),
        tenant: asker.tenant,
        key: asker.key,
        class: asker.class,
        model: asker.model,
        run: identity::run_id(lookup, &facts).map(|id| gateway.hash("run", &id)),
        end_user: identity::end_user(lookup, &facts).map(|id| gateway.hash("user", &id)),
        input: Tokens(0),
        output_bound: if endpoint.generates() { bounded.per_choice } else { Tokens::ZERO },
        choices,
        wait_max: identity::deadline_ms(lookup).map(Micros::from_millis),
    };
    let mut input_least = None;
    if endpoint != Endpoint::CountTokens {
        (arrival.input, input_least) = match counter.mode() {
            TokenizerMode::Estimate => (Tokens(interval.mean), None),
            TokenizerMode::Exact => {
                (count_exactly(counter, &facts, &body).await.unwrap_or(Tokens(interval.high)), None)
            }
            TokenizerMode::Auto => {
                (Tokens(interval.high), (interval.low < interval.high).then_some(Tokens(interval.low)))
            }
        };
    }
    let engine = live.pool(pool).map_or(Engine::Vllm, |pool| pool.engine);
    let mut edits = edits(&facts, engine, bounded.write.then_some(bounded.per_choice.0));
    let mut header = None;
    if live.stamps_priority(pool) {
        edits.priority = priority::in_body(engine, endpoint, asker.class);
        header = priority::in_header(engine, endpoint, asker.class);
    }
    let hides_usage = edits.usage == UsageChunk::Asked && !facts.asks_usage;
    let spliced = splice(&facts.layout, &edits);
    let forwarded =
        if spliced.is_unchanged() { body.clone() } else { Bytes::from(spliced.apply(&body).into_owned()) };
    Ok(Intake {
        input_least,
        estimate,
        hides_usage,
        clamped: bounded.clamped.then_some(bounded.per_choice.0),
        priority: header,
        warning: facts.has_unseen_input.then_some(UNSEEN_INPUT),
        retry_count: identity::retry_count(lookup),
        choices: u32::try_from(facts.choices).unwrap_or(u32::MAX),
        is_streaming: facts.is_streaming,
        body: forwarded,
        arrival,
    })
}

/// A request of another path that is passed on at a fixed cost.
#[must_use]
pub fn pass_through(sender: Sender, model: ModelId, cost: Tokens, body: Bytes) -> Intake {
    let arrival = Arrival {
        request: RequestId(0),
        tenant: sender.tenant,
        key: sender.key,
        class: sender.class,
        model,
        run: None,
        end_user: None,
        input: cost,
        output_bound: Tokens::ZERO,
        choices: 1,
        wait_max: None,
    };
    Intake {
        arrival,
        input_least: None,
        estimate: InputEstimate::default(),
        body,
        hides_usage: false,
        clamped: None,
        priority: None,
        warning: None,
        retry_count: None,
        choices: 1,
        is_streaming: false,
    }
}

fn asker(live: &Live, sender: Sender, facts: &RequestFacts<'_>) -> Result<Asker, Problem> {
    let model = live.model(&facts.model).ok_or_else(|| unknown_model(&facts.model))?;
    let tenant = &live.policy.tenants[sender.tenant.0 as usize];
    if tenant.allowed_models.as_ref().is_some_and(|allowed| !allowed.contains(&model)) {
        return Err(unknown_model(&facts.model));
    }
    Ok(Asker { tenant: sender.tenant, key: sender.key, class: sender.class, model })
}

fn unknown_model(name: &str) -> Problem {
    let name = problem::shown(name);
    Problem::NotFound {
        message: format!(
            "the model \"{name}\" is not known here or not for this key; GET /v1/models lists those that are"
        ),
        param: Some("model"),
    }
}

/// What a client claims in its headers. There are few of them, and looking through these is faster than hashing a dozen names.
struct Claims<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Claims<'a> {
    fn new(headers: &'a HeaderMap) -> Self {
        let mut claims = Vec::with_capacity(headers.len());
        for (name, value) in headers {
            let name = name.as_str();
            if (name.starts_with("x-") || identity::PLAIN_HEADERS.contains(&name))
                && let Ok(value) = value.to_str()
            {
                claims.push((name, value));
            }
        }
        Self(claims)
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

/// The output bound of a choice.
struct Bounded {
    per_choice: Tokens,
    clamped: bool,
    /// The backend must be told.
    write: bool,
}

fn bound(live: &Live, asker: &Asker, facts: &RequestFacts<'_>) -> Result<Bounded, Problem> {
    let asked = facts.output_bound.map(Tokens);
    let bound = live.policy.output_bound(asker, asked).map_err(|excess| {
        let refusal = Refusal::over_cap(Reason::OutputTooLarge, excess.asked, excess.cap);
        problem::refused(refusal, &live.policy, asker)
    })?;
    let write = bound.clamped || asked.is_some() || live.policy.counts_output(asker);
    Ok(Bounded { per_choice: bound.per_choice, clamped: bound.clamped, write })
}

fn edits(facts: &RequestFacts<'_>, engine: Engine, output_bound: Option<u64>) -> Edits {
    let chat_bound =
        if engine == Engine::Openai { ChatBound::MaxCompletionTokens } else { ChatBound::MaxTokens };
    let usage = if facts.is_streaming { UsageChunk::Asked } else { UsageChunk::AsSent };
    let usage = match facts.endpoint {
        Endpoint::ChatCompletions | Endpoint::Completions => usage,
        Endpoint::Embeddings
        | Endpoint::Responses
        | Endpoint::Messages
        | Endpoint::CountTokens
        | Endpoint::Models => UsageChunk::AsSent,
    };
    Edits {
        output_bound: output_bound.filter(|_| facts.endpoint.generates()),
        chat_bound,
        usage,
        ..Edits::default()
    }
}

/// Counts the input of a request whose decision depends on it; the estimate's most where that fails.
pub async fn count(live: &Live, intake: &Intake, endpoint: Endpoint) -> Tokens {
    let Some(counter) = live.counter(pool_of(live, intake)) else { return intake.arrival.input };
    let Ok(facts) = read(endpoint, &intake.body) else { return intake.arrival.input };
    count_exactly(counter, &facts, &intake.body).await.unwrap_or(intake.arrival.input)
}

async fn count_exactly(counter: &Arc<Counter>, facts: &RequestFacts<'_>, body: &Bytes) -> Option<Tokens> {
    if !counter.is_long(facts) {
        return Some(Tokens(counter.count(facts)));
    }
    let (counter, body, endpoint) = (Arc::clone(counter), body.clone(), facts.endpoint);
    let counted =
        tokio::task::spawn_blocking(move || read(endpoint, &body).ok().map(|facts| counter.count(&facts)));
    counted.await.ok().flatten().map(Tokens)
}

/// Who asks, as the static policy sees it.
#[must_use]
pub const fn asker_of(arrival: &Arrival) -> Asker {
    Asker { tenant: arrival.tenant, key: arrival.key, class: arrival.class, model: arrival.model }
}

/// The pool that a model belongs to.
#[must_use]
pub fn pool_of(live: &Live, intake: &Intake) -> PoolId {
    live.policy.models[intake.arrival.model.0 as usize].pool
}

const UNSEEN_INPUT: &str = "input kept by the server is not counted before it is reported";
