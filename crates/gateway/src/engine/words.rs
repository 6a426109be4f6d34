//! Tokens and texts of the simulated vocabulary: one token is one blank-separated word.

use fairlane_lab::Stream;
use serde_json::Value;

/// Tokens of a text.
pub(super) fn count(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}

/// Every text that a model would read in a message, a list of content parts, or a plain string, in order. Names, roles, ids and
/// images are not texts.
pub(super) fn texts_of<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(items) => items.iter().for_each(|item| texts_of(item, texts)),
        Value::Object(part) => {
            for key in ["text", "content", "output"] {
                if let Some(inner) = part.get(key) {
                    texts_of(inner, texts);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A number that follows from the texts and the seed, and that any change of them changes.
pub(super) fn fingerprint<'a>(texts: impl IntoIterator<Item = &'a str>, seed: u64) -> u64 {
    texts.into_iter().fold(seed, |hash, text| mix(hash, hash_of(text.as_bytes())))
}

/// Two numbers made into one that looks random.
pub(super) fn mix(first: u64, second: u64) -> u64 {
    Stream::seeded(first, second).integer()
}

/// FNV-1a with 64 bits.
pub(super) fn hash_of(bytes: &[u8]) -> u64 {
    const OFFSET_BASIS: u64 = 0xCBF2_9CE4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01B3;
    bytes.iter().fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// The word at `place` of the text with this fingerprint; every word but the first starts with a blank.
pub(super) fn word(fingerprint: u64, place: u64) -> String {
    let pick = mix(fingerprint, place) % VOCABULARY.len() as u64;
    let blank = if place == 0 { "" } else { " " };
    format!("{blank}{}", VOCABULARY[pick as usize])
}

const VOCABULARY: [&str; 32] = [
    "lane", "bucket", "token", "queue", "wait", "fair", "share", "turn", "slow", "fast", "early", "late",
    "small", "large", "river", "stone", "cloud", "field", "light", "paper", "green", "blue", "seven", "nine",
    "over", "under", "once", "again", "near", "far", "still", "bright",
];

#[cfg(test)]
mod tests {
    use super::{count, fingerprint, texts_of, word};

    #[test]
    fn texts_are_strings_text_parts_and_nested_contents_in_order() {
        let messages = serde_json::json!([
            {"role": "system", "content": "one two"},
            {"role": "user", "name": "n", "content": [
                {"type": "text", "text": "three"},
                {"type": "image_url", "image_url": {"url": "data:four"}},
                {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text", "text": "five"}]},
            ]},
        ]);
        let mut texts = Vec::new();
        texts_of(&messages, &mut texts);
        assert_eq!(texts, ["one two", "three", "five"]);
    }

    #[test]
    fn words_of_a_generated_text_are_its_tokens() {
        let text: String = (0..500).map(|place| word(7, place)).collect();
        assert_eq!(count(&text), 500);
    }

    #[test]
    fn another_seed_or_another_cut_of_the_texts_is_another_fingerprint() {
        let base = fingerprint(["a b", "c"], 1);
        assert_ne!(base, fingerprint(["a b", "c"], 2));
        assert_ne!(base, fingerprint(["a", "b c"], 1));
        assert_eq!(base, fingerprint(["a b", "c"], 1));
    }
}
