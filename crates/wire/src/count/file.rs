//! A vocabulary read from the user's own file, behind guards.
//!
//! All three formats become one: the JSON form that the tokenizers library reads. Unicode
//! normalisation is left out, as it changes no count of text in the usual composed form.

use std::fs::File;
use std::io::Read;

use serde_json::Value;
use tokenizers::pipeline::{EncodeOptions, PipelineToken, PipelineTokenizer};

use super::open::{FILE_BYTES_MAX, VocabularyError};
use super::{sentencepiece, tekken};

pub(super) struct FileEngine {
    path: String,
    tokenizer: PipelineTokenizer,
    options: EncodeOptions,
    blanks: Blanks,
}

/// What a vocabulary does with the blanks of a text before it reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blanks {
    Kept,
    /// Runs of spaces become one, and none is left at either end.
    SpacesMerged,
    /// The same, after tabs and new lines became spaces.
    AllMerged,
}

/// A vocabulary in the form that the library reads, once canonical.
pub(super) struct Definition {
    pub(super) json: Value,
    pub(super) blanks: Blanks,
}

impl FileEngine {
    pub(super) fn open(path: &str) -> Result<Self, VocabularyError> {
        let bytes = read(path)?;
        Self::load(path, &bytes).map_err(|why| VocabularyError::NotAVocabulary { path: path.to_owned(), why })
    }

    fn load(path: &str, bytes: &[u8]) -> Result<Self, String> {
        let Definition { mut json, blanks } = define(bytes)?;
        drop_composition(&mut json);
        let canonical =
            guarded(|| tokenizers::canonicalize_value(&mut json).map_err(|error| error.to_string()));
        canonical?;
        let text = json.to_string();
        drop(json);
        let tokenizer = guarded(|| tk_serialize::from_json(&text).map_err(|error| error.to_string()))?;
        let options = EncodeOptions {
            add_special_tokens: false,
            encode_special_tokens: true,
            padding: tokenizers::pipeline::Override::Off,
            truncation: tokenizers::pipeline::Override::Off,
        };
        let engine = Self { path: path.to_owned(), tokenizer, options, blanks };
        if engine.count("Is this a vocabulary? 1 2 3.").is_none_or(|count| count == 0) {
            return Err("it does not count a plain English sentence".to_owned());
        }
        Ok(engine)
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// How many tokens `text` has; `None` if it is longer than the guard lets through, holds a run
    /// that is, or if the library says that it cannot.
    pub(super) fn count(&self, text: &str) -> Option<u64> {
        if text.len() > TEXT_BYTES_MAX || longest_run(text.as_bytes()) > RUN_BYTES_MAX {
            return None;
        }
        match self.blanks {
            Blanks::Kept => self.encode(text),
            Blanks::SpacesMerged => self.encode(&joined(text.split(' '))),
            Blanks::AllMerged => self.encode(&joined(text.split_ascii_whitespace())),
        }
    }

    fn encode(&self, text: &str) -> Option<u64> {
        if text.is_empty() {
            return Some(0);
        }
        let mut tokens: Vec<PipelineToken> = Vec::with_capacity(text.len() / 3);
        self.tokenizer.encode_into(text, &self.options, &mut tokens).ok()?;
        Some(tokens.len() as u64)
    }
}

/// What the file is, by its first bytes: JSON with a `model`, JSON with a `vocab` list, or a
/// SentencePiece model.
fn define(bytes: &[u8]) -> Result<Definition, String> {
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return sentencepiece::define(bytes);
    }
    let json: Value = serde_json::from_slice(bytes).map_err(|error| format!("it is not JSON: {error}"))?;
    if json.get("vocab").is_some_and(Value::is_array) {
        return tekken::define(&json);
    }
    if json.get("model").is_none() {
        return Err("it is JSON without `model` (tokenizer.json) or `vocab` (tekken.json)".to_owned());
    }
    Ok(Definition { json, blanks: Blanks::Kept })
}

fn read(path: &str) -> Result<Vec<u8>, VocabularyError> {
    let unreadable = |source| VocabularyError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let bytes = std::fs::metadata(path).map_or(bytes.len() as u64, |metadata| metadata.len());
        return Err(VocabularyError::TooLarge { path: path.to_owned(), bytes });
    }
    Ok(bytes)
}

/// Composing marks with their letters needs tables that are not built in.
fn drop_composition(json: &mut Value) {
    let is_composition = |node: &Value| matches!(node["type"].as_str(), Some("NFC" | "NFKC" | "Precompiled"));
    let Some(normalizer) = json.get_mut("normalizer") else { return };
    if is_composition(normalizer) {
        *normalizer = Value::Null;
    } else if let Some(members) = normalizer.get_mut("normalizers").and_then(Value::as_array_mut) {
        members.retain(|member| !is_composition(member));
    }
}

fn joined<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

fn guarded<T>(load: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(load));
    outcome.unwrap_or_else(|_| Err("the tokenizer library gave up on it".to_owned()))
}

fn longest_run(bytes: &[u8]) -> usize {
    bytes.chunk_by(|left, right| left == right).map(<[u8]>::len).max().unwrap_or(0)
}

/// A longer text is estimated.
const TEXT_BYTES_MAX: usize = 16 << 20;
/// A text with a longer run of one byte is estimated.
const RUN_BYTES_MAX: usize = 1 << 20;
