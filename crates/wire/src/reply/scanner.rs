//! A streaming JSON scanner: it follows the members that matter, skips all others, and may be cut at any byte.
//!
//! It keeps the path it is on and one short word, never a document, so an answer may be of any length and depth.
//! It is lenient where leniency costs nothing; text that cannot be JSON makes it stop for good.

mod text;
mod word;

use memchr::memchr2;

use super::facts::Facts;
use super::node::{Node, StringUse};
use word::Word;

/// The tree of [`Node`] is less deep than this.
const FRAMES_MAX: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Value,
    FirstElement,
    FirstKey,
    Key,
    InKey,
    InKeyEscape,
    Colon,
    After,
    Scalar,
    Text,
    TextEscape,
    TextHex,
    Word,
    WordEscape,
    Skip,
    SkipString,
    SkipEscape,
    Complete,
    Failed,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    node: Node,
    array: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Scanner {
    state: State,
    node: Node,
    depth: usize,
    frames: [Frame; FRAMES_MAX],
    /// Brackets open inside a container that is skipped.
    nesting: u64,
    word: Word,
    hex: u32,
    hex_digits: u8,
    /// The first half of a surrogate pair.
    high: Option<u32>,
}

impl Default for Scanner {
    fn default() -> Self {
        Self {
            state: State::Value,
            node: Node::Root,
            depth: 0,
            frames: [Frame { node: Node::Skip, array: false }; FRAMES_MAX],
            nesting: 0,
            word: Word::default(),
            hex: 0,
            hex_digits: 0,
            high: None,
        }
    }
}

impl Scanner {
    /// Makes ready for another document.
    pub(crate) fn reset(&mut self) {
        self.state = State::Value;
        self.node = Node::Root;
        self.depth = 0;
        self.nesting = 0;
        self.word.clear();
        self.high = None;
    }

    /// Whether the document has ended.
    pub(crate) fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    /// Whether the document cannot be JSON, or is not an object or array.
    pub(crate) fn has_failed(&self) -> bool {
        self.state == State::Failed
    }

    /// Reads on. Positions told to `facts` count from the start of `bytes`.
    pub(crate) fn feed(&mut self, bytes: &[u8], facts: &mut Facts) {
        let mut at = 0;
        while at < bytes.len() {
            at = match self.state {
                State::Value | State::FirstElement => self.value(bytes, at, facts),
                State::FirstKey | State::Key => self.before_key(bytes, at, facts),
                State::InKey => self.key(bytes, at),
                State::InKeyEscape => self.odd_word(State::InKey, at),
                State::Colon => self.colon(bytes, at),
                State::After => self.after(bytes, at, facts),
                State::Scalar => self.scalar(bytes, at, facts),
                State::Text => self.text(bytes, at, facts),
                State::TextEscape => self.text_escape(bytes, at, facts),
                State::TextHex => self.text_hex(bytes, at, facts),
                State::Word => self.word(bytes, at, facts),
                State::WordEscape => self.odd_word(State::Word, at),
                State::Skip => self.skip(bytes, at, facts),
                State::SkipString => self.skip_string(bytes, at, facts),
                State::SkipEscape => {
                    self.state = State::SkipString;
                    at + 1
                }
                State::Complete => match after_blanks(bytes, at) {
                    Some(_) => self.fail(bytes),
                    None => bytes.len(),
                },
                State::Failed => bytes.len(),
            };
        }
    }

    fn fail(&mut self, bytes: &[u8]) -> usize {
        self.state = State::Failed;
        bytes.len()
    }

    fn value(&mut self, bytes: &[u8], at: usize, facts: &mut Facts) -> usize {
        let Some(at) = after_blanks(bytes, at) else {
            return bytes.len();
        };
        match bytes[at] {
            b'{' => self.open(false, facts),
            b'[' => self.open(true, facts),
            b']' if self.state == State::FirstElement => return self.close(bytes, at, facts),
            _ if self.depth == 0 => return self.fail(bytes),
            b'"' => match self.node.string_use() {
                StringUse::Skip => self.state = State::SkipString,
                StringUse::Word => self.state = State::Word,
                StringUse::Text => {
                    facts.text_starts(self.node, at + 1);
                    self.state = State::Text;
                }
            },
            // Python writes `NaN` and `Infinity` where JSON has no word.
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' | b'N' | b'I' => {
                self.state = State::Scalar;
                return at;
            }
            _ => return self.fail(bytes),
        }
        at + 1
    }

    fn open(&mut self, array: bool, facts: &mut Facts) {
        let root_array = array && self.depth == 0;
        let plain = matches!(self.node, Node::Skip | Node::Json | Node::Present);
        if plain || root_array || self.depth == FRAMES_MAX {
            facts.opened(self.node);
            self.nesting = 1;
            self.state = State::Skip;
            return;
        }
        facts.opened(self.node);
        self.frames[self.depth] = Frame { node: self.node, array };
        self.depth += 1;
        if array {
            self.node = self.node.element();
            self.state = State::FirstElement;
        } else {
            self.state = State::FirstKey;
        }
    }

    fn close(&mut self, bytes: &[u8], at: usize, facts: &mut Facts) -> usize {
        let Some(depth) = self.depth.checked_sub(1) else {
            return self.fail(bytes);
        };
        let frame = self.frames[depth];
        if frame.array != (bytes[at] == b']') {
            return self.fail(bytes);
        }
        self.depth = depth;
        facts.closed(frame.node);
        self.value_ended();
        at + 1
    }

    fn value_ended(&mut self) {
        self.state = if self.depth == 0 { State::Complete } else { State::After };
    }

    fn before_key(&mut self, bytes: &[u8], at: usize, facts: &mut Facts) -> usize {
        let Some(at) = after_blanks(bytes, at) else {
            return bytes.len();
        };
        match bytes[at] {
            b'"' => {
                self.word.clear();
                self.state = State::InKey;
                at + 1
            }
            b'}' if self.state == State::FirstKey => self.close(bytes, at, facts),
            _ => self.fail(bytes),
        }
    }

    fn key(&mut self, bytes: &[u8], at: usize) -> usize {
        let Some(length) = memchr2(b'"', b'\\', &bytes[at..]) else {
            self.word.push(&bytes[at..]);
            return bytes.len();
        };
        let end = at + length;
        if bytes[end] == b'\\' {
            self.state = State::InKeyEscape;
            return end + 1;
        }
        let parent = self.frames[self.depth - 1].node;
        self.node = self.word.finish(&bytes[at..end]).map_or(Node::Skip, |key| parent.member(key));
        self.state = State::Colon;
        end + 1
    }

    /// Passes over an escaped character: no known key or word is written with one.
    fn odd_word(&mut self, back: State, at: usize) -> usize {
        self.word.spoil();
        self.state = back;
        at + 1
    }

    fn colon(&mut self, bytes: &[u8], at: usize) -> usize {
        match after_blanks(bytes, at) {
            None => bytes.len(),
            Some(at) if bytes[at] == b':' => {
                self.state = State::Value;
                self.word.clear();
                at + 1
            }
            Some(_) => self.fail(bytes),
        }
    }

    fn after(&mut self, bytes: &[u8], at: usize, facts: &mut Facts) -> usize {
        let Some(at) = after_blanks(bytes, at) else {
            return bytes.len();
        };
        let frame = self.frames[self.depth - 1];
        match bytes[at] {
            b',' if frame.array => {
                self.node = frame.node.element();
                self.word.clear();
                self.state = State::Value;
                at + 1
            }
            b',' => {
                self.state = State::Key;
                at + 1
            }
            b'}' | b']' => self.close(bytes, at, facts),
            _ => self.fail(bytes),
        }
    }

    fn scalar(&mut self, bytes: &[u8], at: usize, facts: &mut Facts) -> usize {
        let length = bytes[at..]
            .iter()
            .position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n'));
        let Some(length) = length else {
            self.word.push(&bytes[at..]);
            return bytes.len();
        };
        if self.node != Node::Skip {
            facts.scalar(self.node, self.word.beginning(&bytes[at..at + length]));
        }
        self.word.clear();
        self.state = State::After;
        at + length
    }

    fn word(&mut self, bytes: &[u8], at: usize, facts: &mut Facts) -> usize {
        let Some(length) = memchr2(b'"', b'\\', &bytes[at..]) else {
            self.word.push(&bytes[at..]);
            return bytes.len();
        };
        let end = at + length;
        if bytes[end] == b'\\' {
            self.state = State::WordEscape;
            return end + 1;
        }
        facts.word(self.node, self.word.finish(&bytes[at..end]));
        self.word.clear();
        self.state = State::After;
        end + 1
    }

    fn skip(&mut self, bytes: &[u8], at: usize, facts: &mut Facts) -> usize {
        let Some(length) = find_structure(&bytes[at..]) else {
            facts.json(self.node, &bytes[at..]);
            return bytes.len();
        };
        let end = at + length;
        facts.json(self.node, &bytes[at..end]);
        match bytes[end] {
            b'"' => self.state = State::SkipString,
            b'{' | b'[' => self.nesting += 1,
            _ => {
                self.nesting -= 1;
                if self.nesting == 0 {
                    facts.closed(self.node);
                    self.value_ended();
                }
            }
        }
        end + 1
    }

    fn skip_string(&mut self, bytes: &[u8], at: usize, facts: &mut Facts) -> usize {
        let Some(length) = memchr2(b'"', b'\\', &bytes[at..]) else {
            facts.json(self.node, &bytes[at..]);
            return bytes.len();
        };
        let end = at + length;
        facts.json(self.node, &bytes[at..end]);
        self.state = if bytes[end] == b'\\' {
            State::SkipEscape
        } else if self.nesting > 0 {
            State::Skip
        } else {
            State::After
        };
        end + 1
    }
}

fn after_blanks(bytes: &[u8], at: usize) -> Option<usize> {
    let blanks = bytes[at..].iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))?;
    Some(at + blanks)
}

/// The next quote or bracket. Whole blocks without one are passed by comparing many bytes at a time: an answer with embeddings is megabytes of digits.
fn find_structure(bytes: &[u8]) -> Option<usize> {
    const BLOCK: usize = 32;
    // The four brackets, and a few letters, are equal after setting these bits.
    let suspicious = |byte: &u8| (byte | 0x26 == 0x7f) | (*byte == b'"');
    let clear_blocks = bytes
        .chunks_exact(BLOCK)
        .take_while(|block| !block.iter().fold(false, |any, byte| any | suspicious(byte)))
        .count();
    let from = clear_blocks * BLOCK;
    let length = bytes[from..].iter().position(|byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']'))?;
    Some(from + length)
}
