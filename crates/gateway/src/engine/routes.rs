//! What the engine serves: from a request to its answer, with the faults that come before the first byte.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::fault::Fault;
use super::generation::Generation;
use super::headers::HeaderFacts;
use super::plan::{Endpoint, Plan};
use super::problem::{Dialect, Problem};
use super::request::Fields;
use super::script::Script;
use super::server::Engine;
use super::telling::{Broken, Telling, overloaded, settle_connection, stall};
use super::{chat, completions, embeddings, messages, metrics, models, responses};

pub(super) type Answer = Response<UnsyncBoxBody<Bytes, Broken>>;

/// Answers one request. The error closes the connection without an answer, as a fault may ask.
pub(super) async fn answer(engine: Arc<Engine>, request: Request<Incoming>) -> Result<Answer, Broken> {
    let path = String::from(request.uri().path());
    let method = request.method().clone();
    match (method.as_str(), path.as_str()) {
        ("GET", "/health" | "/ping") => Ok(plain(StatusCode::OK, "text/plain", Bytes::new())),
        ("GET", "/metrics") => {
            Ok(plain(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", metrics::page(&engine)))
        }
        ("GET", "/v1/models") => Ok(json_answer(StatusCode::OK, &models::list(&engine))),
        ("GET", "/sim/log") => Ok(log(&engine)),
        ("DELETE", "/sim/log") => {
            engine.log.clear();
            Ok(json_answer(StatusCode::OK, &json!([])))
        }
        ("PUT", "/sim/fault") => Ok(set_fault(&engine, request).await),
        _ => match (endpoint(&path), count(&path)) {
            (Some(_), _) | (_, Some(_)) if method != Method::POST => Ok(wrong_method()),
            (Some(endpoint), _) => generate(engine, endpoint, request).await,
            (None, Some((counter, dialect))) => Ok(count_tokens(&engine, request, counter, dialect).await),
            (None, None) => Ok(named_model(&engine, &method, &path)),
        },
    }
}

fn endpoint(path: &str) -> Option<Endpoint> {
    use Endpoint::{Chat, Completions, Embeddings, Messages, Responses};
    [Chat, Completions, Responses, Messages, Embeddings].into_iter().find(|endpoint| endpoint.path() == path)
}

type Counter = fn(Fields<'_>, &Engine) -> Result<Value, Problem>;

fn count(path: &str) -> Option<(Counter, Dialect)> {
    match path {
        "/tokenize" | "/v1/tokenize" => Some((models::tokenize, Dialect::OpenAi)),
        "/v1/messages/count_tokens" => Some((models::count_message_tokens, Dialect::Anthropic)),
        "/v1/responses/input_tokens" => Some((models::count_response_tokens, Dialect::OpenAi)),
        _ => None,
    }
}

async fn count_tokens(
    engine: &Engine,
    request: Request<Incoming>,
    counter: Counter,
    dialect: Dialect,
) -> Answer {
    let counted = match read_json(request).await {
        Ok(body) => Fields::of(&body).and_then(|fields| counter(fields, engine)),
        Err(problem) => Err(problem),
    };
    match counted {
        Ok(count) => json_answer(StatusCode::OK, &count),
        Err(problem) => problem_answer(&problem, dialect),
    }
}

fn named_model(engine: &Engine, method: &Method, path: &str) -> Answer {
    let found = match path.strip_prefix("/v1/models/") {
        Some(name) if method == Method::GET => models::one(engine, name),
        Some(_) | None => {
            Err(Problem::of(StatusCode::NOT_FOUND, "Not Found: the engine does not serve this path"))
        }
    };
    match found {
        Ok(card) => json_answer(StatusCode::OK, &card),
        Err(problem) => problem_answer(&problem, Dialect::OpenAi),
    }
}

async fn generate(
    engine: Arc<Engine>,
    endpoint: Endpoint,
    request: Request<Incoming>,
) -> Result<Answer, Broken> {
    let dialect = endpoint.dialect();
    let headers = HeaderFacts::of(request.headers());
    let planned = match read_json(request).await {
        Ok(body) => headers.and_then(|headers| prepare(&engine, endpoint, &body, headers)),
        Err(problem) => Err(problem),
    };
    let (mut generation, format) = match planned {
        Ok(planned) => planned,
        Err(problem) => return Ok(problem_answer(&problem, dialect)),
    };
    let id = generation.record.id;
    let mut answer = match early_fault(&mut generation, dialect).await? {
        Some(answer) => answer,
        None if generation.plan.stream => stream_answer(generation),
        None => whole_answer(generation, format).await,
    };
    answer.headers_mut().insert("x-sim-request", HeaderValue::from(id));
    Ok(answer)
}

fn prepare(
    engine: &Arc<Engine>,
    endpoint: Endpoint,
    body: &Value,
    headers: HeaderFacts,
) -> Result<(Generation, Option<embeddings::Format>), Problem> {
    let fields = Fields::of(body)?;
    let draft = match endpoint {
        Endpoint::Chat => chat::draft(fields, engine),
        Endpoint::Completions => completions::draft(fields, engine),
        Endpoint::Responses => responses::draft(fields, engine),
        Endpoint::Messages => messages::draft(fields, engine),
        Endpoint::Embeddings => embeddings::draft(fields, engine),
    }?;
    let format = match endpoint {
        Endpoint::Embeddings => Some(embeddings::Format::of(fields)?),
        Endpoint::Chat | Endpoint::Completions | Endpoint::Responses | Endpoint::Messages => None,
    };
    let plan = Plan::of(draft, fields, &headers, engine)?;
    Ok((Generation::of(plan, fields, headers, engine), format))
}

/// Faults that come before the first byte. A request that the replica has no room for is refused here too.
async fn early_fault(generation: &mut Generation, dialect: Dialect) -> Result<Option<Answer>, Broken> {
    let answer = match generation.plan.fault {
        Fault::Refuse => {
            generation.record.cancelled = true;
            return Err(Broken);
        }
        Fault::Status { status, retry_after } => {
            let message = "The simulated engine fails as asked.";
            problem_answer(&Problem { retry_after, ..Problem::of(status, message) }, dialect)
        }
        Fault::Html503 => plain(StatusCode::SERVICE_UNAVAILABLE, "text/html", HTML_503),
        Fault::Empty => {
            let kind = if generation.plan.stream { "text/event-stream" } else { "application/json" };
            plain(StatusCode::OK, kind, Bytes::new())
        }
        Fault::ErrorEvent(_) if !generation.plan.stream => problem_answer(&overloaded(), dialect),
        // No sequence starts before or in the silence, nor for an overload told as an event.
        Fault::Stall(_) | Fault::ErrorEvent(0) => return Ok(None),
        Fault::SlowStart(millis) => {
            stall(Some(millis)).await;
            return Ok(refused(generation, dialect));
        }
        Fault::None | Fault::Cut(_) | Fault::ErrorEvent(_) | Fault::NoUsage | Fault::UsageOver(_) => {
            return Ok(refused(generation, dialect));
        }
    };
    generation.answered(answer.status());
    Ok(Some(answer))
}

fn refused(generation: &mut Generation, dialect: Dialect) -> Option<Answer> {
    let problem = generation.begin().err()?;
    generation.answered(problem.status);
    Some(problem_answer(&problem, dialect))
}

fn stream_answer(mut generation: Generation) -> Answer {
    let script: Box<dyn Script> = match generation.plan.endpoint {
        Endpoint::Messages => Box::new(messages::MessageScript),
        Endpoint::Responses => Box::new(responses::ResponseScript::default()),
        Endpoint::Completions => Box::new(completions::CompletionScript),
        Endpoint::Chat | Endpoint::Embeddings => Box::new(chat::ChatScript),
    };
    generation.answered(StatusCode::OK);
    let events = Telling::of(generation, script).events();
    let body = StreamBody::new(events.map(|event| event.map(Frame::data)));
    let mut answer = Response::new(UnsyncBoxBody::new(body));
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answer
}

async fn whole_answer(mut generation: Generation, format: Option<embeddings::Format>) -> Answer {
    if let Fault::Stall(millis) = generation.plan.fault {
        return stalled_answer(generation, format, millis);
    }
    generation.finished().await;
    let body = told_whole(&mut generation, format);
    if let Fault::Cut(_) = generation.plan.fault {
        return cut_answer(generation, body);
    }
    plain(StatusCode::OK, "application/json", body)
}

fn told_whole(generation: &mut Generation, format: Option<embeddings::Format>) -> String {
    let plan = &generation.plan;
    let value = match (plan.endpoint, format) {
        (Endpoint::Embeddings, Some(format)) => embeddings::answer(plan, format),
        (Endpoint::Completions, _) => completions::answer(plan),
        (Endpoint::Responses, _) => responses::answer(plan),
        (Endpoint::Messages, _) => messages::answer(plan),
        (Endpoint::Chat | Endpoint::Embeddings, _) => chat::answer(plan),
    };
    generation.record.sent = plan.shown_choices().iter().map(|choice| choice.job.output.0).sum();
    generation.answered(StatusCode::OK);
    value.to_string()
}

/// Headers, then silence; the answer after it, if the silence ends.
fn stalled_answer(
    mut generation: Generation,
    format: Option<embeddings::Format>,
    millis: Option<u32>,
) -> Answer {
    generation.answered(StatusCode::OK);
    let body = stream::once(async move {
        stall(millis).await;
        if generation.begin().is_err() {
            return Err(Broken);
        }
        generation.finished().await;
        Ok(Frame::data(Bytes::from(told_whole(&mut generation, format))))
    });
    let mut answer = Response::new(UnsyncBoxBody::new(StreamBody::new(body)));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// A content length, half of the body, and a broken connection.
fn cut_answer(mut generation: Generation, body: String) -> Answer {
    let length = body.len();
    let half = Bytes::from(body).slice(..length / 2);
    generation.record.cancelled = true;
    let broken = async move {
        settle_connection().await;
        drop(generation);
        Err(Broken)
    };
    let frames = stream::iter([Ok(Frame::data(half))]).chain(stream::once(broken));
    let mut answer = Response::new(UnsyncBoxBody::new(StreamBody::new(frames)));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    answer
}

async fn read_json(request: Request<Incoming>) -> Result<Value, Problem> {
    let body = read(request).await?;
    serde_json::from_slice(&body)
        .map_err(|error| Problem::bad_request(format!("the body is not JSON: {error}")))
}

async fn read(request: Request<Incoming>) -> Result<Bytes, Problem> {
    let collected = timeout(BODY_WAIT, Limited::new(request.into_body(), BODY_BYTES_MAX).collect()).await;
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let message = format!("the body is longer than {BODY_BYTES_MAX} bytes");
            Err(Problem::of(StatusCode::PAYLOAD_TOO_LARGE, message))
        }
        Ok(Err(_)) => Err(Problem::bad_request("the body ended early")),
        Err(_) => Err(Problem::of(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    }
}

async fn set_fault(engine: &Engine, request: Request<Incoming>) -> Answer {
    let text = match read(request).await {
        Ok(body) => String::from_utf8_lossy(&body).trim().to_owned(),
        Err(problem) => return problem_answer(&problem, Dialect::OpenAi),
    };
    match text.parse::<Fault>() {
        Ok(fault) => {
            engine.set_fault(fault);
            json_answer(StatusCode::OK, &json!({"fault": fault.to_string()}))
        }
        Err(bad) => problem_answer(&Problem::bad_request(bad.to_string()), Dialect::OpenAi),
    }
}

fn log(engine: &Engine) -> Answer {
    let records = serde_json::to_string(&engine.log.records()).unwrap_or_default();
    plain(StatusCode::OK, "application/json", records)
}

fn wrong_method() -> Answer {
    let problem = Problem::of(StatusCode::METHOD_NOT_ALLOWED, "use POST");
    let mut answer = problem_answer(&problem, Dialect::OpenAi);
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    answer
}

fn problem_answer(problem: &Problem, dialect: Dialect) -> Answer {
    let mut answer = json_answer(problem.status, &problem.body(dialect));
    if let Some(seconds) = problem.retry_after {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

fn json_answer(status: StatusCode, value: &Value) -> Answer {
    plain(status, "application/json", value.to_string())
}

fn plain(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let body = Full::new(body.into()).map_err(Broken::from);
    let mut answer = Response::new(UnsyncBoxBody::new(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
const BODY_WAIT: Duration = Duration::from_secs(60);
const HTML_503: &str =
    "<html><head><title>503</title></head><body><h1>Service Unavailable</h1></body></html>\n";
