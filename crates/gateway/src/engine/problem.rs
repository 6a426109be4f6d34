//! Refusals and errors of the simulated engine, in the words of either dialect.

use http::StatusCode;
use serde_json::{Value, json};

/// Whose error shape an endpoint uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    OpenAi,
    Anthropic,
}

/// Why a request is not answered as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) message: String,
    /// Seconds.
    pub(super) retry_after: Option<u32>,
}

impl Problem {
    pub(super) fn of(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), retry_after: None }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::of(StatusCode::BAD_REQUEST, message)
    }

    /// The body that tells it; OpenAI's `code` is an integer, as vLLM sends it.
    pub(super) fn body(&self, dialect: Dialect) -> Value {
        match dialect {
            Dialect::OpenAi => json!({"error": self.openai_error()}),
            Dialect::Anthropic => json!({
                "type": "error",
                "error": {"type": self.anthropic_kind(), "message": self.message},
            }),
        }
    }

    pub(super) fn openai_error(&self) -> Value {
        json!({
            "message": self.message,
            "type": self.openai_kind(),
            "param": null,
            "code": self.status.as_u16(),
        })
    }

    fn openai_kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "AuthenticationError",
            404 => "NotFoundError",
            429 => "RateLimitError",
            503 => "ServiceUnavailableError",
            400..=499 => "BadRequestError",
            _ => "InternalServerError",
        }
    }

    fn anthropic_kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 | 529 => "overloaded_error",
            504 => "timeout_error",
            400..=499 => "invalid_request_error",
            _ => "api_error",
        }
    }
}
