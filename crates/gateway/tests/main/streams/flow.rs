//! Streams in trouble: silent ones, cut ones, endless ones, and clients that do not read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use crate::support::{
    Backend, KEY, LAST_CHUNK, Reply, STREAM_HEAD, Step, TestGateway, chunk, delta, fixture, gateway, in_time,
    open, read, send, until,
};

fn streaming(words: usize, max_tokens: u64) -> Value {
    let mut body = crate::support::chat_body(words, max_tokens);
    body["stream"] = json!(true);
    body
}

/// Sends a request and gives its answer as soon as the head is there.
async fn begin(gateway: &TestGateway, body: &Value) -> http::Response<Incoming> {
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str())];
    let body = Bytes::from(body.to_string());
    in_time("a head", open(gateway.address(), "POST", "/v1/chat/completions", &headers, body)).await
}

/// Reads until so many bytes of a body are there.
async fn read_bytes(incoming: &mut Incoming, count: usize) -> Vec<u8> {
    in_time("bytes of a body", async {
        let mut bytes = Vec::new();
        while bytes.len() < count {
            let frame = incoming.frame().await.expect("the body goes on").expect("the body is not cut");
            bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        }
        bytes
    })
    .await
}

#[tokio::test]
async fn d03_each_comment_reaches_the_client_before_the_backend_writes_the_next() {
    const COMMENT: &[u8] = b": a comment of 20 b\n";
    let backend = Backend::start(|_| {
        let mut steps = vec![Step::Write(STREAM_HEAD.to_vec())];
        for _ in 0..10 {
            steps.extend([Step::Write(chunk(COMMENT)), Step::Wait]);
        }
        steps.push(Step::Write(
            [&chunk(b"\n"), &delta("w")[..], &chunk(b"data: [DONE]\n\n"), LAST_CHUNK].concat(),
        ));
        steps
    })
    .await;
    for body in [streaming(3, 10), streaming(3, 10)] {
        let gateway = gateway(&fixture(backend.address, "")).await;
        let (head, mut incoming) = begin(&gateway, &body).await.into_parts();
        assert_eq!(head.status, 200);
        for _ in 0..10 {
            assert_eq!(read_bytes(&mut incoming, COMMENT.len()).await, COMMENT);
            backend.go_on();
        }
        let rest = read(http::Response::new(incoming)).await;
        assert!(rest.text().ends_with("data: [DONE]\n\n") && !rest.broken);
        gateway.idle().await;
    }
}

#[tokio::test]
async fn d03_each_piece_of_an_answer_reaches_the_client_before_the_backend_writes_the_next() {
    let backend = Backend::start(|_| {
        let mut steps = vec![Step::Write(STREAM_HEAD.to_vec())];
        for _ in 0..20 {
            steps.extend([Step::Write(delta("w ")), Step::Wait]);
        }
        steps.push(Step::Write([&chunk(b"data: [DONE]\n\n"), LAST_CHUNK].concat()));
        steps
    })
    .await;
    let gateway = gateway(&fixture(backend.address, "")).await;
    let (_, mut incoming) = begin(&gateway, &streaming(3, 50)).await.into_parts();
    for _ in 0..20 {
        let piece = read_bytes(&mut incoming, 1).await;
        assert!(piece.starts_with(b"data: ") && piece.ends_with(b"\n\n"));
        backend.go_on();
    }
    assert_eq!(read(http::Response::new(incoming)).await.text(), "data: [DONE]\n\n");
    assert_eq!(gateway.ended(1).await[0].output, 20);
}

async fn ask(gateway: &TestGateway, body: &Value) -> Reply {
    gateway.chat(body).await
}

#[tokio::test]
async fn d06_an_error_of_a_backend_keeps_its_status_and_its_content_type() {
    for (status, more) in [(503, ""), (429, "retry-after: 7\r\n"), (500, ""), (404, ""), (422, "")] {
        let page = "<html>no</html>";
        let answer = format!(
            "HTTP/1.1 {status} Scripted\r\ncontent-type: text/html\r\n{more}content-length: {}\r\n\r\n{page}",
            page.len()
        );
        let backend = Backend::always(answer.into_bytes()).await;
        let short = "classes: [{name: interactive, max_wait: 200ms}]\n";
        let gateway = gateway(&format!("{short}{}", fixture(backend.address, ""))).await;
        let reply = ask(&gateway, &streaming(3, 10)).await;
        assert_eq!((reply.status, reply.text()), (status, page.to_owned()));
        assert_eq!(reply.header("content-type"), "text/html", "{status}");
        if status == 429 {
            assert_eq!(reply.header("retry-after"), "7");
        }
        let record = gateway.ended(1).await.remove(0);
        assert_eq!((record.charged, record.outcome, record.status), (0, "upstream_error", status));
        gateway.idle().await;
        assert_eq!(gateway.level("t", "tenant/t/tokens").await, 2_000);
    }
}

#[tokio::test]
async fn d06_a_backend_that_refuses_connections_becomes_a_502_in_json() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let gateway = gateway(&fixture(address, "")).await;
    let reply = ask(&gateway, &streaming(3, 10)).await;
    assert_eq!((reply.status, reply.header("content-type")), (502, "application/json"));
    assert_eq!(reply.json()["error"]["code"], "bad_gateway");
    let record = gateway.ended(1).await.remove(0);
    assert_eq!((record.charged, record.outcome), (0, "upstream_error"));
    gateway.idle().await;
    assert_eq!(gateway.level("t", "tenant/t/tokens").await, 2_000);
}

#[tokio::test]
async fn d08_an_answer_that_a_backend_cuts_is_cut_for_the_client_too() {
    let deltas: Vec<Vec<u8>> = (0..3).map(|_| delta("w ")).collect();
    let events: Vec<u8> = deltas.iter().flat_map(|framed| payload(framed).to_vec()).collect();
    let announced = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100000\r\n\r\n";
    let heads: [(&str, Vec<u8>); 2] = [
        ("content-length", [announced.as_bytes(), &events].concat()),
        ("chunked", [STREAM_HEAD, &deltas.concat()].concat()),
    ];
    for (what, answer) in heads {
        for asks_usage in [false, true] {
            let answer = answer.clone();
            let backend = Backend::start(move |_| vec![Step::Write(answer.clone()), Step::Close]).await;
            let gateway = gateway(&fixture(backend.address, "")).await;
            let mut body = streaming(5, 50);
            body["stream_options"] = json!({"include_usage": asks_usage});
            let reply = ask(&gateway, &body).await;
            assert!(reply.broken, "{what}");
            assert_eq!(
                (reply.status, reply.text()),
                (200, String::from_utf8(events.clone()).unwrap()),
                "{what}"
            );
            let record = gateway.ended(1).await.remove(0);
            assert_eq!((record.input, record.output), (5, 3), "{what}");
            assert_eq!((record.usage_source, record.outcome), ("estimated", "interrupted"), "{what}");
            gateway.idle().await;
        }
    }
}

#[tokio::test]
async fn d08_a_reply_that_a_backend_cuts_is_cut_for_the_client_too() {
    let cut =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n{\"id\":\"c\",";
    let backend = Backend::start(move |_| vec![Step::Write(cut.as_bytes().to_vec()), Step::Close]).await;
    let gateway = gateway(&fixture(backend.address, "")).await;
    let reply = ask(&gateway, &crate::support::chat_body(5, 50)).await;
    assert!(reply.broken);
    assert_eq!(reply.text(), "{\"id\":\"c\",");
    let record = gateway.ended(1).await.remove(0);
    assert_eq!((record.input, record.outcome), (5, "interrupted"));
    gateway.idle().await;
}

/// What one chunk of a chunked body holds.
fn payload(framed: &[u8]) -> &[u8] {
    let from = framed.windows(2).position(|two| two == b"\r\n").unwrap() + 2;
    &framed[from..framed.len() - 2]
}

/// A backend that streams the same chunk over and over, as fast as it is let.
struct Flood {
    address: SocketAddr,
    sent: Arc<AtomicUsize>,
    closed: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Flood {
    /// Sends `start`, then `count` times `piece`, each a chunk, then the end.
    fn start(start: &'static [u8], piece: Vec<u8>, count: usize) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(64 * 1024).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(16).unwrap();
        let address = listener.local_addr().unwrap();
        let (sent, closed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, gone) = (Arc::clone(&sent), Arc::clone(&closed));
        let task = tokio::spawn(async move {
            let mut request = [0; 16 * 1024];
            let mut stream = loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let count = stream.read(&mut request).await.unwrap();
                if request[..count].starts_with(b"POST") {
                    break stream;
                }
                // The gateway asks for the models first.
            };
            stream.write_all(&[STREAM_HEAD, &chunk(start)].concat()).await.unwrap();
            let framed = chunk(&piece);
            for _ in 0..count {
                if stream.write_all(&framed).await.is_err() {
                    break;
                }
                counted.fetch_add(piece.len(), Ordering::Relaxed);
            }
            let _ = stream.write_all(LAST_CHUNK).await;
            while stream.read(&mut request).await.is_ok_and(|count| count > 0) {}
            gone.store(true, Ordering::Relaxed);
        });
        Self { address, sent, closed, task }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn d01_a_client_that_never_reads_holds_the_backend_back_and_loses_its_slot() {
    let event = payload(&delta(&"w ".repeat(32 * 1024))).to_vec();
    let total = 400 * 1024 * 1024;
    let flood = Flood::start(b": hello\n\n", event.clone(), total / event.len());
    let one_slot = fixture(flood.address, "").replace("concurrent_requests: 4", "concurrent_requests: 1");
    let gateway = gateway(&format!("timeouts: {{client_write: 500ms}}\n{one_slot}")).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 * 1024).unwrap();
    let mut client = socket.connect(gateway.address()).await.unwrap();
    let body = streaming(5, 50).to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let record = gateway.ended(1).await.remove(0);
    assert_eq!((record.outcome, record.input), ("client_gone", 5));
    until("the backend is left", || flood.closed.load(Ordering::Relaxed)).await;
    let sent = flood.sent.load(Ordering::Relaxed);
    assert!(sent < total / 4, "the backend got rid of {sent} bytes of {total}");
    gateway.idle().await;
    drop(client);
}

#[tokio::test]
async fn d02_a_line_without_end_passes_and_is_charged_by_estimate() {
    const PIECE: usize = 256 * 1024;
    for (start, count) in
        [(&b"data: "[..], 128), (b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"", 32)]
    {
        let flood = Flood::start(start, vec![b'a'; PIECE], count);
        let gateway = gateway(&fixture(flood.address, "")).await;
        let (head, mut incoming) = begin(&gateway, &streaming(5, 50)).await.into_parts();
        assert_eq!(head.status, 200);
        let (mut bytes, mut broken) = (0, false);
        while let Some(frame) = in_time("the line goes on", incoming.frame()).await {
            match frame {
                Ok(frame) => bytes += frame.data_ref().map_or(0, Bytes::len),
                Err(_) => broken = true,
            }
        }
        assert_eq!(bytes, start.len() + PIECE * count);
        assert!(broken, "a stream without an end is cut");
        let record = gateway.ended(1).await.remove(0);
        assert_eq!((record.input, record.usage_source, record.outcome), (5, "estimated", "interrupted"));
        assert!(record.output > 0, "{record:?}");
        gateway.idle().await;
    }
}

#[tokio::test]
async fn a_stream_that_falls_silent_is_cut_and_charged_what_came() {
    let backend = Backend::start(|_| {
        vec![Step::Write([STREAM_HEAD, &delta("w "), &delta("w ")].concat()), Step::AwaitClose]
    })
    .await;
    let gateway =
        gateway(&format!("timeouts: {{stream_idle: 200ms}}\n{}", fixture(backend.address, ""))).await;
    let reply = ask(&gateway, &streaming(5, 50)).await;
    assert!(reply.broken && reply.status == 200);
    let record = gateway.ended(1).await.remove(0);
    assert_eq!((record.input, record.output, record.outcome), (5, 2, "upstream_timeout"));
    until("the backend is left", || backend.closed() == 1).await;
    gateway.idle().await;
}

#[tokio::test]
async fn a_backend_that_never_answers_becomes_a_504() {
    let backend = Backend::start(|_| vec![Step::AwaitClose]).await;
    let gateway =
        gateway(&format!("timeouts: {{first_byte: 200ms}}\n{}", fixture(backend.address, ""))).await;
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str())];
    let body = Bytes::from(streaming(5, 50).to_string());
    let reply = send(gateway.address(), "POST", "/v1/chat/completions", &headers, body).await;
    assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (504, Some("gateway_timeout")));
    until("the backend is left", || backend.closed() == 1).await;
    gateway.idle().await;
}
