//! Clients that do not read, and backends that do not stop.

use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use super::engine::Script;
use super::scene::Scene;
use crate::support::{KEY, chat_body, in_time, streaming, until};

const ONE_SLOT: &str = "    limits: {concurrent_requests: 1, max_output_tokens: 4096}";
const ANSWER_BYTES: usize = 200 << 20;
/// Both ends of two connections may hold so much in the kernel.
const TAKEN_BYTES_MAX: u64 = 24 << 20;

/// A client with a small window that asks for a scripted answer, and may read it.
async fn ask(scene: &Scene, script: Script) -> tokio::net::TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 * 1024).unwrap();
    let mut client = socket.connect(scene.process.address).await.unwrap();
    client.write_all(Scene::scripted(script).as_bytes()).await.unwrap();
    client
}

fn patience(scene_is_full: bool) -> String {
    format!("timeouts: {{client_write: {}}}\n", if scene_is_full { "10s" } else { "300ms" })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d01_a_client_that_never_reads_costs_no_memory_and_gives_its_slot_back() {
    let full = super::Scale::asked() == super::Scale::Full;
    for (what, script) in [
        ("a stream of 200 MB that nobody reads", Script::Events(ANSWER_BYTES)),
        ("a reply of 200 MB that nobody reads", Script::Reply(ANSWER_BYTES)),
    ] {
        let scene = Scene::open("d01", ONE_SLOT, &patience(full)).await;
        let client = ask(&scene, script).await;
        let record = scene
            .beside(what, async { in_time("its slot is free", scene.ended("client_gone", 1)).await })
            .await;
        assert_eq!((record["outcome"].as_str(), record["input"].as_u64()), (Some("client_gone"), Some(5)));
        until("the backend is left", || scene.engine.left() == 1).await;
        let taken = scene.engine.sent_bytes();
        assert!(taken < TAKEN_BYTES_MAX, "the backend got rid of {taken} bytes");
        // The only slot serves the next request.
        assert_eq!(scene.post(None, chat_body(3, 5).to_string().into()).await.0, 200);
        scene.assert_bounded(what);
        drop(client);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d01_an_http_2_client_that_never_reads_costs_no_memory_either() {
    let full = super::Scale::asked() == super::Scale::Full;
    let scene = Scene::open("d01-http2", ONE_SLOT, &patience(full)).await;
    let stream = tokio::net::TcpStream::connect(scene.process.address).await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post("http://gateway/v1/chat/completions")
        .header("authorization", format!("Bearer {KEY}"))
        .header("content-type", "application/json")
        .header("x-script", Script::Events(ANSWER_BYTES).header())
        .body(Full::new(bytes::Bytes::from(streaming(&chat_body(5, 50)).to_string())))
        .unwrap();
    let response = in_time("a head", sender.send_request(request)).await.unwrap();
    let what = "a stream of 200 MB that nobody reads over HTTP/2";
    let record =
        scene.beside(what, async { in_time("its slot is free", scene.ended("client_gone", 1)).await }).await;
    assert_eq!(record["input"], 5);
    assert_eq!(scene.post(None, chat_body(3, 5).to_string().into()).await.0, 200);
    scene.assert_bounded(what);
    drop(response);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d02_a_line_without_end_costs_no_memory_and_is_charged_by_estimate() {
    let scene = Scene::open("d02", "    limits: {max_output_tokens: 4096}", "").await;
    let bytes = scene.scale.pick(24 << 20, 256 << 20);
    for (count, (what, script)) in
        (1..).zip([("an endless line", Script::Line(bytes)), ("an endless text", Script::Text(bytes))])
    {
        let mut client = ask(&scene, script).await;
        let attack = async {
            let mut taken = 0;
            let mut part = vec![0; 256 * 1024];
            loop {
                match in_time("the line goes on", client.read(&mut part)).await {
                    Ok(0) | Err(_) => break taken,
                    Ok(read) => taken += read,
                }
            }
        };
        let taken = scene.beside(&format!("{what} of {} MB", bytes >> 20), attack).await;
        assert!(taken >= bytes, "{taken} of {bytes} bytes came");
        let record = in_time("it is charged", scene.ended("interrupted", count)).await;
        assert_eq!(record["usage_source"], "estimated");
        assert!(record["output"].as_u64().unwrap() > 0, "{record}");
        scene.assert_bounded(what);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_never_read_cost_what_their_connections_hold() {
    let scene =
        Scene::open("many", "    limits: {max_output_tokens: 4096}", "timeouts: {client_write: 1s}\n").await;
    let count = scene.scale.pick(50, 500);
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(ask(&scene, Script::Events(ANSWER_BYTES)).await);
    }
    let what = format!("{count} streams that nobody reads");
    let ended = async { in_time("all slots are free", scene.ended("client_gone", count)).await };
    scene.beside(&what, ended).await;
    scene.assert_below(&what, GROWN_KIB_PER_STREAM_MAX * count as u64);
}

/// A read buffer of the backend's connection, and a write buffer of the client's.
const GROWN_KIB_PER_STREAM_MAX: u64 = 1024;
