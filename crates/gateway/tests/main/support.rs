//! What the tests share: a gateway in this process, a backend that answers by script, and a plain client. All on loopback,
//! on ports that the system picks; nothing sleeps for a fixed time.

#![cfg(test)]

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fairlane::config::Source;
use fairlane::serve::{Origin, Overrides, Running, start};
use fairlane::usage_log::Record;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// How long anything may take before the test has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A gateway that runs in this process.
pub(crate) struct TestGateway {
    pub(crate) running: Running,
}

/// Starts a gateway. `yaml` is the configuration without `listen` and `admin`.
pub(crate) async fn gateway(yaml: &str) -> TestGateway {
    let text = format!("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n{yaml}");
    let source = Source::from_text("test.yaml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let running = start(Origin::Fixed(Box::new(source)), Overrides::default()).await;
    TestGateway { running: running.unwrap_or_else(|error| panic!("{error}\n{text}")) }
}

/// The common fixture of the failure cases: tenant `t` with 100 tokens a second, a bucket of 2,000, four requests at a time;
/// words as tokens, counted exactly; an output cap of 4,096. `more` goes under the tenant, indented by four.
pub(crate) fn fixture(backend: SocketAddr, more: &str) -> String {
    format!(
        "pools:
  - name: main
    models: [m]
    engine: vllm
    backends: [{{url: \"http://{backend}\"}}]
    tokenizer: {{vocabulary: words, mode: exact}}
    health: off
tenants:
  - name: t
    keys: [\"key-of-tenant-t-0001\"]
    limits: {{tokens: {{rate: 100/s, burst: 20s}}, concurrent_requests: 4, max_output_tokens: 4096}}
{more}"
    )
}

/// A pool called `main` with the model `m`, counted as in the fixture; `more` goes under it, indented by four.
pub(crate) fn pool(backends: &[SocketAddr], more: &str) -> String {
    let urls: Vec<String> = backends.iter().map(|address| format!("\"http://{address}\"")).collect();
    let urls = urls.join(", ");
    format!(
        "pools:
  - name: main
    models: [m]
    engine: vllm
    backends: [{urls}]
    tokenizer: {{vocabulary: words, mode: exact}}
    health: off
{more}"
    )
}

/// A pool as in [`pool`] and the fixture's tenant with other limits; `more` goes under the tenant, indented by four.
pub(crate) fn limited(backend: SocketAddr, limits: &str, more: &str) -> String {
    let pool = pool(&[backend], "");
    format!("{pool}tenants:\n  - name: t\n    keys: [\"{KEY}\"]\n    limits: {{{limits}}}\n{more}")
}

/// The key of the fixture's tenant.
pub(crate) const KEY: &str = "key-of-tenant-t-0001";

impl TestGateway {
    pub(crate) fn address(&self) -> SocketAddr {
        self.running.address
    }

    /// A chat completion request with the fixture's key.
    pub(crate) async fn chat(&self, body: &Value) -> Reply {
        self.post("/v1/chat/completions", body).await
    }

    /// A request with the fixture's key.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        let headers = [("authorization", format!("Bearer {KEY}"))];
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        send(self.address(), "POST", path, &headers, Bytes::from(body.to_string())).await
    }

    /// A request with the fixture's key and further headers.
    pub(crate) async fn post_with(&self, path: &str, more: &[(&str, &str)], body: &Value) -> Reply {
        read(self.begin(path, more, body).await).await
    }

    /// Sends a request with the fixture's key and further headers; gives the answer when its head is there.
    pub(crate) async fn begin(
        &self,
        path: &str,
        more: &[(&str, &str)],
        body: &Value,
    ) -> http::Response<Incoming> {
        let key = format!("Bearer {KEY}");
        let mut headers = vec![("authorization", key.as_str())];
        headers.extend_from_slice(more);
        let body = Bytes::from(body.to_string());
        in_time("the head of an answer", open(self.address(), "POST", path, &headers, body)).await
    }

    /// Opens a chat completion that streams and reads it until so many events have come; what is given keeps it open.
    pub(crate) async fn stream(&self, body: &Value, events: usize) -> Streaming {
        let response = self.begin("/v1/chat/completions", &[], &streaming(body)).await;
        let mut stream = Streaming { status: response.status().as_u16(), response, body: Vec::new() };
        while stream.events() < events && stream.more().await {}
        stream
    }

    /// `GET` on the admin API.
    pub(crate) async fn admin(&self, path: &str) -> Value {
        let reply = send(self.running.admin.unwrap(), "GET", path, &[], Bytes::new()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    /// The last finished requests, newest first.
    pub(crate) fn records(&self) -> Vec<Record> {
        self.running.gateway.usage.last(10_000)
    }

    /// Waits until `count` requests have ended, and gives their records, newest first.
    pub(crate) async fn ended(&self, count: usize) -> Vec<Record> {
        until("requests end", || self.records().len() >= count).await;
        self.records()
    }

    /// Waits until nothing is queued or running, and checks the first ledger law.
    pub(crate) async fn idle(&self) {
        until("the gateway is idle", || self.running.gateway.driver.live() == 0).await;
        let totals = self.running.gateway.driver.totals();
        assert!(totals.law_holds(), "{totals:?}");
        assert_eq!(totals.outstanding, 0, "{totals:?}");
    }

    /// The level of one of the limits that concern a tenant, by the limit's name.
    pub(crate) async fn level(&self, tenant: &str, limit: &str) -> i64 {
        let shown = self.admin(&format!("/api/v1/tenants/{tenant}")).await;
        let limits = shown["limits"].as_array().unwrap();
        let found = limits
            .iter()
            .find(|shown| shown["name"] == limit)
            .unwrap_or_else(|| panic!("{limit} in {shown}"));
        found["level"].as_i64().unwrap()
    }
}

/// A streamed answer that is being read. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct Streaming {
    pub(crate) status: u16,
    response: http::Response<Incoming>,
    pub(crate) body: Vec<u8>,
}

impl Streaming {
    /// Events so far.
    pub(crate) fn events(&self) -> usize {
        self.body.windows(2).filter(|bytes| bytes == b"\n\n").count()
    }

    /// Reads on; false at the end.
    pub(crate) async fn more(&mut self) -> bool {
        match in_time("more of a stream", self.response.body_mut().frame()).await {
            Some(Ok(frame)) => {
                self.body.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                true
            }
            Some(Err(_)) | None => false,
        }
    }
}

/// The request, asking for a stream.
pub(crate) fn streaming(body: &Value) -> Value {
    let mut body = body.clone();
    body["stream"] = Value::Bool(true);
    body
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(DEADLINE, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

/// Gives a future the time that anything may take.
pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("not in time: {what}"))
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Bytes,
    /// The body broke off.
    pub(crate) broken: bool,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// A header that is a number.
    pub(crate) fn number(&self, name: &str) -> i64 {
        self.header(name).parse().unwrap_or_else(|_| panic!("{name} in {:?}", self.headers))
    }
}

/// Sends a request on a connection of its own and reads the whole answer.
pub(crate) async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Reply {
    in_time("an answer", async {
        let response = open(address, method, path, headers, body).await;
        read(response).await
    })
    .await
}

/// Sends a request and gives the answer as soon as its head is there. Dropping it closes the connection.
pub(crate) async fn open(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> http::Response<Incoming> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = http::Request::builder().method(method).uri(path).header("host", "gateway");
    if method == "POST" {
        request = request.header("content-type", "application/json");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    sender.send_request(request.body(Full::new(body)).unwrap()).await.unwrap()
}

/// Reads an answer to its end.
pub(crate) async fn read(response: http::Response<Incoming>) -> Reply {
    let (head, mut incoming) = response.into_parts();
    let mut body = Vec::new();
    let mut broken = false;
    while let Some(frame) = incoming.frame().await {
        match frame {
            Ok(frame) => body.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
            Err(_) => broken = true,
        }
    }
    let headers = head
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    Reply { status: head.status.as_u16(), headers, body: Bytes::from(body), broken }
}

/// A request as the scripted backend got it.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Got {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// A header's value; the name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }
}

/// What the scripted backend does, in order.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Writes these bytes and flushes.
    Write(Vec<u8>),
    /// Waits until the test says so with [`Backend::go_on`].
    Wait,
    /// Waits that long: the pace of a backend, for tests in real time.
    Pause(Duration),
    /// Closes the connection.
    Close,
    /// Reads until the gateway closes the connection.
    AwaitClose,
}

/// A backend that answers each request by the script that `answer` gives for it.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    state: Arc<BackendState>,
    task: tokio::task::JoinHandle<()>,
}

/// What a scripted backend answers by its script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Heard {
    #[default]
    Posts,
    All,
}

#[derive(Default)]
struct BackendState {
    heard: Heard,
    got: Mutex<Vec<Got>>,
    closed: Mutex<usize>,
    go: Go,
}

/// How often a wait may go on.
struct Go(tokio::sync::Semaphore);

impl Default for Go {
    fn default() -> Self {
        Self(tokio::sync::Semaphore::new(0))
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Backend {
    /// Starts one that answers every `POST` by the script. A `GET` (the gateway asks for health and models by itself) finds nothing
    /// and is not among [`got`](Self::got).
    pub(crate) async fn start(answer: impl Fn(&Got) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::start_for(Heard::Posts, answer).await
    }

    /// Starts one that answers every request by the script.
    pub(crate) async fn for_all(answer: impl Fn(&Got) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::start_for(Heard::All, answer).await
    }

    async fn start_for(heard: Heard, answer: impl Fn(&Got) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), heard, answer)
    }

    /// One that answers every `POST` by the script, on a port that is listened on already.
    pub(crate) fn listening(
        listener: TcpListener,
        answer: impl Fn(&Got) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        Self::on(listener, Heard::Posts, answer)
    }

    fn on(
        listener: TcpListener,
        heard: Heard,
        answer: impl Fn(&Got) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let state = Arc::new(BackendState { heard, ..BackendState::default() });
        let (shared, answer) = (Arc::clone(&state), Arc::new(answer));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                connections.spawn(converse(stream, Arc::clone(&shared), Arc::clone(&answer)));
            }
        });
        Self { address, state, task }
    }

    /// One that gives every request the same bytes: head and body as they stand.
    pub(crate) async fn always(bytes: Vec<u8>) -> Self {
        Self::start(move |_| vec![Step::Write(bytes.clone())]).await
    }

    /// The requests so far.
    pub(crate) fn got(&self) -> Vec<Got> {
        self.state.got.lock().unwrap().clone()
    }

    /// Connections that the gateway closed while the backend was in [`Step::AwaitClose`].
    pub(crate) fn closed(&self) -> usize {
        *self.state.closed.lock().unwrap()
    }

    /// Lets one [`Step::Wait`] go on, also one that is still to come.
    pub(crate) fn go_on(&self) {
        self.state.go.0.add_permits(1);
    }

    /// Waits until the backend has got so many requests.
    pub(crate) async fn has_got(&self, count: usize) {
        until("the backend gets requests", || self.state.got.lock().unwrap().len() >= count).await;
    }

    /// Waits until the gateway has closed so many connections while the backend was in [`Step::AwaitClose`].
    pub(crate) async fn is_left(&self, count: usize) {
        until("the gateway closes", || self.closed() >= count).await;
    }
}

async fn converse(
    mut stream: TcpStream,
    state: Arc<BackendState>,
    answer: Arc<impl Fn(&Got) -> Vec<Step> + Send + Sync + 'static>,
) {
    let mut read = Vec::new();
    while let Some(got) = next_request(&mut stream, &mut read).await {
        if state.heard == Heard::Posts && got.head.starts_with("GET ") {
            let nothing = json_answer(404, &Value::Null);
            if stream.write_all(&nothing).await.is_err() {
                return;
            }
            continue;
        }
        let steps = answer(&got);
        state.got.lock().unwrap().push(got);
        for step in steps {
            match step {
                Step::Write(bytes) => {
                    if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
                        *state.closed.lock().unwrap() += 1;
                        return;
                    }
                }
                Step::Wait => state.go.0.acquire().await.unwrap().forget(),
                Step::Pause(pause) => tokio::time::sleep(pause).await,
                Step::Close => return,
                Step::AwaitClose => {
                    let mut rest = [0; 1024];
                    while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {}
                    *state.closed.lock().unwrap() += 1;
                    return;
                }
            }
        }
    }
}

/// Reads one request; `None` when the connection ends. The gateway always sends a content length.
pub(crate) async fn next_request(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<Got> {
    let head_end = loop {
        if let Some(place) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            break place + 4;
        }
        let mut chunk = vec![0; 16 * 1024];
        let count = stream.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
        read.extend_from_slice(&chunk[..count]);
    };
    let head = String::from_utf8_lossy(&read[..head_end]).into_owned();
    let got = Got { head, body: Vec::new() };
    let length: usize = got.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    while read.len() < head_end + length {
        let mut chunk = vec![0; 64 * 1024];
        let count = stream.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
        read.extend_from_slice(&chunk[..count]);
    }
    let body = read[head_end..head_end + length].to_vec();
    read.drain(..head_end + length);
    Some(Got { body, ..got })
}

/// A JSON answer with its length.
pub(crate) fn json_answer(status: u16, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!(
        "HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A complete chat answer with this usage.
pub(crate) fn chat_answer(input: u64, output: u64) -> Vec<u8> {
    json_answer(
        200,
        &serde_json::json!({
            "id": "c", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "w"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output},
        }),
    )
}

/// The head of a streamed answer.
pub(crate) const STREAM_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// Bytes as one chunk of a chunked body.
pub(crate) fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
    framed.extend_from_slice(bytes);
    framed.extend_from_slice(b"\r\n");
    framed
}

/// A streamed event with this data.
pub(crate) fn event(data: &str) -> Vec<u8> {
    chunk(format!("data: {data}\n\n").as_bytes())
}

/// A streamed chat answer of so many pieces, with its usage if it has one, as bytes of a whole HTTP answer.
pub(crate) fn chat_stream(pieces: usize, usage: Option<(u64, u64)>) -> Vec<u8> {
    let mut answer = STREAM_HEAD.to_vec();
    (0..pieces).for_each(|_| answer.extend(delta("w ")));
    answer.extend(chat_stream_end(usage));
    answer
}

/// The end of a streamed chat answer.
pub(crate) fn chat_stream_end(usage: Option<(u64, u64)>) -> Vec<u8> {
    let piece = |choices: Value, usage: Value| {
        serde_json::json!({
            "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": choices, "usage": usage,
        })
        .to_string()
    };
    let finish = serde_json::json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]);
    let mut end = event(&piece(finish, Value::Null));
    if let Some((input, output)) = usage {
        let usage = serde_json::json!({
            "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
        });
        end.extend(event(&piece(serde_json::json!([]), usage)));
    }
    end.extend(event("[DONE]"));
    end.extend_from_slice(LAST_CHUNK);
    end
}

/// The end of a chunked body.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// A streamed chat chunk with this text.
pub(crate) fn delta(text: &str) -> Vec<u8> {
    let event = serde_json::json!({
        "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}],
    });
    chunk(format!("data: {event}\n\n").as_bytes())
}

/// A prompt of so many words, asking for at most so many tokens.
pub(crate) fn chat_body(words: usize, max_tokens: u64) -> Value {
    let text = vec!["w"; words].join(" ");
    serde_json::json!({"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": max_tokens})
}
