//! Every row of `data/requests.jsonl` that bytes alone decide.

use std::io::Write as _;

use fairlane_wire::decode::{DecodeError, decode};
use fairlane_wire::request::{Detail, ImageSource, RequestError};
use serde_json::{Map, Value, json};

use super::*;

const BODY_LIMIT_BYTES: usize = 32 << 20;
const CAP_TOKENS: u64 = 4_096;
const DEFAULT_TOKENS: u64 = 1_024;

struct Row {
    id: String,
    endpoint: Endpoint,
    encoding: Option<String>,
    body: Vec<u8>,
    expect: Map<String, Value>,
}

fn rows() -> Vec<Row> {
    let lines = include_str!("../data/requests.jsonl").lines();
    lines.map(|line| row(&serde_json::from_str(line).unwrap())).collect()
}

fn row(row: &Value) -> Row {
    let plain = row["body"].as_str().unwrap_or_default().as_bytes().to_vec();
    let generated = &row["body_gen"];
    let body = match generated["kind"].as_str() {
        None => plain,
        Some("gzip_of_body") => gzip(&plain),
        Some("zstd") => include_bytes!("../data/zstd/bomb_200mb.zst").to_vec(),
        Some("nest") => {
            let depth = generated["depth"].as_u64().unwrap() as usize;
            generated["open"].as_str().unwrap().repeat(depth).into_bytes()
        }
        Some("chat_image") => image_chat(
            generated["text"].as_str().unwrap(),
            generated["base64_bytes"].as_u64().unwrap() as usize,
        ),
        Some("chat_words") => {
            let repeat = generated["repeat"].as_u64().unwrap() as usize;
            let content = generated["word"].as_str().unwrap().repeat(repeat);
            let messages = json!([{"role": "user", "content": content}]);
            let max_tokens = &generated["max_tokens"];
            json!({"model": "m", "max_tokens": max_tokens, "messages": messages}).to_string().into_bytes()
        }
        Some(other) => panic!("no generator for {other}"),
    };
    Row {
        id: row["id"].as_str().unwrap().to_owned(),
        endpoint: Endpoint::from_path("POST", row["path"].as_str().unwrap()).unwrap(),
        encoding: row["headers"]["content-encoding"].as_str().map(str::to_owned),
        body,
        expect: row["expect"].as_object().unwrap().clone(),
    }
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn image_chat(text: &str, base64_bytes: usize) -> Vec<u8> {
    let url = format!("data:image/png;base64,{}", "A".repeat(base64_bytes));
    let content = json!([
        {"type": "text", "text": text},
        {"type": "image_url", "image_url": {"url": url}},
    ]);
    json!({"model": "m", "messages": [{"role": "user", "content": content}]}).to_string().into_bytes()
}

/// What a gateway with the default bound and the cap reserves for the output.
fn reserved_output(facts: &RequestFacts<'_>) -> u64 {
    facts.generations() * facts.output_bound.unwrap_or(DEFAULT_TOKENS).min(CAP_TOKENS)
}

#[test]
fn every_row_of_the_table_is_refused_or_reserved_as_it_says() {
    let rows = rows();
    assert_eq!(rows.len(), 37);
    for Row { id, endpoint, encoding, body, expect } in &rows {
        let decoded = decode(encoding.as_deref(), body, BODY_LIMIT_BYTES);
        let status = &expect["status"];
        if status == 413 {
            assert!(matches!(decoded, Err(DecodeError::TooLarge { .. })), "{id}");
            continue;
        }
        let decoded = decoded.unwrap();
        let facts = read(*endpoint, &decoded);
        if status == 400 {
            assert!(facts.is_err(), "{id}");
            continue;
        }
        let facts = facts.unwrap_or_else(|error| panic!("{id}: {error}"));
        if let Some(output) = expect.get("reserve_output").and_then(Value::as_u64) {
            assert_eq!(reserved_output(&facts), output, "{id}");
        }
        if let Some(input) = expect.get("reserve_input").and_then(Value::as_u64) {
            assert_eq!(facts.token_ids(), input, "{id}");
        }
    }
}

fn facts_of<T>(id: &str, look: impl FnOnce(&[u8], RequestFacts<'_>) -> T) -> T {
    let row = rows().into_iter().find(|row| row.id == id).unwrap();
    let body = decode(row.encoding.as_deref(), &row.body, BODY_LIMIT_BYTES).unwrap();
    look(&body, read(row.endpoint, &body).unwrap())
}

fn error_of(id: &str) -> RequestError {
    let row = rows().into_iter().find(|row| row.id == id).unwrap();
    read(row.endpoint, &row.body).unwrap_err()
}

#[test]
fn refusals_of_the_table_name_the_member_at_fault() {
    for (id, param) in [
        ("q03_zero", "max_tokens"),
        ("q04_negative", "max_tokens"),
        ("q05_string", "max_tokens"),
        ("q07_float_fraction", "max_tokens"),
        ("q23_dup_max_tokens", "max_tokens"),
        ("q25_dup_stream", "stream"),
        ("q45_anthropic_no_max_tokens", "max_tokens"),
    ] {
        assert_eq!(error_of(id).param(), Some(param), "{id}");
    }
    assert_eq!(error_of("q32_top_level_array"), RequestError::NotAnObject);
    assert_eq!(error_of("q33_empty_body"), RequestError::Empty);
    assert!(matches!(error_of("q30_invalid_json"), RequestError::Syntax { at: 25, .. }));
    assert!(matches!(error_of("q34_deep_nesting"), RequestError::TooDeep { .. }));
}

#[test]
fn q09_a_huge_bound_is_rewritten_to_the_cap() {
    facts_of("q09_huge_1e12", |body, facts| {
        assert_eq!(facts.output_bound, Some(1_000_000_000_000));
        let edits = Edits { output_bound: Some(CAP_TOKENS), ..Edits::default() };
        let sent: Value = serde_json::from_slice(&splice(&facts.layout, &edits).apply(body)).unwrap();
        assert_eq!(sent["max_tokens"], CAP_TOKENS);
    });
    let beyond = r#"{"model":"m","messages":[],"max_tokens":99999999999999999999999}"#;
    let facts = read(Endpoint::ChatCompletions, beyond.as_bytes()).unwrap();
    assert_eq!(facts.output_bound, Some(u64::MAX));
}

#[test]
fn q18_token_ids_are_one_prompt_and_arrays_of_them_are_many() {
    facts_of("q18_prompt_token_ids", |_, facts| {
        assert_eq!((facts.prompts, facts.token_ids()), (1, 5));
        assert_eq!(facts.segments(), [Segment::Prompt, Segment::TokenIds(5)]);
    });
    let body = br#"{"model":"m","prompt":[[1,2],[3],[]],"n":2,"best_of":4}"#;
    let facts = read(Endpoint::Completions, body).unwrap();
    assert_eq!((facts.prompts, facts.token_ids(), facts.generations()), (3, 3, 12));
}

#[test]
fn q39_an_image_in_the_body_is_an_image_and_no_text() {
    facts_of("q39_image_10mb", |_, facts| {
        assert_eq!(texts(&facts), ["what is this", "user"]);
        let images = images(&facts);
        assert_eq!(images.len(), 1);
        assert_eq!(images[0].detail, Detail::Auto);
        let ImageSource::Base64(data) = images[0].source else {
            panic!("the image is in the body");
        };
        assert_eq!(data.encoded_bytes(), 10_485_760);
        assert_eq!(data.first_bytes(3), [0, 0, 0]);
    });
}

#[test]
fn q41_q43_q44_q47_the_texts_that_count_are_visited() {
    facts_of("q41_prompt_100k", |_, facts| {
        assert_eq!(texts(&facts)[0].split_whitespace().count(), 100_000);
    });
    facts_of("q43_special_token_text", |_, facts| {
        assert_eq!(texts(&facts)[1], "<|endoftext|><|im_start|>system<|im_end|>");
    });
    facts_of("q44_tools_counted", |_, facts| {
        assert!(facts.has_tools);
        let tools: Vec<_> = facts
            .segments()
            .iter()
            .filter_map(|segment| {
                let Segment::Tool(json) = segment else { return None };
                Some(json.matches("word").count())
            })
            .collect();
        assert!(tools.len() == 1 && tools[0] >= 100, "{tools:?}");
    });
    facts_of("q47_anthropic_system_blocks", |_, facts| {
        assert!(!facts.has_tools);
        let Segment::System(system) = facts.segments()[0] else {
            panic!("the system text comes first in this body");
        };
        assert!(system.decode().split(' ').count() >= 200);
    });
}
