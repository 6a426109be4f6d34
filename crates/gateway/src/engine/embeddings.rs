//! Embeddings: short vectors of length one that follow from each input, as numbers or as base64.

use fairlane_lab::Stream;
use serde_json::{Value, json};

use super::completions::prompts;
use super::plan::{Draft, Endpoint, Plan};
use super::problem::Problem;
use super::reply::Reply;
use super::request::Fields;
use super::server::Engine;

pub(super) fn draft<'a>(fields: Fields<'a>, engine: &Engine) -> Result<Draft<'a>, Problem> {
    Ok(Draft {
        endpoint: Endpoint::Embeddings,
        prompts: prompts(fields.required("input")?, "input", engine)?,
        bound: None,
        shown: 1,
        made: 1,
        tool: None,
        include_usage: true,
        continuous_usage: false,
    })
}

/// How vectors are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    dimensions: usize,
    base64: bool,
}

impl Format {
    pub(super) fn of(fields: Fields<'_>) -> Result<Self, Problem> {
        let dimensions = fields.count("dimensions")?.unwrap_or(DIMENSIONS_DEFAULT);
        if !(1..=DIMENSIONS_MAX).contains(&dimensions) {
            return Err(Problem::bad_request(format!("dimensions: must be from 1 to {DIMENSIONS_MAX}")));
        }
        let base64 = match fields.text("encoding_format")? {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => return Err(Problem::bad_request("encoding_format: must be float or base64")),
        };
        Ok(Self { dimensions: dimensions as usize, base64 })
    }
}

/// The whole answer.
pub(super) fn answer(plan: &Plan, format: Format) -> Value {
    let vectors: Vec<Value> = plan
        .choices
        .iter()
        .enumerate()
        .map(|(index, choice)| {
            let fingerprint = match choice.reply {
                Reply::Text { fingerprint } => fingerprint,
                Reply::Tool(_) => 0,
            };
            let vector = vector(fingerprint, format.dimensions);
            let embedding = if format.base64 {
                let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
                Value::from(base64(&bytes))
            } else {
                Value::from(vector)
            };
            json!({"object": "embedding", "index": index, "embedding": embedding})
        })
        .collect();
    let mut answer = json!({"object": "list", "model": plan.model, "data": vectors});
    if let Some(usage) = plan.final_usage() {
        answer["usage"] = json!({"prompt_tokens": usage.prompt, "total_tokens": usage.prompt});
    }
    answer
}

fn vector(fingerprint: u64, dimensions: usize) -> Vec<f32> {
    let mut stream = Stream::seeded(fingerprint, 0);
    let raw: Vec<f64> = (0..dimensions).map(|_| stream.between(-1.0, 1.0)).collect();
    let length = raw.iter().map(|number| number * number).sum::<f64>().sqrt();
    raw.iter().map(|number| (number / length) as f32).collect()
}

/// RFC 4648, section 4, with padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |place: usize| u32::from(group.get(place).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let sextet = (bits >> (18 - 6 * place)) & 0x3F;
            text.push(if place <= group.len() { char::from(ALPHABET[sextet as usize]) } else { '=' });
        }
    }
    text
}

const DIMENSIONS_DEFAULT: u64 = 8;
const DIMENSIONS_MAX: u64 = 4_096;

#[cfg(test)]
mod tests {
    use super::{base64, vector};

    #[test]
    fn base64_gives_the_test_vectors_of_rfc_4648() {
        let vectors = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (bytes, text) in vectors {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn a_vector_has_length_one_and_follows_from_its_fingerprint() {
        let length: f32 = vector(9, 32).iter().map(|number| number * number).sum();
        assert!((length - 1.0).abs() < 1e-5);
        assert_eq!(vector(9, 8), vector(9, 8));
        assert_ne!(vector(9, 8), vector(10, 8));
    }
}
