//! Streams and errors of a real engine, through the whole gateway: the figures are those of `data/real/README.md`.

use bytes::Bytes;
use fairlane_wire::dialect::Endpoint;
use serde_json::Value;

use super::{Asks, CAPACITY, Framing, LIMIT, Recording, Stage, configuration, data, path_of, shown};
use crate::support::{Backend, KEY, Step, gateway, send};

/// File, endpoint, choices and output bound of the request, then input, cached and output.
const REAL: [(&str, Endpoint, u64, u64, [u64; 3]); 6] = [
    ("llamacpp_chat_usage.sse", Endpoint::ChatCompletions, 1, 12, [33, 8, 12]),
    ("llamacpp_chat_no_usage.sse", Endpoint::ChatCompletions, 1, 12, [33, 32, 12]),
    ("llamacpp_chat_n2.sse", Endpoint::ChatCompletions, 2, 6, [33, 32, 12]),
    ("llamacpp_completions.sse", Endpoint::Completions, 1, 8, [9, 2, 8]),
    ("llamacpp_responses.sse", Endpoint::Responses, 1, 10, [33, 32, 10]),
    ("llamacpp_messages.sse", Endpoint::Messages, 1, 10, [33, 32, 10]),
];

fn recordings() -> Vec<Recording> {
    REAL.iter()
        .map(|(file, endpoint, choices, max_tokens, _)| Recording {
            name: (*file).to_owned(),
            endpoint: *endpoint,
            coding: None,
            max_tokens: *max_tokens,
            choices: *choices,
            bytes: data(&format!("real/{file}")),
            splits: Vec::new(),
        })
        .collect()
}

#[tokio::test]
async fn a22_every_stream_of_a_real_engine_passes_unchanged_and_is_charged_as_its_table_says() {
    let recordings = recordings();
    let mut stage = Stage::open("words", recordings.clone()).await;
    for (place, (recording, (.., [input, cached, output]))) in recordings.iter().zip(REAL).enumerate() {
        for framing in [Framing::Length, Framing::UntilClose, Framing::Events, Framing::Bytes] {
            for asks in [Asks::Usage, Asks::Nothing] {
                let what = format!("{} {framing:?} {asks:?}", recording.name);
                let (reply, record) = stage.play(place, &framing, asks).await;
                assert_eq!((reply.status, reply.broken), (200, false), "{what}");
                assert!(reply.body == shown(recording, asks), "{what}: {}", reply.text());
                assert_eq!([record.input, record.cached, record.output], [input, cached, output], "{what}");
                assert_eq!((record.usage_source, record.outcome), ("reported", "completed"), "{what}");
                assert_eq!(record.charged, input + output, "{what}");
            }
        }
        stage.assert_balanced(&recording.name).await;
    }
}

#[test]
fn a_client_that_did_not_ask_gets_less_of_the_streams_with_a_chunk_of_usage_alone() {
    let hidden = |recording: &Recording| recording.bytes.len() - shown(recording, Asks::Nothing).len();
    let hidden: Vec<bool> = recordings().iter().map(|recording| hidden(recording) > 0).collect();
    assert_eq!(hidden, [true, false, true, false, false, false]);
}

#[tokio::test]
async fn errors_of_a_real_engine_pass_as_they_came_and_cost_nothing() {
    for file in ["real/llamacpp_context_error.txt", "real/llamacpp_bad_json.txt"] {
        let text = String::from_utf8(data(file)).unwrap();
        let (body, status) = text.trim_end().rsplit_once('\n').unwrap();
        assert_eq!(status, "400");
        let answer = format!(
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let backend = Backend::start(move |_| vec![Step::Write(answer.clone().into_bytes())]).await;
        let gateway = gateway(&configuration("words", &backend)).await;
        for stream in [false, true] {
            let request = format!(
                r#"{{"model":"m","messages":[{{"role":"user","content":"a b"}}],"max_tokens":9,"stream":{stream}}}"#
            );
            let bearer = format!("Bearer {KEY}");
            let headers = [("authorization", bearer.as_str())];
            let path = path_of(Endpoint::ChatCompletions);
            let reply = send(gateway.address(), "POST", path, &headers, Bytes::from(request)).await;
            assert_eq!((reply.status, reply.broken), (400, false));
            assert_eq!(reply.text(), body);
            assert_eq!(reply.header("content-type"), "application/json; charset=utf-8");
            assert_eq!(reply.header("content-length"), body.len().to_string());
            assert!(!reply.header("x-ratelimit-remaining-tokens").is_empty());
        }
        for record in gateway.ended(2).await {
            assert_eq!((record.reserved, record.charged, record.status), (11, 0, 400));
            assert_eq!((record.usage_source, record.outcome), ("none", "upstream_error"));
        }
        gateway.idle().await;
        assert_eq!(gateway.level("t", LIMIT).await, CAPACITY as i64);
    }
}

#[tokio::test]
async fn a_count_of_tokens_passes_and_costs_nothing() {
    let counted = data("real/llamacpp_count_tokens.json");
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        counted.len()
    );
    let answer = [head.as_bytes(), counted.as_slice()].concat();
    let backend = Backend::start(move |_| vec![Step::Write(answer.clone())]).await;
    let gateway = gateway(&configuration("words", &backend)).await;
    let request: Value =
        serde_json::json!({"model": "m", "messages": [{"role": "user", "content": "one two three"}]});
    let reply = gateway.post("/v1/messages/count_tokens", &request).await;
    assert_eq!((reply.status, reply.body.as_ref()), (200, counted.as_slice()));
    assert_eq!(backend.got()[0].json(), request);
    let record = gateway.ended(1).await.remove(0);
    assert_eq!((record.reserved, record.charged, record.output), (0, 0, 0));
    gateway.idle().await;
    assert_eq!(gateway.level("t", LIMIT).await, CAPACITY as i64);
}
