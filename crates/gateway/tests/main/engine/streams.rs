//! Streams: their events in order, one token each, and the same content as the whole answer.

use serde_json::{Value, json};

use super::client::{Event, ask, instant};

fn body() -> Value {
    json!({"model": "sim", "messages": [{"role": "user", "content": "a b c"}], "prompt": "a b c", "input": "a b c",
        "max_tokens": 9, "max_output_tokens": 9})
}

fn streamed(mut body: Value) -> Value {
    body["stream"] = json!(true);
    body
}

fn text(events: &[Event], pointer: &str) -> String {
    let events = events.iter().filter(|event| event.data != "[DONE]");
    events.filter_map(|event| event.json().pointer(pointer)?.as_str().map(String::from)).collect()
}

#[tokio::test]
async fn a_chat_stream_has_a_role_one_token_a_chunk_a_finish_and_the_end_mark() {
    let engine = instant().await;
    let whole = ask(&engine, "/v1/chat/completions", &body()).await.json();
    let events = ask(&engine, "/v1/chat/completions", &streamed(body())).await.events();
    assert_eq!(events.len(), 1 + 9 + 1 + 1);
    assert_eq!(events[0].json()["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!(
        text(&events, "/choices/0/delta/content"),
        whole["choices"][0]["message"]["content"].as_str().unwrap()
    );
    assert_eq!(events[10].json()["choices"][0]["finish_reason"], "length");
    assert_eq!(events[11].data, "[DONE]");
    assert!(events[..11].iter().all(|event| event.json().get("usage").is_none()));
}

#[tokio::test]
async fn usage_comes_in_a_chunk_of_its_own_when_it_is_asked_for() {
    let engine = instant().await;
    let mut body = streamed(body());
    body["stream_options"] = json!({"include_usage": true});
    for path in ["/v1/chat/completions", "/v1/completions"] {
        let events = ask(&engine, path, &body).await.events();
        let (usage, others) = events[..events.len() - 1].split_last().unwrap();
        assert_eq!(usage.json()["choices"], json!([]));
        assert_eq!(usage.json()["usage"]["total_tokens"], 12);
        assert!(
            others.iter().all(|event| event.json()["usage"].is_null() && event.json().get("usage").is_some())
        );
    }
}

#[tokio::test]
async fn running_usage_counts_up_on_every_chunk_when_it_is_asked_for() {
    let engine = instant().await;
    let mut body = streamed(body());
    body["stream_options"] = json!({"include_usage": true, "continuous_usage_stats": true});
    let events = ask(&engine, "/v1/chat/completions", &body).await.events();
    let counts: Vec<u64> = events[..11]
        .iter()
        .map(|event| event.json()["usage"]["completion_tokens"].as_u64().unwrap())
        .collect();
    assert_eq!(counts, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9]);
}

#[tokio::test]
async fn choices_interleave_and_each_is_whole() {
    let engine = instant().await;
    let mut body = body();
    body["n"] = json!(2);
    let whole = ask(&engine, "/v1/chat/completions", &body).await.json();
    let events = ask(&engine, "/v1/chat/completions", &streamed(body)).await.events();
    for index in 0..2 {
        let of_choice = events.iter().filter(|event| event.data != "[DONE]").map(Event::json);
        let text: String = of_choice
            .filter(|event| event["choices"][0]["index"] == index)
            .filter_map(|event| event.pointer("/choices/0/delta/content")?.as_str().map(String::from))
            .collect();
        assert_eq!(text, whole["choices"][index]["message"]["content"].as_str().unwrap());
    }
    let order: Vec<Value> =
        events[2..6].iter().map(|event| event.json()["choices"][0]["index"].clone()).collect();
    assert_eq!(order, [0, 1, 0, 1]);
}

#[tokio::test]
async fn running_usage_is_that_of_the_choice_at_hand() {
    let engine = instant().await;
    let mut body = streamed(body());
    body["n"] = json!(2);
    body["stream_options"] = json!({"include_usage": true, "continuous_usage_stats": true});
    let events = ask(&engine, "/v1/chat/completions", &body).await.events();
    let told: Vec<(Value, Value)> = events[2..8]
        .iter()
        .map(Event::json)
        .map(|event| (event["choices"][0]["index"].clone(), event["usage"]["completion_tokens"].clone()))
        .collect();
    let expected = [(0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3)];
    assert_eq!(told, expected.map(|(choice, tokens)| (json!(choice), json!(tokens))));
}

#[tokio::test]
async fn a_completion_stream_is_the_whole_text() {
    let engine = instant().await;
    let whole = ask(&engine, "/v1/completions", &body()).await.json();
    let events = ask(&engine, "/v1/completions", &streamed(body())).await.events();
    assert_eq!(events.len(), 9 + 1 + 1);
    assert_eq!(text(&events, "/choices/0/text"), whole["choices"][0]["text"].as_str().unwrap());
}

#[tokio::test]
async fn a_response_stream_numbers_its_events_and_ends_with_the_whole_answer() {
    let engine = instant().await;
    let mut body = body();
    body["max_output_tokens"] = json!(500);
    body["sim"] = json!({"output_tokens": 2});
    let whole = ask(&engine, "/v1/responses", &body).await.json();
    let events = ask(&engine, "/v1/responses", &streamed(body)).await.events();
    let names: Vec<&str> = events.iter().map(|event| event.name.as_deref().unwrap()).collect();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(names, expected);
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event.json()["sequence_number"], number);
        assert_eq!(event.json()["type"], expected[number]);
    }
    assert_eq!(events[9].json()["response"], whole);
    assert_eq!(text(&events, "/delta"), whole["output"][0]["content"][0]["text"].as_str().unwrap());
}

#[tokio::test]
async fn a_message_stream_has_anthropics_events_and_its_final_usage() {
    let engine = instant().await;
    let mut body = body();
    body["max_tokens"] = json!(2);
    let whole = ask(&engine, "/v1/messages", &body).await.json();
    let events = ask(&engine, "/v1/messages", &streamed(body)).await.events();
    let names: Vec<&str> = events.iter().map(|event| event.name.as_deref().unwrap()).collect();
    let expected = [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(names, expected);
    assert_eq!(text(&events, "/delta/text"), whole["content"][0]["text"].as_str().unwrap());
    assert_eq!(events[0].json()["message"]["usage"]["input_tokens"], 3);
    assert_eq!(events[6].json()["usage"], whole["usage"]);
    assert_eq!(events[6].json()["delta"]["stop_reason"], "max_tokens");
}

#[tokio::test]
async fn a_message_bound_of_zero_is_legal_and_has_no_content() {
    let engine = instant().await;
    let mut body = body();
    body["max_tokens"] = json!(0);
    assert_eq!(ask(&engine, "/v1/messages", &body).await.json()["content"], json!([]));
    let events = ask(&engine, "/v1/messages", &streamed(body)).await.events();
    let names: Vec<&str> = events.iter().map(|event| event.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["message_start", "message_delta", "message_stop"]);
}

#[tokio::test]
async fn streamed_tool_arguments_join_to_those_of_the_whole_answer() {
    let engine = instant().await;
    let schema =
        json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}});
    let tool = json!({"type": "function", "name": "weather", "parameters": schema, "input_schema": schema,
        "function": {"name": "weather", "parameters": schema}});
    let question = json!({"messages": [{"role": "user", "content": "use the tool"}], "input": "use the tool",
        "tools": [tool], "max_tokens": 100, "max_output_tokens": 100});
    for (path, part, arguments) in [
        (
            "/v1/chat/completions",
            "/choices/0/delta/tool_calls/0/function/arguments",
            "/choices/0/message/tool_calls/0/function/arguments",
        ),
        ("/v1/responses", "/delta", "/output/0/arguments"),
        ("/v1/messages", "/delta/partial_json", "/content/0/input"),
    ] {
        let whole = ask(&engine, path, &question).await.json();
        let events = ask(&engine, path, &streamed(question.clone())).await.events();
        let joined = text(&events, part);
        let expected = whole.pointer(arguments).unwrap();
        match expected.as_str() {
            Some(expected) => assert_eq!(joined, expected),
            None => assert_eq!(&serde_json::from_str::<Value>(&joined).unwrap(), expected),
        }
    }
}
