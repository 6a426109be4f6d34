//! JSON escapes read as the text they mean, piece by piece, without a copy of the whole.

/// Calls `read` with each stretch of the text behind `raw`, the inside of a JSON string. An escape
/// that is broken or half a surrogate pair becomes U+FFFD.
pub(super) fn pieces(raw: &[u8], mut read: impl FnMut(&[u8])) {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        read(&rest[..at]);
        let (character, bytes) = escape(&rest[at + 1..]);
        read(character.encode_utf8(&mut [0; 4]).as_bytes());
        rest = rest.get(at + 1 + bytes..).unwrap_or_default();
    }
    read(rest);
}

/// The character of an escape and how many bytes follow its backslash.
fn escape(after: &[u8]) -> (char, usize) {
    let character = match after.first() {
        Some(b'n') => '\n',
        Some(b't') => '\t',
        Some(b'r') => '\r',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'u') => return code_unit(after),
        Some(&byte) if byte.is_ascii() => char::from(byte),
        Some(_) | None => return (char::REPLACEMENT_CHARACTER, 0),
    };
    (character, 1)
}

fn code_unit(after: &[u8]) -> (char, usize) {
    let first = hexadecimal(after.get(1..5));
    if (0xD800..0xDC00).contains(&first) && after.get(5..7) == Some(b"\\u") {
        let second = hexadecimal(after.get(7..11));
        if (0xDC00..0xE000).contains(&second) {
            let pair = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
            return (char::from_u32(pair).unwrap_or(char::REPLACEMENT_CHARACTER), 11);
        }
    }
    (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 5)
}

fn hexadecimal(digits: Option<&[u8]>) -> u32 {
    let value = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    value.and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or(0xFFFD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &str) -> String {
        let mut text = Vec::new();
        pieces(raw.as_bytes(), |piece| text.extend_from_slice(piece));
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn every_escape_becomes_its_character() {
        assert_eq!(read(r#"a\"\\\/\b\f\n\r\t\u0041\ud83d\ude00é"#), "a\"\\/\u{8}\u{c}\n\r\tA\u{1F600}é");
    }

    #[test]
    fn broken_escapes_are_replaced_and_never_panic() {
        for raw in [r"\", r"\u", r"\u12", r"\ud83d", r"\ud83d\u", r"\ud83d\u0041", r"\ude00x", r"\uéé"] {
            assert!(!read(raw).is_empty(), "{raw}");
        }
    }
}
