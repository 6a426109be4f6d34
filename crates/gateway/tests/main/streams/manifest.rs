//! The 24 streams of the wire crate's manifest, through the whole gateway.

use fairlane::usage_log::Record;
use fairlane_wire::count::Vocabulary;
use fairlane_wire::dialect::Endpoint;
use serde_json::Value;

use super::{
    Asks, CAPACITY, Framing, LIMIT, PROMPT_WORDS, Recording, Stage, data, documents, event_ends, shown,
};
use crate::support::Reply;

/// A line of the manifest.
struct Case {
    recording: Recording,
    expect: Value,
}

fn cases() -> Vec<Case> {
    let manifest = String::from_utf8(data("sse/manifest.jsonl")).unwrap();
    let cases: Vec<Case> = manifest.lines().map(case).collect();
    assert_eq!(cases.len(), 24);
    cases
}

fn case(line: &str) -> Case {
    let row: Value = serde_json::from_str(line).unwrap();
    let name = row["file"].as_str().unwrap().to_owned();
    let bytes = data(&name);
    let splits = match row["splits"].as_str().unwrap() {
        "any" | "every byte offset" => Vec::new(),
        text if text.contains("\\r and \\n") => {
            (1..bytes.len()).filter(|place| bytes[..*place].ends_with(b"\r")).collect()
        }
        text if text.contains("1, 2, 3, 9") => vec![1, 2, 3, 9],
        other => panic!("{name}: no such splits: {other}"),
    };
    let recording = Recording {
        endpoint: match row["format"].as_str().unwrap() {
            "openai_chat" => Endpoint::ChatCompletions,
            "anthropic_messages" => Endpoint::Messages,
            other => panic!("{name}: {other}"),
        },
        coding: row["content_encoding"].as_str().map(str::to_owned),
        max_tokens: row["request_max_tokens"].as_u64().unwrap(),
        choices: if name.contains("n3") { 3 } else { 1 },
        name,
        bytes,
        splits,
    };
    Case { recording, expect: row["expect"].clone() }
}

async fn stage(vocabulary: &str) -> (Stage, Vec<Case>) {
    let cases = cases();
    let recordings = cases.iter().map(|case| case.recording.clone()).collect();
    (Stage::open(vocabulary, recordings).await, cases)
}

fn vocabulary(name: &str) -> Vocabulary {
    Vocabulary::open(name).unwrap()
}

/// What the client must have got.
fn assert_passed(case: &Case, framing: &Framing, asks: Asks, reply: &Reply) {
    let Case { recording, expect } = case;
    let what = format!("{} {framing:?} {asks:?}", recording.name);
    if expect["usage_source"] == "none" {
        // Nothing had been sent, so the error became a status.
        assert_eq!(reply.status, 502, "{what}");
        assert!(!reply.header("content-type").starts_with("text/event-stream"), "{what}");
        assert!(reply.text().contains("too many requests"), "{what}: {}", reply.text());
        return;
    }
    assert_eq!(reply.status, 200, "{what}");
    assert_eq!(reply.header("content-type"), "text/event-stream; charset=utf-8", "{what}");
    assert_eq!(reply.header("content-encoding"), recording.coding.as_deref().unwrap_or_default(), "{what}");
    let shown = shown(recording, asks);
    assert!(reply.body == shown, "{what}:\n{}\n{}", reply.text(), String::from_utf8_lossy(&shown));
    // A length that was announced and kept cannot break; every other way a cut answer ends in a broken connection.
    let keeps_length = matches!(framing, Framing::Length) && !reply.header("content-length").is_empty();
    let is_cut = expect["outcome"] == "interrupted";
    assert_eq!(reply.broken, is_cut && !keeps_length, "{what}");
}

/// What must have been logged and charged.
fn assert_charged(case: &Case, words: &Vocabulary, record: &Record) {
    let Case { recording, expect } = case;
    let name = &recording.name;
    let reserved_output = recording.max_tokens * recording.choices;
    let input = expect["input"].as_u64().unwrap_or_else(|| {
        assert_eq!(expect["input"], "estimate>0", "{name}");
        record.reserved - reserved_output
    });
    let output = expect["output"]
        .as_u64()
        .unwrap_or_else(|| words.count(&counted_text(recording, expect["output"].as_str().unwrap())));
    assert_eq!((record.input, record.output), (input, output), "{name}");
    assert_eq!(record.charged, input + output, "{name}");
    assert_eq!(record.cached, expect["cached"].as_u64().unwrap_or(0), "{name}");
    assert_eq!(record.cache_write, expect["cache_write"].as_u64().unwrap_or(0), "{name}");
    assert_eq!(record.usage_source, expect["usage_source"].as_str().unwrap(), "{name}");
    assert_eq!(record.outcome, expect["outcome"].as_str().unwrap(), "{name}");
    if words.name() == "words" {
        assert_eq!(record.reserved, PROMPT_WORDS + reserved_output, "{name}");
    }
}

/// The text that passed, which the manifest names without the blank at its end.
fn counted_text(recording: &Recording, rule: &str) -> String {
    let text: String = documents(&recording.bytes)
        .iter()
        .filter_map(|event| {
            event["delta"]["text"].as_str().or_else(|| event["choices"][0]["delta"]["content"].as_str())
        })
        .collect();
    assert_eq!(rule, format!("tokenizer({})", text.trim_end()), "{}", recording.name);
    text
}

async fn play_all(name: &str, framings: impl Fn(&Recording) -> Vec<Framing>) {
    let (mut stage, cases) = stage(name).await;
    let words = vocabulary(name);
    for (place, case) in cases.iter().enumerate() {
        for framing in framings(&case.recording) {
            for asks in [Asks::Usage, Asks::Nothing] {
                let (reply, record) = stage.play(place, &framing, asks).await;
                assert_passed(case, &framing, asks, &reply);
                assert_charged(case, &words, &record);
            }
        }
        stage.assert_balanced(&case.recording.name).await;
    }
}

#[tokio::test]
async fn a03_a12_a20_every_stream_of_the_manifest_passes_unchanged_and_is_charged_as_it_says() {
    play_all("words", |recording| {
        let splits = Framing::Cuts(recording.splits.clone());
        vec![Framing::Length, Framing::UntilClose, Framing::Events, splits]
    })
    .await;
}

#[tokio::test]
async fn output_that_nobody_reports_is_counted_with_the_pools_vocabulary() {
    play_all("o200k", |_| vec![Framing::Events]).await;
}

#[tokio::test]
async fn every_stream_of_the_manifest_passes_a_byte_at_a_time() {
    play_all("words", |_| vec![Framing::Bytes]).await;
}

#[tokio::test]
async fn oc_13_passes_unchanged_cut_at_every_byte() {
    let (mut stage, cases) = stage("words").await;
    let words = vocabulary("words");
    let place = cases.iter().position(|case| case.recording.name.contains("oc_13")).unwrap();
    let case = &cases[place];
    for cut in 1..case.recording.bytes.len() {
        let framing = Framing::Cuts(vec![cut]);
        let (reply, record) = stage.play(place, &framing, Asks::Nothing).await;
        assert_passed(case, &framing, Asks::Nothing, &reply);
        assert_charged(case, &words, &record);
    }
    stage.assert_balanced(&case.recording.name).await;
}

#[tokio::test]
async fn d10_a_gzip_header_cut_anywhere_loses_neither_bytes_nor_usage() {
    let (mut stage, cases) = stage("words").await;
    let words = vocabulary("words");
    let place = cases.iter().position(|case| case.recording.coding.is_some()).unwrap();
    let case = &cases[place];
    for framing in [vec![1], vec![2], vec![3], vec![9], vec![1, 2, 3, 9]].map(Framing::Cuts) {
        let (reply, record) = stage.play(place, &framing, Asks::Nothing).await;
        assert_passed(case, &framing, Asks::Nothing, &reply);
        assert_eq!(reply.header("content-encoding"), "gzip");
        assert_charged(case, &words, &record);
    }
    stage.assert_balanced(&case.recording.name).await;
}

#[tokio::test]
async fn e03_the_first_token_is_stamped_on_content_and_not_at_all_where_there_was_none() {
    let (mut stage, cases) = stage("words").await;
    for (place, case) in cases.iter().enumerate() {
        let (_, record) = stage.play(place, &Framing::Events, Asks::Nothing).await;
        let had_content = case.expect["usage_source"] != "none";
        assert_eq!(record.ttft_ms.is_some(), had_content, "{}", case.recording.name);
    }
}

#[tokio::test]
async fn a20_a_use_beyond_the_reservation_is_charged_in_full() {
    let (mut stage, cases) = stage("words").await;
    let place = cases.iter().position(|case| case.recording.name.contains("oc_25")).unwrap();
    let (_, record) = stage.play(place, &Framing::Events, Asks::Usage).await;
    assert_eq!((record.reserved, record.charged), (PROMPT_WORDS + 100, 5_009));
    assert_eq!(stage.gateway.level("t", LIMIT).await, CAPACITY as i64 - 5_009);
    let totals = stage.gateway.running.gateway.driver.totals();
    assert_eq!((totals.overrun, totals.forgiven), (5_009 - record.reserved, 0));
    assert!(event_ends(&cases[place].recording.bytes).len() > 3);
}
