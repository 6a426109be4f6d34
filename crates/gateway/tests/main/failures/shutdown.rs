//! The orderly end: what runs may finish, what waits is refused, and everything is settled.

use std::time::Duration;

use fairlane::clock::monotonic;

use crate::support::{
    Backend, KEY, STREAM_HEAD, Step, chat_body, chat_stream_end, delta, gateway, pool, read, send, streaming,
    until,
};

fn one_slot(backend: &Backend, shutdown: &str) -> String {
    format!(
        "timeouts: {{shutdown: {shutdown}}}
{}tenants: [{{name: t, keys: [\"{KEY}\"], limits: {{tokens: 2000/day burst 1d}}}}]
",
        pool(&[backend.address], "    slots: 1\n")
    )
}

#[tokio::test]
async fn a_stream_in_flight_finishes_and_what_waits_is_refused() {
    let backend = Backend::start(|_| {
        vec![
            Step::Write(STREAM_HEAD.to_vec()),
            Step::Write(delta("w")),
            Step::Wait,
            Step::Write(delta("w")),
            Step::Write(chat_stream_end(Some((5, 2)))),
        ]
    })
    .await;
    let gateway = gateway(&one_slot(&backend, "20s")).await;
    let inner = std::sync::Arc::clone(&gateway.running.gateway);
    let admin = gateway.running.admin.unwrap();
    let path = "/v1/chat/completions";
    let mut running = gateway.stream(&chat_body(5, 100), 1).await;
    let bearer = format!("Bearer {KEY}");
    let address = gateway.address();
    let queued = tokio::spawn(async move {
        let headers = [("authorization", bearer.as_str())];
        send(address, "POST", path, &headers, chat_body(5, 100).to_string().into()).await
    });
    until("one waits", || inner.driver.pools()[0].classes[0].1 == 1).await;
    let stopping = tokio::spawn(gateway.running.stop());
    let refused = queued.await.unwrap();
    assert_eq!((refused.status, refused.header("x-fairlane-limit")), (503, "gateway/shutdown"));
    assert!(refused.number("retry-after") >= 1);
    // The admin address says so while the rest finishes.
    let ready = send(admin, "GET", "/readyz", &[], "".into()).await;
    assert_eq!(ready.status, 503);
    assert!(!stopping.is_finished());
    backend.go_on();
    while running.more().await {}
    assert!(String::from_utf8_lossy(&running.body).ends_with("data: [DONE]\n\n"));
    stopping.await.unwrap();
    let records = inner.usage.last(10);
    let outcomes: Vec<_> = records.iter().map(|record| (record.outcome, record.charged)).collect();
    assert_eq!(outcomes, [("completed", 7), ("refused", 0)]);
    assert_eq!(inner.driver.totals().outstanding, 0);
    assert!(inner.driver.totals().law_holds());
}

#[tokio::test]
async fn after_the_time_for_shutting_down_a_stream_is_cut_and_settled() {
    let backend = Backend::start(|_| {
        vec![Step::Write(STREAM_HEAD.to_vec()), Step::Write(delta("w")), Step::AwaitClose]
    })
    .await;
    let gateway = gateway(&one_slot(&backend, "300ms")).await;
    let inner = std::sync::Arc::clone(&gateway.running.gateway);
    let path = "/v1/chat/completions";
    let response = gateway.begin(path, &[], &streaming(&chat_body(5, 100))).await;
    let began = monotonic();
    let (reply, ()) = tokio::join!(read(response), gateway.running.stop());
    assert!(reply.broken);
    assert!(began.elapsed() >= Duration::from_millis(300));
    backend.is_left(1).await;
    let record = &inner.usage.last(1)[0];
    assert_eq!((record.outcome, record.charged), ("shutdown", 6));
    assert_eq!(inner.driver.totals().outstanding, 0);
    assert!(inner.driver.totals().law_holds());
}

#[tokio::test]
async fn a_request_without_an_answer_yet_is_cut_and_settled_too() {
    let backend = Backend::start(|_| vec![Step::AwaitClose]).await;
    let gateway = gateway(&one_slot(&backend, "100ms")).await;
    let inner = std::sync::Arc::clone(&gateway.running.gateway);
    let address = gateway.address();
    let asked = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let body = chat_body(5, 100).to_string();
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {KEY}\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        answer
    });
    backend.has_got(1).await;
    gateway.running.stop().await;
    assert_eq!(asked.await.unwrap(), b"");
    let record = &inner.usage.last(1)[0];
    assert_eq!(record.outcome, "shutdown");
    assert_eq!(inner.driver.totals().outstanding, 0);
    assert!(inner.driver.totals().law_holds());
}
