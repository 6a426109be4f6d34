//! The gateway's own answers: status, headers and body of everything that is not a backend's, in both dialects.

use fairlane_core::refusal::{Reason, Refusal, Retry};
use fairlane_core::units::Micros;
use serde_json::{Value, json};

use crate::dialect::Dialect;

/// Why the gateway answers itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The request cannot be understood.
    Malformed {
        /// What is wrong, where, and the remedy.
        message: String,
        /// The field, as a path into the body.
        param: Option<String>,
    },
    /// No key, or one that nobody has.
    Unauthorized {
        /// What is wrong, and the remedy.
        message: String,
    },
    /// The path or the model is unknown, or not for this tenant.
    NotFound {
        /// What was asked for.
        message: String,
        /// The field that named it; none for a path.
        param: Option<&'static str>,
    },
    /// The body is larger than allowed, or would be once decoded.
    BodyTooLarge {
        /// The bound, in bytes.
        limit_bytes: u64,
    },
    /// The body's encoding is unknown.
    UnknownEncoding {
        /// What the request named.
        encoding: String,
    },
    /// The client did not send its body in time.
    BodyTimeout,
    /// A decision of the gate.
    Refused {
        /// The decision.
        refusal: Refusal,
        /// The limit's name, where one bound.
        limit: Option<String>,
        /// The tenant's name.
        tenant: String,
    },
    /// The backend cannot be reached or its answer is not HTTP.
    BadGateway {
        /// What happened.
        message: String,
    },
    /// The backend took too long.
    GatewayTimeout,
    /// The backend began its stream with an error: its own code, if that is one.
    BackendError {
        /// A status from 400 to 599.
        status: u16,
        /// The backend's words.
        message: String,
    },
}

/// An answer ready for HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// Status.
    pub status: u16,
    /// Headers besides the content type, which is `application/json`.
    pub headers: Vec<(&'static str, String)>,
    /// Body.
    pub body: String,
}

/// Renders a problem in the client's dialect.
#[must_use]
pub fn render(problem: &Problem, dialect: Dialect, request_id: &str) -> Rendered {
    let shape = Shape::of(problem);
    let message = message(problem);
    let body = match dialect {
        Dialect::OpenAi => json!({"error": {
            "message": message,
            "type": shape.kind,
            "param": param(problem),
            "code": shape.code,
        }}),
        Dialect::Anthropic => json!({
            "type": "error",
            "error": {"type": shape.anthropic_kind, "message": message},
            "request_id": request_id,
        }),
    };
    let status = match dialect {
        Dialect::OpenAi => shape.status,
        Dialect::Anthropic => shape.anthropic_status,
    };
    Rendered { status, headers: headers(problem), body: with_violation(body, problem).to_string() }
}

/// Status and names of a problem, in both dialects.
struct Shape {
    status: u16,
    kind: &'static str,
    code: Option<&'static str>,
    anthropic_status: u16,
    anthropic_kind: &'static str,
}

impl Shape {
    const fn same(
        status: u16,
        kind: &'static str,
        code: Option<&'static str>,
        anthropic_kind: &'static str,
    ) -> Self {
        Self { status, kind, code, anthropic_status: status, anthropic_kind }
    }

    fn of(problem: &Problem) -> Self {
        match problem {
            Problem::Malformed { .. } => Self::same(400, INVALID, None, INVALID),
            Problem::BodyTimeout => Self::same(408, INVALID, Some("request_timeout"), INVALID),
            Problem::Unauthorized { .. } => {
                Self::same(401, INVALID, Some("invalid_api_key"), "authentication_error")
            }
            Problem::NotFound { .. } => Self::same(404, INVALID, Some("model_not_found"), "not_found_error"),
            Problem::BodyTooLarge { .. } => {
                Self::same(413, INVALID, Some("request_too_large"), "request_too_large")
            }
            Problem::UnknownEncoding { .. } => {
                Self::same(415, INVALID, Some("unsupported_encoding"), INVALID)
            }
            Problem::BadGateway { .. } => Self::same(502, "server_error", Some("bad_gateway"), "api_error"),
            Problem::GatewayTimeout => {
                Self::same(504, "server_error", Some("gateway_timeout"), "timeout_error")
            }
            Problem::BackendError { status, .. } => Self::backend(*status),
            Problem::Refused { refusal, .. } => Self::refused(refusal),
        }
    }

    fn refused(refusal: &Refusal) -> Self {
        match refusal.reason {
            Reason::InputTooLarge | Reason::OutputTooLarge | Reason::NeverFits => Self {
                status: 400,
                kind: INVALID,
                code: Some("request_too_large"),
                anthropic_status: 413,
                anthropic_kind: "request_too_large",
            },
            Reason::RunIdMissing => Self::same(400, INVALID, Some("run_id_required"), INVALID),
            Reason::LimitExhausted | Reason::TooManyRuns => {
                Self::same(429, exhausted_kind(refusal), Some("rate_limit_exceeded"), "rate_limit_error")
            }
            Reason::RunBudgetSpent | Reason::RunStepsSpent => {
                Self::same(429, "insufficient_quota", Some("run_budget_exceeded"), "rate_limit_error")
            }
            Reason::QueueFull | Reason::WaitTooLong => Self {
                status: 429,
                kind: "overloaded",
                code: Some("overloaded"),
                anthropic_status: 529,
                anthropic_kind: "overloaded_error",
            },
            Reason::NoBackend | Reason::Shutdown => {
                Self::same(503, "service_unavailable", Some("service_unavailable"), "api_error")
            }
        }
    }

    const fn backend(status: u16) -> Self {
        match status {
            429 => Self::same(429, "rate_limit_error", Some("upstream_rate_limit"), "rate_limit_error"),
            503 | 529 => {
                Self::same(status, "service_unavailable", Some("upstream_overloaded"), "overloaded_error")
            }
            400..=499 => Self::same(status, INVALID, Some("upstream_error"), INVALID),
            504 => Self::same(504, "server_error", Some("upstream_timeout"), "timeout_error"),
            _ => Self::same(status, "server_error", Some("upstream_error"), "api_error"),
        }
    }
}

/// OpenAI's type says what ran out: requests, or tokens of any kind.
fn exhausted_kind(refusal: &Refusal) -> &'static str {
    match refusal.limit.map(|limit| limit.dimension) {
        Some(dimension) if dimension.counts_tokens() => "tokens",
        _ => "requests",
    }
}

fn message(problem: &Problem) -> String {
    match problem {
        Problem::Malformed { message, .. }
        | Problem::Unauthorized { message }
        | Problem::NotFound { message, .. }
        | Problem::BadGateway { message }
        | Problem::BackendError { message, .. } => message.clone(),
        Problem::BodyTooLarge { limit_bytes } => {
            format!("the request body is larger than {limit_bytes} bytes, counted after decoding")
        }
        Problem::UnknownEncoding { encoding } => {
            format!("content-encoding \"{encoding}\" is not understood; send identity, gzip, deflate or zstd")
        }
        Problem::BodyTimeout => "the request body did not arrive in time; send the request again".to_owned(),
        Problem::GatewayTimeout => "the backend did not answer in time".to_owned(),
        Problem::Refused { refusal, limit, tenant } => refused_message(refusal, limit.as_deref(), tenant),
    }
}

fn refused_message(refusal: &Refusal, limit: Option<&str>, tenant: &str) -> String {
    let Refusal { reason, asked, left, retry, .. } = refusal;
    let limit = limit.unwrap_or("a limit");
    let again = match retry {
        Retry::Never => String::new(),
        Retry::After(wait) => format!("; try again in {} s", retry_secs(*wait)),
    };
    match reason {
        Reason::InputTooLarge => format!(
            "tenant {tenant}: the input of {asked} tokens is above the cap of {left} tokens for one request; send less input"
        ),
        Reason::OutputTooLarge => format!(
            "tenant {tenant}: an output of {asked} tokens was asked for, the cap for one choice is {left} tokens; ask for less"
        ),
        Reason::NeverFits if *left == 0 => {
            format!("tenant {tenant}: limit {limit} is 0, so nobody may pass; ask the operator to raise it")
        }
        Reason::NeverFits => format!(
            "tenant {tenant}: the request costs {asked}, the bucket of limit {limit} holds {left} at most, so it can never pass; \
             send less input or ask for less output"
        ),
        Reason::LimitExhausted => {
            format!("tenant {tenant}: limit {limit} is used up: {asked} asked, {left} left{again}")
        }
        Reason::RunBudgetSpent => format!(
            "tenant {tenant}: the budget of this agent run is spent ({limit}: {asked} asked, {left} left); begin another run or \
             ask the operator to raise it"
        ),
        Reason::RunStepsSpent => {
            format!("tenant {tenant}: this agent run has made all its steps ({limit}); begin another run")
        }
        Reason::TooManyRuns => {
            format!("tenant {tenant}: as many agent runs are live as may be; go on with one of them{again}")
        }
        Reason::RunIdMissing => {
            format!("tenant {tenant}: requests must name their agent run; send the header x-fairlane-run")
        }
        Reason::QueueFull => format!("the queue is full{again}"),
        Reason::WaitTooLong => format!("no backend had room in time{again}"),
        Reason::NoBackend => format!("no backend is alive{again}"),
        Reason::Shutdown => format!("the gateway is shutting down{again}"),
    }
}

fn param(problem: &Problem) -> Option<&str> {
    match problem {
        Problem::Malformed { param, .. } => param.as_deref(),
        Problem::NotFound { param, .. } => *param,
        Problem::Unauthorized { .. }
        | Problem::BodyTooLarge { .. }
        | Problem::UnknownEncoding { .. }
        | Problem::BodyTimeout
        | Problem::Refused { .. }
        | Problem::BadGateway { .. }
        | Problem::GatewayTimeout
        | Problem::BackendError { .. } => None,
    }
}

fn headers(problem: &Problem) -> Vec<(&'static str, String)> {
    let mut headers = vec![("cache-control", "no-store".to_owned())];
    let Problem::Refused { refusal, limit, .. } = problem else {
        return headers;
    };
    if let Some(limit) = limit {
        headers.push(("x-fairlane-limit", limit.clone()));
    }
    headers.push(("x-fairlane-reason", refusal.reason.name().to_owned()));
    match refusal.retry {
        Retry::Never => headers.push(("x-should-retry", "false".to_owned())),
        Retry::After(wait) => {
            headers.push(("retry-after", retry_secs(wait).to_string()));
            headers.push(("retry-after-ms", wait.as_millis_ceil().max(1).to_string()));
            if wait > LONG_WAIT {
                // Many clients come back sooner than told when they are told more than a minute (protocol facts, section 1.3).
                headers.push(("x-should-retry", "false".to_owned()));
            }
        }
    }
    headers
}

/// RFC 9457's member beside the `error` object: which policy was violated, for clients that read it.
fn with_violation(mut body: Value, problem: &Problem) -> Value {
    if let (Problem::Refused { limit: Some(limit), .. }, Some(members)) = (problem, body.as_object_mut()) {
        members.insert("violated-policies".to_owned(), json!([limit]));
    }
    body
}

/// Whole seconds, rounded up, at least one.
fn retry_secs(wait: Micros) -> u64 {
    wait.as_secs_ceil().max(1)
}

const INVALID: &str = "invalid_request_error";
const LONG_WAIT: Micros = Micros::from_secs(60);

#[cfg(test)]
mod tests {
    use fairlane_core::policy::{Dimension, TenantId};
    use fairlane_core::scope::{Limit, Owner};

    use super::*;

    fn exhausted(wait: Micros) -> Problem {
        let limit = Limit { owner: Owner::Tenant(TenantId(0)), model: None, dimension: Dimension::Tokens };
        let refusal = Refusal {
            reason: Reason::LimitExhausted,
            limit: Some(limit),
            asked: 350,
            left: 0,
            retry: Retry::After(wait),
        };
        Problem::Refused { refusal, limit: Some("tenant/t/tokens".to_owned()), tenant: "t".to_owned() }
    }

    #[test]
    fn a_wait_is_told_in_whole_seconds_rounded_up_and_in_milliseconds() {
        let answer = render(&exhausted(Micros::from_millis(3_500)), Dialect::OpenAi, "r");
        assert_eq!(answer.status, 429);
        assert!(answer.headers.contains(&("retry-after", "4".to_owned())));
        assert!(answer.headers.contains(&("retry-after-ms", "3500".to_owned())));
        assert!(!answer.headers.iter().any(|(name, _)| *name == "x-should-retry"));
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(body["error"]["type"], "tokens");
        assert_eq!(body["error"]["code"], "rate_limit_exceeded");
    }

    #[test]
    fn a_wait_above_a_minute_asks_the_client_not_to_retry_by_itself() {
        let answer = render(&exhausted(Micros(60_000_001)), Dialect::OpenAi, "r");
        assert!(answer.headers.contains(&("x-should-retry", "false".to_owned())));
        assert!(answer.headers.contains(&("retry-after", "61".to_owned())));
    }

    #[test]
    fn the_shortest_wait_is_one_second() {
        let answer = render(&exhausted(Micros(1)), Dialect::OpenAi, "r");
        assert!(answer.headers.contains(&("retry-after", "1".to_owned())));
        assert!(answer.headers.contains(&("retry-after-ms", "1".to_owned())));
    }

    #[test]
    fn what_never_fits_is_a_client_error_without_a_wait() {
        let refusal = Refusal {
            reason: Reason::NeverFits,
            limit: None,
            asked: 2_001,
            left: 2_000,
            retry: Retry::Never,
        };
        let problem =
            Problem::Refused { refusal, limit: Some("tenant/t/tokens".to_owned()), tenant: "t".to_owned() };
        for (dialect, status) in [(Dialect::OpenAi, 400), (Dialect::Anthropic, 413)] {
            let answer = render(&problem, dialect, "r");
            assert_eq!(answer.status, status);
            assert!(answer.headers.contains(&("x-should-retry", "false".to_owned())));
            assert!(!answer.headers.iter().any(|(name, _)| name.starts_with("retry-after")));
            assert!(
                answer.body.contains("2001")
                    && answer.body.contains("2000")
                    && answer.body.contains("tenant/t/tokens")
            );
        }
    }

    #[test]
    fn overload_is_529_for_anthropic_clients_and_429_for_openai_clients() {
        let refusal = Refusal::plain(Reason::WaitTooLong, Retry::After(Micros::from_secs(2)));
        let problem = Problem::Refused { refusal, limit: None, tenant: "t".to_owned() };
        assert_eq!(render(&problem, Dialect::OpenAi, "r").status, 429);
        let answer = render(&problem, Dialect::Anthropic, "r");
        assert_eq!(answer.status, 529);
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(body["error"]["type"], "overloaded_error");
        assert_eq!(body["type"], "error");
    }
}
