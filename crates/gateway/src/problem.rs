//! Every error and every refusal becomes an HTTP answer here, and nowhere else.

use fairlane_core::policy::{Asker, Policy};
use fairlane_core::refusal::{Reason, Refusal, Retry};
use fairlane_core::units::{Micros, Tokens};
use fairlane_wire::answer::{Problem, render};
use fairlane_wire::decode::DecodeError;
use fairlane_wire::dialect::Dialect;
use fairlane_wire::request::RequestError;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};

use crate::body::Body;
use crate::random;

/// The answer to a problem, in the client's dialect.
#[must_use]
pub fn respond(problem: &Problem, dialect: Dialect, request_id: &str) -> Response<Body> {
    let rendered = render(problem, dialect, request_id);
    let mut response = Response::new(Body::whole(rendered.body));
    *response.status_mut() =
        StatusCode::from_u16(rendered.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in rendered.headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    if problem_closes(problem) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A refusal with its limit's name. A limit that tenants share gets jitter upwards, so that they do not all return at once.
#[must_use]
pub fn refused(refusal: Refusal, policy: &Policy, asker: &Asker) -> Problem {
    let limit = bound_name(&refusal, policy, asker);
    let tenant = &policy.tenants[asker.tenant.0 as usize].name;
    let is_shared = refusal.limit.is_none_or(|limit| limit.owner.is_shared());
    let retry = match refusal.retry {
        Retry::After(wait) if is_shared => Retry::After(jittered(wait)),
        retry @ (Retry::After(_) | Retry::Never) => retry,
    };
    Problem::Refused { refusal: Refusal { retry, ..refusal }, limit, tenant: tenant.clone() }
}

/// The name of what bound: a limit's, or that of the option of the configuration which refused.
#[must_use]
pub fn bound_name(refusal: &Refusal, policy: &Policy, asker: &Asker) -> Option<String> {
    if let Some(limit) = refusal.limit {
        return Some(limit.name(policy));
    }
    let tenant = &policy.tenants[asker.tenant.0 as usize].name;
    let class = &policy.classes[asker.class.0 as usize];
    let model = &policy.models[asker.model.0 as usize];
    match refusal.reason {
        Reason::InputTooLarge => Some(format!("tenant/{tenant}/max_input_tokens")),
        Reason::OutputTooLarge => {
            let is_cap = |cap: Option<Tokens>| cap == Some(Tokens(refusal.left));
            Some(if is_cap(class.max_output) {
                format!("class/{}/max_output_tokens", class.name)
            } else if is_cap(model.max_output) {
                format!("model/{}/max_output_tokens", model.name)
            } else {
                format!("tenant/{tenant}/max_output_tokens")
            })
        }
        Reason::TooManyRuns => Some(format!("run/{tenant}/max_live")),
        Reason::RunIdMissing => Some(format!("run/{tenant}/without_id")),
        Reason::QueueFull => Some(format!("class/{}/queue", class.name)),
        Reason::WaitTooLong => Some(format!("class/{}/max_wait", class.name)),
        Reason::NoBackend => Some(format!("pool/{}/backends", policy.pools[model.pool.0 as usize].name)),
        Reason::Shutdown => Some("gateway/shutdown".to_owned()),
        Reason::NeverFits | Reason::LimitExhausted | Reason::RunBudgetSpent | Reason::RunStepsSpent => None,
    }
}

/// A body that is not what the API asks for.
#[must_use]
pub fn malformed(error: &RequestError) -> Problem {
    Problem::Malformed { message: error.to_string(), param: error.param().map(str::to_owned) }
}

/// A body whose encoding cannot be undone.
#[must_use]
pub fn undecodable(error: &DecodeError, encoding: &str) -> Problem {
    match error {
        DecodeError::TooLarge { limit_bytes } => Problem::BodyTooLarge { limit_bytes: *limit_bytes as u64 },
        DecodeError::UnknownEncoding => Problem::UnknownEncoding { encoding: shown(encoding) },
        DecodeError::Malformed { .. } => Problem::Malformed { message: error.to_string(), param: None },
    }
}

/// A client's text in a message: short, and without anything that is not printable.
#[must_use]
pub fn shown(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(SHOWN_CHARS_MAX).collect()
}

/// Up to a fifth longer.
fn jittered(wait: Micros) -> Micros {
    let dice = u64::from(u16::from_le_bytes(random::bytes()));
    Micros(wait.0.saturating_add(wait.0 / 5 * dice / u64::from(u16::MAX)))
}

/// After these the rest of the client's body may still be under way, which would be taken for the next request.
const fn problem_closes(problem: &Problem) -> bool {
    matches!(problem, Problem::BodyTooLarge { .. } | Problem::BodyTimeout)
}

const SHOWN_CHARS_MAX: usize = 128;
