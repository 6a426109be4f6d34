//! Clients that take back one stream of an HTTP/2 connection.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::json;

use crate::http::{Http2, http2};
use crate::support::{
    Backend, KEY, LAST_CHUNK, STREAM_HEAD, Step, TestGateway, chunk, delta, fixture, gateway, in_time, until,
};

/// A streaming request with a script's name for the backend.
fn request(script: &str) -> http::Request<Full<Bytes>> {
    let mut body = crate::support::chat_body(5, 50);
    body["stream"] = json!(true);
    http::Request::builder()
        .method("POST")
        .uri("http://gateway/v1/chat/completions")
        .header("authorization", format!("Bearer {KEY}"))
        .header("content-type", "application/json")
        .header("x-script", script)
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap()
}

async fn backend() -> Backend {
    Backend::start(|got| match got.header("x-script").as_deref() {
        Some("silent") => vec![Step::AwaitClose],
        Some("three") => {
            let deltas = [delta("w "), delta("w "), delta("w ")].concat();
            vec![Step::Write([STREAM_HEAD, &deltas].concat()), Step::AwaitClose]
        }
        _ => vec![
            Step::Write([STREAM_HEAD, &delta("w ")].concat()),
            Step::Wait,
            Step::Write([&delta("w "), &chunk(b"data: [DONE]\n\n")[..], LAST_CHUNK].concat()),
        ],
    })
    .await
}

async fn next(incoming: &mut Incoming) -> Option<Bytes> {
    let frame = in_time("a frame", incoming.frame()).await?;
    Some(frame.expect("the stream is not reset").into_data().expect("it is data"))
}

/// Begins a stream that goes on when it is told to.
async fn begin_steady(client: &mut Http2) -> Incoming {
    let mut steady = in_time("a head", client.send_request(request("steady"))).await.unwrap().into_body();
    assert!(next(&mut steady).await.is_some());
    steady
}

/// The steady stream goes on to its end.
async fn finish_steady(gateway: &TestGateway, backend: &Backend, mut steady: Incoming) {
    backend.go_on();
    let mut rest = Vec::new();
    while let Some(bytes) = next(&mut steady).await {
        rest.extend_from_slice(&bytes);
    }
    assert!(rest.ends_with(b"data: [DONE]\n\n"));
    let record = gateway.ended(2).await.remove(0);
    assert_eq!((record.output, record.outcome), (2, "completed"));
    gateway.idle().await;
}

#[tokio::test]
async fn d04_a_stream_reset_before_its_first_byte_ends_at_the_backend_and_no_other_does() {
    let backend = backend().await;
    let gateway = gateway(&fixture(backend.address, "")).await;
    let mut client = http2(gateway.address()).await;
    let steady = begin_steady(&mut client).await;
    let mut doomed = client.clone();
    let waiting = tokio::spawn(async move { doomed.send_request(request("silent")).await.map(drop) });
    until("both requests are at the backend", || backend.got().len() == 2).await;
    waiting.abort();
    until("the backend sees the close", || backend.closed() == 1).await;
    let record = gateway.ended(1).await.remove(0);
    assert_eq!((record.outcome, record.usage_source, record.input), ("client_gone", "estimated", 5));
    assert!(record.output <= 50, "{record:?}");
    finish_steady(&gateway, &backend, steady).await;
}

#[tokio::test]
async fn d04_a_stream_reset_after_three_chunks_is_charged_for_them_and_no_other_ends() {
    let backend = backend().await;
    let gateway = gateway(&fixture(backend.address, "")).await;
    let mut client = http2(gateway.address()).await;
    let steady = begin_steady(&mut client).await;
    let mut doomed = in_time("a head", client.send_request(request("three"))).await.unwrap().into_body();
    let mut bytes = 0;
    while bytes < 3 * 100 {
        bytes += next(&mut doomed).await.unwrap().len();
    }
    drop(doomed);
    until("the backend sees the close", || backend.closed() == 1).await;
    let record = gateway.ended(1).await.remove(0);
    assert_eq!((record.outcome, record.usage_source), ("client_gone", "estimated"));
    assert_eq!((record.input, record.output), (5, 3));
    finish_steady(&gateway, &backend, steady).await;
}

#[tokio::test]
async fn a_closed_http_2_connection_ends_all_its_streams_at_the_backend() {
    let backend = backend().await;
    let gateway = gateway(&fixture(backend.address, "")).await;
    let mut client = http2(gateway.address()).await;
    let mut bodies = Vec::new();
    for _ in 0..3 {
        bodies.push(in_time("a head", client.send_request(request("three"))).await.unwrap());
    }
    drop(bodies);
    drop(client);
    until("the backend sees all closes", || backend.closed() == 3).await;
    for record in gateway.ended(3).await {
        assert_eq!(record.outcome, "client_gone");
    }
    gateway.idle().await;
}

#[tokio::test]
async fn d01_an_http_2_client_that_never_reads_a_stream_loses_its_slot_and_keeps_the_others() {
    let big = delta(&"w ".repeat(64 * 1024));
    let backend = Backend::start(move |got| match got.header("x-script").as_deref() {
        Some("big") => vec![Step::Write([STREAM_HEAD, &big.repeat(64)].concat()), Step::AwaitClose],
        _ => vec![
            Step::Write([STREAM_HEAD, &delta("w ")].concat()),
            Step::Wait,
            Step::Write([&delta("w "), &chunk(b"data: [DONE]\n\n")[..], LAST_CHUNK].concat()),
        ],
    })
    .await;
    let gateway =
        gateway(&format!("timeouts: {{client_write: 500ms}}\n{}", fixture(backend.address, ""))).await;
    let mut client = http2(gateway.address()).await;
    let steady = begin_steady(&mut client).await;
    let unread = in_time("a head", client.send_request(request("big"))).await.unwrap();
    let record = gateway.ended(1).await.remove(0);
    assert_eq!((record.outcome, record.input), ("client_gone", 5));
    until("the backend sees the close", || backend.closed() == 1).await;
    finish_steady(&gateway, &backend, steady).await;
    drop(unread);
}
