//! Faults: each is what it says, streamed or not, and the log tells what was really produced.

use fairlane::engine::{EngineOptions, Fault, Running};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::client::{PATIENCE, ask, ask_with, bytes_before_break, client, events, instant, open, post};

const CHAT: &str = "/v1/chat/completions";

fn body(stream: bool) -> Value {
    json!({"messages": [{"role": "user", "content": "a b c"}], "max_tokens": 9, "stream": stream})
}

fn url(engine: &Running) -> String {
    format!("{}{CHAT}", engine.urls()[0])
}

fn faulty(fault: &str) -> [(&'static str, &str); 1] {
    [("x-sim-fault", fault)]
}

#[tokio::test]
async fn a_status_comes_before_the_first_byte_in_the_dialect_of_the_path() {
    let engine = instant().await;
    for stream in [false, true] {
        for status in ["500", "503", "429"] {
            let answer = ask_with(&engine, CHAT, &body(stream), &faulty(status)).await;
            assert_eq!(answer.status.as_str(), status);
            assert_eq!(answer.json()["error"]["code"], answer.status.as_u16());
            assert!(!answer.headers.contains_key("retry-after"));
        }
        let answer = ask_with(&engine, "/v1/messages", &body(stream), &faulty("529:7")).await;
        assert_eq!(answer.headers["retry-after"], "7");
        assert_eq!(answer.json()["error"]["type"], "overloaded_error");
    }
    assert!(engine.records(0).iter().all(|record| record.produced == 0));
}

#[tokio::test]
async fn d06_a_503_page_of_html_is_one_for_streams_too() {
    let engine = instant().await;
    for stream in [false, true] {
        let answer = ask_with(&engine, CHAT, &body(stream), &faulty("html-503")).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.headers["content-type"]),
            (503, &"text/html".parse().unwrap())
        );
    }
}

#[tokio::test]
async fn a_refusal_closes_the_connection_without_an_answer() {
    let engine = instant().await;
    let request = post(&url(&engine), &body(false), &faulty("refuse"));
    assert!(tokio::time::timeout(PATIENCE, client().request(request)).await.unwrap().is_err());
    assert_eq!(engine.recorded(0, 1).await[0].status, None);
}

#[tokio::test]
async fn an_empty_success_has_no_body() {
    let engine = instant().await;
    for stream in [false, true] {
        let answer = ask_with(&engine, CHAT, &body(stream), &faulty("empty")).await;
        assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 0));
    }
}

#[tokio::test]
async fn d08_a_cut_stream_breaks_after_exactly_the_events_asked_for() {
    let engine = instant().await;
    for count in [0, 1, 4, 11] {
        let fault = format!("cut:{count}");
        let response = open(post(&url(&engine), &body(true), &faulty(&fault))).await;
        let bytes = bytes_before_break(response).await;
        assert_eq!(events(&bytes).len(), count);
    }
    let sent: Vec<u64> = engine.recorded(0, 4).await.iter().map(|record| record.sent).collect();
    assert_eq!(sent, [0, 0, 3, 9]);
}

#[tokio::test]
async fn d08_a_cut_answer_breaks_inside_its_content_length() {
    let engine = instant().await;
    let response = open(post(&url(&engine), &body(false), &faulty("cut:1"))).await;
    let length: usize = response.headers()["content-length"].to_str().unwrap().parse().unwrap();
    assert_eq!(bytes_before_break(response).await.len(), length / 2);
}

#[tokio::test]
async fn an_error_event_ends_a_stream_after_its_tokens_in_every_dialect() {
    let engine = instant().await;
    let events = ask_with(&engine, CHAT, &body(true), &faulty("error-event:3")).await.events();
    assert_eq!(events.len(), 1 + 3 + 1 + 1);
    assert_eq!(events[4].json()["error"]["code"], 500);
    assert_eq!(events[5].data, "[DONE]");
    let events = ask_with(&engine, "/v1/messages", &body(true), &faulty("error-event:3")).await.events();
    assert_eq!(events.last().unwrap().name.as_deref(), Some("error"));
    let response = json!({"input": "a", "stream": true});
    let events = ask_with(&engine, "/v1/responses", &response, &faulty("error-event:3")).await.events();
    assert_eq!(events.last().unwrap().name.as_deref(), Some("error"));
    assert!(engine.recorded(0, 3).await.iter().all(|record| record.cancelled && record.sent == 3));
}

#[tokio::test]
async fn an_overload_is_the_first_event_of_a_stream_and_a_503_otherwise() {
    let engine = instant().await;
    let answer = ask_with(&engine, CHAT, &body(true), &faulty("error-event:0")).await;
    assert_eq!((answer.status.as_u16(), &answer.events()[0].json()["error"]["code"]), (200, &json!(503)));
    assert_eq!(ask_with(&engine, CHAT, &body(false), &faulty("error-event:0")).await.status, 503);
    assert!(engine.recorded(0, 2).await.iter().all(|record| record.produced == 0));
}

#[tokio::test]
async fn usage_can_be_hidden_or_too_high_streamed_or_not() {
    let engine = instant().await;
    let hidden = faulty("no-usage");
    let over = faulty("usage-over:5");
    assert!(ask_with(&engine, CHAT, &body(false), &hidden).await.json().get("usage").is_none());
    assert_eq!(ask_with(&engine, CHAT, &body(false), &over).await.json()["usage"]["completion_tokens"], 14);
    let mut streamed = body(true);
    streamed["stream_options"] = json!({"include_usage": true});
    let events = ask_with(&engine, CHAT, &streamed, &hidden).await.events();
    assert!(events[..events.len() - 1].iter().all(|event| event.json()["usage"].is_null()));
    let events = ask_with(&engine, CHAT, &streamed, &over).await.events();
    assert_eq!(events[events.len() - 2].json()["usage"]["completion_tokens"], 14);
    assert!(engine.recorded(0, 4).await.iter().all(|record| record.produced == 9));
}

#[tokio::test]
async fn a_stall_sends_headers_and_then_nothing_and_works_for_nobody() {
    let engine = instant().await;
    for stream in [false, true] {
        let mut response = open(post(&url(&engine), &body(stream), &faulty("stall"))).await;
        assert_eq!(response.status(), 200);
        // A quarter of a second without a byte is what the test is about, not a wait for something else.
        let silence = tokio::time::timeout(std::time::Duration::from_millis(250), response.frame()).await;
        assert!(silence.is_err());
        drop(response);
    }
    let records = tokio::time::timeout(PATIENCE, engine.recorded(0, 2)).await.unwrap();
    assert!(records.iter().all(|record| record.produced == 0));
}

#[tokio::test]
async fn a_stall_with_an_end_and_a_slow_start_answer_in_full_afterwards() {
    let engine = instant().await;
    let plain = ask(&engine, CHAT, &body(false)).await.body;
    for fault in ["stall:30", "slow-start:30"] {
        assert_eq!(ask_with(&engine, CHAT, &body(false), &faulty(fault)).await.body, plain);
        assert_eq!(ask_with(&engine, CHAT, &body(true), &faulty(fault)).await.events().len(), 12);
    }
}

#[tokio::test]
async fn a_fault_of_the_engine_holds_until_a_header_or_a_switch_overrides_it() {
    let options = EngineOptions { fault: "503".parse().unwrap(), ..EngineOptions::default() };
    let engine = fairlane::engine::spawn(options).await.unwrap();
    assert_eq!(ask(&engine, CHAT, &body(false)).await.status, 503);
    assert_eq!(ask_with(&engine, CHAT, &body(false), &faulty("none")).await.status, 200);
    engine.set_fault(0, Fault::None);
    assert_eq!(ask(&engine, CHAT, &body(false)).await.status, 200);
    let unknown = ask_with(&engine, CHAT, &body(false), &faulty("explode")).await;
    assert_eq!(unknown.status, 400);
}
