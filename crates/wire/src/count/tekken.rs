//! Mistral's `tekken.json` as a byte-level vocabulary with merges.
//!
//! Tekken ranks tokens and merges whatever pair makes the token of the lowest rank. The library wants
//! the pairs themselves, so each token is taken apart at every place where both halves are tokens.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::file::{Blanks, Definition};

pub(super) fn define(json: &Value) -> Result<Definition, String> {
    let config = &json["config"];
    let pattern = config["pattern"].as_str().ok_or("tekken without `config.pattern`")?;
    let tokens = tokens(json)?;
    let ranks: HashMap<&[u8], usize> =
        tokens.iter().enumerate().map(|(rank, token)| (token.as_slice(), rank)).collect();
    let vocab: serde_json::Map<_, _> =
        tokens.iter().enumerate().map(|(rank, token)| (spelled(token), Value::from(rank))).collect();
    if vocab.len() != tokens.len() {
        return Err("tekken with the same token twice".to_owned());
    }
    Ok(Definition {
        json: json!({
            "version": "1.0",
            "added_tokens": [],
            "normalizer": null,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
                {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
            ]},
            "post_processor": null,
            "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
            "model": {"type": "BPE", "ignore_merges": true, "vocab": vocab, "merges": merges(&tokens, &ranks)},
        }),
        blanks: Blanks::Kept,
    })
}

/// The tokens in the order of their ranks, as far as the vocabulary is used: the special ones take
/// the first places of its size.
fn tokens(json: &Value) -> Result<Vec<Vec<u8>>, String> {
    let entries = json["vocab"].as_array().ok_or("tekken without a list `vocab`")?;
    let config = &json["config"];
    let size = config["default_vocab_size"].as_u64().unwrap_or(u64::MAX);
    let specials = config["default_num_special_tokens"].as_u64().unwrap_or(0);
    let used = usize::try_from(size.saturating_sub(specials)).unwrap_or(usize::MAX);
    let mut tokens = Vec::with_capacity(entries.len().min(used));
    for (rank, entry) in entries.iter().take(used).enumerate() {
        if entry["rank"].as_u64() != Some(rank as u64) {
            return Err(format!("tekken whose `vocab[{rank}]` does not have the rank {rank}"));
        }
        let token = entry["token_bytes"].as_str().and_then(from_base64);
        match token {
            Some(token) if !token.is_empty() => tokens.push(token),
            Some(_) | None => return Err(format!("tekken whose `vocab[{rank}].token_bytes` is not base64")),
        }
    }
    Ok(tokens)
}

fn merges(tokens: &[Vec<u8>], ranks: &HashMap<&[u8], usize>) -> Vec<Value> {
    let mut merges = Vec::with_capacity(tokens.len() * 3);
    for token in tokens {
        let mut halves: Vec<_> = (1..token.len())
            .filter_map(|at| Some((*ranks.get(&token[..at])?, *ranks.get(&token[at..])?)))
            .collect();
        halves.sort_unstable();
        merges.extend(
            halves.into_iter().map(|(left, right)| json!([spelled(&tokens[left]), spelled(&tokens[right])])),
        );
    }
    merges
}

/// A token in the byte-level alphabet, in which every byte is one visible character: the visible
/// ones of Latin-1 stand for themselves, the other 68 for U+0100 onwards.
fn spelled(token: &[u8]) -> String {
    token.iter().map(|&byte| character(byte)).collect()
}

fn character(byte: u8) -> char {
    let hidden = match byte {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => return char::from(byte),
        0x00..=0x20 => u32::from(byte),
        0x7F..=0xA0 => u32::from(byte) - 0x7F + 0x21,
        0xAD => 0x43,
    };
    char::from_u32(0x100 + hidden).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0_u32);
    for digit in text.trim_end_matches('=').bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_character_of_its_own() {
        let all: std::collections::BTreeSet<_> = (0..=u8::MAX).map(character).collect();
        assert_eq!(all.len(), 256);
        assert_eq!(spelled(b" a\n\xC3\xAD"), "\u{120}a\u{10A}\u{C3}\u{143}");
    }

    #[test]
    fn base64_is_read_with_and_without_padding() {
        assert_eq!(from_base64("aGVsbG8=").as_deref(), Some(b"hello".as_slice()));
        assert_eq!(from_base64("aGVsbG8").as_deref(), Some(b"hello".as_slice()));
        assert_eq!(from_base64("a b"), None);
    }
}
