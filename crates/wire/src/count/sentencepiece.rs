//! A SentencePiece model as a vocabulary of pieces, byte-pair or unigram.
//!
//! The file is a protocol buffer message (`sentencepiece_model.proto`); only the fields that decide a
//! count are read. Normalisation tables are left out, as for the other formats.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::file::{Blanks, Definition};

pub(super) fn define(bytes: &[u8]) -> Result<Definition, String> {
    let model = Model::read(bytes).ok_or("it is neither JSON nor a SentencePiece model")?;
    if model.pieces.is_empty() {
        return Err("a SentencePiece model without pieces".to_owned());
    }
    let unknown = model.pieces.iter().position(|piece| piece.kind == UNKNOWN);
    let unknown = unknown.ok_or("a SentencePiece model without an unknown piece")?;
    let vocabulary = match model.algorithm {
        UNIGRAM => unigram(&model, unknown),
        BPE => byte_pairs(&model, unknown),
        _ => {
            return Err(
                "a SentencePiece model of words or characters; only BPE and unigram are read".to_owned()
            );
        }
    };
    let blanks = match (model.merges_blanks, model.has_table) {
        (false, _) => Blanks::Kept,
        (true, false) => Blanks::SpacesMerged,
        (true, true) => Blanks::AllMerged,
    };
    Ok(Definition {
        json: json!({
            "version": "1.0",
            "added_tokens": user_defined(&model),
            "normalizer": {"type": "Sequence", "normalizers": normalizers(&model)},
            "pre_tokenizer": null,
            "post_processor": null,
            "decoder": null,
            "model": vocabulary,
        }),
        blanks,
    })
}

fn normalizers(model: &Model) -> Vec<Value> {
    let mut steps = Vec::new();
    if model.begins_with_blank {
        steps.push(json!({"type": "Prepend", "prepend": BLANK}));
    }
    steps.push(json!({"type": "Replace", "pattern": {"String": " "}, "content": BLANK}));
    steps
}

/// Pieces that are cut out of a text wherever they stand.
fn user_defined(model: &Model) -> Vec<Value> {
    let defined = model.pieces.iter().enumerate().filter(|(_, piece)| piece.kind == USER_DEFINED);
    defined
        .map(|(id, piece)| {
            json!({
                "id": id, "content": piece.text, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": true, "special": false,
            })
        })
        .collect()
}

fn unigram(model: &Model, unknown: usize) -> Value {
    let pieces = model.pieces.iter().enumerate();
    let vocab: Vec<Value> = pieces.map(|(id, piece)| json!([piece.matched_as(id), piece.score])).collect();
    json!({"type": "Unigram", "unk_id": unknown, "vocab": vocab, "byte_fallback": model.has_bytes()})
}

/// SentencePiece joins the two neighbours whose joint piece has the highest score: the pairs in the
/// order of those scores are the merges.
fn byte_pairs(model: &Model, unknown: usize) -> Value {
    let names: Vec<String> =
        model.pieces.iter().enumerate().map(|(id, piece)| piece.matched_as(id)).collect();
    let ids: HashMap<&str, usize> = names.iter().enumerate().map(|(id, name)| (name.as_str(), id)).collect();
    let mut merges = Vec::new();
    for piece in model.pieces.iter().filter(|piece| piece.kind == NORMAL) {
        let cuts = piece.text.char_indices().skip(1);
        merges.extend(cuts.filter_map(|(at, _)| {
            let (left, right) = piece.text.split_at(at);
            (ids.contains_key(left) && ids.contains_key(right)).then_some((piece.score, left, right))
        }));
    }
    merges.sort_by(|(first, ..), (second, ..)| second.total_cmp(first));
    let merges: Vec<Value> = merges.into_iter().map(|(_, left, right)| json!([left, right])).collect();
    let vocab: serde_json::Map<_, _> = ids.iter().map(|(name, id)| ((*name).to_owned(), json!(id))).collect();
    json!({
        "type": "BPE", "vocab": vocab, "merges": merges, "unk_token": names[unknown],
        "fuse_unk": true, "byte_fallback": model.has_bytes(),
    })
}

/// What counts of `ModelProto`.
struct Model {
    pieces: Vec<Piece>,
    algorithm: u64,
    begins_with_blank: bool,
    merges_blanks: bool,
    /// Whether characters are normalised by a table; all tables in use make spaces of tabs and lines.
    has_table: bool,
}

struct Piece {
    text: String,
    score: f32,
    kind: u64,
}

impl Piece {
    /// The text that the piece stands for. A control piece stands for none: it gets a name that no
    /// text has in it.
    fn matched_as(&self, id: usize) -> String {
        match self.kind {
            NORMAL | USER_DEFINED | BYTE | UNKNOWN => self.text.clone(),
            _ => format!("\u{10FFFF}{id}\u{10FFFF}"),
        }
    }
}

impl Model {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut model = Self {
            pieces: Vec::new(),
            algorithm: UNIGRAM,
            begins_with_blank: true,
            merges_blanks: true,
            has_table: false,
        };
        for field in Fields(bytes) {
            match field? {
                (1, Field::Bytes(piece)) => model.pieces.push(read_piece(piece)?),
                (2, Field::Bytes(trainer)) => model.algorithm = number(trainer, 3)?.unwrap_or(UNIGRAM),
                (3, Field::Bytes(normalizer)) => {
                    model.begins_with_blank = number(normalizer, 3)? != Some(0);
                    model.merges_blanks = number(normalizer, 4)? != Some(0);
                    model.has_table = has_bytes(normalizer, 2)?;
                }
                _ => {}
            }
        }
        Some(model)
    }

    fn has_bytes(&self) -> bool {
        self.pieces.iter().any(|piece| piece.kind == BYTE)
    }
}

fn read_piece(bytes: &[u8]) -> Option<Piece> {
    let mut piece = Piece { text: String::new(), score: 0.0, kind: NORMAL };
    for field in Fields(bytes) {
        match field? {
            (1, Field::Bytes(text)) => piece.text = std::str::from_utf8(text).ok()?.to_owned(),
            (2, Field::Word(bits)) => piece.score = f32::from_bits(bits),
            (3, Field::Number(kind)) => piece.kind = kind,
            _ => {}
        }
    }
    Some(piece)
}

/// The last number of field `tag`: the outer `None` is a broken message.
fn number(bytes: &[u8], tag: u64) -> Option<Option<u64>> {
    let mut found = None;
    for field in Fields(bytes) {
        if let (found_tag, Field::Number(value)) = field?
            && found_tag == tag
        {
            found = Some(value);
        }
    }
    Some(found)
}

/// Whether field `tag` has any bytes: `None` is a broken message.
fn has_bytes(bytes: &[u8], tag: u64) -> Option<bool> {
    let mut found = false;
    for field in Fields(bytes) {
        if let (found_tag, Field::Bytes(value)) = field? {
            found |= found_tag == tag && !value.is_empty();
        }
    }
    Some(found)
}

/// The fields of a protocol buffer message in their order; `None` once where it is broken.
struct Fields<'a>(&'a [u8]);

enum Field<'a> {
    Number(u64),
    Word(u32),
    Bytes(&'a [u8]),
    Other,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Field<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Field<'a>)> {
        let key = self.varint()?;
        let field = match key & 7 {
            0 => Field::Number(self.varint()?),
            1 => self.take(8).map(|_| Field::Other)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Field::Bytes(self.take(length)?)
            }
            5 => Field::Word(u32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some((key >> 3, field))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }
}

/// The mark that SentencePiece writes for a blank.
const BLANK: &str = "\u{2581}";

const UNIGRAM: u64 = 1;
const BPE: u64 = 2;

const NORMAL: u64 = 1;
const UNKNOWN: u64 = 2;
const USER_DEFINED: u64 = 4;
const BYTE: u64 = 6;
