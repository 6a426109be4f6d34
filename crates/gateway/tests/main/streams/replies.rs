//! Answers that do not stream: every endpoint's reply passes unchanged and is charged what it reports.

use fairlane_wire::dialect::Endpoint;
use serde_json::{Value, json};

use super::{CAPACITY, LIMIT, configuration, path_of};
use crate::support::{Backend, Step, TestGateway, gateway, json_answer};

const TEXT: &str = "one two three";

/// A request, its reply, and the input, cached and output tokens that the reply tells.
fn table() -> Vec<(Endpoint, Value, Value, [u64; 3])> {
    let messages = json!([{"role": "user", "content": TEXT}]);
    let details = json!({"cached_tokens": 8});
    vec![
        (
            Endpoint::ChatCompletions,
            json!({"model": "m", "messages": messages, "max_tokens": 50}),
            json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "x y"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 21, "completion_tokens": 2, "total_tokens": 23, "prompt_tokens_details": details}}),
            [21, 8, 2],
        ),
        (
            Endpoint::Completions,
            json!({"model": "m", "prompt": TEXT, "max_tokens": 50}),
            json!({"id": "c", "object": "text_completion", "created": 1, "model": "m",
                "choices": [{"index": 0, "text": "x y z", "finish_reason": "length"}],
                "usage": {"prompt_tokens": 22, "completion_tokens": 3, "total_tokens": 25}}),
            [22, 0, 3],
        ),
        (
            Endpoint::Embeddings,
            json!({"model": "m", "input": [TEXT, "four"]}),
            json!({"object": "list", "model": "m", "data": [{"object": "embedding", "index": 0, "embedding": [0.1, -0.25]}],
                "usage": {"prompt_tokens": 23, "total_tokens": 23}}),
            [23, 0, 0],
        ),
        (
            Endpoint::Responses,
            json!({"model": "m", "input": TEXT, "max_output_tokens": 50}),
            json!({"id": "r", "object": "response", "created_at": 1, "status": "completed", "model": "m",
                "output": [{"type": "message", "id": "o", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": "x", "annotations": []}]}],
                "usage": {"input_tokens": 24, "input_tokens_details": details, "output_tokens": 4, "total_tokens": 28}}),
            [24, 8, 4],
        ),
        (
            Endpoint::Messages,
            json!({"model": "m", "messages": messages, "max_tokens": 50}),
            json!({"id": "a", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
                "content": [{"type": "text", "text": "x"}],
                "usage": {"input_tokens": 5, "cache_read_input_tokens": 8, "cache_creation_input_tokens": 12, "output_tokens": 5}}),
            [25, 8, 5],
        ),
    ]
}

async fn assert_level(gateway: &TestGateway, spent: u64) {
    gateway.idle().await;
    assert_eq!(gateway.level("t", LIMIT).await, CAPACITY as i64 - spent as i64);
}

#[tokio::test]
async fn a22_every_endpoints_reply_passes_unchanged_and_is_charged_what_it_reports() {
    let backend = Backend::start(|got| {
        let found =
            table().into_iter().find(|(endpoint, ..)| got.head.contains(&format!("{} ", path_of(*endpoint))));
        vec![Step::Write(json_answer(200, &found.unwrap().2))]
    })
    .await;
    let gateway = gateway(&configuration("words", &backend)).await;
    let mut spent = 0;
    for (place, (endpoint, request, answer, [input, cached, output])) in table().into_iter().enumerate() {
        let reply = gateway.post(path_of(endpoint), &request).await;
        assert_eq!((reply.status, reply.text()), (200, answer.to_string()), "{endpoint:?}");
        assert_eq!(reply.header("content-length"), answer.to_string().len().to_string(), "{endpoint:?}");
        let record = gateway.ended(place + 1).await.remove(0);
        assert_eq!([record.input, record.cached, record.output], [input, cached, output], "{endpoint:?}");
        assert_eq!((record.usage_source, record.outcome), ("reported", "completed"), "{endpoint:?}");
        let reserved = if endpoint == Endpoint::Embeddings { 4 } else { 53 };
        assert_eq!((record.reserved, record.charged), (reserved, input + output), "{endpoint:?}");
        spent += input + output;
        assert_level(&gateway, spent).await;
    }
}

#[tokio::test]
async fn a_reply_without_usage_is_charged_what_can_be_counted() {
    let answer = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "x y z"}, "finish_reason": "stop"}]});
    let backend = Backend::always(json_answer(200, &answer)).await;
    let gateway = gateway(&configuration("words", &backend)).await;
    let (_, request, ..) = table().remove(0);
    let reply = gateway.chat(&request).await;
    assert_eq!((reply.status, reply.text()), (200, answer.to_string()));
    let record = gateway.ended(1).await.remove(0);
    assert_eq!((record.input, record.output, record.usage_source), (3, 3, "estimated"));
    assert_level(&gateway, 6).await;
}

#[tokio::test]
async fn a_reply_that_is_no_json_passes_and_is_not_free() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 9\r\n\r\n<b>hm</b>";
    let backend = Backend::always(head.as_bytes().to_vec()).await;
    let gateway = gateway(&configuration("words", &backend)).await;
    let (_, request, ..) = table().remove(0);
    let reply = gateway.chat(&request).await;
    assert_eq!((reply.status, reply.text()), (200, "<b>hm</b>".to_owned()));
    assert_eq!(reply.header("content-type"), "text/html");
    let record = gateway.ended(1).await.remove(0);
    assert_eq!((record.usage_source, record.input), ("estimated", 3));
    assert!(record.output <= 50, "{record:?}");
    assert_level(&gateway, record.charged).await;
}

#[tokio::test]
async fn an_error_with_status_200_is_charged_nothing() {
    let answer = json!({"error": {"message": "engine is asleep", "type": "server_error", "code": 500}});
    let backend = Backend::always(json_answer(200, &answer)).await;
    let gateway = gateway(&configuration("words", &backend)).await;
    let (_, request, ..) = table().remove(0);
    let reply = gateway.chat(&request).await;
    assert_eq!(reply.text(), answer.to_string());
    let record = gateway.ended(1).await.remove(0);
    assert_eq!((record.charged, record.usage_source, record.outcome), (0, "none", "upstream_error"));
    assert_level(&gateway, 0).await;
}
