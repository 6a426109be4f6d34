//! JSON strings as they stand in the body, unescaped only when somebody needs the characters.

use std::borrow::Cow;

/// One JSON string, borrowed from the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    raw: &'a str,
    escaped: bool,
}

impl<'a> Text<'a> {
    /// A text whose characters are exactly `text`: a backslash in it is a backslash.
    #[must_use]
    pub const fn plain(text: &'a str) -> Self {
        Self { raw: text, escaped: false }
    }

    /// The characters between the quotes of a JSON string that has at least one escape.
    pub(crate) const fn escaped(raw: &'a str) -> Self {
        Self { raw, escaped: true }
    }

    /// The bytes between the quotes, escapes and all. Never longer in characters than needed to
    /// write the text in JSON; where `is_escaped` is false it is the text itself.
    #[must_use]
    pub const fn raw(self) -> &'a str {
        self.raw
    }

    /// Whether `raw` holds escapes, so that the text differs from it.
    #[must_use]
    pub const fn is_escaped(self) -> bool {
        self.escaped
    }

    /// The text itself. Allocates only where there are escapes. Half of a surrogate pair that
    /// stands alone becomes U+FFFD, as it has no character of its own.
    #[must_use]
    pub fn decode(self) -> Cow<'a, str> {
        if self.escaped { Cow::Owned(unescape(self.raw)) } else { Cow::Borrowed(self.raw) }
    }

    /// About the first `bytes` bytes of it, without unescaping the rest.
    pub(crate) fn beginning(self, bytes: usize) -> Self {
        let longest_character = 4;
        let cut = (0..longest_character)
            .find_map(|back| self.raw.get(..bytes.saturating_sub(back)))
            .unwrap_or(self.raw);
        Self { raw: cut, ..self }
    }

    /// What stands from byte `at` of the raw form on.
    pub(crate) fn after(self, at: usize) -> Self {
        let raw = self.raw.get(at..).unwrap_or_default();
        Self { raw, ..self }
    }

    /// Whether the text is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.raw.is_empty()
    }
}

fn unescape(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        text.push_str(&rest[..at]);
        let (character, bytes) = escape(&rest.as_bytes()[at + 1..]);
        text.push(character);
        rest = rest.get(at + 1 + bytes..).unwrap_or_default();
    }
    text.push_str(rest);
    text
}

/// The character of an escape and how many bytes follow its backslash.
fn escape(bytes: &[u8]) -> (char, usize) {
    let character = match bytes.first() {
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => return unicode_escape(bytes),
        Some(&other) => char::from(other),
        None => char::REPLACEMENT_CHARACTER,
    };
    (character, 1)
}

fn unicode_escape(bytes: &[u8]) -> (char, usize) {
    let first = hex4(bytes.get(1..5));
    if let 0xD800..=0xDBFF = first
        && bytes.get(5..7) == Some(b"\\u")
        && let second @ 0xDC00..=0xDFFF = hex4(bytes.get(7..11))
    {
        let pair = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
        return (char::from_u32(pair).unwrap_or(char::REPLACEMENT_CHARACTER), 11);
    }
    (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 5)
}

fn hex4(digits: Option<&[u8]>) -> u32 {
    digits
        .unwrap_or_default()
        .iter()
        .fold(0, |value, &digit| value * 16 + char::from(digit).to_digit(16).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_characters() {
        let text = Text::escaped(r#"a\"\\\/\b\f\n\r\t\u0041\ud83d\ude00é"#).decode();
        assert_eq!(text, "a\"\\/\u{8}\u{c}\n\r\tA\u{1F600}é");
    }

    #[test]
    fn a_lone_surrogate_becomes_the_replacement_character() {
        for raw in [r"\ud83d", r"\ude00", r"\ud83d\ud83d", r"\ud83dx", r"\ud83d\n"] {
            assert!(Text::escaped(raw).decode().starts_with('\u{FFFD}'), "{raw}");
        }
        assert_eq!(Text::escaped(r"\ud83d\u0041").decode(), "\u{FFFD}A");
    }

    #[test]
    fn text_without_escapes_is_borrowed() {
        assert!(matches!(Text::plain("a\\b").decode(), Cow::Borrowed("a\\b")));
    }
}
