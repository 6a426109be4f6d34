//! What the mock backend answers: fixed texts with a usage that depends on the request's length alone.

use std::fmt::Write as _;

/// Events of a stream that carry text.
pub const EVENTS: usize = 20;
/// Output tokens of every answer.
pub const OUTPUT_TOKENS: u64 = 20;

/// The input tokens that the mock reports for a body.
#[must_use]
pub const fn input_tokens(body_bytes: usize) -> u64 {
    (body_bytes / BYTES_PER_TOKEN) as u64
}

/// A whole answer; its length does not depend on the usage.
#[must_use]
pub fn whole(input: u64) -> String {
    let mut answer = String::with_capacity(512);
    // Writing to a string cannot fail.
    let _ = write!(
        answer,
        r#"{{"id":"chatcmpl-bench","object":"chat.completion","created":1700000000,"model":"bench","choices":[{{"index":0,"message":{{"role":"assistant","content":"This answer never changes: it stands for what an engine would say to a short question."}},"logprobs":null,"finish_reason":"stop"}}],"usage":{}}}"#,
        usage(input)
    );
    answer
}

/// The events of a stream, each as one chunk of a chunked body.
#[must_use]
pub fn events() -> Vec<Vec<u8>> {
    (0..EVENTS)
        .map(|number| {
            let delta = match number {
                0 => r#"{"role":"assistant","content":"First "}"#.to_owned(),
                _ => format!(r#"{{"content":"word{number} "}}"#),
            };
            let finish = if number + 1 == EVENTS { "\"stop\"" } else { "null" };
            chunk(&event(
                &format!(r#"[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}]"#),
                None,
            ))
        })
        .collect()
}

/// The end of a stream: the usage event, the end mark and the last chunk.
#[must_use]
pub fn ending(input: u64) -> Vec<u8> {
    let mut ending = chunk(&event("[]", Some(input)));
    ending.extend(chunk("data: [DONE]\n\n"));
    ending.extend(b"0\r\n\r\n");
    ending
}

/// The head of a stream.
pub const STREAM_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";

/// The models, for gateways that ask what a backend serves.
pub const MODELS: &str = r#"{"object":"list","data":[{"id":"quick","object":"model"},{"id":"paced","object":"model"},{"id":"held","object":"model"}]}"#;

fn event(choices: &str, input: Option<u64>) -> String {
    let usage = input.map(|input| format!(",\"usage\":{}", usage(input))).unwrap_or_default();
    format!(
        r#"data: {{"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"bench","choices":{choices}{usage}}}"#
    ) + "\n\n"
}

fn usage(input: u64) -> String {
    format!(
        r#"{{"prompt_tokens":{input:>7},"completion_tokens":{OUTPUT_TOKENS},"total_tokens":{:>7}}}"#,
        input + OUTPUT_TOKENS
    )
}

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

const BYTES_PER_TOKEN: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_json_of_one_length() {
        let answers = [whole(7), whole(200_000)];
        assert_eq!(answers[0].len(), answers[1].len());
        for (answer, input) in answers.iter().zip([7, 200_000]) {
            let json: serde_json::Value = serde_json::from_str(answer).unwrap();
            assert_eq!(json["usage"]["prompt_tokens"], input);
            assert_eq!(json["usage"]["total_tokens"], input + OUTPUT_TOKENS);
        }
    }
}
