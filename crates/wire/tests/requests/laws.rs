//! Laws over generated bodies.

use fairlane_wire::request::RequestError;
use fairlane_wire::splice::Piece;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::written::{any_edits, anything, chat_body};
use super::*;

/// What the edits mean, on a tree instead of bytes.
fn edited(body: &Value, edits: &Edits) -> Value {
    let mut map = body.as_object().unwrap().clone();
    for control in ["id_slot", "bootstrap_room", "priority"] {
        map.remove(control);
    }
    if let Priority::Set(value) = edits.priority {
        map.insert("priority".into(), json!(value));
    }
    if edits.usage == UsageChunk::Asked && map["stream"] == true {
        let options = map.entry("stream_options").or_insert(Value::Null);
        if options.is_null() {
            *options = json!({});
        }
        options["include_usage"] = json!(true);
    }
    let Some(bound) = edits.output_bound else {
        return Value::Object(map);
    };
    let obeyed = ["max_completion_tokens", "max_tokens"];
    for name in ["max_completion_tokens", "max_tokens", "n_predict"] {
        if map.get(name).and_then(Value::as_u64).is_some_and(|sent| sent > bound) {
            map.insert(name.into(), json!(bound));
        }
    }
    if map.get("n_predict") == Some(&Value::Null) {
        map.insert("n_predict".into(), json!(bound));
    }
    if obeyed.iter().all(|name| map.get(*name).is_none_or(Value::is_null)) {
        let name = obeyed.iter().find(|name| map.contains_key(**name));
        let absent = match edits.chat_bound {
            ChatBound::MaxTokens => "max_tokens",
            ChatBound::MaxCompletionTokens => "max_completion_tokens",
        };
        map.insert((*name.unwrap_or(&absent)).into(), json!(bound));
    }
    Value::Object(map)
}

const TOUCHED: [&str; 7] = [
    "max_tokens",
    "max_completion_tokens",
    "n_predict",
    "stream_options",
    "priority",
    "id_slot",
    "bootstrap_room",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    #[test]
    fn splicing_bytes_equals_editing_the_tree((body, members) in chat_body(), edits in any_edits()) {
        let bytes = body.text.as_bytes();
        let facts = read(Endpoint::ChatCompletions, bytes).unwrap();
        let edited_bytes = splice(&facts.layout, &edits);
        let sent = edited_bytes.apply(bytes);
        prop_assert_eq!(edited_bytes.len_bytes(), sent.len());
        let parsed: Value = serde_json::from_slice(&sent).unwrap();
        prop_assert_eq!(&parsed, &edited(&body.value, &edits), "{}", body.text);
        prop_assert_eq!(edited_bytes.is_unchanged(), *sent == *bytes);
        // Every other member keeps its bytes and its place.
        let sent = std::str::from_utf8(&sent).unwrap();
        let mut from = 0;
        for (name, written) in &members {
            if !TOUCHED.contains(&name.as_str()) {
                let at = sent[from..].find(&written.text);
                prop_assert!(at.is_some(), "{name} of {} in {sent}", body.text);
                from += at.unwrap() + written.text.len();
            }
        }
        let kept: Vec<_> = edited_bytes.pieces().filter_map(|piece| match piece {
            Piece::Body(range) => Some(range),
            Piece::Text(_) => None,
        }).collect();
        prop_assert!(kept.windows(2).all(|pair| pair[0].end <= pair[1].start));
        // The edited body can be read again, and says what was set.
        let again = read(Endpoint::ChatCompletions, sent.as_bytes()).unwrap();
        if let Some(bound) = edits.output_bound {
            prop_assert!(again.output_bound.is_some_and(|sent| sent <= bound));
        }
        prop_assert!(splice(&again.layout, &edits).apply(sent.as_bytes()) == sent.as_bytes());
    }

    #[test]
    fn whatever_is_no_json_is_refused_and_json_never_fails_as_syntax(
        written in anything(),
        damage in prop::option::of((any::<prop::sample::Index>(), prop::sample::select(b"{}[]\",:0-.e\\tn x".to_vec()))),
    ) {
        let mut body = format!(r#"{{"model":"m","messages":[],"x":{}}}"#, written.text).into_bytes();
        if let Some((at, byte)) = damage {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let is_json = std::str::from_utf8(&body)
            .is_ok_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok());
        let facts = read(Endpoint::ChatCompletions, &body);
        if is_json {
            prop_assert!(!matches!(facts, Err(RequestError::Syntax { .. } | RequestError::NotUtf8 { .. })), "{facts:?}");
        } else {
            prop_assert!(facts.is_err());
        }
        if damage.is_none() {
            prop_assert!(facts.is_ok());
        }
    }

    #[test]
    fn any_content_is_read_without_failing_unless_a_read_member_has_the_wrong_type(
        content in anything(),
    ) {
        let body = format!(r#"{{"model":"m","max_tokens":1,"messages":[{{"content":{}}}]}}"#, content.text);
        for endpoint in [Endpoint::ChatCompletions, Endpoint::Messages] {
            match read(endpoint, body.as_bytes()) {
                Ok(facts) => {
                    if let Value::String(text) = &content.value {
                        prop_assert_eq!(&texts(&facts), std::slice::from_ref(text));
                    }
                }
                Err(error) => prop_assert!(error.param().is_some(), "{error}"),
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        which in 0_usize..6,
    ) {
        let _ = read(ENDPOINTS[which], &bytes);
    }

    #[test]
    fn damaged_bodies_never_panic(
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        which in 0_usize..3,
    ) {
        let (endpoint, body) = [
            (Endpoint::ChatCompletions, CHAT),
            (Endpoint::Messages, MESSAGES),
            (Endpoint::Responses, RESPONSES),
        ][which];
        let mut body = body.as_bytes().to_vec();
        for (at, byte) in damages {
            let at = at.index(body.len());
            body[at] = byte;
        }
        if let Ok(facts) = read(endpoint, &body) {
            let sent = splice(&facts.layout, &ASKED);
            let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&sent.apply(&body)).is_ok();
            prop_assert!(is_json);
        }
    }
}

const ENDPOINTS: [Endpoint; 6] = [
    Endpoint::ChatCompletions,
    Endpoint::Completions,
    Endpoint::Embeddings,
    Endpoint::Responses,
    Endpoint::Messages,
    Endpoint::CountTokens,
];
