//! Waiting: the failures of group C that need no lanes, by their ids.

#![cfg(test)]

use std::time::Duration;

use fairlane::clock::monotonic;
use futures_util::future::join_all;
use serde_json::json;

use crate::support::{
    Backend, KEY, Step, chat_answer, chat_body, chat_stream, gateway, limited, pool, streaming, until,
};

/// A pool of one slot whose class waits two seconds.
fn one_slot(backend: &Backend) -> String {
    format!(
        "classes: [{{name: interactive, max_wait: 2s}}]
{}tenants: [{{name: t, keys: [\"{KEY}\"], limits: {{tokens: 2000/day burst 1d}}}}]
",
        pool(&[backend.address], "    slots: 1\n")
    )
}

#[tokio::test]
async fn c03_a_client_that_waits_a_second_is_refused_within_it_as_overloaded() {
    let backend = Backend::start(|_| vec![Step::Wait, Step::Write(chat_answer(10, 10))]).await;
    let gateway = gateway(&one_slot(&backend)).await;
    let busy = async {
        let reply = gateway.chat(&chat_body(10, 10)).await;
        assert_eq!(reply.status, 200);
    };
    let refused = async {
        backend.has_got(1).await;
        for (path, status) in [("/v1/chat/completions", 429), ("/v1/messages", 529)] {
            let asked = monotonic();
            let patience = [("x-fairlane-max-wait-ms", "1000")];
            let reply = gateway.post_with(path, &patience, &chat_body(10, 10)).await;
            assert_eq!(reply.status, status);
            // The decision came in time; the rest is the way back on a busy machine.
            assert!((900..=1_100).contains(&reply.number("x-fairlane-queue-ms")), "{:?}", reply.headers);
            assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
            assert!(reply.number("retry-after") >= 1);
            assert_eq!(reply.header("x-fairlane-limit"), "class/interactive/max_wait");
            let error = &reply.json()["error"]["type"];
            assert_eq!(error, if status == 429 { "overloaded" } else { "overloaded_error" });
        }
        backend.go_on();
    };
    tokio::join!(busy, refused);
    gateway.idle().await;
    assert_eq!(gateway.level("t", "tenant/t/tokens").await, 1_980);
}

#[tokio::test]
async fn c03_only_without_any_backend_alive_it_is_unavailable() {
    // A port that nobody listens on.
    let gone = Backend::always(Vec::new()).await.address;
    let yaml = format!(
        "{}tenants: [{{name: t, keys: [\"{KEY}\"]}}]\n",
        pool(&[gone], "").replace("health: off", "health: {interval: 100ms, unhealthy_after: 1}")
    );
    let gateway = gateway(&yaml).await;
    until("the backend is down", || !gateway.running.gateway.driver.pools()[0].backends[0].is_alive).await;
    for (path, kind) in [("/v1/chat/completions", "service_unavailable"), ("/v1/messages", "api_error")] {
        let reply = gateway.post(path, &chat_body(10, 10)).await;
        assert_eq!((reply.status, reply.json()["error"]["type"].as_str()), (503, Some(kind)));
        assert!(reply.number("retry-after") >= 1);
        assert_eq!(reply.header("x-fairlane-limit"), "pool/main/backends");
    }
}

#[tokio::test]
async fn c04_the_request_of_a_client_that_left_the_queue_never_reaches_the_backend() {
    let backend = Backend::start(|_| vec![Step::Wait, Step::Write(chat_answer(10, 10))]).await;
    let gateway = gateway(&one_slot(&backend)).await;
    let body = chat_body(10, 10);
    let first = gateway.chat(&body);
    let leaves = async {
        backend.has_got(1).await;
        let queued = || gateway.running.gateway.driver.pools()[0].classes[0].1;
        let waiting = chat_body(500, 500);
        tokio::select! {
            _ = gateway.chat(&waiting) => panic!("it has nowhere to go"),
            () = until("it is queued", || queued() == 1) => {}
        }
        until("the queue is empty", || queued() == 0).await;
        backend.go_on();
    };
    let (reply, ()) = tokio::join!(first, leaves);
    assert_eq!(reply.status, 200);
    gateway.idle().await;
    assert_eq!(backend.got().len(), 1);
    assert_eq!(gateway.level("t", "tenant/t/tokens").await, 1_980);
    let gone = gateway.ended(2).await.into_iter().find(|record| record.outcome == "client_gone").unwrap();
    assert_eq!((gone.reserved, gone.charged, gone.attempts), (1_000, 0, 0));
}

#[tokio::test]
async fn c07_priority_and_steering_of_a_client_reach_no_engine() {
    let backend = Backend::always(chat_answer(10, 10)).await;
    let gateway = gateway(&limited(backend.address, "concurrent_requests: 4", "")).await;
    let mut body = chat_body(10, 10);
    body["priority"] = json!(-5);
    let headers = [
        ("x-gateway-destination-endpoint", "10.0.0.1:8000"),
        ("x-fairlane-class", "batch"),
        ("x-fairlane-run", "r"),
        ("x-api-key", "second-key-of-the-client"),
        ("x-trace-of-the-client", "kept"),
    ];
    assert_eq!(gateway.post_with("/v1/chat/completions", &headers, &body).await.status, 200);
    let got = &backend.got()[0];
    assert_eq!(got.json()["priority"], 1, "that of its class, not its own");
    for (name, _) in &headers[..4] {
        assert_eq!(got.header(name), None, "{name}");
    }
    assert_eq!(got.header("x-trace-of-the-client").as_deref(), Some("kept"));
}

#[tokio::test]
async fn c10_the_queue_counts_the_same_idle_and_loaded() {
    let backend = Backend::start(|_| vec![Step::Wait, Step::Write(chat_stream(1, Some((10, 1))))]).await;
    let yaml = format!(
        "classes: [{{name: interactive, max_wait: 20s, queue: {{requests: 4}}}}]
{}tenants: [{{name: t, keys: [\"{KEY}\"]}}]
",
        pool(&[backend.address], "    slots: 8\n")
    );
    let gateway = gateway(&yaml).await;
    let body = streaming(&chat_body(10, 10));
    for round in 0..3 {
        let requests = join_all((0..20).map(|_| gateway.chat(&body)));
        let watch = async {
            let refused = || {
                let records = gateway.records();
                records.iter().filter(|record| record.outcome == "refused").count()
            };
            until("eight are refused", || refused() == 8 * (round + 1)).await;
            backend.has_got(12 * round + 8).await;
            let pool = &gateway.running.gateway.driver.pools()[0];
            assert_eq!((pool.classes[0].2, pool.classes[0].1), (8, 4), "running and queued");
            (0..12).for_each(|_| backend.go_on());
        };
        let (replies, ()) = tokio::join!(requests, watch);
        let served = replies.iter().filter(|reply| reply.status == 200).count();
        let refused: Vec<_> = replies.iter().filter(|reply| reply.status == 429).collect();
        assert_eq!((served, refused.len()), (12, 8), "round {round}");
        for reply in refused {
            assert_eq!(reply.header("x-fairlane-limit"), "class/interactive/queue");
            assert_eq!(reply.json()["error"]["code"], "overloaded");
        }
        gateway.idle().await;
    }
}
