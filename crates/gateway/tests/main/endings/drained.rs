//! `on_client_gone: drain`: an answer is read on without its client, within bounds.

use std::time::Duration;

use super::{leave_once_sent, pieces, setting, waiting_after};
use crate::support::{Backend, LAST_CHUNK, Step, chat_answer, chat_body, chat_stream_end, delta, until};

const DRAIN: &str = "on_client_gone: drain";

#[tokio::test]
async fn an_answer_that_does_not_stream_is_read_on_and_charged_its_usage() {
    let backend = Backend::start(|_| vec![Step::Wait, Step::Write(chat_answer(11, 7))]).await;
    let gateway = setting(&backend, "", DRAIN).await;
    leave_once_sent(&gateway, &backend, &chat_body(10, 20)).await;
    assert_eq!(gateway.running.gateway.driver.live(), 1, "it keeps its slot");
    backend.go_on();
    gateway.idle().await;
    let record = &gateway.records()[0];
    assert_eq!((record.outcome, record.usage_source, record.charged), ("client_gone", "reported", 18));
}

#[tokio::test]
async fn a_second_try_is_not_made_for_a_client_that_has_left() {
    let backend = Backend::start(|_| {
        vec![Step::Wait, Step::Write(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n".to_vec())]
    })
    .await;
    let gateway = setting(&backend, "", DRAIN).await;
    leave_once_sent(&gateway, &backend, &chat_body(10, 20)).await;
    backend.go_on();
    gateway.idle().await;
    let record = &gateway.records()[0];
    assert_eq!((record.outcome, record.charged, backend.got().len()), ("client_gone", 0, 1));
}

#[tokio::test]
async fn it_ends_after_the_time_for_it_and_what_was_counted_is_charged() {
    let backend = Backend::start(|_| waiting_after(3)).await;
    let gateway = setting(&backend, "timeouts: {client_gone: 150ms}", DRAIN).await;
    drop(gateway.stream(&chat_body(10, 20), 3).await);
    backend.is_left(1).await;
    gateway.idle().await;
    let record = &gateway.records()[0];
    assert_eq!((record.outcome, record.charged), ("client_gone", 13));
}

#[tokio::test]
async fn it_ends_after_the_bytes_for_it() {
    let backend = Backend::start(|_| {
        let mut steps = pieces(3);
        steps.push(Step::Wait);
        steps.extend((0..1_000).map(|_| Step::Write(delta(&"w ".repeat(500)))));
        steps.push(Step::AwaitClose);
        steps
    })
    .await;
    let gateway = setting(&backend, "bounds: {max_drained_answer: 8KiB}", DRAIN).await;
    drop(gateway.stream(&chat_body(10, 20), 3).await);
    backend.go_on();
    backend.is_left(1).await;
    gateway.idle().await;
    assert_eq!(gateway.records()[0].outcome, "client_gone");
}

#[tokio::test]
async fn a_shutdown_waits_for_what_is_read_on() {
    let backend = Backend::start(|_| {
        let mut steps = pieces(3);
        steps.extend([Step::Wait, Step::Write(chat_stream_end(Some((10, 9))))]);
        steps
    })
    .await;
    let gateway = setting(&backend, "", DRAIN).await;
    let inner = std::sync::Arc::clone(&gateway.running.gateway);
    let stream = gateway.stream(&chat_body(10, 20), 3).await;
    drop(stream);
    until("it is read on", || inner.usage.last(1).is_empty()).await;
    let stopping = tokio::spawn(gateway.running.stop());
    // Longer than the last connections linger.
    let early = tokio::time::timeout(Duration::from_millis(800), async {
        while !stopping.is_finished() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(early.await.is_err(), "it ended before the answer did: {:?}", inner.usage.last(1));
    backend.go_on();
    stopping.await.unwrap();
    let record = &inner.usage.last(1)[0];
    assert_eq!((record.outcome, record.charged), ("client_gone", 19));
}

#[tokio::test]
async fn the_error_of_a_cut_answer_is_its_own_ending_after_the_client_left() {
    let backend = Backend::start(|_| {
        let mut steps = pieces(3);
        steps.extend([Step::Wait, Step::Write(delta("w ")), Step::Write(LAST_CHUNK.to_vec())]);
        steps
    })
    .await;
    let gateway = setting(&backend, "", DRAIN).await;
    drop(gateway.stream(&chat_body(10, 20), 3).await);
    backend.go_on();
    gateway.idle().await;
    let record = &gateway.records()[0];
    assert_eq!((record.outcome, record.charged), ("client_gone", 14), "without an end mark it is counted");
}
