//! Generated JSON: a text in one of the many ways to write it, beside the value it stands for.

use fairlane_wire::splice::{ChatBound, Edits, Priority, UsageChunk};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A JSON text and the value it stands for.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) text: String,
    pub(super) value: Value,
}

fn blank() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "", "", " ", "\n", "\t ", " \r\n "])
}

fn string() -> impl Strategy<Value = Written> {
    ("[a-z\"\\\\/\u{0}-\u{1f}é😀]{0,6}", any::<bool>()).prop_map(|(value, escapes_all)| Written {
        text: quoted(&value, escapes_all),
        value: Value::String(value),
    })
}

fn quoted(text: &str, escapes_all: bool) -> String {
    if !escapes_all {
        return Value::from(text).to_string();
    }
    let escaped = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
    format!("\"{}\"", escaped.collect::<String>())
}

pub(super) fn anything() -> impl Strategy<Value = Written> {
    let number = prop_oneof![
        any::<i64>().prop_map(|n| Written { text: n.to_string(), value: json!(n) }),
        Just(Written { text: "0.5e-1".into(), value: json!(0.05) }),
    ];
    let word = prop::sample::select(vec!["null", "true", "false"])
        .prop_map(|text| Written { text: text.into(), value: text.parse().unwrap() });
    prop_oneof![string(), number, word].prop_recursive(3, 16, 4, |inner| {
        let array = (prop::collection::vec(inner.clone(), 0..4), blank()).prop_map(|(items, blank)| {
            let texts: Vec<_> = items.iter().map(|item| item.text.clone()).collect();
            Written {
                text: format!("[{blank}{}{blank}]", texts.join(&format!("{blank},"))),
                value: Value::Array(items.into_iter().map(|item| item.value).collect()),
            }
        });
        let map = prop::collection::btree_map("[a-z_]{1,6}", inner, 0..4);
        let object = (map, blank(), any::<bool>()).prop_map(|(members, blank, escapes_all)| {
            let members: Vec<_> = members.into_iter().collect();
            object_text(&members, blank, escapes_all)
        });
        prop_oneof![array, object]
    })
}

fn object_text(members: &[(String, Written)], blank: &str, escapes_all: bool) -> Written {
    let texts: Vec<_> = members
        .iter()
        .map(|(name, written)| {
            let name = quoted(name, escapes_all);
            format!("{name}{blank}:{blank}{}", written.text)
        })
        .collect();
    let members = members.iter().map(|(name, written)| (name.clone(), written.value.clone()));
    Written {
        text: format!("{blank}{{{blank}{}{blank}}}{blank}", texts.join(&format!("{blank},{blank}"))),
        value: Value::Object(members.collect()),
    }
}

fn tokens() -> impl Strategy<Value = Written> {
    prop_oneof![
        Just(Written { text: "null".into(), value: Value::Null }),
        (1_u64..5_000).prop_map(|n| Written { text: n.to_string(), value: json!(n) }),
    ]
}

fn stream_options() -> impl Strategy<Value = Written> {
    let include = prop::sample::select(vec!["null", "true", "false"])
        .prop_map(|text| Written { text: text.into(), value: text.parse().unwrap() });
    let members = (prop::option::of(include), prop::option::of(anything()), blank(), any::<bool>());
    prop_oneof![
        Just(Written { text: "null".into(), value: Value::Null }),
        members.prop_map(|(include, other, blank, escapes_all)| {
            let members: Vec<_> = [("other", other), ("include_usage", include)]
                .into_iter()
                .filter_map(|(name, written)| Some((name.to_owned(), written?)))
                .collect();
            object_text(&members, blank, escapes_all)
        }),
    ]
}

/// A chat body: its members in any order, with all that splicing touches and all it must not.
pub(super) fn chat_body() -> impl Strategy<Value = (Written, Vec<(String, Written)>)> {
    let fixed = |text: &str| Just(Written { text: text.into(), value: text.parse().unwrap() });
    let optional = |name: &'static str, value: BoxedStrategy<Written>| {
        prop::option::of(value).prop_map(move |value| Some((name.to_owned(), value?)))
    };
    let known = (
        fixed("\"m\""),
        fixed(r#"[{"role":"user","content":"x"}]"#),
        prop::sample::select(vec!["true", "false"]).prop_flat_map(fixed),
    )
        .prop_map(|(model, messages, stream)| {
            [("model", model), ("messages", messages), ("stream", stream)]
                .map(|(name, value)| Some((name.to_owned(), value)))
        });
    let touched = (
        optional("max_tokens", tokens().boxed()),
        optional("max_completion_tokens", tokens().boxed()),
        optional("n_predict", tokens().boxed()),
        optional("stream_options", stream_options().boxed()),
        optional("priority", anything().boxed()),
        optional("id_slot", anything().boxed()),
        optional("bootstrap_room", anything().boxed()),
    )
        .prop_map(|(a, b, c, d, e, f, g)| [a, b, c, d, e, f, g]);
    let others = prop::collection::btree_map("x_[a-z]{1,4}", anything(), 0..4);
    let members = (known, touched, others).prop_map(|(known, touched, others)| {
        let named = known.into_iter().chain(touched).flatten();
        named.chain(others).collect::<Vec<_>>()
    });
    (members.prop_shuffle(), blank(), any::<bool>())
        .prop_map(|(members, blank, escapes_all)| (object_text(&members, blank, escapes_all), members))
}

pub(super) fn any_edits() -> impl Strategy<Value = Edits> {
    let chat_bound = prop::sample::select(vec![ChatBound::MaxTokens, ChatBound::MaxCompletionTokens]);
    let usage = prop::sample::select(vec![UsageChunk::AsSent, UsageChunk::Asked]);
    let priority = prop_oneof![Just(Priority::Removed), any::<i64>().prop_map(Priority::Set)];
    (prop::option::of(1_u64..5_000), chat_bound, usage, priority).prop_map(
        |(output_bound, chat_bound, usage, priority)| Edits { output_bound, chat_bound, usage, priority },
    )
}
