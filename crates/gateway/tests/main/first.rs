//! The shortest way through: one request in, its usage charged.

use crate::support::{Backend, chat_answer, chat_body, fixture, gateway};

#[tokio::test]
async fn a_request_is_charged_what_the_backend_reports() {
    let backend = Backend::always(chat_answer(100, 20)).await;
    let gateway = gateway(&fixture(backend.address, "")).await;
    let reply = gateway.chat(&chat_body(100, 100)).await;
    assert_eq!(reply.status, 200);
    gateway.idle().await;
    let record = &gateway.ended(1).await[0];
    assert_eq!((record.reserved, record.charged, record.usage_source), (200, 120, "reported"));
    assert_eq!(backend.got()[0].header("authorization"), None, "a client's key never reaches a backend");
}
