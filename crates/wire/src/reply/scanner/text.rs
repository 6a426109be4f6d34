//! Strings that are handed out: unescaped piece by piece, cut anywhere.

use memchr::memchr2;

use super::{Scanner, State};
use crate::reply::facts::Facts;

const REPLACEMENT: char = '\u{fffd}';

impl Scanner {
    pub(super) fn text(&mut self, bytes: &[u8], at: usize, facts: &mut Facts) -> usize {
        let length = memchr2(b'"', b'\\', &bytes[at..]).unwrap_or(bytes.len() - at);
        let end = at + length;
        if length > 0 {
            self.lone_surrogate(facts);
            facts.text(self.node, &bytes[at..end]);
        }
        match bytes.get(end) {
            None => end,
            Some(b'"') => {
                self.lone_surrogate(facts);
                facts.text_ends(self.node, end);
                self.state = State::After;
                end + 1
            }
            Some(_) => {
                self.state = State::TextEscape;
                end + 1
            }
        }
    }

    pub(super) fn text_escape(&mut self, bytes: &[u8], at: usize, facts: &mut Facts) -> usize {
        self.state = State::Text;
        let character = match bytes[at] {
            b'u' => {
                self.state = State::TextHex;
                (self.hex, self.hex_digits) = (0, 0);
                return at + 1;
            }
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            plain @ (b'"' | b'\\' | b'/') => char::from(plain),
            _ => return self.fail(bytes),
        };
        self.lone_surrogate(facts);
        self.emit(character, facts);
        at + 1
    }

    pub(super) fn text_hex(&mut self, bytes: &[u8], at: usize, facts: &mut Facts) -> usize {
        let Some(digit) = char::from(bytes[at]).to_digit(16) else {
            return self.fail(bytes);
        };
        self.hex = self.hex * 16 + digit;
        self.hex_digits += 1;
        if self.hex_digits == 4 {
            self.state = State::Text;
            self.unit(facts);
        }
        at + 1
    }

    /// Takes one UTF-16 unit of an escape.
    fn unit(&mut self, facts: &mut Facts) {
        match (self.hex, self.high.take()) {
            (0xdc00..=0xdfff, Some(high)) => {
                let code = 0x1_0000 + ((high - 0xd800) << 10) + (self.hex - 0xdc00);
                self.emit(char::from_u32(code).unwrap_or(REPLACEMENT), facts);
            }
            (unit, high) => {
                if high.is_some() {
                    self.emit(REPLACEMENT, facts);
                }
                if (0xd800..=0xdbff).contains(&unit) {
                    self.high = Some(unit);
                } else {
                    self.emit(char::from_u32(unit).unwrap_or(REPLACEMENT), facts);
                }
            }
        }
    }

    fn lone_surrogate(&mut self, facts: &mut Facts) {
        if self.high.take().is_some() {
            self.emit(REPLACEMENT, facts);
        }
    }

    fn emit(&self, character: char, facts: &mut Facts) {
        facts.text(self.node, character.encode_utf8(&mut [0; 4]).as_bytes());
    }
}
