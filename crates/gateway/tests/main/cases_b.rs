//! Time, reload and bounded memory: the failures of group B that need no shared store, by their ids.

#![cfg(test)]

use std::collections::BTreeMap;

use fairlane::clock::monotonic;
use fairlane::config::Source;
use fairlane::driver::Decision;
use fairlane::serve::{Origin, Overrides, read};
use fairlane_core::gate::{Arrival, RequestId};
use fairlane_core::policy::{ClassId, ModelId, TenantId};
use fairlane_core::units::Tokens;

use crate::support::{Backend, TestGateway, chat_answer, chat_body, fixture, gateway, limited, until};

const TOKENS: &str = "tenant/t/tokens";

/// Takes on another configuration, as a reload does.
pub(crate) fn reload(gateway: &TestGateway, yaml: &str) {
    let text = format!("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n{yaml}");
    let source = Source::from_text("test.yaml", &text).unwrap();
    let config = read(&Origin::Fixed(Box::new(source)), &BTreeMap::new(), Overrides::default()).unwrap();
    gateway.running.gateway.reload(config).unwrap();
}

#[tokio::test]
async fn b11_reloading_the_same_configuration_refills_nothing() {
    let backend = Backend::always(chat_answer(1_000, 1_000)).await;
    let yaml = fixture(backend.address, "");
    let gateway = gateway(&yaml).await;
    assert_eq!(gateway.chat(&chat_body(1_000, 1_000)).await.status, 200);
    let began = monotonic();
    gateway.idle().await;
    for _ in 0..10 {
        reload(&gateway, &yaml);
    }
    let level = gateway.level("t", TOKENS).await;
    // All that came back is the refill of 100 a second, from the first reservation on.
    let most = 100 * (began.elapsed().as_millis() as i64 + 1_000) / 1_000;
    assert!(level <= most, "{level}, at most {most}");
}

#[tokio::test]
async fn b12_a_changed_limit_holds_at_once_for_buckets_that_exist_and_zero_is_nobody() {
    let backend = Backend::always(chat_answer(5, 5)).await;
    let yaml = |rate: &str| limited(backend.address, &format!("tokens: {rate}"), "");
    let gateway = gateway(&yaml("30/s burst 1s")).await;
    assert_eq!(gateway.chat(&chat_body(5, 5)).await.status, 200);
    gateway.idle().await;

    reload(&gateway, &yaml("0"));
    let refused = gateway.chat(&chat_body(5, 5)).await;
    assert_eq!((refused.status, refused.header("x-should-retry")), (400, "false"));
    assert!(refused.text().contains("nobody may pass"), "{}", refused.text());

    reload(&gateway, &yaml("150/s burst 1s"));
    // The bucket of nobody held nothing, and a reload is no refill: it fills at the rate that holds from here on.
    let began = monotonic();
    let refused = gateway.chat(&chat_body(5, 145)).await;
    assert_eq!((refused.status, refused.number("x-ratelimit-limit-tokens")), (429, 150));
    assert!((1..=1_000).contains(&refused.number("retry-after-ms")));
    while gateway.chat(&chat_body(5, 5)).await.status != 200 {
        assert!(began.elapsed() < std::time::Duration::from_secs(1));
    }
}

#[tokio::test]
async fn b12_a_limit_that_comes_by_reload_holds_for_the_next_request() {
    let backend = Backend::always(chat_answer(5, 5)).await;
    let gateway = gateway(&limited(backend.address, "concurrent_requests: 4", "")).await;
    assert_eq!(gateway.chat(&chat_body(500, 500)).await.status, 200);
    reload(&gateway, &limited(backend.address, "tokens: 10/day burst 1d", ""));
    assert_eq!(gateway.chat(&chat_body(500, 500)).await.status, 400);
    assert_eq!(gateway.chat(&chat_body(5, 5)).await.status, 200);
}

#[tokio::test]
async fn b15_a_flood_of_end_users_stays_bounded_and_evicts_no_bucket_in_use() {
    let backend = Backend::always(chat_answer(5, 5)).await;
    let end_users = "    end_users: {tokens: 100/day burst 1d}\n";
    let bounds = "bounds: {max_end_users: 1000}\n";
    let yaml = format!("{bounds}{}", limited(backend.address, "concurrent_requests: 100000", end_users));
    let gateway = gateway(&yaml).await;
    let driver = &gateway.running.gateway.driver;
    let arrive = |user: u128| {
        let arrival = Arrival {
            request: RequestId(0),
            tenant: TenantId(0),
            key: None,
            class: ClassId(0),
            model: ModelId(0),
            run: None,
            end_user: Some(user),
            input: Tokens(60),
            output_bound: Tokens(0),
            choices: 1,
            wait_max: None,
        };
        driver.arrive(arrival, None)
    };
    let is_admitted = async |user: u128| {
        let mut ticket = arrive(user);
        let admitted = matches!(ticket.decision().await, Decision::Start { .. });
        if admitted {
            ticket.end(used(60));
        }
        admitted
    };
    // An active user has 40 tokens left and may not get 60 more.
    assert!(is_admitted(1).await);
    assert!(!is_admitted(1).await);
    for user in 0..100_000_u128 {
        is_admitted(1_000 + user).await;
    }
    assert!(driver.subjects() <= 1_001, "{}", driver.subjects());
    assert!(!is_admitted(1).await, "the flood gave the active user a full bucket");
    until("nothing is left", || driver.live() == 0).await;
}

fn used(input: u64) -> fairlane_core::gate::Report {
    use fairlane_core::gate::{Answer, Outcome, Report, Reported};
    let reported = Reported { input: Some(Tokens(input)), output: Some(Tokens::ZERO), ..Reported::default() };
    Report { outcome: Outcome::Completed, answer: Answer::Content, reported, counted_output: Tokens::ZERO }
}
