//! Gateways that end while others go on: nobody's request is lost.

#![cfg(test)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fairlane::gateway::Gateway;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::{
    Backend, KEY, Reply, STREAM_HEAD, Step, TestGateway, chat_body, chat_stream_end, delta, gateway, in_time,
    pool, read, send, streaming, until,
};

const PATH: &str = "/v1/chat/completions";

async fn rollable(backend: &Backend, timeouts: &str) -> TestGateway {
    let pool = pool(&[backend.address], "");
    gateway(&format!("timeouts: {{{timeouts}}}\n{pool}tenants: [{{name: t, keys: [\"{KEY}\"]}}]\n")).await
}

/// An answer of some 50 ms.
async fn backend() -> Backend {
    Backend::start(|_| {
        let mut steps = vec![Step::Write(STREAM_HEAD.to_vec())];
        for _ in 0..5 {
            steps.push(Step::Write(delta("w")));
            steps.push(Step::Pause(Duration::from_millis(10)));
        }
        steps.push(Step::Write(chat_stream_end(Some((5, 5)))));
        steps
    })
    .await
}

#[tokio::test]
async fn two_gateways_rolled_one_after_the_other_behind_one_address_lose_no_request() {
    let backend = backend().await;
    let notice = "shutdown_notice: 300ms";
    let (first, second) = (rollable(&backend, notice).await, rollable(&backend, notice).await);
    let mut gateways: Vec<Arc<Gateway>> = vec![first.running.gateway.clone(), second.running.gateway.clone()];
    let balancer = Balancer::start(&[first.address(), second.address()]).await;
    let (load, answered) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let mut clients = JoinSet::new();
    for _ in 0..6 {
        let (load, answered, address) = (Arc::clone(&load), Arc::clone(&answered), balancer.address);
        clients.spawn(async move {
            while load.load(Ordering::Relaxed) {
                check_whole(&ask(address).await);
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let more = |least: usize| {
        let answered = Arc::clone(&answered);
        async move {
            let before = answered.load(Ordering::Relaxed);
            until("more are answered", || answered.load(Ordering::Relaxed) >= before + least).await;
        }
    };
    more(20).await;
    for old in [first, second] {
        let fresh = rollable(&backend, notice).await;
        gateways.push(fresh.running.gateway.clone());
        balancer.add(fresh.address());
        old.running.stop().await;
        more(20).await;
    }
    load.store(false, Ordering::Relaxed);
    while let Some(client) = clients.join_next().await {
        client.expect("every request of every client is answered whole");
    }
    let records: Vec<_> = gateways.iter().flat_map(|gateway| gateway.usage.last(10_000)).collect();
    assert!(
        records.iter().all(|record| (record.outcome, record.charged) == ("completed", 10)),
        "{records:?}"
    );
    assert_eq!(records.len(), answered.load(Ordering::Relaxed));
    for gateway in &gateways {
        assert!(!gateway.usage.last(1).is_empty(), "each of the four had its part");
        assert_eq!(gateway.driver.totals().outstanding, 0);
    }
}

#[tokio::test]
async fn a_gateway_under_notice_serves_on_and_says_that_it_ends() {
    let backend = backend().await;
    let gateway = rollable(&backend, "shutdown_notice: 2s").await;
    let address = gateway.address();
    let stopping = tokio::spawn(gateway.running.stop());
    in_time("it says so", async {
        while send(address, "GET", "/readyz", &[], Bytes::new()).await.status == 200 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    let ready = send(address, "GET", "/readyz", &[], Bytes::new()).await;
    assert_eq!((ready.status, ready.text().trim()), (503, "shutting down"));
    let served = ask(address).await;
    assert_eq!(served.header("connection"), "close");
    check_whole(&served);
    assert!(!stopping.is_finished());
    stopping.await.unwrap();
    let refused = TcpStream::connect(address).await;
    assert!(refused.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_request_on_an_open_connection_is_refused_with_a_time_to_come_back() {
    let backend = Backend::start(|_| {
        vec![
            Step::Write(STREAM_HEAD.to_vec()),
            Step::Write(delta("w")),
            Step::Wait,
            Step::Write(chat_stream_end(Some((5, 1)))),
        ]
    })
    .await;
    let gateway = rollable(&backend, "shutdown: 20s").await;
    let inner = Arc::clone(&gateway.running.gateway);
    let mut running = gateway.stream(&chat_body(5, 100), 1).await;
    // One has been used, one has not.
    let (mut used, mut fresh) = (connect(gateway.address()).await, connect(gateway.address()).await);
    assert_eq!(request(&mut used, "GET", "/healthz").await.status, 200);
    let stopping = tokio::spawn(gateway.running.stop());
    until("it ends", || inner.is_draining.load(Ordering::Relaxed)).await;
    for (name, connection) in [("used", &mut used), ("fresh", &mut fresh)] {
        let refused = request(connection, "POST", PATH).await;
        assert_eq!((refused.status, refused.header("x-fairlane-limit")), (503, "gateway/shutdown"), "{name}");
        assert_eq!(refused.header("connection"), "close", "{name}");
        assert!((1..=2).contains(&refused.number("retry-after")), "{name}");
    }
    backend.go_on();
    while running.more().await {}
    assert!(running.body.ends_with(b"data: [DONE]\n\n"));
    stopping.await.unwrap();
    let records = inner.usage.last(10);
    assert_eq!(records.iter().filter(|record| record.outcome == "refused").count(), 2, "{records:?}");
    assert_eq!((records[0].outcome, records[0].charged), ("completed", 6));
}

#[tokio::test]
async fn whoever_has_connected_before_the_listener_closes_gets_an_answer() {
    let backend = backend().await;
    let gateway = rollable(&backend, "shutdown: 20s").await;
    let mut connections = Vec::new();
    for _ in 0..50 {
        connections.push(connect(gateway.address()).await);
    }
    let stopping = tokio::spawn(gateway.running.stop());
    for connection in &mut connections {
        let reply = request(connection, "POST", PATH).await;
        assert!(matches!(reply.status, 200 | 503), "{}", reply.status);
    }
    stopping.await.unwrap();
}

/// The whole answer, and no refusal.
fn check_whole(reply: &Reply) {
    assert_eq!((reply.status, reply.broken), (200, false), "{}", reply.text());
    assert!(reply.body.ends_with(b"data: [DONE]\n\n"), "{}", reply.text());
}

async fn ask(address: SocketAddr) -> Reply {
    let key = format!("Bearer {KEY}");
    let body = streaming(&chat_body(5, 100)).to_string();
    send(address, "POST", PATH, &[("authorization", key.as_str())], body.into()).await
}

async fn connect(address: SocketAddr) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn request(sender: &mut SendRequest<Full<Bytes>>, method: &str, path: &str) -> Reply {
    let body = if method == "POST" { streaming(&chat_body(5, 100)).to_string() } else { String::new() };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("host", "gateway")
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {KEY}"))
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    in_time("an answer", async { read(sender.send_request(request).await.unwrap()).await }).await
}

/// One address before several gateways: it asks each whether it is ready, and tries the next where one does not take a connection.
struct Balancer {
    address: SocketAddr,
    gateways: Arc<Mutex<Vec<(SocketAddr, bool)>>>,
    tasks: JoinSet<()>,
}

impl Balancer {
    async fn start(gateways: &[SocketAddr]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let gateways =
            Arc::new(Mutex::new(gateways.iter().map(|address| (*address, true)).collect::<Vec<_>>()));
        let mut tasks = JoinSet::new();
        tasks.spawn(watch(Arc::clone(&gateways)));
        tasks.spawn(pass_on(listener, Arc::clone(&gateways)));
        Self { address, gateways, tasks }
    }

    fn add(&self, gateway: SocketAddr) {
        assert_eq!(self.tasks.len(), 2);
        self.gateways.lock().unwrap().push((gateway, true));
    }
}

async fn watch(gateways: Arc<Mutex<Vec<(SocketAddr, bool)>>>) {
    loop {
        let known = gateways.lock().unwrap().clone();
        for (place, (address, _)) in known.into_iter().enumerate() {
            let is_ready = match TcpStream::connect(address).await {
                Ok(stream) => is_ready(stream).await,
                Err(_) => false,
            };
            gateways.lock().unwrap()[place].1 = is_ready;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn is_ready(stream: TcpStream) -> bool {
    let Ok((mut sender, connection)) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await
    else {
        return false;
    };
    let connection = tokio::spawn(connection);
    let asked =
        http::Request::builder().uri("/readyz").header("host", "gateway").body(Full::new(Bytes::new()));
    let answer = sender.send_request(asked.unwrap()).await;
    connection.abort();
    answer.is_ok_and(|answer| answer.status() == 200)
}

async fn pass_on(listener: TcpListener, gateways: Arc<Mutex<Vec<(SocketAddr, bool)>>>) {
    let mut streams = JoinSet::new();
    let mut turn = 0;
    while let Ok((mut client, _)) = listener.accept().await {
        turn += 1;
        let ready: Vec<SocketAddr> = gateways
            .lock()
            .unwrap()
            .iter()
            .filter(|(_, is_ready)| *is_ready)
            .map(|(address, _)| *address)
            .collect();
        streams.spawn(async move {
            for place in 0..ready.len() {
                if let Ok(mut gateway) = TcpStream::connect(ready[(turn + place) % ready.len()]).await {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut gateway).await;
                    return;
                }
            }
        });
    }
}
