//! A refusal or a failure after the status 200 has gone out: the last event of the stream, in the form that the client libraries
//! raise. Nothing that looks like an end of the answer follows it.

use serde_json::{Map, Value, json};

use crate::answer::{Problem, render};
use crate::dialect::{Dialect, Endpoint};

/// The last event of a stream that gets an error where an answer should have begun. `body` is the answer that would have been sent
/// with `status`; `number` counts the events before it.
#[must_use]
pub fn error_event(endpoint: Endpoint, status: u16, body: &[u8], number: u64) -> String {
    let body = serde_json::from_slice::<Value>(body).unwrap_or_default();
    framed(endpoint, status, body, number)
}

/// The last event of a stream that is cut in its middle.
#[must_use]
pub fn cut_event(endpoint: Endpoint, problem: &Problem, request_id: &str, number: u64) -> String {
    let rendered = render(problem, endpoint.dialect(), request_id);
    let mut body = serde_json::from_str::<Value>(&rendered.body).unwrap_or_default();
    if let Some(Value::String(message)) = body.pointer_mut("/error/message") {
        message.insert_str(0, "the answer was cut: ");
    }
    framed(endpoint, rendered.status, body, number)
}

fn framed(endpoint: Endpoint, status: u16, body: Value, number: u64) -> String {
    let Value::Object(mut body) = body else {
        return framed(endpoint, status, json!({"error": {"message": wordless(status)}}), number);
    };
    let error = error_of(&mut body, endpoint.dialect(), status);
    match endpoint {
        Endpoint::Messages | Endpoint::CountTokens => {
            body.insert("type".to_owned(), "error".into());
            body.insert("error".to_owned(), error);
            format!("event: error\ndata: {}\n\n", Value::Object(body))
        }
        Endpoint::Responses => {
            let text = |name: &str| error.get(name).cloned().unwrap_or(Value::Null);
            let event = json!({
                "type": "error",
                "sequence_number": number,
                "code": text("code"),
                "message": text("message"),
                "param": text("param"),
                "error": error,
            });
            format!("event: error\ndata: {event}\n\n")
        }
        Endpoint::ChatCompletions | Endpoint::Completions | Endpoint::Embeddings | Endpoint::Models => {
            body.insert("error".to_owned(), error);
            format!("data: {}\n\n", Value::Object(body))
        }
    }
}

/// The error of an answer, as an object with at least a message and a type.
fn error_of(body: &mut Map<String, Value>, dialect: Dialect, status: u16) -> Value {
    let mut error = match body.remove("error") {
        Some(Value::Object(error)) => error,
        Some(Value::String(message)) => Map::from_iter([("message".to_owned(), message.into())]),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) | None => {
            // Engines also write {"object": "error", "message": …} and {"detail": …}.
            let words = body.get("message").or_else(|| body.get("detail")).and_then(Value::as_str);
            Map::from_iter([(
                "message".to_owned(),
                words.map_or_else(|| wordless(status), str::to_owned).into(),
            )])
        }
    };
    error.entry("message").or_insert_with(|| wordless(status).into());
    error.entry("type").or_insert_with(|| kind(dialect, status).into());
    Value::Object(error)
}

fn wordless(status: u16) -> String {
    format!("the backend answered with status {status}")
}

const fn kind(dialect: Dialect, status: u16) -> &'static str {
    match (dialect, status) {
        (Dialect::OpenAi, 400..=499) => "invalid_request_error",
        (Dialect::OpenAi, _) => "server_error",
        (Dialect::Anthropic, 429) => "rate_limit_error",
        (Dialect::Anthropic, 503 | 529) => "overloaded_error",
        (Dialect::Anthropic, 400..=499) => "invalid_request_error",
        (Dialect::Anthropic, _) => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use fairlane_core::refusal::{Reason, Refusal, Retry};
    use fairlane_core::units::Micros;

    use super::*;

    fn data(event: &str) -> Value {
        let line = event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        assert!(event.ends_with("\n\n") && event.matches("\n\n").count() == 1, "{event:?}");
        serde_json::from_str(line).unwrap()
    }

    fn spent() -> Problem {
        let refusal = Refusal::plain(Reason::LimitExhausted, Retry::After(Micros::from_secs(3)));
        Problem::Refused { refusal, limit: Some("tenant/t/tokens".to_owned()), tenant: "t".to_owned() }
    }

    #[test]
    fn an_openai_stream_ends_with_an_error_object_and_no_end_mark() {
        let event = cut_event(Endpoint::ChatCompletions, &spent(), "r", 7);
        assert!(event.starts_with("data: ") && !event.contains("[DONE]"), "{event}");
        let data = data(&event);
        assert_eq!(data["error"]["code"], "rate_limit_exceeded");
        let message = data["error"]["message"].as_str().unwrap();
        assert!(
            message.starts_with("the answer was cut: ") && message.contains("tenant/t/tokens"),
            "{message}"
        );
    }

    #[test]
    fn an_anthropic_stream_ends_with_a_named_error_event() {
        let event = cut_event(Endpoint::Messages, &spent(), "r", 7);
        assert!(event.starts_with("event: error\n"), "{event}");
        let data = data(&event);
        assert_eq!((&data["type"], &data["error"]["type"]), (&"error".into(), &"rate_limit_error".into()));
        assert_eq!(data["request_id"], "r");
    }

    #[test]
    fn a_responses_stream_ends_with_its_numbered_error_event() {
        let event = cut_event(Endpoint::Responses, &spent(), "r", 7);
        assert!(event.starts_with("event: error\n"), "{event}");
        let data = data(&event);
        assert_eq!((&data["type"], &data["sequence_number"]), (&"error".into(), &7.into()));
        assert_eq!(
            (&data["code"], &data["error"]["type"]),
            (&"rate_limit_exceeded".into(), &"requests".into())
        );
    }

    #[test]
    fn whatever_a_backend_answers_becomes_an_error_with_message_and_type() {
        let table: [(&[u8], &str); 7] = [
            (b"{\"error\":\n {\"message\": \"too long\", \"type\": \"own\", \"code\": 400}}", "too long"),
            (b"{\"error\": \"busy\"}", "busy"),
            (b"{\"object\": \"error\", \"message\": \"no such model\"}", "no such model"),
            (b"{\"detail\": \"nothing here\"}", "nothing here"),
            (b"<html>\n\n</html>", "the backend answered with status 503"),
            (b"", "the backend answered with status 503"),
            (b"[1]", "the backend answered with status 503"),
        ];
        for (body, message) in table {
            for endpoint in [Endpoint::ChatCompletions, Endpoint::Responses, Endpoint::Messages] {
                let data = data(&error_event(endpoint, 503, body, 0));
                assert_eq!(data["error"]["message"], message, "{data}");
                assert!(data["error"]["type"].is_string(), "{data}");
            }
        }
    }
}
