//! What an error of a backend says, from an error event or from a body.

use super::facts::Facts;
use super::scanner::Scanner;

/// The message is cut here; codes and types are short by nature.
const MESSAGE_BYTES_MAX: usize = 512;

/// An error told by a backend, whatever the dialect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorFacts {
    /// `code`, as text even where the backend wrote a number.
    pub code: Option<String>,
    /// `type`, as `rate_limit_error`.
    pub kind: Option<String>,
    /// The message, cut at 512 bytes; empty if there was none.
    pub message: String,
}

impl ErrorFacts {
    /// Reads the error of a whole body. `None` if it is not JSON or tells no error.
    ///
    /// ```
    /// use fairlane_wire::reply::ErrorFacts;
    ///
    /// let body = br#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    /// let error = ErrorFacts::from_body(body).expect("it is an error");
    /// assert_eq!(error.http_status(), Some(529));
    /// ```
    #[must_use]
    pub fn from_body(body: &[u8]) -> Option<Self> {
        let mut scanner = Scanner::default();
        let mut facts = Facts::default();
        scanner.feed(body, &mut facts);
        if !scanner.is_complete() {
            return None;
        }
        facts.event.take_error()
    }

    /// The HTTP status the error stands for: its own code if that is a number from 400 to 599, else what its type means.
    /// `None` if it tells neither; the gateway then answers 502.
    #[must_use]
    pub fn http_status(&self) -> Option<u16> {
        let own = self.code.as_deref().and_then(|code| code.parse().ok());
        own.filter(|status| (400..=599).contains(status))
            .or_else(|| self.code.as_deref().and_then(status_of_word))
            .or_else(|| self.kind.as_deref().and_then(status_of_word))
    }
}

/// Anthropic's error types, and OpenAI's words for a spent limit.
fn status_of_word(word: &str) -> Option<u16> {
    Some(match word {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "conflict_error" => 409,
        "request_too_large" => 413,
        "rate_limit_error" | "rate_limit_exceeded" | "insufficient_quota" => 429,
        "api_error" => 500,
        "timeout_error" => 504,
        "overloaded_error" => 529,
        _ => return None,
    })
}

/// An error while it is being read.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorDraft {
    /// Whether there is an error at all: `null` is none.
    pub(crate) seen: bool,
    pub(crate) code: Option<String>,
    pub(crate) kind: Option<String>,
    message: Vec<u8>,
}

impl ErrorDraft {
    pub(crate) fn add_message(&mut self, part: &[u8]) {
        let room = MESSAGE_BYTES_MAX - self.message.len();
        self.message.extend_from_slice(&part[..part.len().min(room)]);
    }

    pub(crate) fn has_message(&self) -> bool {
        !self.message.is_empty()
    }

    pub(crate) fn into_facts(self) -> ErrorFacts {
        ErrorFacts {
            code: self.code,
            kind: self.kind,
            message: String::from_utf8_lossy(&self.message).into_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_the_own_code_then_the_type() {
        let table: [(&[u8], Option<u16>); 9] = [
            (br#"{"error":{"message":"m","type":"BadRequestError","code":400}}"#, Some(400)),
            (br#"{"error":{"message":"full","type":"x","code":"503"}}"#, Some(503)),
            (br#"{"error":{"message":"m","type":"rate_limit","code":"1302"}}"#, None),
            (br#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#, Some(529)),
            (br#"{"type":"error","error":{"type":"rate_limit_error","message":"m"}}"#, Some(429)),
            (br#"{"error":{"code":700,"type":"timeout_error","message":"m"}}"#, Some(504)),
            (br#"{"type":"error","code":"rate_limit_exceeded","message":"m","param":null}"#, Some(429)),
            (br#"{"object":"error","message":"m","type":"x","code":404}"#, Some(404)),
            (br#"{"error":"Model is overloaded","error_type":"overloaded"}"#, None),
        ];
        for (body, status) in table {
            let error = ErrorFacts::from_body(body).unwrap();
            assert_eq!(error.http_status(), status, "{error:?}");
            assert!(!error.message.is_empty());
        }
    }

    #[test]
    fn what_tells_no_error_is_none() {
        for body in [
            &br#"{"error":null,"choices":[]}"#[..],
            br#"{"error":"","choices":[]}"#,
            br#"{"error":false}"#,
            br#"{"message":"hello","code":400}"#,
            b"<html>bad gateway</html>",
            br#"{"error":{"message":"cut"#,
            b"",
        ] {
            assert_eq!(ErrorFacts::from_body(body), None);
        }
    }

    #[test]
    fn a_long_message_is_cut_and_escapes_are_read() {
        let body = format!(r#"{{"error":{{"message":"\u00e9\n{}"}}}}"#, "x".repeat(100_000));
        let error = ErrorFacts::from_body(body.as_bytes()).unwrap();
        assert!(error.message.starts_with("é\nxxx"));
        assert_eq!(error.message.len(), MESSAGE_BYTES_MAX);
    }
}
