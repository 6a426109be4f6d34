//! Metrics and agent runs: the failures of group E, by their ids.

#![cfg(test)]

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use crate::cases_a::{answer_of, metrics};
use crate::support::{
    Backend, KEY, LAST_CHUNK, STREAM_HEAD, Step, TestGateway, chat_answer, chat_body, chat_stream_end, chunk,
    delta, gateway, json_answer, limited, send, streaming,
};

const FREE: &str = "max_output_tokens: 4096";

#[tokio::test]
async fn e01_a_hundred_thousand_users_make_no_series_of_their_own() {
    // The first thousand over sockets, the rest through the gate and the usage log, which is where names could leak.
    let backend = Backend::start(|got| vec![Step::Write(json_answer(200, &answer_of(got)))]).await;
    let end_users = "    end_users: {tokens: 1000/day burst 1d}\n";
    let gateway = gateway(&limited(backend.address, FREE, end_users)).await;
    let before = series(&metrics(&gateway).await);
    for first in (0..1_000).step_by(50) {
        let bodies: Vec<_> = (first..first + 50)
            .map(|user| json!({"model": "m", "input": "w", "user": format!("somebody-{user}")}))
            .collect();
        let replies = join_all(bodies.iter().map(|body| gateway.post("/v1/embeddings", body))).await;
        assert!(replies.iter().all(|reply| reply.status == 200));
    }
    let driver = &gateway.running.gateway.driver;
    for user in 0..100_000_u128 {
        let mut ticket = driver.arrive(
            fairlane_core::gate::Arrival {
                request: fairlane_core::gate::RequestId(0),
                tenant: fairlane_core::policy::TenantId(0),
                key: None,
                class: fairlane_core::policy::ClassId(0),
                model: fairlane_core::policy::ModelId(0),
                run: None,
                end_user: Some(user),
                input: fairlane_core::units::Tokens(1),
                output_bound: fairlane_core::units::Tokens(0),
                choices: 1,
                wait_max: None,
            },
            None,
        );
        let _ = ticket.decision().await;
        drop(ticket);
    }
    gateway.idle().await;
    let text = metrics(&gateway).await;
    assert!(text.len() < 1 << 20, "{} bytes", text.len());
    assert!(!text.contains("somebody"));
    let grown = series(&text) - before;
    assert!(grown <= 60, "{grown} more series");
}

#[tokio::test]
async fn e02_scanners_and_typos_make_at_most_one_series_each() {
    let backend = Backend::always(chat_answer(1, 1)).await;
    let gateway = gateway(&limited(backend.address, FREE, "")).await;
    let before = series(&metrics(&gateway).await);
    for first in (0..10_000).step_by(50) {
        let paths: Vec<String> =
            (first..first + 50).map(|number| format!("/wp-admin/{number}.php")).collect();
        let bodies: Vec<_> = (first..first + 50)
            .map(|number| json!({"model": format!("gpt-{number}"), "messages": []}))
            .collect();
        let scans = join_all(paths.iter().map(|path| send(gateway.address(), "GET", path, &[], "".into())));
        let typos = join_all(bodies.iter().map(|body| gateway.chat(body)));
        let (scans, typos) = tokio::join!(scans, typos);
        assert!(scans.iter().chain(&typos).all(|reply| reply.status == 404));
    }
    let text = metrics(&gateway).await;
    assert!(series(&text) - before <= 2, "{text}");
    assert!(text.contains("fairlane_rejected_total{reason=\"not_found\"} 20000"), "{text}");
    assert_eq!(gateway.running.gateway.driver.subjects(), 0);
}

#[tokio::test]
async fn e03_time_to_first_token_is_that_of_the_first_content_and_not_of_a_comment_or_role() {
    let role = "{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
                \"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}";
    let reasoning = "{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
                     \"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"w\"},\"finish_reason\":null}]}";
    let pause = Step::Pause(Duration::from_millis(300));
    let contents = [delta("w"), crate::support::event(reasoning)];
    for content in contents {
        let (role, pause) = (crate::support::event(role), pause.clone());
        let backend = Backend::start(move |_| {
            vec![
                Step::Write(STREAM_HEAD.to_vec()),
                Step::Write(chunk(b": keep-alive\n\n")),
                Step::Write(role.clone()),
                pause.clone(),
                Step::Write(content.clone()),
                Step::Write(chat_stream_end(Some((10, 1)))),
            ]
        })
        .await;
        let gateway = gateway(&limited(backend.address, FREE, "")).await;
        assert_eq!(gateway.chat(&streaming(&chat_body(10, 10))).await.status, 200);
        let record = &gateway.ended(1).await[0];
        assert!(record.ttft_ms.is_some_and(|ttft| ttft >= 300), "{record:?}");
    }
}

#[tokio::test]
async fn e03_the_streams_of_the_cases_have_the_first_token_that_they_have() {
    let reasoning = include_bytes!("../../../wire/tests/data/sse/oc_20_reasoning_only.sse");
    let comments = include_bytes!("../../../wire/tests/data/sse/oc_11_comments_keepalive.sse");
    let nothing = b": only a comment\n\ndata: [DONE]\n\n";
    for (stream, has_first) in [(&reasoning[..], true), (&comments[..], true), (&nothing[..], false)] {
        let mut answer = STREAM_HEAD.to_vec();
        answer.extend(chunk(stream));
        answer.extend_from_slice(LAST_CHUNK);
        let backend = Backend::always(answer).await;
        let gateway = gateway(&limited(backend.address, FREE, "")).await;
        assert_eq!(gateway.chat(&streaming(&chat_body(10, 10))).await.status, 200);
        assert_eq!(gateway.ended(1).await[0].ttft_ms.is_some(), has_first);
        let seen = figure(&gateway, "fairlane_time_to_first_token_seconds_count{").await;
        assert_eq!(seen.is_some_and(|count| count > 0.0), has_first);
    }
}

#[tokio::test]
async fn e05_time_per_output_token_counts_tokens_and_not_chunks() {
    // A hundred tokens in ten chunks over a second: half as long as the case, the same arithmetic.
    let backend = Backend::start(|_| {
        let mut steps = vec![Step::Write(STREAM_HEAD.to_vec())];
        for number in 0..10 {
            if number > 0 {
                steps.push(Step::Pause(Duration::from_millis(111)));
            }
            steps.push(Step::Write(delta("w w w w w w w w w w")));
        }
        steps.push(Step::Write(chat_stream_end(Some((10, 100)))));
        steps
    })
    .await;
    let gateway = gateway(&limited(backend.address, FREE, "")).await;
    assert_eq!(gateway.chat(&streaming(&chat_body(10, 200))).await.status, 200);
    let record = gateway.ended(1).await[0].clone();
    let took = (record.total_ms - record.ttft_ms.unwrap()) as f64 / 1_000.0;
    let per_token = figure(&gateway, "fairlane_time_per_output_token_seconds_sum{").await.unwrap();
    assert!((per_token - took / 99.0).abs() < 0.000_1, "{per_token} of {took}");
}

#[tokio::test]
async fn e06_a_run_stops_at_its_budget_and_the_others_go_on() {
    let backend = Backend::start(|got| {
        let words = got.json()["messages"][0]["content"].as_str().unwrap().split(' ').count() as u64;
        vec![Step::Write(chat_answer(words, 500))]
    })
    .await;
    let gateway = gateway(&limited(backend.address, FREE, "    runs: {token_budget: 50000}\n")).await;
    let step = async |run: &str, words: usize| {
        let headers = [("x-fairlane-run", run)];
        gateway.post_with("/v1/chat/completions", &headers, &chat_body(words, 500)).await
    };
    let mut used = 0;
    let refused = loop {
        let words = 6_000 + 1_000 * (gateway.records().len());
        let reply = step("runaway", words).await;
        gateway.idle().await;
        if reply.status != 200 {
            break reply;
        }
        used += words + 500;
        assert!(used <= 50_000);
    };
    // 6,500 + 7,500 + 8,500 + 9,500 + 10,500: the next step of 11,500 would pass the budget.
    assert_eq!(used, 42_500);
    assert_eq!((refused.status, refused.header("x-should-retry")), (429, "false"));
    assert_eq!((refused.header("retry-after"), refused.header("retry-after-ms")), ("", ""));
    assert_eq!(refused.json()["error"]["type"], "insufficient_quota");
    assert_eq!(refused.json()["error"]["code"], "run_budget_exceeded");
    assert_eq!(refused.header("x-fairlane-limit"), "run/t/token_budget");
    assert!(refused.text().contains("11500 asked, 7500 left"), "{}", refused.text());
    assert_eq!(step("another", 6_000).await.status, 200);
    // A smaller step of the same run still fits.
    assert_eq!(step("runaway", 7_000).await.status, 200);
}

#[tokio::test]
async fn e08_runs_are_told_apart_by_their_ids_and_not_by_address_or_key() {
    let backend = Backend::start(|got| vec![Step::Write(json_answer(200, &answer_of(got)))]).await;
    let gateway = gateway(&limited(backend.address, FREE, "    runs: {token_budget: 20}\n")).await;
    let body = chat_body(5, 10);
    for number in 0..13 {
        let run = format!("agent-{number}");
        let headers = [("x-fairlane-run", run.as_str())];
        let reply = gateway.post_with("/v1/chat/completions", &headers, &body).await;
        assert_eq!(reply.status, 200, "each run has a budget of its own");
        gateway.idle().await;
    }
    // 12 of 20 are used: each is at its own end.
    let headers = [("x-fairlane-run", "agent-3")];
    assert_eq!(gateway.post_with("/v1/chat/completions", &headers, &body).await.status, 429);
    // Requests without an id share one run per key.
    assert_eq!(gateway.chat(&body).await.status, 200);
    gateway.idle().await;
    assert_eq!(gateway.chat(&body).await.status, 429);
    let shown = gateway.admin("/api/v1/tenants/t").await;
    assert_eq!(shown["runs"].as_array().unwrap().len(), 14);
}

#[tokio::test]
async fn e08_a_run_id_is_the_tenants_own() {
    let backend = Backend::start(|got| vec![Step::Write(json_answer(200, &answer_of(got)))]).await;
    let yaml = format!(
        "{}tenants:
  - {{name: t, keys: [\"{KEY}\"], runs: {{token_budget: 20}}}}
  - {{name: u, keys: [\"key-of-tenant-u-0001\"], runs: {{token_budget: 20}}}}
",
        crate::support::pool(&[backend.address], "")
    );
    let gateway = gateway(&yaml).await;
    let body = chat_body(5, 10).to_string();
    for key in [KEY, "key-of-tenant-u-0001"] {
        let key = format!("Bearer {key}");
        let headers = [("authorization", key.as_str()), ("x-fairlane-run", "same-id")];
        let path = "/v1/chat/completions";
        let reply = send(gateway.address(), "POST", path, &headers, body.clone().into()).await;
        assert_eq!(reply.status, 200);
    }
}

/// How many series the text has.
fn series(text: &str) -> i64 {
    text.lines().filter(|line| !line.starts_with('#')).count() as i64
}

/// The value of the first series that begins so.
async fn figure(gateway: &TestGateway, series: &str) -> Option<f64> {
    let text = metrics(gateway).await;
    let line = text.lines().find(|line| line.starts_with(series))?;
    line.rsplit(' ').next()?.parse().ok()
}
