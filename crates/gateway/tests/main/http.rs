//! HTTP itself: versions, kept connections, pipelines, odd methods; and raw connections for tests that write bytes by hand.

#![cfg(test)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{
    Backend, KEY, Reply, TestGateway, chat_answer, chat_body, fixture, gateway, in_time, send,
};

/// The sending side of an HTTP/2 connection.
pub(crate) type Http2 = SendRequest<Full<Bytes>>;

/// An HTTP/2 connection by prior knowledge.
pub(crate) async fn http2(address: SocketAddr) -> Http2 {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// A connection on which a test writes what it likes.
pub(crate) struct Wire {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Wire {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, unread: Vec::new() }
    }

    /// Writes; a connection that the gateway has closed takes nothing, and no harm is done.
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = in_time("the gateway reads", self.stream.write_all(bytes.as_ref())).await;
    }

    /// No more bytes come from this side.
    pub(crate) async fn finish(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// The next answer with a length; `None` if the connection ends before.
    pub(crate) async fn answer(&mut self) -> Option<Reply> {
        in_time("an answer", self.read_answer(true)).await
    }

    /// The next answer to a request that asks for the head alone.
    pub(crate) async fn head(&mut self) -> Option<Reply> {
        in_time("a head", self.read_answer(false)).await
    }

    /// Waits until the gateway ends the connection; the bytes that came until then.
    pub(crate) async fn closed(&mut self) -> Vec<u8> {
        in_time("the end of the connection", async { while self.more().await {} }).await;
        std::mem::take(&mut self.unread)
    }

    /// Writes these bytes again and again, with a short pause between, until the gateway ends the connection.
    pub(crate) async fn drip_until_closed(&mut self, bytes: &[u8]) {
        let mut pace = tokio::time::interval(Duration::from_millis(20));
        in_time("the end of a dripping connection", async {
            let mut answer = [0; 256];
            loop {
                tokio::select! {
                    _ = pace.tick() => {
                        if self.stream.write_all(bytes).await.is_err() {
                            return;
                        }
                    }
                    read = self.stream.read(&mut answer) => {
                        if read.map_or(true, |count| count == 0) {
                            return;
                        }
                    }
                }
            }
        })
        .await;
    }

    async fn read_answer(&mut self, has_body: bool) -> Option<Reply> {
        let head_bytes = loop {
            match self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                Some(place) => break place + 4,
                None if self.more().await => {}
                None => return None,
            }
        };
        let head = String::from_utf8(self.unread.drain(..head_bytes).collect()).unwrap();
        let (line, fields) = head.split_once("\r\n").unwrap();
        let status: u16 = line.split(' ').nth(1).unwrap().parse().unwrap();
        let headers: BTreeMap<String, String> = fields
            .lines()
            .filter_map(|field| field.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let length: usize = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let length = if has_body && status >= 200 { length } else { 0 };
        while self.unread.len() < length && self.more().await {}
        let broken = self.unread.len() < length;
        let body: Vec<u8> = self.unread.drain(..length.min(self.unread.len())).collect();
        Some(Reply { status, headers, body: Bytes::from(body), broken })
    }

    async fn more(&mut self) -> bool {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes).await {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.unread.extend_from_slice(&bytes[..count]);
                true
            }
        }
    }
}

/// The bytes of a chat request of `words` words; `more` are header lines.
pub(crate) fn chat_request(words: usize, more: &str) -> String {
    let body = chat_body(words, 50).to_string();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\n{more}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn echo_words() -> (Backend, TestGateway) {
    let backend = Backend::start(|got| {
        let body = got.json();
        let words = body["messages"][0]["content"].as_str().map_or(0, |text| text.split(' ').count());
        vec![crate::support::Step::Write(chat_answer(words as u64, 1))]
    })
    .await;
    let gateway = gateway(&fixture(backend.address, "")).await;
    (backend, gateway)
}

#[tokio::test]
async fn an_http_2_client_is_served_without_an_upgrade() {
    let (_backend, gateway) = echo_words().await;
    let client = http2(gateway.address()).await;
    let mut answers = tokio::task::JoinSet::new();
    for words in 1..=4 {
        let mut client = client.clone();
        answers.spawn(async move {
            let request = http::Request::builder()
                .method("POST")
                .uri("http://gateway/v1/chat/completions")
                .header("authorization", format!("Bearer {KEY}"))
                .body(Full::new(Bytes::from(chat_body(words, 50).to_string())))
                .unwrap();
            let (head, body) = client.send_request(request).await.unwrap().into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(head.status, 200);
            assert_eq!(head.version, http::Version::HTTP_2);
            assert!(head.headers.contains_key("x-ratelimit-remaining-tokens"));
            assert_eq!(body["usage"]["prompt_tokens"], words);
        });
    }
    in_time("all answers", answers.join_all()).await;
    assert_eq!(gateway.ended(4).await.iter().map(|record| record.charged).sum::<u64>(), 1 + 2 + 3 + 4 + 4);
    gateway.idle().await;
}

#[tokio::test]
async fn a_refusal_reaches_an_http_2_client_too() {
    let (_backend, gateway) = echo_words().await;
    let mut client = http2(gateway.address()).await;
    for (path, key, status) in [("/v1/nothing", KEY, 404), ("/v1/chat/completions", "wrong", 401)] {
        let request = http::Request::builder()
            .method("POST")
            .uri(format!("http://gateway{path}"))
            .header("authorization", format!("Bearer {key}"))
            .body(Full::new(Bytes::from_static(b"{}")))
            .unwrap();
        let answer = in_time("an answer", client.send_request(request)).await.unwrap();
        assert_eq!(answer.status(), status);
        let body: serde_json::Value =
            serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
        assert!(body["error"]["message"].is_string());
    }
    gateway.idle().await;
}

#[tokio::test]
async fn a_connection_is_kept_for_request_after_request() {
    let (_backend, gateway) = echo_words().await;
    let mut wire = Wire::connect(gateway.address()).await;
    for words in 1..=20 {
        wire.write(chat_request(words, "")).await;
        let reply = wire.answer().await.unwrap();
        assert_eq!(
            (reply.status, reply.json()["usage"]["prompt_tokens"].as_u64()),
            (200, Some(words as u64))
        );
    }
    // A refusal, whatever its cause, does not end it either.
    wire.write("GET /v1/nothing HTTP/1.1\r\nhost: gateway\r\n\r\n").await;
    assert_eq!(wire.answer().await.unwrap().status, 404);
    wire.write("POST /v1/embeddings HTTP/1.1\r\nhost: gateway\r\ncontent-length: 2\r\n\r\n{}").await;
    assert_eq!(wire.answer().await.unwrap().status, 401);
    wire.write(chat_request(3, "")).await;
    assert_eq!(wire.answer().await.unwrap().status, 200);
    gateway.idle().await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_their_order() {
    let (_backend, gateway) = echo_words().await;
    let mut wire = Wire::connect(gateway.address()).await;
    wire.write([chat_request(7, ""), chat_request(3, "")].concat()).await;
    for words in [7, 3] {
        let reply = wire.answer().await.unwrap();
        assert_eq!((reply.status, reply.json()["usage"]["prompt_tokens"].as_u64()), (200, Some(words)));
    }
    let charged: Vec<u64> = gateway.ended(2).await.iter().map(|record| record.charged).collect();
    assert_eq!(charged, [4, 8]);
    gateway.idle().await;
}

#[tokio::test]
async fn a_head_request_gets_a_head_and_no_body() {
    let (_backend, gateway) = echo_words().await;
    let mut wire = Wire::connect(gateway.address()).await;
    for (path, status) in [("/", 404), ("/healthz", 200), ("/readyz", 200), ("/v1/chat/completions", 404)] {
        wire.write(format!("HEAD {path} HTTP/1.1\r\nhost: gateway\r\n\r\n")).await;
        assert_eq!(wire.head().await.unwrap().status, status, "{path}");
    }
    // Nothing of a body came in between, or this answer could not be read.
    wire.write(chat_request(3, "")).await;
    assert_eq!(wire.answer().await.unwrap().status, 200);
}

#[tokio::test]
async fn an_http_1_0_client_gets_its_answer_and_the_end_of_the_connection() {
    let (_backend, gateway) = echo_words().await;
    let mut wire = Wire::connect(gateway.address()).await;
    wire.write(chat_request(3, "").replace("HTTP/1.1", "HTTP/1.0")).await;
    assert_eq!(wire.answer().await.unwrap().status, 200);
    assert!(wire.closed().await.is_empty());
    gateway.idle().await;
}

#[tokio::test]
async fn the_list_of_models_is_served_with_and_without_a_name() {
    let (_backend, gateway) = echo_words().await;
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str())];
    for (path, status) in [("/v1/models", 200), ("/v1/models/m", 200), ("/v1/models/none", 404)] {
        let reply = send(gateway.address(), "GET", path, &headers, Bytes::new()).await;
        assert_eq!(reply.status, status, "{path}");
    }
    assert_eq!(send(gateway.address(), "GET", "/v1/models", &[], Bytes::new()).await.status, 401);
}
