//! Many at once, and many names.

use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::scene::Scene;
use super::{Scale, neighbour};
use crate::support::{KEY, in_time, send};

const FREE: &str = "    limits: {max_output_tokens: 4096}";

/// How many connections this process may open, some left for the rest.
fn connections_max(wanted: usize) -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let may = line.split_whitespace().nth(3).unwrap().parse().unwrap_or(usize::MAX);
    wanted.min(may.saturating_sub(300))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_cost_little_and_leave_room_for_others() {
    let bounds = "bounds: {max_connections: 20000}\n";
    let scene = Scene::open("idle", FREE, bounds).await;
    let count = connections_max(scene.scale.pick(400, 10_000));
    let before = scene.process.descriptors();
    let mut idle = Vec::with_capacity(count);
    for _ in 0..count {
        idle.push(in_time("a connection", TcpStream::connect(scene.process.address)).await.unwrap());
    }
    let what = format!("{count} idle connections");
    let served = scene.scale.pick(20, 1_000);
    let mut other = neighbour::Neighbour::connect(scene.process.address).await;
    scene.beside(&what, async { other.median(served).await }).await;
    scene.assert_below(&what, IDLE_KIB_MAX * count as u64 + super::GROWTH_KIB_MAX);
    drop((idle, other));
    scene.assert_closed(before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_sends_a_byte_now_and_then_is_cut_off_and_costs_little() {
    let full = Scale::asked() == Scale::Full;
    let (wait, pause) =
        if full { ("10s", Duration::from_secs(1)) } else { ("500ms", Duration::from_millis(50)) };
    let scene = Scene::open("drip", FREE, &format!("timeouts: {{client_header: {wait}}}\n")).await;
    let count = connections_max(scene.scale.pick(200, 2_000));
    let before = scene.process.descriptors();
    let mut slow = Vec::with_capacity(count);
    for _ in 0..count {
        slow.push(TcpStream::connect(scene.process.address).await.unwrap());
    }
    let what = format!("{count} clients that send a byte each {pause:?}");
    let attack = async {
        let each = slow.into_iter().map(|stream| tokio::spawn(drip(stream, pause)));
        for done in each.collect::<Vec<_>>() {
            in_time("it is cut off", done).await.unwrap();
        }
    };
    scene.beside(&what, attack).await;
    scene.assert_below(&what, IDLE_KIB_MAX * count as u64 + super::GROWTH_KIB_MAX);
    scene.assert_closed(before).await;
}

/// Sends a header byte by byte until the gateway has enough.
async fn drip(mut stream: TcpStream, pause: Duration) {
    let mut pace = tokio::time::interval(pause);
    let mut answer = [0; 256];
    for byte in b"GET /v1/models HTTP/1.1\r\nx-a: ".iter().chain(std::iter::repeat(&b'a')) {
        tokio::select! {
            _ = pace.tick() => {
                if stream.write_all(&[*byte]).await.is_err() {
                    return;
                }
            }
            read = stream.read(&mut answer) => {
                if read.map_or(true, |count| count == 0) {
                    return;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e01_e02_names_without_end_leave_memory_and_metrics_bounded() {
    let tenant = "    limits: {max_output_tokens: 4096}\n    end_users: {tokens: 1000/day burst 1d}";
    let scene = Scene::open("names", tenant, "").await;
    let (users, names) = (scene.scale.pick(2_000, 100_000), scene.scale.pick(500, 10_000));
    let what = format!("{users} end users, {names} paths, {names} models");
    let attack = async {
        let mut connection = Kept::connect(&scene).await;
        for user in 0..users {
            let body = json!({"model": "m", "input": "w", "user": format!("somebody-{user}")});
            assert_eq!(connection.ask("/v1/embeddings", body.to_string()).await, 200);
        }
        for name in 0..names {
            assert_eq!(connection.ask(&format!("/wp-admin/{name}.php"), String::new()).await, 404);
            let body = json!({"model": format!("gpt-{name}"), "messages": []}).to_string();
            assert_eq!(connection.ask("/v1/chat/completions", body).await, 404);
        }
    };
    scene.beside(&what, attack).await;
    let text = send(scene.process.admin, "GET", "/metrics", &[], "".into()).await.text();
    println!("hostile: names: /metrics has {} bytes, {} lines", text.len(), text.lines().count());
    assert!(text.len() < 1 << 20, "{} bytes", text.len());
    assert!(!text.contains("somebody") && !text.contains("wp-admin") && !text.contains("gpt-"));
    scene.assert_below(&what, super::GROWTH_KIB_MAX + users as u64 * USER_KIB_MAX);
}

/// A connection of the attacker for one request after the other.
struct Kept {
    sender: hyper::client::conn::http1::SendRequest<Full<bytes::Bytes>>,
}

impl Kept {
    async fn connect(scene: &Scene) -> Self {
        let stream = TcpStream::connect(scene.process.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sender }
    }

    async fn ask(&mut self, path: &str, body: String) -> u16 {
        let request = http::Request::post(path)
            .header("host", "gateway")
            .header("authorization", format!("Bearer {KEY}"))
            .body(Full::new(bytes::Bytes::from(body)))
            .unwrap();
        in_time("an answer", async {
            self.sender.ready().await.unwrap();
            let response = self.sender.send_request(request).await.unwrap();
            let status = response.status().as_u16();
            response.into_body().collect().await.unwrap();
            status
        })
        .await
    }
}

/// What a connection without a request may cost.
const IDLE_KIB_MAX: u64 = 16;
/// What an end user may cost while the bucket is remembered.
const USER_KIB_MAX: u64 = 1;
