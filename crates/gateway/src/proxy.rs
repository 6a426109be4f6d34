//! One request, top to bottom.

mod answer;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use fairlane_core::gate::{Answer, Failure, Outcome, Report};
use fairlane_core::policy::{BackendId, ModelId};
use fairlane_core::units::Tokens;
use fairlane_wire::answer::Problem;
use fairlane_wire::budget;
use fairlane_wire::dialect::{Dialect, Endpoint};
use fairlane_wire::stream::HideUsage;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use tokio::time::Instant;

use self::answer::Give;
use crate::body::Body;
use crate::clock;
use crate::driver::Decision;
use crate::gateway::Gateway;
use crate::identify::identify;
use crate::intake::{self, Intake, Sender};
use crate::live::Live;
use crate::metrics::Kind;
use crate::passage::{Ending, Passage};
use crate::problem;
use crate::provider;
use crate::reader::Shape;
use crate::relay::{Relay, RelayBounds};
use crate::upstream::{self, Answered, BackendBody, Fault, LastAnswer, Outgoing, Pool, Sent};
use crate::usage_log::{Record, RequestTag, SubjectTag};

/// Answers a client, who takes something of the answer within `client_write` or loses it.
///
/// # Errors
/// None: what goes wrong is an answer too.
pub async fn handle(
    gateway: Arc<Gateway>,
    pool: Arc<Pool>,
    client_write: Duration,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let version = request.version();
    let is_http_1 = version < Version::HTTP_2;
    let live = gateway.live();
    let id = gateway.request_id();
    let dialect = dialect_of(request.uri().path());
    let mut response = match serve(&gateway, &live, (id, pool), request).await {
        Ok(response) => response,
        Err(problem) => {
            gateway.metrics.rejected(&problem);
            problem::respond(&problem, dialect, &id.to_string())
        }
    };
    insert(response.headers_mut(), "x-fairlane-request-id", &id.to_string());
    if is_http_1 && gateway.is_draining.load(Ordering::Relaxed) {
        // The next request of this client had better go to another gateway.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    // An HTTP/2 client can take nothing of one stream while its connection is well.
    Ok(match version {
        Version::HTTP_2 => response.map(|body| body.watched(client_write)),
        _ => response,
    })
}

/// # Errors
/// What is answered without a decision of the gate.
async fn serve(
    gateway: &Arc<Gateway>,
    live: &Arc<Live>,
    (id, pool): (RequestTag, Arc<Pool>),
    request: Request<Incoming>,
) -> Result<Response<Body>, Problem> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    match (&parts.method, path) {
        (&Method::GET | &Method::HEAD, "/healthz") => return Ok(plain(StatusCode::OK, "ok\n")),
        (&Method::GET | &Method::HEAD, "/readyz") => return Ok(ready(gateway)),
        _ => {}
    }
    let endpoint = Endpoint::from_path(parts.method.as_str(), path);
    let passed = match endpoint {
        Some(_) => None,
        None => Some(passthrough(live, path).ok_or_else(|| unknown_path(path))?),
    };
    let (tenant, key) = identify(live, &parts.headers)?;
    let asked_class = parts.headers.get(&ASKED_CLASS).and_then(|value| value.to_str().ok());
    let sender = Sender { tenant, key, class: live.class(tenant, asked_class) };
    let dialect = dialect_of(path);
    let answered = match (endpoint, passed) {
        (Some(Endpoint::Models), _) => models(gateway, live, sender, path),
        (endpoint, passed) => {
            match take_in(gateway, live, (endpoint, passed), sender, (&parts, body)).await {
                Ok(intake) => {
                    let path = parts.uri.path_and_query().cloned();
                    let outgoing = Outgoing {
                        path: path.unwrap_or_else(|| PathAndQuery::from_static("/")),
                        headers: outgoing_headers(parts.headers, endpoint),
                        stamped: intake.priority.clone(),
                        method: parts.method,
                        body: intake.body.clone(),
                    };
                    let (gateway, live) = (Arc::clone(gateway), Arc::clone(live));
                    return Ok(Exchange { gateway, live, pool, endpoint, dialect, id, outgoing, intake }
                        .answer()
                        .await);
                }
                Err(problem) => Err(problem),
            }
        }
    };
    let response = answered.unwrap_or_else(|problem| {
        gateway.metrics.rejected(&problem);
        problem::respond(&problem, dialect, &id.to_string())
    });
    Ok(with_headers(response, budget_headers(&gateway.driver.budgets(tenant, key), dialect)))
}

async fn take_in(
    gateway: &Gateway,
    live: &Arc<Live>,
    (endpoint, passed): (Option<Endpoint>, Option<Passed>),
    sender: Sender,
    (parts, body): (&http::request::Parts, Incoming),
) -> Result<Intake, Problem> {
    let bounds = &live.edge.bounds;
    let body = intake::read_body(body, bounds.body_bytes_max, live.edge.timeouts.client_body).await?;
    match (endpoint, passed) {
        (Some(endpoint), _) => intake::take_in(gateway, live, endpoint, (sender, &parts.headers), body).await,
        (None, Some((model, cost))) => Ok(intake::pass_through(sender, model, cost, body)),
        (None, None) => Err(unknown_path(parts.uri.path())),
    }
}

/// A request between the gate and the backends.
struct Exchange {
    gateway: Arc<Gateway>,
    live: Arc<Live>,
    pool: Arc<Pool>,
    endpoint: Option<Endpoint>,
    dialect: Dialect,
    id: RequestTag,
    outgoing: Outgoing,
    intake: Intake,
}

impl Exchange {
    /// Runs it to the begin of its answer. `give` is where that goes if it is not awaited: nothing is sent for one that is gone.
    async fn run(mut self, mut give: Option<&mut Give>) -> Response<Body> {
        let arrived = self.gateway.driver.clock().now();
        let ticket = self.gateway.driver.arrive(self.intake.arrival.clone(), self.intake.input_least);
        self.gateway.metrics.attempt(&self.live, self.intake.arrival.tenant, self.intake.retry_count);
        let mut passage = Passage::new(
            Arc::clone(&self.gateway),
            Arc::clone(&self.live),
            ticket,
            self.record(),
            (self.kind(), arrived, self.intake.estimate),
        );
        let mut headers = self.common_headers(passage.ticket.budgets());
        if self.intake.clamped.is_some() {
            self.gateway.metrics.clamped(&self.live.policy, self.intake.arrival.tenant);
        }
        let mut last = LastAnswer::Problem(Problem::GatewayTimeout);
        let mut failure = Outcome::UpstreamError;
        let mut started = false;
        loop {
            let decision = match &mut give {
                None => passage.ticket.decision().await,
                Some(give) => tokio::select! {
                    biased;
                    () = give.closed() => return plain(StatusCode::OK, ""),
                    decision = passage.ticket.decision() => decision,
                },
            };
            match decision {
                Decision::Start { backend, output_step } => {
                    if !started {
                        insert(&mut headers, "x-fairlane-queue-ms", &passage.age_ms().to_string());
                        started = true;
                    }
                    match self.send_unless_evicted(&mut passage, backend).await {
                        None => {
                            passage.came_back();
                            passage.ticket.evicted();
                        }
                        Some(Sent::Answer(answered)) => {
                            return self.pass_on(passage, *answered, headers, output_step);
                        }
                        Some(Sent::Busy(answer, wait)) => {
                            (last, failure) = (answer, Outcome::UpstreamError);
                            passage.came_back();
                            passage.ticket.bounced(wait);
                        }
                        Some(Sent::Failed(answer, fault)) => {
                            last = answer;
                            failure = match fault {
                                Fault::Timeout => Outcome::UpstreamTimeout,
                                Fault::Unreachable | Fault::Answer => Outcome::UpstreamError,
                            };
                            self.failed(&mut passage, backend, fault);
                        }
                    }
                }
                Decision::Count => {
                    self.gateway.metrics.counted_exactly();
                    self.count().await;
                    passage.ticket = self.gateway.driver.arrive(self.intake.arrival.clone(), None);
                    headers = self.common_headers(passage.ticket.budgets());
                }
                Decision::Refused(refusal) => {
                    insert(&mut headers, "x-fairlane-queue-ms", &passage.age_ms().to_string());
                    let asker = intake::asker_of(&self.intake.arrival);
                    let problem = problem::refused(refusal, &self.live.policy, &asker);
                    let response = problem::respond(&problem, self.dialect, &self.id.to_string());
                    passage.refused(&refusal, response.status().as_u16());
                    return with_headers(response, headers);
                }
                Decision::Abandoned => {
                    let response = self.last_words(last, headers);
                    passage.answered(response.status().as_u16());
                    passage.finish(&Ending::nothing(failure));
                    return response;
                }
            }
        }
    }

    /// The decision depends on the exact input.
    async fn count(&mut self) {
        if let Some(endpoint) = self.endpoint {
            self.intake.arrival.input = intake::count(&self.live, &self.intake, endpoint).await;
        }
    }

    /// Nothing is passed on before the backend has answered, so that until then a request can make room for another one.
    async fn send_unless_evicted(&self, passage: &mut Passage, backend: BackendId) -> Option<Sent> {
        let class = &self.live.policy.classes[self.intake.arrival.class.0 as usize];
        if !class.is_evictable {
            return Some(self.send(passage, backend).await);
        }
        let evicted = passage.ticket.eviction();
        tokio::select! {
            biased;
            sent = self.send(passage, backend) => Some(sent),
            () = evicted => None,
        }
    }

    async fn send(&self, passage: &mut Passage, backend: BackendId) -> Sent {
        let Some((edge, door)) = self.live.door(backend) else {
            let message = "the backend was taken out of the configuration".to_owned();
            return Sent::Failed(LastAnswer::Problem(Problem::BadGateway { message }), Fault::Answer);
        };
        passage.sent_to(backend);
        let pool = intake::pool_of(&self.live, &self.intake);
        let shape = Shape {
            endpoint: self.endpoint,
            is_stream: false,
            coding: None,
            hide: if self.intake.hides_usage { HideUsage::Yes } else { HideUsage::No },
            choices: self.intake.choices,
            length_bytes: None,
            vocabulary: self.live.counter(pool).and_then(|counter| counter.exact_vocabulary()),
        };
        let way = (edge, door);
        let timeouts = &self.live.edge.timeouts;
        let sent = self.gateway.upstream.send(&self.outgoing, way, &self.pool, shape, timeouts).await;
        if self.live.pool(pool).is_some_and(|pool| provider::is_hosted(pool.engine)) {
            provider::tell(&passage.ticket, &sent);
        }
        sent
    }

    fn failed(&self, passage: &mut Passage, backend: BackendId, fault: Fault) {
        passage.came_back();
        if fault == Fault::Unreachable {
            self.gateway.metrics.backend_unreachable();
            crate::health::suspect(&self.gateway, &self.live, backend);
        }
        passage.ticket.failed(match fault {
            Fault::Timeout => Failure::TimedOut,
            Fault::Unreachable | Fault::Answer => Failure::Error,
        });
    }

    fn pass_on(
        &self,
        mut passage: Passage,
        answered: Answered,
        headers: HeaderMap,
        output_step: Option<Tokens>,
    ) -> Response<Body> {
        let Answered { mut head, incoming, taken, reader, had_content } = answered;
        head.headers = upstream::answer_headers(head.headers, headers);
        passage.answered(head.status.as_u16());
        if had_content {
            passage.first_token();
        }
        if !head.status.is_success() {
            return self.pass_refusal_on(passage, head, (incoming, taken));
        }
        if !reader.forwards_everything() {
            head.headers.remove(header::CONTENT_LENGTH);
        }
        let timeouts = &self.live.edge.timeouts;
        let now = Instant::from_std(clock::monotonic());
        let bounds = RelayBounds { idle: timeouts.stream_idle, ends_by: now + timeouts.total };
        let cuts = output_step.is_some() && self.cuts() && reader.is_plain_stream();
        let mut relay = Relay::new(incoming, reader, passage, taken, (bounds, output_step));
        if let Some(endpoint) = self.endpoint.filter(|_| cuts) {
            head.headers.remove(header::CONTENT_LENGTH);
            relay = relay.cut_by(endpoint);
        }
        Response::from_parts(head, self.relayed(relay.with_taken_told()))
    }

    /// The backend refused the request (a status from 400 to 499, or a redirect): its words pass, no token is charged.
    fn pass_refusal_on(
        &self,
        mut passage: Passage,
        head: http::response::Parts,
        (incoming, taken): (BackendBody, std::collections::VecDeque<http_body::Frame<Bytes>>),
    ) -> Response<Body> {
        let nothing = Ending::nothing(Outcome::UpstreamError);
        let report = Report { answer: Answer::Rejected, ..nothing.report };
        passage.finish(&Ending { report, ..nothing });
        let timeouts = &self.live.edge.timeouts;
        let now = Instant::from_std(clock::monotonic());
        let bounds = RelayBounds { idle: timeouts.stream_idle, ends_by: now + timeouts.total };
        let shape = Shape {
            endpoint: None,
            is_stream: false,
            coding: None,
            hide: HideUsage::No,
            choices: 1,
            length_bytes: None,
            vocabulary: None,
        };
        let reader = crate::reader::Reader::new(&shape);
        let relay = Relay::new(incoming, reader, passage, taken, (bounds, None));
        Response::from_parts(head, Body::Relayed(Box::new(relay)))
    }

    /// The last answer of a backend, with the headers of this one.
    fn last_words(&self, last: LastAnswer, own: HeaderMap) -> Response<Body> {
        match last {
            LastAnswer::Problem(problem) => {
                with_headers(problem::respond(&problem, self.dialect, &self.id.to_string()), own)
            }
            LastAnswer::Own(status, mut headers, body) => {
                headers.remove(header::CONTENT_LENGTH);
                let mut response = Response::new(Body::whole(body));
                *response.status_mut() = status;
                *response.headers_mut() = upstream::answer_headers(headers, own);
                response
            }
        }
    }

    /// The headers that every answer of this request carries.
    fn common_headers(&self, budgets: &[budget::Budget]) -> HeaderMap {
        let mut headers = budget_headers(budgets, self.dialect);
        self.name(&mut headers);
        headers
    }

    /// Those of them that do not depend on what the gate decides.
    fn name(&self, headers: &mut HeaderMap) {
        let class = &self.live.policy.classes[self.intake.arrival.class.0 as usize].name;
        insert(headers, "x-fairlane-class", class);
        if let Some(tokens) = self.intake.clamped {
            insert(headers, "x-fairlane-clamped", &format!("max_tokens={tokens}"));
        }
        if let Some(warning) = self.intake.warning {
            insert(headers, "x-fairlane-warning", warning);
        }
    }

    fn kind(&self) -> Kind {
        let arrival = &self.intake.arrival;
        Kind {
            tenant: arrival.tenant,
            class: arrival.class,
            model: arrival.model,
            pool: intake::pool_of(&self.live, &self.intake),
        }
    }

    fn record(&self) -> Record {
        let names = &self.live.names;
        let arrival = &self.intake.arrival;
        Record {
            id: self.id,
            tenant: Arc::clone(names.tenant(arrival.tenant)),
            team: names.team(arrival.tenant).cloned(),
            key: arrival.key.and_then(|key| names.key(arrival.tenant, key)).cloned(),
            class: Arc::clone(names.class(arrival.class)),
            pool: Arc::clone(names.pool(self.kind().pool)),
            model: Arc::clone(names.model(arrival.model)),
            run: arrival.run.map(SubjectTag),
            end_user: arrival.end_user.map(SubjectTag),
            ..Record::default()
        }
    }
}

fn models(gateway: &Gateway, live: &Live, sender: Sender, path: &str) -> Result<Response<Body>, Problem> {
    let allowed = live.policy.tenants[sender.tenant.0 as usize].allowed_models.as_ref();
    let mut names: Vec<&str> = live
        .model_names()
        .filter(|(_, id)| allowed.is_none_or(|allowed| allowed.contains(id)))
        .map(|(name, _)| name)
        .collect();
    names.sort_unstable();
    let body = match path.strip_prefix("/v1/models/") {
        None => gateway.cards.listing(&names),
        Some(name) if names.contains(&name) => gateway.cards.card(name),
        Some(name) => {
            let message =
                format!("the model \"{}\" is not known here or not for this key", problem::shown(name));
            return Err(Problem::NotFound { message, param: Some("model") });
        }
    };
    let mut response = Response::new(Body::whole(body));
    insert(response.headers_mut(), "content-type", "application/json");
    Ok(response)
}

/// A model of the pool that passes a path on, and what a request to it costs.
type Passed = (ModelId, Tokens);

/// A path that a pool passes on.
fn passthrough(live: &Live, path: &str) -> Option<Passed> {
    live.model_names().find_map(|(_, id)| {
        let pool = live.pool(live.policy.models[id.0 as usize].pool)?;
        let passed = pool.passthrough.iter().find(|passed| passed.path == path)?;
        Some((id, passed.cost))
    })
}

fn outgoing_headers(mut headers: HeaderMap, endpoint: Option<Endpoint>) -> HeaderMap {
    if endpoint.is_some() && !headers.contains_key(header::CONTENT_TYPE) {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    headers
}

fn ready(gateway: &Gateway) -> Response<Body> {
    match gateway.readiness() {
        Ok(()) => plain(StatusCode::OK, "ready\n"),
        Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::whole(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    insert(response.headers_mut(), "content-type", "text/plain; charset=utf-8");
    response
}

fn unknown_path(path: &str) -> Problem {
    let path = problem::shown(path);
    Problem::NotFound {
        message: format!(
            "nothing is served at {path}; a pool can pass it on with `passthrough` in the configuration"
        ),
        param: None,
    }
}

/// The dialect of a path, also where nothing is served: its family is enough to answer in.
fn dialect_of(path: &str) -> Dialect {
    if path.starts_with("/v1/messages") { Dialect::Anthropic } else { Dialect::OpenAi }
}

fn budget_headers(budgets: &[budget::Budget], dialect: Dialect) -> HeaderMap {
    // Those of the backend's answer come on top.
    let mut headers = HeaderMap::with_capacity(HEADERS_USUAL);
    budget::headers(budgets, dialect, clock::unix_secs(), |name, value| insert(&mut headers, name, value));
    headers
}

fn with_headers(mut response: Response<Body>, headers: HeaderMap) -> Response<Body> {
    response.headers_mut().extend(headers);
    response
}

fn insert(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

static ASKED_CLASS: HeaderName = HeaderName::from_static("x-fairlane-class");
/// Room for the headers of a usual answer.
const HEADERS_USUAL: usize = 24;
