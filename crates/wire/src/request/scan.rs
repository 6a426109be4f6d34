//! A pull reader over JSON text (RFC 8259): one pass, no tree, no recursion, positions kept.
//!
//! Whatever is not asked for is skipped, but checked all the same: a body is read whole or refused.

use std::borrow::Cow;
use std::ops::Range;

use super::error::RequestError;
use super::keys::Keys;
use super::text::Text;

/// Levels of arrays and objects that a body may have. Backends written in Python give up at a few
/// hundred; a request of the APIs we know needs about ten.
pub const NESTING_LIMIT: u32 = 128;

pub(crate) type Scanned<T> = Result<T, RequestError>;

/// What a value begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    Array,
    Text,
    Number,
    Bool,
    Null,
}

/// The name of a member, read up to the beginning of its value.
#[derive(Clone, Debug)]
pub(crate) struct Member<'a> {
    pub(crate) name: Cow<'a, str>,
    /// Where the key's opening quote stands.
    pub(crate) at: usize,
    /// Where the comma before it stands; for a first member, as `at`.
    pub(crate) comma_at: usize,
}

/// The reader. Every method that fails leaves it in no useful state.
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
    /// One bit per level, the innermost lowest: 1 for an object.
    objects: u128,
    /// Whether the innermost array or object has had no member yet.
    fresh: bool,
}

impl<'a> Scanner<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0, objects: 0, fresh: false }
    }

    /// The byte offset of what comes next, blanks not skipped.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// What kind of value comes next.
    pub(crate) fn kind(&mut self) -> Scanned<Kind> {
        self.blanks();
        match self.peek() {
            Some(b'"') => Ok(Kind::Text),
            Some(b'{') => Ok(Kind::Object),
            Some(b'[') => Ok(Kind::Array),
            Some(b'-' | b'0'..=b'9') => Ok(Kind::Number),
            Some(b't' | b'f') => Ok(Kind::Bool),
            Some(b'n') => Ok(Kind::Null),
            _ => Err(self.unexpected("a value")),
        }
    }

    /// Enters an object, known to come next from `kind`.
    pub(crate) fn open_object(&mut self) -> Scanned<()> {
        self.open(1)
    }

    /// Enters an array, known to come next from `kind`.
    pub(crate) fn open_array(&mut self) -> Scanned<()> {
        self.open(0)
    }

    /// The next member of the object entered last, or `None` after leaving it.
    pub(crate) fn next_member(&mut self, keys: &mut Keys<'a>) -> Scanned<Option<Member<'a>>> {
        let Some(comma_at) = self.another(b'}', "`,` or `}`")? else {
            return Ok(None);
        };
        let at = self.at;
        let name = self.key()?.decode();
        if keys.add(name.clone()) {
            Ok(Some(Member { name, at, comma_at }))
        } else {
            let param = String::new();
            Err(RequestError::DuplicateKey { param, at }.under(&name))
        }
    }

    /// Whether the array entered last has another element; `false` after leaving it.
    pub(crate) fn next_element(&mut self) -> Scanned<bool> {
        Ok(self.another(b']', "`,` or `]`")?.is_some())
    }

    /// Reads a string, known to come next from `kind`.
    pub(crate) fn string(&mut self) -> Scanned<Text<'a>> {
        let start = self.at + 1;
        let mut escaped = false;
        self.at = start;
        loop {
            self.at = plain_end(self.text.as_bytes(), self.at);
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.at += 1;
                    self.escape()?;
                }
                Some(_) => return Err(self.unexpected("an escape in place of a control character")),
                None => return Err(self.unexpected("the end of a string")),
            }
        }
        let raw = self.slice(start..self.at);
        self.at += 1;
        Ok(if escaped { Text::escaped(raw) } else { Text::plain(raw) })
    }

    /// Reads a number, known to come next from `kind`, as it is written.
    pub(crate) fn number(&mut self) -> Scanned<&'a str> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(self.slice(start..self.at))
    }

    /// Reads `true` or `false`, known to come next from `kind`.
    pub(crate) fn boolean(&mut self) -> Scanned<bool> {
        if self.peek() == Some(b't') {
            self.word("true").map(|()| true)
        } else {
            self.word("false").map(|()| false)
        }
    }

    /// Reads `null`, known to come next from `kind`.
    pub(crate) fn null(&mut self) -> Scanned<()> {
        self.word("null")
    }

    /// Passes over a whole value and gives where it stands.
    pub(crate) fn skip(&mut self) -> Scanned<Range<usize>> {
        let floor = self.depth;
        self.blanks();
        let start = self.at;
        loop {
            self.enter_or_pass()?;
            loop {
                if self.depth == floor {
                    return Ok(start..self.at);
                }
                if self.another_anywhere()? {
                    break;
                }
            }
        }
    }

    /// As `skip`, and gives what was passed.
    pub(crate) fn skip_raw(&mut self) -> Scanned<&'a str> {
        let range = self.skip()?;
        Ok(self.slice(range))
    }

    /// Demands that nothing but blanks is left.
    pub(crate) fn end(&mut self) -> Scanned<()> {
        self.blanks();
        if self.at == self.text.len() { Ok(()) } else { Err(self.unexpected("the end of the body")) }
    }

    /// Passes a scalar, or enters an array or object.
    fn enter_or_pass(&mut self) -> Scanned<()> {
        match self.kind()? {
            Kind::Object => self.open_object(),
            Kind::Array => self.open_array(),
            Kind::Text => self.string().map(drop),
            Kind::Number => self.number().map(drop),
            Kind::Bool => self.boolean().map(drop),
            Kind::Null => self.null(),
        }
    }

    /// Moves to the next value of the innermost level, or leaves it.
    fn another_anywhere(&mut self) -> Scanned<bool> {
        if self.objects & 1 == 0 {
            return self.next_element();
        }
        let more = self.another(b'}', "`,` or `}`")?.is_some();
        if more {
            self.key()?;
        }
        Ok(more)
    }

    fn open(&mut self, object: u128) -> Scanned<()> {
        if self.depth == NESTING_LIMIT {
            return Err(RequestError::TooDeep { at: self.at, limit: NESTING_LIMIT });
        }
        self.at += 1;
        self.depth += 1;
        self.objects = self.objects << 1 | object;
        self.fresh = true;
        Ok(())
    }

    /// Passes the comma before another member and tells where it stood (for a first member, where
    /// that one begins), or passes the bracket that ends the level.
    fn another(&mut self, close: u8, expected: &'static str) -> Scanned<Option<usize>> {
        self.blanks();
        let fresh = std::mem::replace(&mut self.fresh, false);
        match self.peek() {
            Some(byte) if byte == close => {
                self.at += 1;
                self.depth -= 1;
                self.objects >>= 1;
                Ok(None)
            }
            Some(b',') if !fresh => {
                let comma_at = self.at;
                self.at += 1;
                self.blanks();
                Ok(Some(comma_at))
            }
            Some(_) if fresh => Ok(Some(self.at)),
            _ => Err(self.unexpected(expected)),
        }
    }

    fn key(&mut self) -> Scanned<Text<'a>> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected("a key in double quotes"));
        }
        let key = self.string()?;
        self.blanks();
        if self.peek() != Some(b':') {
            return Err(self.unexpected("`:`"));
        }
        self.at += 1;
        Ok(key)
    }

    fn escape(&mut self) -> Scanned<()> {
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 1;
                Ok(())
            }
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                        return Err(self.unexpected("four hexadecimal digits"));
                    }
                    self.at += 1;
                }
                Ok(())
            }
            _ => Err(self.unexpected("an escape that JSON knows")),
        }
    }

    fn digits(&mut self) -> Scanned<()> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.unexpected("a digit"));
        }
        Ok(())
    }

    fn word(&mut self, word: &'static str) -> Scanned<()> {
        let rest = &self.text.as_bytes()[self.at..];
        if rest.starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(())
        } else {
            Err(self.unexpected("a value"))
        }
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn slice(&self, range: Range<usize>) -> &'a str {
        // Both ends lie beside an ASCII byte, hence on boundaries of characters.
        self.text.get(range).unwrap_or_default()
    }

    const fn unexpected(&self, expected: &'static str) -> RequestError {
        RequestError::Syntax { at: self.at, expected }
    }
}

/// The offset of the first quote, backslash or control character at or after `from`, or the end.
///
/// A word first, for text with many escapes; then wide steps, for long plain text; then words.
fn plain_end(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    let mut at = 0;
    if let Some(found) = rest.first_chunk().and_then(end_in_word) {
        return from + found;
    }
    for chunk in rest.as_chunks::<WIDE>().0 {
        if chunk.iter().fold(false, |any, &byte| any | ends_plain(byte)) {
            break;
        }
        at += WIDE;
    }
    while let Some(word) = rest.get(at..).and_then(<[u8]>::first_chunk) {
        if let Some(found) = end_in_word(word) {
            return from + at + found;
        }
        at += 8;
    }
    let tail = rest.get(at..).unwrap_or_default();
    let found = tail.iter().position(|&byte| ends_plain(byte));
    from + at + found.unwrap_or(tail.len())
}

fn end_in_word(word: &[u8; 8]) -> Option<usize> {
    let found = ends_plain_in(u64::from_le_bytes(*word));
    (found != 0).then(|| (found.trailing_zeros() / 8) as usize)
}

const fn ends_plain(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

/// The high bit of each byte that ends plain text; bits above the lowest set one may be wrong.
const fn ends_plain_in(word: u64) -> u64 {
    let quotes = word ^ (ONES * b'"' as u64);
    let backslashes = word ^ (ONES * b'\\' as u64);
    let controls = word.wrapping_sub(ONES * 0x20);
    (quotes.wrapping_sub(ONES) & !quotes | backslashes.wrapping_sub(ONES) & !backslashes | controls & !word)
        & HIGHS
}

const WIDE: usize = 16;
const ONES: u64 = u64::MAX / 255;
const HIGHS: u64 = ONES << 7;
