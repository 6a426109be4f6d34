//! Cases of group A that take real seconds.

use std::time::Duration;

use fairlane::clock::monotonic;

use crate::support::{
    Backend, LAST_CHUNK, STREAM_HEAD, Step, chat_answer, chat_body, chat_stream, chat_stream_end, delta,
    fixture, gateway, in_time, limited, streaming, until,
};

use super::{STILL, TOKENS};

/// A stream of 10,000 pieces, one in 20 ms.
fn endless() -> Vec<Step> {
    let mut steps = vec![Step::Write(STREAM_HEAD.to_vec())];
    for _ in 0..10_000 {
        steps.push(Step::Write(delta("w ")));
        steps.push(Step::Pause(Duration::from_millis(20)));
    }
    steps.push(Step::Write(LAST_CHUNK.to_vec()));
    steps
}

#[tokio::test]
async fn a15_a_client_that_cuts_its_stream_frees_its_slot() {
    let backend = Backend::start(|_| endless()).await;
    let limits = format!("{STILL}, concurrent_requests: 1");
    let gateway = gateway(&limited(backend.address, &limits, "")).await;
    let stream = gateway.stream(&chat_body(10, 1_000), 3).await;
    assert_eq!(stream.status, 200);
    drop(stream);
    until("the slot is free", || gateway.running.gateway.driver.live() == 0).await;
    assert_eq!(gateway.level("t", "tenant/t/concurrent_requests").await, 1);
    let second = gateway.stream(&chat_body(10, 100), 1).await;
    assert_eq!(second.status, 200);
    drop(second);
    gateway.idle().await;
    let metrics = super::metrics(&gateway).await;
    let inflight = metrics.lines().find(|line| line.starts_with("fairlane_backend_inflight{")).unwrap();
    assert!(inflight.ends_with(" 0"), "{inflight}");
}

#[tokio::test]
async fn a16_the_backend_of_a_client_that_left_its_stream_is_closed_within_a_second() {
    let backend = Backend::start(|_| endless()).await;
    let gateway = gateway(&limited(backend.address, "tokens: 20000/day burst 1d", "")).await;
    let stream = gateway.stream(&chat_body(10, 10_000), 10).await;
    let seen = stream.events() as u64;
    drop(stream);
    let left = monotonic();
    backend.is_left(1).await;
    assert!(left.elapsed() < Duration::from_secs(1), "{:?}", left.elapsed());
    gateway.idle().await;
    let record = &gateway.ended(1).await[0];
    assert_eq!((record.outcome, record.usage_source), ("client_gone", "estimated"));
    // At most a second of output, 50 pieces of two tokens, more than the client saw.
    assert!((10 + seen..=10 + 2 * (seen + 50)).contains(&record.charged), "{seen} seen, {record:?}");
    assert_eq!(gateway.level("t", TOKENS).await, 20_000 - record.charged as i64);
}

#[tokio::test]
async fn a16_the_backend_of_a_client_that_left_before_an_unstreamed_answer_is_closed_within_a_second() {
    let backend = Backend::start(|got| match got.json()["max_tokens"].as_u64() {
        // A first answer of 50 tokens in a second shows the gateway how fast this backend is.
        Some(100) => vec![Step::Pause(Duration::from_secs(1)), Step::Write(chat_answer(10, 50))],
        _ => vec![Step::AwaitClose],
    })
    .await;
    let gateway = gateway(&limited(backend.address, "tokens: 20000/day burst 1d", "")).await;
    assert_eq!(gateway.chat(&chat_body(10, 100)).await.status, 200);
    let body = chat_body(10, 10_000);
    let began = monotonic();
    let waited = tokio::time::timeout(Duration::from_millis(500), gateway.chat(&body)).await;
    assert!(waited.is_err());
    let left = monotonic();
    backend.is_left(1).await;
    assert!(left.elapsed() < Duration::from_secs(1), "{:?}", left.elapsed());
    gateway.idle().await;
    let record = &gateway.ended(2).await[0];
    assert_eq!(record.outcome, "client_gone");
    let made_at_most = began.elapsed().as_millis() as u64 * 50 / 1_000 + 50;
    assert!(record.output > 0 && record.output <= made_at_most, "{made_at_most} at most, {record:?}");
    assert_eq!(record.charged, 10 + record.output);
}

#[tokio::test]
async fn a18_streams_one_after_the_other_give_back_what_they_did_not_use() {
    // Ten times as fast as the case: 20 ms each at 1,000 a second, so that each stream still refills 20 and uses 15.
    let backend = Backend::start(|_| {
        let mut steps = vec![Step::Write(STREAM_HEAD.to_vec())];
        for _ in 0..5 {
            steps.push(Step::Write(delta("w")));
            steps.push(Step::Pause(Duration::from_millis(4)));
        }
        steps.push(Step::Write(chat_stream_end(Some((10, 5)))));
        steps
    })
    .await;
    let gateway = gateway(&limited(backend.address, "tokens: 1000/s burst 2s", "")).await;
    let body = streaming(&chat_body(10, 1_000));
    for _ in 0..100 {
        assert_eq!(gateway.chat(&body).await.status, 200);
        gateway.idle().await;
    }
    in_time("the bucket is full again", async {
        while gateway.level("t", TOKENS).await < 2_000 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let charged: u64 = gateway.ended(100).await.iter().map(|record| record.charged).sum();
    assert_eq!(charged, 1_500);
}

#[tokio::test]
async fn a24_the_wait_told_is_exact_and_enough() {
    let backend = Backend::start(|got| {
        let used = if got.json()["max_tokens"] == 1_000 { (1_000, 1_000) } else { (100, 250) };
        vec![Step::Write(chat_answer(used.0, used.1))]
    })
    .await;
    let gateway = gateway(&fixture(backend.address, "")).await;
    assert_eq!(gateway.chat(&chat_body(1_000, 1_000)).await.status, 200);
    let refused = gateway.chat(&chat_body(100, 250)).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "4"));
    let wait = refused.number("retry-after-ms");
    // 3.5 s, less what came back between the two requests.
    assert!((3_001..=3_500).contains(&wait), "{wait}");
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(gateway.chat(&chat_body(100, 250)).await.status, 200);
}

#[tokio::test]
async fn a27_no_interval_gives_more_than_the_bucket_and_its_refill() {
    let backend = Backend::always(chat_stream(1, Some((50, 50)))).await;
    let gateway = gateway(&limited(backend.address, "tokens: 2000/s burst 1s", "")).await;
    let began = monotonic();
    let mut admitted = 0;
    let body = streaming(&chat_body(50, 50));
    while began.elapsed() < Duration::from_secs(2) {
        admitted += u64::from(gateway.chat(&body).await.status == 200);
    }
    let most = 2_000.0 + 2_000.0 * began.elapsed().as_secs_f64();
    assert!((admitted * 100) as f64 <= most, "{admitted} requests of 100, at most {most} tokens");
    assert!(admitted >= 20, "{admitted}");
}
