//! Admission, reservation and refund: the failures of group A, by their ids.
//!
//! Where levels must stay as they are the rate is 2,000 a day: a token in 43 s.

#![cfg(test)]

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{
    Backend, Got, KEY, Reply, Step, TestGateway, chat_answer, chat_body, chat_stream, fixture, gateway,
    json_answer, limited, pool, send, streaming,
};

mod realtime;

/// The fixture's bucket without its refill, and no limit of concurrency.
const STILL: &str = "tokens: 2000/day burst 1d, max_output_tokens: 4096";
const TOKENS: &str = "tenant/t/tokens";

#[tokio::test]
async fn a01_of_ten_requests_at_once_exactly_five_fit_a_bucket_of_five() {
    for stream in [false, true] {
        let backend =
            Backend::start(|_| vec![Step::Wait, Step::Write(chat_stream(1, Some((100, 100))))]).await;
        let limits = "tokens: 1000/day burst 1d";
        let gateway = gateway(&limited(backend.address, limits, "")).await;
        let body = if stream { streaming(&chat_body(100, 100)) } else { chat_body(100, 100) };
        let requests = join_all((0..10).map(|_| gateway.chat(&body)));
        let let_go = async {
            backend.has_got(5).await;
            crate::support::until("five are refused", || gateway.records().len() == 5).await;
            (0..5).for_each(|_| backend.go_on());
        };
        let (replies, ()) = tokio::join!(requests, let_go);
        let admitted = replies.iter().filter(|reply| reply.status == 200).count();
        let refused = replies.iter().filter(|reply| reply.status == 429).count();
        assert_eq!((admitted, refused), (5, 5));
        gateway.idle().await;
        assert_eq!(gateway.level("t", TOKENS).await, 0);
    }
}

#[tokio::test]
async fn a02_a_streamed_answer_costs_the_same_as_a_whole_one() {
    let mut seen = Vec::new();
    for stream in [false, true] {
        let bytes = if stream { chat_stream(20, Some((50, 20))) } else { chat_answer(50, 20) };
        let backend = Backend::always(bytes).await;
        let gateway = gateway(&limited(backend.address, STILL, "")).await;
        let body = if stream { streaming(&chat_body(50, 100)) } else { chat_body(50, 100) };
        let first = gateway.chat(&body).await;
        gateway.idle().await;
        let second = gateway.chat(&body).await;
        gateway.idle().await;
        let remaining = "x-ratelimit-remaining-tokens";
        let record = gateway.ended(2).await[0].clone();
        seen.push((record.charged, first.number(remaining), second.number(remaining)));
        assert_eq!(gateway.level("t", TOKENS).await, 2_000 - 140);
    }
    assert_eq!(seen, [(70, 1_850, 1_780), (70, 1_850, 1_780)]);
}

#[tokio::test]
async fn a03_reported_tokens_are_charged_and_not_one_unit_per_request() {
    let backend = Backend::always(chat_answer(100, 50)).await;
    let gateway = gateway(&limited(backend.address, "tokens: 30/hour burst 1h", "")).await;
    assert_eq!(gateway.chat(&chat_body(5, 20)).await.status, 200);
    gateway.idle().await;
    assert_eq!(gateway.ended(1).await[0].charged, 150);
    assert_eq!(gateway.chat(&chat_body(5, 20)).await.status, 429);
    assert_eq!(gateway.level("t", TOKENS).await, -120);
}

#[tokio::test]
async fn a04_the_prompt_is_reserved_too() {
    let backend = Backend::start(|_| vec![Step::Wait, Step::Write(chat_answer(1_500, 1))]).await;
    let gateway = gateway(&limited(backend.address, STILL, "")).await;
    let body = chat_body(1_500, 1);
    let let_go = async {
        crate::support::until("four are refused", || gateway.records().len() == 4).await;
        backend.go_on();
    };
    let (replies, ()) = tokio::join!(join_all((0..5).map(|_| gateway.chat(&body))), let_go);
    let mut statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 429, 429, 429, 429]);
}

#[tokio::test]
async fn a05_a_level_of_exactly_the_cost_admits_and_the_next_token_is_refused() {
    // One token in five seconds, so that the level is still 0 when the second request comes.
    let backend = Backend::start(|_| vec![Step::Wait, Step::Write(chat_answer(100, 100))]).await;
    let gateway = gateway(&limited(backend.address, "tokens: 12/min burst 1000s", "")).await;
    let second = async {
        backend.has_got(1).await;
        let refused = gateway.post("/v1/embeddings", &json!({"model": "m", "input": "w"})).await;
        backend.go_on();
        refused
    };
    let body = chat_body(100, 100);
    let (first, refused) = tokio::join!(gateway.chat(&body), second);
    assert_eq!((first.status, refused.status), (200, 429));
    let wait = refused.number("retry-after-ms");
    assert!((1..=5_000).contains(&wait), "{wait}");
    assert_eq!(refused.number("retry-after"), (wait + 999) / 1_000);
    assert!(refused.text().contains("1 asked, 0 left"), "{}", refused.text());
}

#[tokio::test]
async fn a07_what_can_never_fit_is_refused_at_once_and_for_good() {
    let backend = Backend::always(chat_answer(1, 1)).await;
    let gateway = gateway(&fixture(backend.address, "")).await;
    let anthropic = json!({"model": "m", "max_tokens": 1_000, "messages": [
        {"role": "user", "content": vec!["w"; 1_001].join(" ")},
    ]});
    let openai = gateway.chat(&chat_body(1_001, 1_000)).await;
    let anthropic = gateway.post("/v1/messages", &anthropic).await;
    assert_eq!((openai.status, anthropic.status), (400, 413));
    assert_eq!(openai.json()["error"]["code"], "request_too_large");
    assert_eq!(anthropic.json()["error"]["type"], "request_too_large");
    for reply in [openai, anthropic] {
        assert_eq!(reply.header("x-should-retry"), "false");
        assert_eq!((reply.header("retry-after"), reply.header("retry-after-ms")), ("", ""));
        assert_eq!(reply.header("x-fairlane-limit"), TOKENS);
        let text = reply.text();
        assert!(text.contains("2001") && text.contains("2000") && text.contains(TOKENS), "{text}");
    }
    assert_eq!(backend.got().len(), 0);
    assert!(gateway.records().iter().all(|record| record.queue_ms == 0 && record.outcome == "refused"));
}

#[tokio::test]
async fn a08_fifty_refusals_cost_nothing() {
    let backend = Backend::start(|got| {
        let used = if got.json()["max_tokens"] == 1_000 { (900, 1_000) } else { (50, 50) };
        vec![Step::Write(chat_answer(used.0, used.1))]
    })
    .await;
    let gateway = gateway(&limited(backend.address, STILL, "")).await;
    assert_eq!(gateway.chat(&chat_body(900, 1_000)).await.status, 200);
    gateway.idle().await;
    assert_eq!(gateway.level("t", TOKENS).await, 100);
    let body = chat_body(250, 250);
    for reply in join_all((0..50).map(|_| gateway.chat(&body))).await {
        assert_eq!(reply.status, 429);
    }
    assert_eq!(gateway.level("t", TOKENS).await, 100);
    assert_eq!(gateway.chat(&chat_body(50, 50)).await.status, 200);
}

#[tokio::test]
async fn a09_a_throttled_tenant_leaves_the_shared_limit_to_others() {
    let backend = Backend::always(chat_answer(10, 10)).await;
    let pool = pool(&[backend.address], "");
    let gateway = gateway(&format!(
        "{pool}service: {{requests: 10/day burst 1d}}
tenants:
  - {{name: t, keys: [\"{KEY}\"], limits: {{requests: 1/day burst 1d}}}}
  - {{name: u, keys: [\"key-of-tenant-u-0001\"], limits: {{requests: 1/day burst 1d}}}}
"
    ))
    .await;
    let body = chat_body(10, 10);
    let statuses: Vec<u16> =
        join_all((0..20).map(|_| gateway.chat(&body))).await.iter().map(|reply| reply.status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1);
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 19);
    let headers = [("authorization", "Bearer key-of-tenant-u-0001")];
    let other =
        send(gateway.address(), "POST", "/v1/chat/completions", &headers, body.to_string().into()).await;
    assert_eq!(other.status, 200);
    gateway.idle().await;
    assert_eq!(gateway.level("u", "service/requests").await, 8);
}

#[tokio::test]
async fn a11_a_second_backend_is_tried_once_and_the_request_is_charged_once() {
    let broken = Backend::always(json_answer(500, &json!({"error": {"message": "boom"}}))).await;
    let works = Backend::always(chat_answer(100, 20)).await;
    let pool = pool(&[broken.address, works.address], "");
    let limits = "requests: 10/day burst 1d, tokens: 2000/day burst 1d, concurrent_requests: 4";
    let gateway =
        gateway(&format!("{pool}tenants: [{{name: t, keys: [\"{KEY}\"], limits: {{{limits}}}}}]\n")).await;
    let reply = gateway.chat(&chat_body(100, 100)).await;
    assert_eq!(reply.status, 200);
    gateway.idle().await;
    let record = &gateway.ended(1).await[0];
    assert_eq!((record.attempts, record.charged, record.outcome), (2, 120, "completed"));
    assert_eq!((broken.got().len(), works.got().len()), (1, 1));
    assert_eq!(gateway.level("t", TOKENS).await, 1_880);
    assert_eq!(gateway.level("t", "tenant/t/requests").await, 9);
    assert_eq!(gateway.level("t", "tenant/t/concurrent_requests").await, 4);
}

#[tokio::test]
async fn a12_a_stream_that_ends_in_an_error_is_no_success_and_costs_what_it_made() {
    let stream = include_bytes!("../../../wire/tests/data/sse/oc_15_error_mid_stream.sse");
    let mut answer = crate::support::STREAM_HEAD.to_vec();
    answer.extend(crate::support::chunk(stream));
    answer.extend_from_slice(crate::support::LAST_CHUNK);
    let backend = Backend::always(answer).await;
    let gateway = gateway(&limited(backend.address, STILL, "")).await;
    let reply = gateway.chat(&streaming(&chat_body(100, 100))).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.body, &stream[..]);
    gateway.idle().await;
    let record = &gateway.ended(1).await[0];
    assert_eq!(record.outcome, "upstream_error_mid_stream");
    assert!(record.output > 0 && record.output <= 100, "{record:?}");
    assert_eq!(record.charged, record.input + record.output);
    assert_eq!(gateway.level("t", TOKENS).await, 2_000 - record.charged as i64);
    let metrics = metrics(&gateway).await;
    assert!(metrics.contains("outcome=\"upstream_error_mid_stream\"} 1"), "{metrics}");
    assert!(!metrics.contains("outcome=\"completed\""), "{metrics}");
}

#[tokio::test]
async fn a13_a_failure_before_the_first_byte_costs_nothing_and_passes_as_it_came() {
    let error = json!({"error": {"message": "out of memory", "type": "engine_error", "code": 500}});
    let backend = Backend::always(json_answer(500, &error)).await;
    let limits = "requests: 10/day burst 1d, tokens: 2000/day burst 1d";
    let gateway = gateway(&limited(backend.address, limits, "")).await;
    for stream in [false, true] {
        let body = if stream { streaming(&chat_body(100, 1_000)) } else { chat_body(100, 1_000) };
        let reply = gateway.chat(&body).await;
        assert_eq!((reply.status, reply.json()), (500, error.clone()));
    }
    gateway.idle().await;
    let record = &gateway.ended(2).await[0];
    assert_eq!((record.reserved, record.charged, record.outcome), (1_100, 0, "upstream_error"));
    assert_eq!(gateway.level("t", TOKENS).await, 2_000);
    assert_eq!(gateway.level("t", "tenant/t/requests").await, 10);
}

#[tokio::test]
async fn a20_usage_above_the_reservation_is_charged_and_its_debt_repaid_before_the_next() {
    let stream = include_bytes!("../../../wire/tests/data/sse/oc_25_usage_over_reservation.sse");
    let mut answer = crate::support::STREAM_HEAD.to_vec();
    answer.extend(crate::support::chunk(stream));
    answer.extend_from_slice(crate::support::LAST_CHUNK);
    let backend = Backend::always(answer).await;
    let gateway = gateway(&fixture(backend.address, "")).await;
    let mut body = streaming(&chat_body(9, 100));
    body["stream_options"] = json!({"include_usage": true});
    assert_eq!(gateway.chat(&body).await.status, 200);
    gateway.idle().await;
    let record = &gateway.ended(1).await[0];
    assert_eq!((record.reserved, record.charged, record.usage_source), (109, 5_009, "reported"));
    let refused = gateway.chat(&chat_body(100, 100)).await;
    assert_eq!(refused.status, 429);
    // 200 asked over a debt of 3,009 at 100 a second, less what came back since.
    let wait = refused.number("retry-after-ms");
    assert!((22_000..=32_090).contains(&wait), "{wait}");
    assert_eq!(refused.number("retry-after"), (wait + 999) / 1_000);
    assert_eq!(refused.number("x-ratelimit-remaining-tokens"), 0);
}

#[tokio::test]
async fn a21_cached_input_weighs_what_the_configuration_says() {
    for (weight, charge) in [("1.0", 10_010), ("0.1", 2_810), ("0", 2_010)] {
        let backend = Backend::always(json_answer(
            200,
            &json!({
                "id": "c", "object": "chat.completion", "created": 1, "model": "m",
                "choices": [
                    {"index": 0, "message": {"role": "assistant", "content": "w"}, "finish_reason": "stop"},
                ],
                "usage": {
                    "prompt_tokens": 10_000, "completion_tokens": 10, "total_tokens": 10_010,
                    "prompt_tokens_details": {"cached_tokens": 8_000},
                },
            }),
        ))
        .await;
        let limits = format!("tokens: 20000/day burst 1d, cached_input_weight: {weight}");
        let gateway = gateway(&limited(backend.address, &limits, "")).await;
        assert_eq!(gateway.chat(&chat_body(10_000, 10)).await.status, 200);
        gateway.idle().await;
        let record = &gateway.ended(1).await[0];
        assert_eq!((record.input, record.cached, record.output), (10_000, 8_000, 10));
        assert_eq!(record.charged, charge, "weight {weight}");
        assert_eq!(gateway.level("t", TOKENS).await, 20_000 - charge as i64);
    }
}

#[tokio::test]
async fn a22_every_endpoint_charges_its_reported_usage() {
    let backend = Backend::start(|got| vec![Step::Write(json_answer(200, &answer_of(got)))]).await;
    let gateway = gateway(&limited(backend.address, STILL, "")).await;
    let (text, mut level) = ("w w w w w", 2_000);
    let cases = [
        ("/v1/chat/completions", chat_body(5, 50), 5 + 7),
        ("/v1/completions", json!({"model": "m", "prompt": text, "max_tokens": 50}), 5 + 7),
        ("/v1/embeddings", json!({"model": "m", "input": text}), 5),
        ("/v1/responses", json!({"model": "m", "input": text, "max_output_tokens": 50}), 5 + 7),
        (
            "/v1/messages",
            json!({"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": text}]}),
            5 + 7,
        ),
    ];
    for (done, (path, body, charge)) in cases.iter().enumerate() {
        assert_eq!(gateway.post(path, body).await.status, 200, "{path}");
        gateway.idle().await;
        let record = gateway.ended(done + 1).await[0].clone();
        assert_eq!((record.charged, record.usage_source), (*charge, "reported"), "{path}");
        level -= *charge as i64;
        assert_eq!(gateway.level("t", TOKENS).await, level, "{path}");
    }
}

#[tokio::test]
async fn a26_remaining_falls_is_never_negative_and_never_above_the_limit() {
    for (path, names) in [
        ("/v1/chat/completions", ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens"]),
        ("/v1/messages", ["anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining"]),
    ] {
        let backend = Backend::start(|got| vec![Step::Write(json_answer(200, &answer_of(got)))]).await;
        let gateway = gateway(&limited(backend.address, STILL, "")).await;
        let mut seen = Vec::new();
        for tokens in [95, 95, 95, 1_995] {
            let reply = gateway.post(path, &chat_body(5, tokens)).await;
            gateway.idle().await;
            let (limit, remaining) = (reply.number(names[0]), reply.number(names[1]));
            assert!((0..=limit).contains(&remaining), "{remaining} of {limit}");
            seen.push((reply.status, limit, remaining));
        }
        let expected = [(200, 2_000, 1_900), (200, 2_000, 1_888), (200, 2_000, 1_876), (429, 2_000, 1_964)];
        assert_eq!(seen, expected, "{path}");
    }
}

#[tokio::test]
async fn a26_what_is_unlimited_has_no_header() {
    let backend = Backend::start(|got| vec![Step::Write(json_answer(200, &answer_of(got)))]).await;
    let gateway = gateway(&limited(backend.address, "requests: 10/day burst 1d", "")).await;
    for path in ["/v1/chat/completions", "/v1/messages"] {
        let reply = gateway.post(path, &chat_body(5, 95)).await;
        let about_tokens: Vec<&String> = reply
            .headers
            .keys()
            .filter(|name| name.contains("ratelimit") && name.contains("tokens"))
            .collect();
        assert_eq!(about_tokens, Vec::<&String>::new());
        assert!(reply.header("ratelimit").contains("\"tenant-requests\""), "{:?}", reply.headers);
    }
}

#[tokio::test]
async fn a29_a_stream_finishes_when_the_budget_runs_out_under_it_and_the_next_is_refused() {
    // 10 of input leave 30 for output: it runs out in the middle of 50 pieces.
    let backend = Backend::always(chat_stream(50, Some((10, 50)))).await;
    let gateway =
        gateway(&limited(backend.address, "tokens: 40/day burst 1d", "    charging: postpay\n")).await;
    let reply = gateway.chat(&streaming(&chat_body(10, 100))).await;
    assert_eq!((reply.status, reply.broken), (200, false));
    assert!(reply.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(reply.text().matches("\"content\"").count(), 50);
    gateway.idle().await;
    assert_eq!(gateway.level("t", TOKENS).await, -20);
    assert_eq!(gateway.chat(&chat_body(10, 100)).await.status, 429);
}

/// What the backend of a request's API answers: 5 tokens in, 7 out.
pub(crate) fn answer_of(got: &Got) -> Value {
    let path = got.head.split(' ').nth(1).unwrap_or_default();
    let usage = json!({"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12});
    match path {
        "/v1/completions" => json!({
            "id": "c", "object": "text_completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "text": "w", "finish_reason": "stop"}], "usage": usage,
        }),
        "/v1/embeddings" => json!({
            "object": "list", "model": "m", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}],
            "usage": {"prompt_tokens": 5, "total_tokens": 5},
        }),
        "/v1/responses" => json!({
            "id": "r", "object": "response", "status": "completed", "model": "m",
            "output": [{"type": "message", "role": "assistant", "content": [
                {"type": "output_text", "text": "w"},
            ]}],
            "usage": {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12},
        }),
        "/v1/messages" => json!({
            "id": "m", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "text", "text": "w"}], "stop_reason": "end_turn", "stop_sequence": null,
            "usage": {"input_tokens": 5, "output_tokens": 7},
        }),
        _ => json!({
            "id": "c", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": "w"}, "finish_reason": "stop"},
            ],
            "usage": usage,
        }),
    }
}

/// The metrics as text.
pub(crate) async fn metrics(gateway: &TestGateway) -> String {
    let reply: Reply =
        send(gateway.running.admin.unwrap(), "GET", "/metrics", &[], bytes::Bytes::new()).await;
    assert_eq!(reply.status, 200);
    reply.text()
}
