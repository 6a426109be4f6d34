//! What every answer carries: the limit that bound, the budgets, the wait, the class, what was changed.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::PATHS;
use crate::cases_a::answer_of;
use crate::support::{
    Backend, KEY, Reply, Step, TestGateway, chat_answer, chat_body, gateway, json_answer, limited, pool, send,
};

async fn echo() -> Backend {
    Backend::start(|got| vec![Step::Write(json_answer(200, &answer_of(got)))]).await
}

#[tokio::test]
async fn every_refusal_names_what_bound_and_says_when_or_that_never() {
    // Limits and rules of the tenant, headers, tokens asked, what bound, when to come back.
    let table: [Row; 10] = [
        ("limits: {tokens: 20/hour burst 1h}", &[], 10, "tenant/t/tokens", Comes::Back),
        ("limits: {input_tokens: 8/hour burst 1h}", &[], 10, "tenant/t/input_tokens", Comes::Back),
        ("limits: {output_tokens: 12/hour burst 1h}", &[], 10, "tenant/t/output_tokens", Comes::Back),
        ("limits: {requests: 1/hour burst 1h}", &[], 10, "tenant/t/requests", Comes::Back),
        ("limits: {max_input_tokens: 4}", &[], 10, "tenant/t/max_input_tokens", Comes::Never),
        (
            "limits: {max_output_tokens: 5, on_output_excess: reject}",
            &[],
            10,
            "tenant/t/max_output_tokens",
            Comes::Never,
        ),
        ("runs: {max_steps: 1}", &[("x-fairlane-run", "r")], 10, "run/t/max_steps", Comes::Never),
        ("runs: {token_budget: 20}", &[("x-fairlane-run", "r")], 10, "run/t/token_budget", Comes::Never),
        ("runs: {without_id: refuse}", &[], 10, "run/t/without_id", Comes::Never),
        (
            "end_users: {requests: 1/hour burst 1h}",
            &[("x-fairlane-user", "u")],
            10,
            "end_user/t/requests",
            Comes::Back,
        ),
    ];
    for (rules, headers, tokens, bound, comes) in table {
        for path in PATHS {
            let backend = echo().await;
            let yaml =
                limited(backend.address, "", &format!("    {rules}\n")).replace("    limits: {}\n", "");
            let gateway = gateway(&yaml).await;
            let body = chat_body(5, tokens);
            let mut refused = None;
            for _ in 0..3 {
                let reply = gateway.post_with(path, headers, &body).await;
                gateway.idle().await;
                if reply.status != 200 {
                    refused = Some(reply);
                    break;
                }
            }
            let refused = refused.unwrap_or_else(|| panic!("{rules} refuses nothing"));
            assert_eq!(refused.header("x-fairlane-limit"), bound, "{}", refused.text());
            check_retry(&refused, comes);
            check_shape(&refused, path);
        }
    }
}

/// Rules, headers of the request, tokens asked, what bound, when to come back.
type Row = (&'static str, &'static [(&'static str, &'static str)], u64, &'static str, Comes);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comes {
    Back,
    Never,
}

fn check_retry(refused: &Reply, comes: Comes) {
    if comes == Comes::Never {
        assert_eq!(refused.header("x-should-retry"), "false");
        assert_eq!((refused.header("retry-after"), refused.header("retry-after-ms")), ("", ""));
        return;
    }
    let (secs, millis) = (refused.number("retry-after"), refused.number("retry-after-ms"));
    assert!(secs >= 1 && secs == (millis + 999) / 1_000, "{secs} s, {millis} ms");
    assert_eq!(refused.header("x-should-retry") == "false", millis > 60_000);
}

fn check_shape(refused: &Reply, path: &str) {
    let body = refused.json();
    assert!(body["error"]["message"].as_str().is_some_and(|message| message.contains("tenant t")), "{body}");
    if path == PATHS[1] {
        assert_eq!(body["type"], "error");
        assert_eq!(body["request_id"], refused.header("x-fairlane-request-id"));
    } else {
        assert!(body["error"]["type"].is_string() && body["error"]["code"].is_string(), "{body}");
    }
}

#[tokio::test]
async fn a_rejecting_limit_of_concurrency_refuses_with_a_wait() {
    let backend = Backend::start(|_| vec![Step::Wait, Step::Write(chat_answer(5, 7))]).await;
    let limits = "concurrent_requests: 1, on_concurrency_excess: reject";
    let gateway = gateway(&limited(backend.address, limits, "")).await;
    let second = async {
        backend.has_got(1).await;
        let refused = gateway.chat(&chat_body(5, 10)).await;
        backend.go_on();
        refused
    };
    let body = chat_body(5, 10);
    let (first, refused) = tokio::join!(gateway.chat(&body), second);
    assert_eq!((first.status, refused.status), (200, 429));
    assert_eq!(refused.header("x-fairlane-limit"), "tenant/t/concurrent_requests");
    check_retry(&refused, Comes::Back);
}

#[tokio::test]
async fn the_second_refused_caller_is_told_a_longer_wait_than_the_first() {
    let backend = Backend::start(|_| vec![Step::Wait, Step::Write(chat_answer(1_000, 1_000))]).await;
    let gateway = gateway(&limited(backend.address, "tokens: 100/s burst 20s", "")).await;
    let refusals = async {
        backend.has_got(1).await;
        let body = chat_body(500, 500);
        let replies = join_all((0..3).map(|_| gateway.chat(&body))).await;
        backend.go_on();
        replies
    };
    let body = chat_body(1_000, 1_000);
    let (_, replies) = tokio::join!(gateway.chat(&body), refusals);
    let mut waits: Vec<i64> = replies.iter().map(|reply| reply.number("retry-after-ms")).collect();
    waits.sort_unstable();
    // Each behind the 1,000 tokens promised before: ten seconds more at 100 a second.
    assert!(waits[0] <= 10_000, "{waits:?}");
    for pair in waits.windows(2) {
        assert!((9_000..=10_000).contains(&(pair[1] - pair[0])), "{waits:?}");
    }
}

#[tokio::test]
async fn a_wait_above_a_minute_tells_clients_not_to_retry_by_themselves() {
    let backend = echo().await;
    let gateway = gateway(&limited(backend.address, "requests: 1/hour burst 1h", "")).await;
    assert_eq!(gateway.chat(&chat_body(5, 10)).await.status, 200);
    gateway.idle().await;
    let refused = gateway.chat(&chat_body(5, 10)).await;
    assert_eq!((refused.status, refused.header("x-should-retry")), (429, "false"));
    assert!(refused.number("retry-after") > 60);
}

#[tokio::test]
async fn every_answer_to_a_known_key_carries_its_budgets_in_the_dialects_own_names() {
    let names = [
        ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
        [
            "anthropic-ratelimit-tokens-limit",
            "anthropic-ratelimit-tokens-remaining",
            "anthropic-ratelimit-tokens-reset",
        ],
    ];
    for (path, [limit, remaining, reset]) in PATHS.into_iter().zip(names) {
        let backend = Backend::start(|got| {
            let status = if got.json()["max_tokens"] == 13 { 500 } else { 200 };
            vec![Step::Write(json_answer(status, &answer_of(got)))]
        })
        .await;
        let yaml = limited(backend.address, "tokens: 2000/day burst 1d", "");
        let gateway = gateway(&format!("bounds: {{max_body: 8KiB}}\n{yaml}")).await;
        let mut unknown_model = chat_body(5, 10);
        unknown_model["model"] = json!("unknown");
        let bodies = [
            (200, chat_body(5, 10)),
            (400, json!({"model": "m", "messages": 3})),
            (404, unknown_model),
            (413, chat_body(8_000, 10)),
            (500, chat_body(5, 13)),
        ];
        for (status, body) in bodies {
            let reply = gateway.post(path, &body).await;
            assert_eq!(reply.status, status, "{}", reply.text());
            check_budget(&reply, limit, remaining);
            assert!(!reply.header(reset).is_empty());
            gateway.idle().await;
        }
        let refused = gateway.post(path, &chat_body(1_000, 995)).await;
        assert_eq!(refused.status, 429);
        check_budget(&refused, limit, remaining);
    }
}

#[tokio::test]
async fn a_list_of_models_carries_budgets_and_an_unknown_key_sees_none() {
    let backend = echo().await;
    let gateway = gateway(&limited(backend.address, "tokens: 2000/day burst 1d", "")).await;
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str())];
    let models = send(gateway.address(), "GET", "/v1/models", &headers, "".into()).await;
    assert_eq!(models.status, 200);
    check_budget(&models, "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens");
    let headers = [("authorization", "Bearer wrong")];
    let unknown = send(gateway.address(), "GET", "/v1/models", &headers, "".into()).await;
    assert_eq!(unknown.status, 401);
    assert!(!unknown.headers.keys().any(|name| name.contains("ratelimit")));
}

fn check_budget(reply: &Reply, limit: &str, remaining: &str) {
    assert_eq!(reply.number(limit), 2_000, "{}", reply.status);
    assert!((0..=2_000).contains(&reply.number(remaining)));
    assert!(
        reply.header("ratelimit-policy").starts_with("\"tenant-tokens\";q=2000;w=86400"),
        "{:?}",
        reply.headers
    );
    assert!(reply.header("ratelimit").starts_with("\"tenant-tokens\";r="));
    assert!(!reply.header("x-fairlane-request-id").is_empty());
}

#[tokio::test]
async fn a_class_may_be_asked_for_and_is_never_better_than_the_tenants_own() {
    let backend = echo().await;
    let yaml =
        format!("{}tenants: [{{name: t, class: batch, keys: [\"{KEY}\"]}}]\n", pool(&[backend.address], ""));
    let gateway = gateway(&yaml).await;
    for (asked, got) in
        [("interactive", "batch"), ("batch", "batch"), ("background", "background"), ("x", "batch")]
    {
        let headers = [("x-fairlane-class", asked)];
        let reply = gateway.post_with(PATHS[0], &headers, &chat_body(5, 10)).await;
        assert_eq!((reply.status, reply.header("x-fairlane-class")), (200, got), "asked {asked}");
    }
    assert!(backend.got().iter().all(|got| got.header("x-fairlane-class").is_none()));
}

#[tokio::test]
async fn a_lowered_output_bound_is_told_and_sent_on() {
    let backend = echo().await;
    let gateway = gateway(&limited(backend.address, "max_output_tokens: 50", "")).await;
    let clamped = async |gateway: &TestGateway, path: &str, body: &Value| {
        let reply = gateway.post(path, body).await;
        assert_eq!(reply.status, 200);
        reply.header("x-fairlane-clamped").to_owned()
    };
    for path in PATHS {
        assert_eq!(clamped(&gateway, path, &chat_body(5, 60)).await, "max_tokens=50");
        assert_eq!(backend.got().pop().unwrap().json()["max_tokens"], 50);
        assert_eq!(clamped(&gateway, path, &chat_body(5, 50)).await, "");
    }
    let metrics = crate::cases_a::metrics(&gateway).await;
    assert!(metrics.contains("fairlane_clamped_total{tenant=\"t\"} 2"), "{metrics}");
}
