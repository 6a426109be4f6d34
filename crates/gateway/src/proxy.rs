//! One request, top to bottom.

use std::sync::Arc;

use bytes::Bytes;
use fairlane_core::gate::{Answer, Outcome, Report};
use fairlane_core::policy::{BackendId, ModelId, Policy};
use fairlane_core::units::Tokens;
use fairlane_wire::answer::Problem;
use fairlane_wire::budget;
use fairlane_wire::dialect::{Dialect, Endpoint};
use fairlane_wire::stream::HideUsage;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::body::Body;
use crate::clock;
use crate::driver::Decision;
use crate::gateway::{Gateway, shown_hash};
use crate::identify::identify;
use crate::intake::{self, Intake, Sender};
use crate::live::Live;
use crate::passage::{Ending, Passage};
use crate::problem;
use crate::reader::Shape;
use crate::relay::{Relay, RelayBounds};
use crate::upstream::{self, Answered, Fault, LastAnswer, Outgoing, Sent};
use crate::usage_log::Record;

/// Answers a client.
pub async fn handle(gateway: Arc<Gateway>, request: Request<Incoming>) -> Response<Body> {
    let live = gateway.live();
    let id = gateway.request_id();
    let dialect = dialect_of(request.uri().path());
    let mut response = match serve(&gateway, &live, &id, request).await {
        Ok(response) => response,
        Err(problem) => {
            gateway.metrics.rejected(&problem);
            problem::respond(&problem, dialect, &id)
        }
    };
    insert(response.headers_mut(), "x-fairlane-request-id", &id);
    response
}

/// # Errors
/// What is answered without a decision of the gate.
async fn serve(
    gateway: &Arc<Gateway>,
    live: &Arc<Live>,
    id: &str,
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
    let asked_class = parts.headers.get("x-fairlane-class").and_then(|value| value.to_str().ok());
    let sender = Sender { tenant, key, class: live.class(tenant, asked_class) };
    let dialect = dialect_of(path);
    let answered = match (endpoint, passed) {
        (Some(Endpoint::Models), _) => models(gateway, live, sender, path),
        (endpoint, passed) => {
            match take_in(gateway, live, (endpoint, passed), sender, (&parts, body)).await {
                Ok(intake) => {
                    let outgoing = Outgoing {
                        method: parts.method.clone(),
                        path: parts.uri.path_and_query().map_or_else(|| path.to_owned(), ToString::to_string),
                        headers: outgoing_headers(&parts.headers, endpoint),
                        body: intake.body.clone(),
                    };
                    let (gateway, live) = (Arc::clone(gateway), Arc::clone(live));
                    let id = id.to_owned();
                    return Ok(Exchange { gateway, live, endpoint, dialect, id, outgoing, intake }
                        .run()
                        .await);
                }
                Err(problem) => Err(problem),
            }
        }
    };
    let response = answered.unwrap_or_else(|problem| {
        gateway.metrics.rejected(&problem);
        problem::respond(&problem, dialect, id)
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
    endpoint: Option<Endpoint>,
    dialect: Dialect,
    id: String,
    outgoing: Outgoing,
    intake: Intake,
}

impl Exchange {
    async fn run(self) -> Response<Body> {
        let arrived = self.gateway.driver.clock().now();
        let ticket = self.gateway.driver.arrive(self.intake.arrival.clone());
        let mut headers = self.common_headers(ticket.budgets());
        self.gateway.metrics.attempt(&self.live.policy, self.intake.arrival.tenant, self.intake.retry_count);
        let mut passage = Passage::new(
            Arc::clone(&self.gateway),
            Arc::clone(&self.live),
            ticket,
            self.record(),
            (self.intake.arrival.tenant, arrived, self.intake.estimate),
        );
        let mut last = LastAnswer::Problem(Problem::GatewayTimeout);
        let mut failure = Outcome::UpstreamError;
        let mut started = false;
        loop {
            match passage.ticket.decision().await {
                Decision::Start { backend, wants_output } => {
                    if !started {
                        insert(&mut headers, "x-fairlane-queue-ms", &passage.age_ms().to_string());
                        started = true;
                    }
                    match self.send(&mut passage, backend).await {
                        Sent::Answer(answered) => {
                            return self.pass_on(passage, *answered, headers, wants_output);
                        }
                        Sent::Busy(answer, wait) => {
                            (last, failure) = (answer, Outcome::UpstreamError);
                            passage.came_back();
                            passage.ticket.bounced(wait);
                        }
                        Sent::Failed(answer, fault) => {
                            last = answer;
                            failure = match fault {
                                Fault::Timeout => Outcome::UpstreamTimeout,
                                Fault::Unreachable | Fault::Answer => Outcome::UpstreamError,
                            };
                            self.failed(&mut passage, backend, fault);
                        }
                    }
                }
                Decision::Refused(refusal) => {
                    insert(&mut headers, "x-fairlane-queue-ms", &passage.age_ms().to_string());
                    let asker = intake::asker_of(&self.intake.arrival);
                    let problem = problem::refused(refusal, &self.live.policy, &asker);
                    let response = problem::respond(&problem, self.dialect, &self.id);
                    passage.refused(&refusal, response.status().as_u16());
                    return with_headers(response, headers);
                }
                Decision::Abandoned => {
                    let response = self.last_words(last);
                    passage.answered(response.status().as_u16());
                    passage.finish(&Ending::nothing(failure));
                    return with_headers(response, headers);
                }
            }
        }
    }

    async fn send(&self, passage: &mut Passage, backend: BackendId) -> Sent {
        let Some((_, edge)) = self.live.backend(backend) else {
            let message = "the backend was taken out of the configuration".to_owned();
            return Sent::Failed(LastAnswer::Problem(Problem::BadGateway { message }), Fault::Answer);
        };
        passage.sent_to(&edge.name);
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
        self.gateway.upstream.send(&self.outgoing, edge, shape, &self.live.edge.timeouts).await
    }

    fn failed(&self, passage: &mut Passage, backend: BackendId, fault: Fault) {
        passage.came_back();
        if fault == Fault::Unreachable {
            self.gateway.metrics.backend_unreachable();
            crate::health::suspect(&self.gateway, &self.live, backend);
        }
        passage.ticket.failed();
    }

    fn pass_on(
        &self,
        mut passage: Passage,
        answered: Answered,
        headers: HeaderMap,
        wants_output: bool,
    ) -> Response<Body> {
        let Answered { mut head, incoming, taken, reader, had_content } = answered;
        upstream::strip_answer_headers(&mut head.headers);
        passage.answered(head.status.as_u16());
        if had_content {
            passage.first_token();
        }
        if !head.status.is_success() {
            return self.pass_refusal_on(passage, head, (incoming, taken), headers);
        }
        if !reader.forwards_everything() {
            head.headers.remove(header::CONTENT_LENGTH);
        }
        let timeouts = &self.live.edge.timeouts;
        let now = Instant::from_std(clock::monotonic());
        let bounds = RelayBounds { idle: timeouts.stream_idle, ends_by: now + timeouts.total };
        let relay = Relay::new(incoming, reader, passage, taken, (bounds, wants_output));
        with_headers(Response::from_parts(head, Body::Relayed(Box::new(relay))), headers)
    }

    /// The backend refused the request (a status from 400 to 499, or a redirect): its words pass, no token is charged.
    fn pass_refusal_on(
        &self,
        mut passage: Passage,
        head: http::response::Parts,
        (incoming, taken): (Incoming, std::collections::VecDeque<http_body::Frame<Bytes>>),
        headers: HeaderMap,
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
        let relay = Relay::new(incoming, reader, passage, taken, (bounds, false));
        with_headers(Response::from_parts(head, Body::Relayed(Box::new(relay))), headers)
    }

    fn last_words(&self, last: LastAnswer) -> Response<Body> {
        match last {
            LastAnswer::Problem(problem) => problem::respond(&problem, self.dialect, &self.id),
            LastAnswer::Own(status, mut headers, body) => {
                upstream::strip_answer_headers(&mut headers);
                headers.remove(header::CONTENT_LENGTH);
                let mut response = Response::new(Body::whole(body));
                *response.status_mut() = status;
                *response.headers_mut() = headers;
                response
            }
        }
    }

    /// The headers that every answer of this request carries.
    fn common_headers(&self, budgets: &[budget::Budget]) -> HeaderMap {
        let mut headers = budget_headers(budgets, self.dialect);
        let class = &self.live.policy.classes[self.intake.arrival.class.0 as usize].name;
        insert(&mut headers, "x-fairlane-class", class);
        if let Some(tokens) = self.intake.clamped {
            insert(&mut headers, "x-fairlane-clamped", &format!("max_tokens={tokens}"));
            self.gateway.metrics.clamped(&self.live.policy, self.intake.arrival.tenant);
        }
        if let Some(warning) = self.intake.warning {
            insert(&mut headers, "x-fairlane-warning", warning);
        }
        headers
    }

    fn record(&self) -> Record {
        let policy: &Policy = &self.live.policy;
        let arrival = &self.intake.arrival;
        let tenant = &policy.tenants[arrival.tenant.0 as usize];
        let pool = policy.models[arrival.model.0 as usize].pool;
        Record {
            id: self.id.clone(),
            tenant: tenant.name.clone(),
            team: tenant.team.map(|team| policy.teams[team.0 as usize].name.clone()),
            key: arrival.key.and_then(|key| tenant.keys.get(key.0 as usize)).map(|key| key.name.clone()),
            class: policy.classes[arrival.class.0 as usize].name.clone(),
            pool: policy.pools[pool.0 as usize].name.clone(),
            model: self.intake.model.clone(),
            run: arrival.run.map(shown_hash),
            end_user: arrival.end_user.map(shown_hash),
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
type Passed = ((ModelId, String), Tokens);

/// A path that a pool passes on.
fn passthrough(live: &Live, path: &str) -> Option<Passed> {
    live.model_names().find_map(|(name, id)| {
        let pool = live.pool(live.policy.models[id.0 as usize].pool)?;
        let passed = pool.passthrough.iter().find(|passed| passed.path == path)?;
        Some(((id, name.to_owned()), passed.cost))
    })
}

fn outgoing_headers(headers: &HeaderMap, endpoint: Option<Endpoint>) -> HeaderMap {
    let mut forwarded = upstream::forwardable(headers);
    if endpoint.is_some() && !forwarded.contains_key(header::CONTENT_TYPE) {
        insert(&mut forwarded, "content-type", "application/json");
    }
    forwarded
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
    let mut headers = HeaderMap::new();
    for (name, value) in budget::headers(budgets, dialect, clock::unix_secs()) {
        insert(&mut headers, name, &value);
    }
    headers
}

fn with_headers(mut response: Response<Body>, headers: HeaderMap) -> Response<Body> {
    response.headers_mut().extend(headers);
    response
}

fn insert(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
        headers.insert(name, value);
    }
}
