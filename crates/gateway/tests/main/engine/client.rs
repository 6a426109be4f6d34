//! A small HTTP client for the engine's tests.

use std::time::Duration;

use bytes::Bytes;
use fairlane::engine::{EngineOptions, Pace, Running, spawn};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// No wait of these tests may last longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// What came back, whole.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Reply {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(super) fn events(&self) -> Vec<Event> {
        events(&self.body)
    }
}

/// One server-sent event.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) name: Option<String>,
    pub(super) data: String,
}

impl Event {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap()
    }
}

/// An engine without model time.
pub(super) async fn instant() -> Running {
    spawn(EngineOptions { pace: Pace::Instant, ..EngineOptions::default() }).await.unwrap()
}

pub(super) fn post(url: &str, body: &Value, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
    let mut request = Request::post(url).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::from(body.to_string())).unwrap()
}

/// The answer's headers; its body still to come.
pub(super) async fn open(request: Request<Full<Bytes>>) -> Response<Incoming> {
    tokio::time::timeout(PATIENCE, client().request(request)).await.unwrap().unwrap()
}

/// The whole answer.
pub(super) async fn send(request: Request<Full<Bytes>>) -> Reply {
    let (head, body) = open(request).await.into_parts();
    let body = tokio::time::timeout(PATIENCE, body.collect()).await.unwrap().unwrap().to_bytes();
    Reply { status: head.status, headers: head.headers, body }
}

pub(super) async fn ask(running: &Running, path: &str, body: &Value) -> Reply {
    ask_with(running, path, body, &[]).await
}

pub(super) async fn ask_with(running: &Running, path: &str, body: &Value, headers: &[(&str, &str)]) -> Reply {
    send(post(&format!("{}{path}", running.urls()[0]), body, headers)).await
}

pub(super) async fn get(running: &Running, path: &str) -> Reply {
    let request = Request::builder().method(Method::GET).uri(format!("{}{path}", running.urls()[0]));
    send(request.body(Full::default()).unwrap()).await
}

/// The bytes before the body broke; panics if it ended well.
pub(super) async fn bytes_before_break(response: Response<Incoming>) -> Vec<u8> {
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    loop {
        match tokio::time::timeout(PATIENCE, body.frame()).await.unwrap() {
            Some(Ok(frame)) => bytes.extend_from_slice(&frame.into_data().unwrap()),
            Some(Err(_)) => return bytes,
            None => panic!("the body ended well after {} bytes", bytes.len()),
        }
    }
}

/// Waits until something is so.
pub(super) async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

pub(super) fn events(body: &[u8]) -> Vec<Event> {
    let text = std::str::from_utf8(body).unwrap();
    let blocks = text.split("\n\n").filter(|block| !block.is_empty());
    let field =
        |block: &str, name: &str| block.lines().find_map(|line| line.strip_prefix(name).map(String::from));
    blocks
        .map(|block| Event { name: field(block, "event: "), data: field(block, "data: ").unwrap() })
        .collect()
}

pub(super) fn client() -> Client<hyper_util::client::legacy::connect::HttpConnector, Full<Bytes>> {
    Client::builder(TokioExecutor::new()).build_http()
}
