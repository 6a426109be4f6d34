//! Values of one type, or null; and the small objects of which a few members matter.

use std::borrow::Cow;

use super::error::RequestError;
use super::keys::Keys;
use super::layout::{IncludeUsage, StreamOptions};
use super::scan::{Kind, Scanned, Scanner};
use super::text::Text;

/// A string, or nothing for null.
pub(super) fn optional_text<'a>(scanner: &mut Scanner<'a>) -> Scanned<Option<Text<'a>>> {
    match scanner.kind()? {
        Kind::Text => scanner.string().map(Some),
        Kind::Null => scanner.null().map(|()| None),
        Kind::Object | Kind::Array | Kind::Number | Kind::Bool => {
            Err(RequestError::wrong_type(scanner.at(), "a string"))
        }
    }
}

pub(super) fn stream_options(scanner: &mut Scanner<'_>) -> Scanned<StreamOptions> {
    match scanner.kind()? {
        Kind::Null => {
            let value = scanner.skip()?;
            return Ok(StreamOptions::Null { value });
        }
        Kind::Object => {}
        Kind::Array | Kind::Text | Kind::Number | Kind::Bool => {
            return Err(RequestError::wrong_type(scanner.at(), "an object"));
        }
    }
    scanner.open_object()?;
    let open = scanner.at();
    let mut keys = Keys::new();
    let (mut is_empty, mut include_usage) = (true, None);
    while let Some(member) = scanner.next_member(&mut keys)? {
        is_empty = false;
        if member.name == "include_usage" {
            let at = value_at(scanner)?;
            let asked = optional_bool(scanner).map_err(|error| error.under("include_usage"))?;
            let value = at..scanner.at();
            include_usage = Some(IncludeUsage { value, asked });
        } else {
            scanner.skip()?;
        }
    }
    Ok(StreamOptions::Object { open, is_empty, include_usage })
}

pub(super) fn thinking_budget(scanner: &mut Scanner<'_>) -> Scanned<Option<u64>> {
    if scanner.kind()? == Kind::Null {
        return scanner.null().map(|()| None);
    }
    if scanner.kind()? != Kind::Object {
        return Err(RequestError::wrong_type(scanner.at(), "an object"));
    }
    scanner.open_object()?;
    let mut keys = Keys::new();
    let mut budget = None;
    while let Some(member) = scanner.next_member(&mut keys)? {
        if member.name == "budget_tokens" {
            budget = optional_count(scanner).map_err(|error| error.under("budget_tokens"))?;
        } else {
            scanner.skip()?;
        }
    }
    Ok(budget)
}

/// Reads the named members of an object, or nothing from null. Values that are not strings are
/// the client's own business: they are left alone.
pub(super) fn object<'a, const N: usize>(
    scanner: &mut Scanner<'a>,
    names: [&str; N],
    fields: [&mut Option<Cow<'a, str>>; N],
) -> Scanned<()> {
    match scanner.kind()? {
        Kind::Null => return scanner.null(),
        Kind::Object => scanner.open_object()?,
        Kind::Array | Kind::Text | Kind::Number | Kind::Bool => {
            return Err(RequestError::wrong_type(scanner.at(), "an object"));
        }
    }
    let mut keys = Keys::new();
    while let Some(member) = scanner.next_member(&mut keys)? {
        match names.iter().position(|&name| name == member.name) {
            Some(index) if scanner.kind()? == Kind::Text => {
                *fields[index] = Some(scanner.string()?.decode());
            }
            Some(_) | None => {
                scanner.skip()?;
            }
        }
    }
    Ok(())
}

pub(super) fn value_at(scanner: &mut Scanner<'_>) -> Scanned<usize> {
    scanner.kind()?;
    Ok(scanner.at())
}

pub(super) fn optional_bool(scanner: &mut Scanner<'_>) -> Scanned<bool> {
    match scanner.kind()? {
        Kind::Bool => scanner.boolean(),
        Kind::Null => scanner.null().map(|()| false),
        Kind::Object | Kind::Array | Kind::Text | Kind::Number => {
            Err(RequestError::wrong_type(scanner.at(), "true or false"))
        }
    }
}

/// A count written as an integer, or nothing for null. What exceeds 64 bits is the largest count,
/// so that a cap still applies.
pub(super) fn optional_count(scanner: &mut Scanner<'_>) -> Scanned<Option<u64>> {
    match scanner.kind()? {
        Kind::Null => return scanner.null().map(|()| None),
        Kind::Number => {}
        Kind::Object | Kind::Array | Kind::Text | Kind::Bool => {
            return Err(RequestError::wrong_type(scanner.at(), COUNT_EXPECTED));
        }
    }
    let at = scanner.at();
    let number = scanner.number()?;
    if number.starts_with('-') {
        return Err(RequestError::out_of_range(at, COUNT_EXPECTED));
    }
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(RequestError::wrong_type(at, COUNT_EXPECTED));
    }
    Ok(Some(number.parse().unwrap_or(u64::MAX)))
}

const COUNT_EXPECTED: &str = "a non-negative integer without fraction or exponent";
