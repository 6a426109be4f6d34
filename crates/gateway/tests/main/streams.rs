//! Answers over real sockets: recorded streams and replies pass byte for byte and are charged what they tell.

#![cfg(test)]

mod flow;
mod manifest;
mod real;
mod replies;
mod resets;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use fairlane::usage_log::Record;
use fairlane_wire::dialect::Endpoint;
use serde_json::{Value, json};

use crate::support::{Backend, Got, KEY, LAST_CHUNK, Reply, Step, TestGateway, chunk, gateway, send};

/// A stream that a backend gave once.
#[derive(Clone, Debug)]
struct Recording {
    name: String,
    endpoint: Endpoint,
    coding: Option<String>,
    max_tokens: u64,
    choices: u64,
    bytes: Vec<u8>,
    /// Places where it has to be cut too.
    splits: Vec<usize>,
}

/// How the backend frames and cuts its body.
#[derive(Clone, Debug)]
enum Framing {
    /// Whole, with its length.
    Length,
    /// Whole, until the connection ends.
    UntilClose,
    /// A chunk for each event.
    Events,
    /// A chunk for each byte.
    Bytes,
    /// Chunks that end at these places.
    Cuts(Vec<usize>),
}

/// Whether the client asks for the usage chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Usage,
    Nothing,
}

/// A gateway in front of a backend that plays recordings, and what its tenant has spent.
struct Stage {
    gateway: TestGateway,
    _backend: Backend,
    recordings: Arc<Vec<Recording>>,
    ended: usize,
    spent: u64,
}

/// Tokens of the tenant's bucket. It refills by one token in 86 seconds, so that levels are exact.
const CAPACITY: u64 = 300_000;
const LIMIT: &str = "tenant/t/tokens";
const PROMPT: &str = "one two three four five six seven";
const PROMPT_WORDS: u64 = 7;

impl Stage {
    async fn open(vocabulary: &str, recordings: Vec<Recording>) -> Self {
        let recordings = Arc::new(recordings);
        let played = Arc::clone(&recordings);
        let backend = Backend::start(move |got| play(&played, got)).await;
        let gateway = gateway(&configuration(vocabulary, &backend)).await;
        Self { gateway, _backend: backend, recordings, ended: 0, spent: 0 }
    }

    /// Has a recording played to a client, and gives what the client got and what was logged.
    async fn play(&mut self, place: usize, framing: &Framing, asks: Asks) -> (Reply, Record) {
        let recording = &self.recordings[place];
        let cuts = match framing {
            Framing::Length => "length".to_owned(),
            Framing::UntilClose => "close".to_owned(),
            Framing::Events => list(&event_ends(&recording.bytes)),
            Framing::Bytes => list(&(1..recording.bytes.len()).collect::<Vec<_>>()),
            Framing::Cuts(cuts) => list(cuts),
        };
        let bearer = format!("Bearer {KEY}");
        let script = format!("{place}/{cuts}");
        let headers = [("authorization", bearer.as_str()), ("x-recording", script.as_str())];
        let body = request(recording, asks).to_string();
        let path = path_of(recording.endpoint);
        let reply = send(self.gateway.address(), "POST", path, &headers, Bytes::from(body)).await;
        self.ended += 1;
        let record = self.gateway.ended(self.ended).await.remove(0);
        self.spent += record.charged;
        (reply, record)
    }

    /// Nothing is left open, and the bucket lacks exactly what was charged.
    async fn assert_balanced(&self, after: &str) {
        self.gateway.idle().await;
        let expected = CAPACITY as i64 - self.spent as i64;
        assert_eq!(self.gateway.level("t", LIMIT).await, expected, "after {after}");
    }
}

fn configuration(vocabulary: &str, backend: &Backend) -> String {
    format!(
        "pools:
  - name: main
    models: [m]
    engine: vllm
    backends: [{{url: \"http://{}\"}}]
    tokenizer: {{vocabulary: {vocabulary}, mode: exact}}
    health: off
tenants:
  - name: t
    keys: [\"{KEY}\"]
    limits: {{tokens: {{rate: 1000/day, burst: 300d}}, concurrent_requests: 4, max_output_tokens: 4096}}
bounds: {{max_recent_requests: 10000}}
",
        backend.address
    )
}

fn request(recording: &Recording, asks: Asks) -> Value {
    let mut body = match recording.endpoint {
        Endpoint::Completions => json!({"prompt": PROMPT, "max_tokens": recording.max_tokens}),
        Endpoint::Responses => json!({"input": PROMPT, "max_output_tokens": recording.max_tokens}),
        Endpoint::ChatCompletions
        | Endpoint::Embeddings
        | Endpoint::Messages
        | Endpoint::CountTokens
        | Endpoint::Models => json!({
            "messages": [{"role": "user", "content": PROMPT}],
            "max_tokens": recording.max_tokens,
        }),
    };
    body["model"] = json!("m");
    body["stream"] = json!(true);
    if recording.choices > 1 {
        body["n"] = json!(recording.choices);
    }
    if asks == Asks::Usage && has_usage_chunk(recording.endpoint) {
        body["stream_options"] = json!({"include_usage": true});
    }
    body
}

const fn path_of(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::ChatCompletions => "/v1/chat/completions",
        Endpoint::Completions => "/v1/completions",
        Endpoint::Embeddings => "/v1/embeddings",
        Endpoint::Responses => "/v1/responses",
        Endpoint::Messages => "/v1/messages",
        Endpoint::CountTokens => "/v1/messages/count_tokens",
        Endpoint::Models => "/v1/models",
    }
}

fn has_usage_chunk(endpoint: Endpoint) -> bool {
    matches!(endpoint, Endpoint::ChatCompletions | Endpoint::Completions)
}

/// The backend's side: the recording and the framing that the request names.
fn play(recordings: &[Recording], got: &Got) -> Vec<Step> {
    let script = got.header("x-recording").unwrap();
    let (place, framing) = script.split_once('/').unwrap();
    let recording = &recordings[place.parse::<usize>().unwrap()];
    let mut head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n".to_owned();
    if let Some(coding) = &recording.coding {
        head.push_str(&format!("content-encoding: {coding}\r\n"));
    }
    let bytes = &recording.bytes;
    let whole = |framing: &str| [format!("{head}{framing}\r\n").as_bytes(), bytes.as_slice()].concat();
    match framing {
        "length" => vec![Step::Write(whole(&format!("content-length: {}\r\n", bytes.len())))],
        "close" => vec![Step::Write(whole("connection: close\r\n")), Step::Close],
        cuts => {
            let cuts = cuts.split(',').filter(|cut| !cut.is_empty()).map(|cut| cut.parse().unwrap());
            let mut framed = format!("{head}transfer-encoding: chunked\r\n\r\n").into_bytes();
            let mut from = 0;
            for cut in cuts.chain([bytes.len()]) {
                if cut > from {
                    framed.extend_from_slice(&chunk(&bytes[from..cut]));
                    from = cut;
                }
            }
            framed.extend_from_slice(LAST_CHUNK);
            vec![Step::Write(framed)]
        }
    }
}

fn list(cuts: &[usize]) -> String {
    cuts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The end of each event, whatever its line ends are.
fn event_ends(stream: &[u8]) -> Vec<usize> {
    (1..stream.len())
        .filter(|end| stream[..*end].ends_with(b"\n\n") || stream[..*end].ends_with(b"\r\n\r\n"))
        .collect()
}

/// What a client gets of a recording: all of it, but for the chunks that tell usage alone and that it did not ask for.
fn shown(recording: &Recording, asks: Asks) -> Vec<u8> {
    let stays = asks == Asks::Usage || recording.coding.is_some() || !has_usage_chunk(recording.endpoint);
    if stays {
        return recording.bytes.clone();
    }
    let ends = event_ends(&recording.bytes).into_iter().chain([recording.bytes.len()]);
    let mut shown = Vec::new();
    let mut from = 0;
    for end in ends {
        let event = &recording.bytes[from..end];
        if !tells_usage_alone(event) {
            shown.extend_from_slice(event);
        }
        from = end;
    }
    shown
}

fn tells_usage_alone(event: &[u8]) -> bool {
    documents(event).iter().any(|chunk| {
        let has_no_choice = chunk["choices"].as_array().is_none_or(Vec::is_empty);
        chunk["usage"].is_object() && has_no_choice
    })
}

/// The JSON of each data line.
fn documents(stream: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(stream);
    let lines = text.lines().filter_map(|line| line.strip_prefix("data:"));
    lines.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

/// Test data that the wire crate has too.
fn data(file: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/data").join(file);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
