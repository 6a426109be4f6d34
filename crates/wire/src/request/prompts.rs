//! `prompt` of completions and `input` of embeddings: texts, token ids, or arrays of either.

use super::content::{Segments, value};
use super::error::RequestError;
use super::scan::{Kind, Scanned, Scanner};
use super::segment::Segment;

/// Prompts or inputs in one request; the documented limit of the embeddings endpoint.
pub const PROMPTS_LIMIT: u64 = 2_048;

/// Reads them into segments and tells how many there are; null is none.
///
/// An array of numbers is one prompt of that many token ids, not that many prompts. An array that
/// mixes texts and ids is refused: engines disagree about what it means.
pub(crate) fn prompts<'a>(scanner: &mut Scanner<'a>, out: &mut Segments<'a>) -> Scanned<u64> {
    match scanner.kind()? {
        Kind::Null => scanner.null().map(|()| 0),
        Kind::Text | Kind::Object => prompt(scanner, out).map(|()| 1),
        Kind::Array => batch(scanner, out),
        Kind::Number | Kind::Bool => Err(RequestError::wrong_type(scanner.at(), EXPECTED)),
    }
}

fn batch<'a>(scanner: &mut Scanner<'a>, out: &mut Segments<'a>) -> Scanned<u64> {
    let at = scanner.at();
    scanner.open_array()?;
    if !scanner.next_element()? {
        return Err(RequestError::out_of_range(at, "a non-empty array"));
    }
    if scanner.kind()? == Kind::Number {
        out.push(Segment::Prompt)?;
        out.push(Segment::TokenIds(token_ids(scanner)?))?;
        return Ok(1);
    }
    let mut count = 0;
    loop {
        prompt(scanner, out).map_err(|error| error.under_index(count))?;
        count += 1;
        if !scanner.next_element()? {
            return Ok(count as u64);
        }
        if count as u64 == PROMPTS_LIMIT {
            let expected = "an array of at most 2048 prompts";
            return Err(RequestError::out_of_range(at, expected));
        }
    }
}

/// One prompt: a text, an array of token ids, or an object that holds content.
fn prompt<'a>(scanner: &mut Scanner<'a>, out: &mut Segments<'a>) -> Scanned<()> {
    match scanner.kind()? {
        Kind::Text | Kind::Object => {
            out.push(Segment::Prompt)?;
            value(scanner, out)
        }
        Kind::Array => {
            out.push(Segment::Prompt)?;
            scanner.open_array()?;
            let ids = if scanner.next_element()? { token_ids(scanner)? } else { 0 };
            out.push(Segment::TokenIds(ids))
        }
        Kind::Number | Kind::Bool | Kind::Null => Err(RequestError::wrong_type(scanner.at(), EXPECTED)),
    }
}

/// Counts the ids of an array whose first element comes next.
fn token_ids(scanner: &mut Scanner<'_>) -> Scanned<u64> {
    let mut count: u64 = 0;
    loop {
        let is_id = scanner.kind()? == Kind::Number;
        let at = scanner.at();
        if !is_id || !scanner.number()?.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(RequestError::wrong_type(at, EXPECTED));
        }
        count += 1;
        if !scanner.next_element()? {
            return Ok(count);
        }
    }
}

const EXPECTED: &str = "a string, an array of strings, an array of token ids, or an array of such arrays";
