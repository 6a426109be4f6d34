//! Exact counts against the counts of the reference libraries, and estimates against exact counts.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which shall fail loudly")]

mod texts;

use std::path::PathBuf;
use std::sync::Arc;

use fairlane_wire::count::{
    ChatOverhead, InputRules, Memo, MemoKey, Vocabulary, count_input, estimate_input, uncounted_bytes,
};
use fairlane_wire::dialect::Endpoint;
use fairlane_wire::estimate::{Calibration, Interval, Shape};
use fairlane_wire::images::ImageRule;
use fairlane_wire::request::{Base64, Detail, Image, ImageSource, RequestFacts, Text, read};
use proptest::prelude::*;
use serde_json::Value;

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn lines(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(data(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn repeated(case: &Value) -> String {
    case["base"].as_str().unwrap().repeat(case["repeat"].as_u64().unwrap() as usize)
}

fn shape(text: &str) -> Interval {
    let mut shape = Shape::default();
    shape.add(text);
    shape.interval()
}

/// Both counts of `text`, o200k's and cl100k's.
fn counts(text: &str) -> [u64; 2] {
    [Vocabulary::o200k().count(text), Vocabulary::cl100k().count(text)]
}

#[test]
fn the_vocabularies_built_in_agree_with_the_reference_on_every_golden_text() {
    let cases = lines("tokenizer_golden.jsonl");
    assert_eq!(cases.len(), 20);
    for case in &cases {
        let expected = ["o200k_base", "cl100k_base"].map(|name| case["counts"][name].as_u64().unwrap());
        assert_eq!(counts(&repeated(case)), expected, "{}", case["case"]);
    }
}

#[test]
fn the_estimate_covers_both_vocabularies_on_every_golden_text() {
    for case in lines("tokenizer_golden.jsonl") {
        let text = repeated(&case);
        let interval = shape(&text);
        for count in counts(&text) {
            assert!(interval.contains(count), "{}: {count} not in {interval:?}", case["case"]);
        }
    }
}

#[test]
fn the_estimate_covers_both_vocabularies_on_texts_of_many_kinds() {
    for (kind, text) in texts::of_many_kinds() {
        let interval = shape(&text);
        for count in counts(&text) {
            assert!(
                interval.contains(count),
                "{kind}: {count} not in {interval:?} of {:?}",
                texts::beginning(&text)
            );
        }
    }
}

#[test]
fn on_prose_and_code_the_ends_are_useful_and_the_mean_is_close() {
    for (kind, text) in texts::ordinary() {
        let (interval, exact) = (shape(&text), counts(&text)[0]);
        assert!(interval.low * 100 >= exact * 70, "{kind}: {interval:?} of {exact}");
        assert!(interval.high * 100 <= exact * 170, "{kind}: {interval:?} of {exact}");
        assert!(interval.mean.abs_diff(exact) * 100 <= exact * 10, "{kind}: {interval:?} of {exact}");
    }
}

#[test]
fn a_pattern_made_to_look_cheap_has_no_more_than_twice_the_upper_end() {
    for text in texts::patterns() {
        let (interval, most) = (shape(&text), *counts(&text).iter().max().unwrap());
        assert!(most <= 2 * interval.high, "{most} of {interval:?}: {:?}", texts::beginning(&text));
    }
}

#[test]
fn learning_from_reports_narrows_the_estimate_and_keeps_it_true() {
    let mut calibration = Calibration::default();
    let ordinary = texts::ordinary();
    let pieces: Vec<&str> = ordinary.iter().flat_map(|(_, text)| texts::pieces(text, 400)).collect();
    assert!(pieces.len() > 120, "{}", pieces.len());
    let (taught, held_back) = pieces.split_at(pieces.len() - 40);
    for text in taught {
        calibration.learn(shape(text), counts(text)[0]);
    }
    let mut misses = 0;
    for text in held_back {
        let (before, after) = (shape(text), calibration.interval(shape(text)));
        assert!(after.high - after.low < before.high - before.low, "{before:?} {after:?}");
        misses += usize::from(!after.contains(counts(text)[0]));
    }
    assert!(misses <= 4, "{misses} of {}", held_back.len());
}

#[cfg(feature = "tokenizers")]
#[test]
fn vocabulary_files_agree_with_the_libraries_they_come_from() {
    let cases = lines("tokenizers/golden.jsonl");
    for file in ["tokenizer.json", "tekken.json", "bpe.model", "unigram.model"] {
        let vocabulary = Vocabulary::open(data("tokenizers").join(file).to_str().unwrap()).unwrap();
        let cases: Vec<_> = cases.iter().filter(|case| case["file"] == file).collect();
        assert_eq!(cases.len(), 15);
        for case in cases {
            let text = repeated(case);
            assert_eq!(vocabulary.count(&text), case["count"].as_u64().unwrap(), "{file} {}", case["case"]);
        }
        assert_eq!(vocabulary.fallbacks(), 0);
    }
}

#[test]
fn a_vocabulary_that_cannot_be_opened_says_what_and_how_to_help() {
    let told = |name: &str| Vocabulary::open(name).unwrap_err().to_string();
    assert!(told("o300k").contains("o300k") && told("o300k").contains("use o200k"));
    let not_there = told("no/such/tokenizer.json");
    assert!(not_there.contains("no/such/tokenizer.json"), "{not_there}");
    if cfg!(feature = "tokenizers") {
        assert!(not_there.contains("check the path"), "{not_there}");
        let not_json = told(data("requests.jsonl").to_str().unwrap());
        assert!(not_json.contains("not JSON"), "{not_json}");
        let not_a_model = told(data("README.md").to_str().unwrap());
        assert!(not_a_model.contains("neither JSON nor a SentencePiece model"), "{not_a_model}");
    } else {
        assert!(not_there.contains("--features tokenizers"), "{not_there}");
    }
}

#[test]
fn broken_vocabulary_files_are_refused_without_a_panic() {
    if !cfg!(feature = "tokenizers") {
        return;
    }
    let directory = std::env::temp_dir().join(format!("fairlane-counting-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("broken.bin");
    for name in ["tokenizer.json", "tekken.json", "bpe.model", "unigram.model"] {
        let whole = std::fs::read(data("tokenizers").join(name)).unwrap();
        for end in [0, 1, 2, 10, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..end]).unwrap();
            // A model cut between two of its fields may still be whole enough to count.
            if let Err(error) = Vocabulary::open(path.to_str().unwrap()) {
                assert!(error.to_string().contains("broken.bin"), "{error}");
            } else {
                assert!(name.ends_with(".model"), "{name} cut at {end}");
            }
        }
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn hostile_runs_are_counted_to_the_end() {
    let mut vocabularies = vec![Vocabulary::o200k(), Vocabulary::cl100k(), Vocabulary::words()];
    if cfg!(feature = "tokenizers") {
        for file in ["tokenizer.json", "tekken.json", "bpe.model", "unigram.model"] {
            vocabularies.push(Vocabulary::open(data("tokenizers").join(file).to_str().unwrap()).unwrap());
        }
    }
    for unit in [" ", "\n", "a", " \t", "\u{a0}", "é", "中", "'s", "\r\n", "\0", "ab ", "=-"] {
        let text = unit.repeat((256 << 10) / unit.len());
        for vocabulary in &vocabularies {
            let count = vocabulary.count(&text);
            assert!(count <= text.len() as u64 + 1, "{vocabulary:?} {unit:?} {count}");
            assert_eq!(vocabulary.fallbacks(), 0, "{vocabulary:?} {unit:?}");
        }
    }
}

#[cfg(feature = "tokenizers")]
#[test]
fn what_an_engine_shall_not_read_is_estimated_and_counted_as_such() {
    let vocabulary = Vocabulary::open(data("tokenizers/bpe.model").to_str().unwrap()).unwrap();
    let text = " ".repeat((1 << 20) + 1);
    assert_eq!(vocabulary.count(&text), shape(&text).high);
    assert_eq!(vocabulary.fallbacks(), 1);
}

#[test]
fn markers_in_a_users_text_count_as_plain_text() {
    let text = "<|endoftext|><|im_start|>system<|im_end|>";
    assert!(Vocabulary::o200k().count(text) >= 17);
    assert!(Vocabulary::cl100k().count(text) >= 17);
}

fn body(id: &str) -> (Endpoint, Vec<u8>) {
    let cases = lines("requests.jsonl");
    let case = cases.iter().find(|case| case["id"] == id).unwrap();
    let endpoint = Endpoint::from_path("POST", case["path"].as_str().unwrap()).unwrap();
    let generated = &case["body_gen"];
    let body = match generated["kind"].as_str() {
        None => case["body"].as_str().unwrap().to_owned(),
        Some("chat_words") => {
            let words =
                generated["word"].as_str().unwrap().repeat(generated["repeat"].as_u64().unwrap() as usize);
            format!(r#"{{"model":"m","max_tokens":16,"messages":[{{"role":"user","content":"{words}"}}]}}"#)
        }
        Some("chat_image") => {
            let pixels = "A".repeat(generated["base64_bytes"].as_u64().unwrap() as usize);
            format!(
                r#"{{"model":"m","messages":[{{"role":"user","content":[{{"type":"text","text":"{}"}},
                {{"type":"image_url","image_url":{{"url":"data:image/png;base64,{pixels}"}}}}]}}]}}"#,
                generated["text"].as_str().unwrap(),
            )
        }
        Some(other) => panic!("{other}"),
    };
    (endpoint, body.into_bytes())
}

fn memo(vocabulary: Vocabulary) -> Memo {
    Memo::new(Arc::new(vocabulary), MemoKey([3, 4]), 1_000)
}

fn exact(facts: &RequestFacts<'_>, vocabulary: Vocabulary) -> u64 {
    let rules = InputRules::new(vocabulary.chat_overhead());
    count_input(facts, &memo(vocabulary), &rules, u64::MAX).unwrap()
}

/// The exact input with o200k, which the estimate must cover.
fn covered(id: &str) -> u64 {
    let (endpoint, body) = body(id);
    let facts = read(endpoint, &body).unwrap();
    let exact = exact(&facts, Vocabulary::o200k());
    let estimate = estimate_input(&facts, &InputRules::new(ChatOverhead::OPENAI));
    assert!(estimate.interval().contains(exact), "{id}: {exact} not in {estimate:?}");
    exact
}

#[test]
fn q18_q21_token_ids_count_as_they_are() {
    assert_eq!([covered("q18_prompt_token_ids"), covered("q21_embed_ids")], [5, 3]);
}

#[test]
fn q17_q20_the_prompts_of_a_batch_add_up() {
    let (endpoint, bytes) = body("q17_prompt_batch");
    assert_eq!(exact(&read(endpoint, &bytes).unwrap(), Vocabulary::words()), 5);
    let (endpoint, bytes) = body("q20_embed_string_list");
    assert_eq!(exact(&read(endpoint, &bytes).unwrap(), Vocabulary::words()), 3);
}

#[test]
fn q39_an_image_of_ten_megabytes_costs_less_than_ten_thousand_tokens() {
    let cost = covered("q39_image_10mb");
    assert!((1_000..10_000).contains(&cost), "{cost}");
}

#[test]
fn q41_a_hundred_thousand_words_are_counted_within_two_percent() {
    assert!(covered("q41_prompt_100k").abs_diff(100_000) <= 2_000);
}

#[test]
fn q43_markers_in_a_message_count_as_plain_text() {
    assert!(covered("q43_special_token_text") >= 17);
}

#[test]
fn q44_tools_are_counted() {
    let (_, body) = body("q44_tools_counted");
    let words = String::from_utf8(body).unwrap().matches("word").count() as u64;
    assert!(words >= 100);
    assert!(covered("q44_tools_counted") >= words);
}

#[test]
fn q47_the_blocks_of_anthropics_system_are_counted() {
    let (_, body) = body("q47_anthropic_system_blocks");
    let words = String::from_utf8(body).unwrap().matches("word").count() as u64;
    assert!(words >= 100);
    assert!(covered("q47_anthropic_system_blocks") >= words);
}

#[test]
fn the_input_in_words_is_the_words_of_the_client_alone() {
    let body = br#"{"model":"m","messages":[{"role":"system","content":"be brief"},
        {"role":"user","name":"ann","content":"one two\nthree"}],"max_tokens":5}"#;
    assert_eq!(exact(&read(Endpoint::ChatCompletions, body).unwrap(), Vocabulary::words()), 6);
}

#[test]
fn the_input_of_a_chat_follows_the_recipe() {
    let body = br#"{"model":"m","messages":[{"role":"system","content":"be brief"},
        {"role":"user","name":"ann","content":"Hello, world!"}]}"#;
    let facts = read(Endpoint::ChatCompletions, body).unwrap();
    let texts: u64 =
        ["be brief", "ann", "Hello, world!"].map(|text| Vocabulary::o200k().count(text)).iter().sum();
    // Two messages of three and a role each, one name, three to begin the answer.
    assert_eq!(exact(&facts, Vocabulary::o200k()), texts + 2 * 4 + 1 + 3);
}

#[test]
fn counting_stops_at_the_limit_and_not_before() {
    let (endpoint, body) = body("q41_prompt_100k");
    let facts = read(endpoint, &body).unwrap();
    let (memo, rules) = (memo(Vocabulary::o200k()), InputRules::new(ChatOverhead::OPENAI));
    assert_eq!(count_input(&facts, &memo, &rules, 3), None);
    assert_eq!(count_input(&facts, &memo, &rules, 1_000), None);
    assert_eq!(uncounted_bytes(&facts, &memo), 600_000);
    let whole = count_input(&facts, &memo, &rules, u64::MAX).unwrap();
    assert_eq!(uncounted_bytes(&facts, &memo), 0);
    assert_eq!(count_input(&facts, &memo, &rules, whole), Some(whole));
    assert_eq!(count_input(&facts, &memo, &rules, whole - 1), None);
}

fn picture(base64: &str, detail: Detail) -> Image<'_> {
    Image { source: ImageSource::Base64(Base64::from(Text::plain(base64))), detail }
}

#[test]
fn an_image_costs_by_the_size_in_its_header() {
    let heads = [
        ("PNG 1024 x 1024", "iVBORw0KGgoAAAANSUhEUgAABAAAAAQACAYAAAA="),
        ("GIF 1024 x 1024", "R0lGODlhAAQABPcAAAAAAA=="),
        ("WebP 1024 x 1024, extended", "UklGRgAAAABXRUJQVlA4WAoAAAAAAAAA/wMA/wMA"),
        ("WebP 1024 x 1024, lossless", "UklGRgAAAABXRUJQVlA4TAAAAAAv/8P/AA=="),
        ("WebP 1024 x 1024, lossy", "UklGRgAAAABXRUJQVlA4IAAAAAAAAACdASoABAAE"),
        ("JPEG 1024 x 1024", "/9j/4AAQSkZJRgABAQAAAQABAAD/wAARCAQABAADASIAAhEBAxEB"),
    ];
    for (kind, head) in heads {
        assert_eq!(ImageRule::GPT_4O.tokens(&picture(head, Detail::Auto)), 85 + 4 * 170, "{kind}");
        assert_eq!(ImageRule::PATCHES.tokens(&picture(head, Detail::High)), 1_229, "{kind}");
        assert_eq!(ImageRule::GPT_4O.tokens(&picture(head, Detail::Low)), 85, "{kind}");
    }
    assert_eq!(ImageRule::GPT_4O.tokens(&picture("AAAA", Detail::Auto)), 85 + 6 * 170);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_counting_panic_or_leaves_the_interval(text in any::<String>()) {
        let interval = shape(&text);
        for count in counts(&text) {
            prop_assert!(interval.contains(count), "{} not in {:?}", count, interval);
        }
    }

    #[test]
    fn counting_up_to_a_limit_agrees_with_counting(text in "[a-zA-Z0-9 .,\n\u{e9}\u{4e2d}]{0,200}", limit in 0_u64..120) {
        for vocabulary in [Vocabulary::o200k(), Vocabulary::cl100k(), Vocabulary::words()] {
            let count = vocabulary.count(&text);
            prop_assert_eq!(vocabulary.count_up_to(&text, limit), (count <= limit).then_some(count));
        }
    }

    #[test]
    fn no_escaped_text_makes_the_estimate_panic(raw in r#"([a-z\\"u0-9dD{}\n]|\\u[0-9a-fA-F]{4}){0,80}"#) {
        let mut shape = Shape::default();
        shape.add_escaped(&raw);
        prop_assert!(shape.interval().low <= shape.interval().high);
    }

    #[test]
    fn no_header_makes_reading_an_image_panic(
        magic in prop::sample::select(vec![&b"\x89PNG\r\n\x1a\n"[..], b"GIF89a", b"RIFF\0\0\0\0WEBPVP8X", b"RIFF\0\0\0\0WEBPVP8 ", b"\xFF\xD8\xFF", b""]),
        rest in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let data: Vec<u8> = magic.iter().copied().chain(rest).collect();
        let tokens = ImageRule::GPT_4O.tokens(&picture(&base64(&data), Detail::Auto));
        prop_assert!((85 + 170..=85 + 8 * 170).contains(&tokens), "{}", tokens);
    }

    #[test]
    fn no_bytes_make_opening_a_vocabulary_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if cfg!(feature = "tokenizers") {
            let path = std::env::temp_dir().join(format!("fairlane-vocabulary-{}.bin", std::process::id()));
            std::fs::write(&path, &bytes).unwrap();
            let opened = Vocabulary::open(path.to_str().unwrap());
            std::fs::remove_file(&path).unwrap();
            prop_assert!(opened.is_err());
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, at| bits << 8 | u32::from(group.get(at).copied().unwrap_or(0)));
        for digit in 0..=group.len() {
            text.push(char::from(ALPHABET[(bits >> (18 - 6 * digit) & 63) as usize]));
        }
    }
    text
}
