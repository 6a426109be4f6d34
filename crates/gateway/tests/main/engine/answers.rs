//! Answers that are not streamed, counts, models, metrics, and bad requests.

use fairlane::engine::{EngineOptions, Pace, spawn};
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use super::client::{ask, ask_with, get, instant, send};

fn chat(content: &str) -> Value {
    json!({"model": "sim", "messages": [{"role": "user", "content": content}]})
}

fn words(value: &Value) -> u64 {
    value.as_str().unwrap().split_whitespace().count() as u64
}

#[tokio::test]
async fn a_token_is_a_word_in_prompts_and_in_texts() {
    let engine = instant().await;
    let mut body = chat("three little words");
    body["messages"].as_array_mut().unwrap().insert(0, json!({"role": "system", "content": "be kind"}));
    let answer = ask(&engine, "/v1/chat/completions", &body).await.json();
    let text = &answer["choices"][0]["message"]["content"];
    assert_eq!(answer["usage"]["prompt_tokens"], 5);
    assert_eq!(answer["usage"]["completion_tokens"], words(text));
    assert_eq!(answer["usage"]["total_tokens"], 5 + words(text));
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn each_dialect_tells_its_bound_reached_in_its_own_words() {
    let engine = instant().await;
    let mut body = json!({"model": "sim", "input": "a b", "prompt": "a b", "messages": [{"role": "user", "content": "a b"}]});
    body["max_tokens"] = json!(3);
    body["max_output_tokens"] = json!(3);
    let chat = ask(&engine, "/v1/chat/completions", &body).await.json();
    assert_eq!(
        (&chat["choices"][0]["finish_reason"], &chat["usage"]["completion_tokens"]),
        (&json!("length"), &json!(3))
    );
    let completion = ask(&engine, "/v1/completions", &body).await.json();
    assert_eq!(completion["choices"][0]["finish_reason"], "length");
    assert_eq!(words(&completion["choices"][0]["text"]), 3);
    let response = ask(&engine, "/v1/responses", &body).await.json();
    assert_eq!(response["status"], "incomplete");
    assert_eq!(response["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(
        (&response["usage"]["input_tokens"], &response["usage"]["output_tokens"]),
        (&json!(2), &json!(3))
    );
    let message = ask(&engine, "/v1/messages", &body).await.json();
    assert_eq!(message["stop_reason"], "max_tokens");
    assert_eq!(message["usage"], json!({"input_tokens": 2, "output_tokens": 3}));
}

#[tokio::test]
async fn sizes_asked_for_in_the_body_or_in_headers_are_kept_to() {
    let engine = instant().await;
    let mut body = chat("one");
    body["sim"] = json!({"prompt_tokens": 900, "output_tokens": 7});
    let usage = ask(&engine, "/v1/chat/completions", &body).await.json()["usage"].clone();
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(900), &json!(7)));
    let headers = [("x-sim-prompt-tokens", "30"), ("x-sim-output-tokens", "0")];
    let answer = ask_with(&engine, "/v1/chat/completions", &body, &headers).await.json();
    assert_eq!(answer["usage"]["prompt_tokens"], 30);
    assert_eq!(answer["choices"][0]["message"]["content"], "");
}

#[tokio::test]
async fn equal_seeds_answer_equally_and_other_seeds_differently() {
    let options = EngineOptions { pace: Pace::Instant, ..EngineOptions::default() };
    let first = spawn(options.clone()).await.unwrap();
    let second = spawn(options.clone()).await.unwrap();
    let other = spawn(EngineOptions { seed: 2, ..options }).await.unwrap();
    let body = chat("the same question");
    let path = "/v1/chat/completions";
    let answer = ask(&first, path, &body).await.body;
    assert_eq!(answer, ask(&second, path, &body).await.body);
    assert_ne!(answer, ask(&other, path, &body).await.body);
}

#[tokio::test]
async fn all_choices_are_made_and_the_prompt_counts_once() {
    let engine = instant().await;
    let mut body = chat("a b c");
    body["n"] = json!(3);
    body["max_tokens"] = json!(4);
    let answer = ask(&engine, "/v1/chat/completions", &body).await.json();
    let texts: Vec<&Value> =
        answer["choices"].as_array().unwrap().iter().map(|c| &c["message"]["content"]).collect();
    assert_eq!(texts.len(), 3);
    assert_ne!(texts[0], texts[1]);
    assert_eq!(
        (&answer["usage"]["prompt_tokens"], &answer["usage"]["completion_tokens"]),
        (&json!(3), &json!(12))
    );
}

#[tokio::test]
async fn many_prompts_with_best_of_show_n_of_each_and_count_all() {
    let engine = instant().await;
    let body = json!({"prompt": ["a b", [1, 2, 3]], "n": 1, "best_of": 2, "max_tokens": 5});
    let answer = ask(&engine, "/v1/completions", &body).await.json();
    assert_eq!(answer["choices"].as_array().unwrap().len(), 2);
    assert_eq!(
        (&answer["usage"]["prompt_tokens"], &answer["usage"]["completion_tokens"]),
        (&json!(5), &json!(20))
    );
    assert_eq!(engine.records(0)[0].produced, 20);
}

#[tokio::test]
async fn a_tool_is_called_with_its_arguments_in_every_dialect() {
    let engine = instant().await;
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let function = json!({"name": "weather", "parameters": schema});
    let chat = json!({"messages": [{"role": "user", "content": "hi"}], "tool_choice": "required",
        "tools": [{"type": "function", "function": function}]});
    let answer = ask(&engine, "/v1/chat/completions", &chat).await.json();
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    let call = &answer["choices"][0]["message"]["tool_calls"][0]["function"];
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert!(call["name"] == "weather" && arguments["city"].is_string());

    let messages = json!({"messages": [{"role": "user", "content": "please use the tool"}], "max_tokens": 100,
        "tools": [{"name": "weather", "input_schema": schema}]});
    let answer = ask(&engine, "/v1/messages", &messages).await.json();
    assert_eq!(answer["stop_reason"], "tool_use");
    assert!(answer["content"][0]["input"]["city"].is_string());

    let responses = json!({"input": "hi", "tool_choice": {"type": "function", "name": "weather"},
        "tools": [{"type": "function", "name": "weather", "parameters": schema}]});
    let answer = ask(&engine, "/v1/responses", &responses).await.json();
    assert_eq!(
        (&answer["output"][0]["type"], &answer["status"]),
        (&json!("function_call"), &json!("completed"))
    );
}

#[tokio::test]
async fn embeddings_are_the_same_vectors_in_both_formats() {
    let engine = instant().await;
    let body = json!({"input": ["a b", "c"], "dimensions": 3});
    let numbers = ask(&engine, "/v1/embeddings", &body).await.json();
    assert_eq!(numbers["usage"], json!({"prompt_tokens": 3, "total_tokens": 3}));
    assert_eq!(numbers["data"].as_array().unwrap().len(), 2);
    let mut packed = body;
    packed["encoding_format"] = json!("base64");
    let packed = ask(&engine, "/v1/embeddings", &packed).await.json();
    let text = packed["data"][1]["embedding"].as_str().unwrap();
    let expected: Vec<u8> = numbers["data"][1]["embedding"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|number| (number.as_f64().unwrap() as f32).to_le_bytes())
        .collect();
    assert_eq!(unpack(text), expected);
}

/// Base64 without padding, 12 bytes at most: enough for three numbers.
fn unpack(text: &str) -> Vec<u8> {
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = text.chars().fold(0_u128, |bits, c| bits << 6 | alphabet.find(c).unwrap() as u128);
    bits.to_be_bytes()[4..].to_vec()
}

#[tokio::test]
async fn every_count_endpoint_counts_the_same_words() {
    let engine = instant().await;
    let body = json!({"model": "sim", "system": "a", "instructions": "a", "prompt": "a b c",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "b c"}]}],
        "messages": [{"role": "user", "content": "b c"}]});
    let tokenize = ask(&engine, "/tokenize", &body).await.json();
    assert_eq!((&tokenize["count"], tokenize["tokens"].as_array().unwrap().len()), (&json!(3), 3));
    assert_eq!(ask(&engine, "/v1/messages/count_tokens", &body).await.json(), json!({"input_tokens": 3}));
    assert_eq!(ask(&engine, "/v1/responses/input_tokens", &body).await.json()["input_tokens"], 3);
}

#[tokio::test]
async fn models_health_and_paths_unknown_answer_plainly() {
    let engine = instant().await;
    assert_eq!(get(&engine, "/v1/models").await.json()["data"][0]["max_model_len"], 131_072);
    assert_eq!(get(&engine, "/v1/models/sim").await.json()["id"], "sim");
    assert_eq!(get(&engine, "/health").await.status, 200);
    for path in ["/v1/models/other", "/v2/anything"] {
        assert_eq!(get(&engine, path).await.status, 404);
    }
    assert_eq!(get(&engine, "/v1/chat/completions").await.status, 405);
}

#[tokio::test]
async fn a_prompt_seen_before_is_reported_as_cached() {
    let options = EngineOptions { pace: Pace::Instant, prefix_cache: true, ..EngineOptions::default() };
    let engine = spawn(options).await.unwrap();
    let body = chat(&"word ".repeat(40));
    let first = ask(&engine, "/v1/chat/completions", &body).await.json();
    let second = ask(&engine, "/v1/chat/completions", &body).await.json();
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(second["usage"]["prompt_tokens_details"]["cached_tokens"], 32);
    let mut body = body;
    body["max_tokens"] = json!(1);
    let usage = ask(&engine, "/v1/messages", &body).await.json()["usage"].clone();
    assert_eq!((&usage["input_tokens"], &usage["cache_read_input_tokens"]), (&json!(8), &json!(32)));
    let metrics = get(&engine, "/metrics").await.body;
    assert!(
        String::from_utf8_lossy(&metrics)
            .contains("vllm:prefix_cache_hits_total{model_name=\"sim\",engine=\"0\"} 64")
    );
}

#[tokio::test]
async fn metrics_carry_vllms_names_and_count_what_ran() {
    let engine = instant().await;
    let mut body = chat("a b c");
    body["max_tokens"] = json!(4);
    ask(&engine, "/v1/chat/completions", &body).await;
    let page = get(&engine, "/metrics").await.body;
    let page = String::from_utf8_lossy(&page);
    let labels = "{model_name=\"sim\",engine=\"0\"}";
    for line in [
        format!("vllm:num_requests_running{labels} 0"),
        format!("vllm:num_requests_waiting{labels} 0"),
        format!("vllm:kv_cache_usage_perc{labels} 0"),
        format!("vllm:prompt_tokens_total{labels} 3"),
        format!("vllm:generation_tokens_total{labels} 4"),
        format!("vllm:num_preemptions_total{labels} 0"),
        format!("vllm:time_to_first_token_seconds_count{labels} 1"),
        format!("vllm:inter_token_latency_seconds_count{labels} 3"),
        String::from("vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"30000\"} 1"),
        String::from(
            "vllm:request_success_total{model_name=\"sim\",engine=\"0\",finished_reason=\"length\"} 1",
        ),
    ] {
        assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
    }
}

#[tokio::test]
async fn bad_bodies_are_400_with_an_integer_code_and_the_fields_name() {
    let engine = instant().await;
    for (path, body, named) in [
        ("/v1/chat/completions", json!({"model": "sim"}), "messages"),
        ("/v1/chat/completions", json!({"messages": [], "n": 0}), "choices"),
        ("/v1/chat/completions", json!({"messages": [], "max_tokens": "9"}), "max_tokens"),
        ("/v1/chat/completions", json!({"messages": [], "max_tokens": 0}), "max_tokens"),
        ("/v1/chat/completions", json!({"messages": [], "max_tokens": 131_073}), "maximum context length"),
        ("/v1/completions", json!({"prompt": {"a": 1}}), "prompt"),
        ("/v1/completions", json!({"prompt": []}), "prompt"),
        ("/v1/completions", json!({"prompt": ["a", "b"], "n": u64::MAX}), "choices"),
        ("/v1/completions", json!({"prompt": "a", "n": 2, "best_of": 1}), "best_of"),
        (
            "/v1/chat/completions",
            json!({"messages": [], "sim": {"prompt_tokens": u64::MAX}}),
            "context length",
        ),
        ("/v1/embeddings", json!({"input": "a", "dimensions": 0}), "dimensions"),
        ("/v1/responses", json!({"stream": true}), "input"),
    ] {
        let answer = ask(&engine, path, &body).await;
        assert_eq!(answer.status, 400, "{path} {body}");
        let error = answer.json()["error"].clone();
        assert_eq!(error["code"], 400);
        assert!(error["message"].as_str().unwrap().contains(named), "{error}");
    }
    let no_bound = ask(&engine, "/v1/messages", &chat("a")).await;
    assert_eq!(
        (no_bound.status.as_u16(), &no_bound.json()["error"]["type"]),
        (400, &json!("invalid_request_error"))
    );
    let unknown = ask(&engine, "/v1/chat/completions", &json!({"model": "x", "messages": []})).await;
    assert_eq!((unknown.status.as_u16(), &unknown.json()["error"]["type"]), (404, &json!("NotFoundError")));
}

#[tokio::test]
async fn text_that_is_no_json_and_bodies_over_16_mib_are_refused() {
    let engine = instant().await;
    let url = format!("{}/v1/chat/completions", engine.urls()[0]);
    let request = |body: Vec<u8>| Request::post(&url).body(Full::from(body)).unwrap();
    assert_eq!(send(request(b"{\"model\":".to_vec())).await.status, 400);
    assert_eq!(send(request(b"[]".to_vec())).await.status, 400);
    assert_eq!(send(request([b"[".repeat(100_000), b"]".repeat(100_000)].concat())).await.status, 400);
    assert_eq!(send(request(vec![b' '; 16 * 1024 * 1024 + 1])).await.status, 413);
}

#[tokio::test]
async fn the_log_tells_what_came_and_keeps_no_credential() {
    let engine = instant().await;
    let mut body = chat("a b");
    body["max_tokens"] = json!(6);
    body["priority"] = json!(3);
    body["stream_options"] = json!({"include_usage": true});
    let headers = [("authorization", "Bearer very-secret"), ("x-other", "1")];
    let answer = ask_with(&engine, "/v1/chat/completions", &body, &headers).await;
    let page = get(&engine, "/sim/log").await;
    assert!(!String::from_utf8_lossy(&page.body).contains("very-secret"));
    let record = &page.json()[0];
    assert_eq!(answer.headers["x-sim-request"], record["id"].to_string().as_str());
    let facts = [
        ("endpoint", json!("/v1/chat/completions")),
        ("status", json!(200)),
        ("prompt", json!(2)),
        ("produced", json!(6)),
        ("sent", json!(6)),
        ("cancelled", json!(false)),
        ("fault", json!("none")),
        ("max_tokens", json!(6)),
        ("priority", json!(3)),
        ("include_usage", json!(true)),
        ("headers", json!(["x-other"])),
        ("fields", json!(["max_tokens", "messages", "model", "priority", "stream_options"])),
    ];
    for (name, value) in facts {
        assert_eq!(record[name], value, "{name}");
    }
    assert!(record["credential"].as_str().unwrap().starts_with("sha256:"));
}
