//! What can be wrong with a request body: whose fault, where, and what would be right.

use std::fmt;

/// Why a body was not read. Every one of them is the client's fault and no retry mends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The body has no byte but white space.
    Empty,
    /// The endpoint takes no body, so there is nothing to read.
    NoBodyExpected,
    /// The body begins with a byte order mark.
    ByteOrderMark,
    /// The body is not UTF-8.
    NotUtf8 {
        /// The byte offset of the first wrong byte.
        at: usize,
    },
    /// The body is not JSON (RFC 8259), or goes on after its end, or was cut.
    Syntax {
        /// The byte offset.
        at: usize,
        /// What would be right there.
        expected: &'static str,
    },
    /// Arrays and objects lie too deep in each other.
    TooDeep {
        /// The byte offset.
        at: usize,
        /// How many levels are taken.
        limit: u32,
    },
    /// The body is JSON, but not an object.
    NotAnObject,
    /// A key stands twice in one object. The gateway and a backend could read different ones.
    DuplicateKey {
        /// The path of the member.
        param: String,
        /// The byte offset of the second one.
        at: usize,
    },
    /// A required member is absent or null.
    Missing {
        /// Its name.
        param: &'static str,
    },
    /// A member has the wrong type.
    WrongType {
        /// The path of the member.
        param: String,
        /// The byte offset of its value.
        at: usize,
        /// What would be right there.
        expected: &'static str,
    },
    /// A number, or the length of an array, is out of its range.
    OutOfRange {
        /// The path of the member.
        param: String,
        /// The byte offset of its value.
        at: usize,
        /// What would be right there.
        expected: &'static str,
    },
    /// The input has more pieces (messages, parts, prompts) than the gateway follows.
    TooManyPieces {
        /// How many are taken.
        limit: usize,
    },
}

impl RequestError {
    /// The path of the member at fault, such as `messages[2].content[0].text`.
    #[must_use]
    pub fn param(&self) -> Option<&str> {
        match self {
            Self::DuplicateKey { param, .. }
            | Self::WrongType { param, .. }
            | Self::OutOfRange { param, .. } => Some(param),
            Self::Missing { param } => Some(param),
            Self::Empty
            | Self::NoBodyExpected
            | Self::ByteOrderMark
            | Self::NotUtf8 { .. }
            | Self::Syntax { .. }
            | Self::TooDeep { .. }
            | Self::NotAnObject
            | Self::TooManyPieces { .. } => None,
        }
    }

    /// The byte offset in the body, where there is one place to point at.
    #[must_use]
    pub const fn at(&self) -> Option<usize> {
        match self {
            Self::NotUtf8 { at }
            | Self::Syntax { at, .. }
            | Self::TooDeep { at, .. }
            | Self::DuplicateKey { at, .. }
            | Self::WrongType { at, .. }
            | Self::OutOfRange { at, .. } => Some(*at),
            Self::Empty
            | Self::NoBodyExpected
            | Self::ByteOrderMark
            | Self::NotAnObject
            | Self::Missing { .. }
            | Self::TooManyPieces { .. } => None,
        }
    }

    pub(crate) const fn wrong_type(at: usize, expected: &'static str) -> Self {
        Self::WrongType { param: String::new(), at, expected }
    }

    pub(crate) const fn out_of_range(at: usize, expected: &'static str) -> Self {
        Self::OutOfRange { param: String::new(), at, expected }
    }

    /// The same error, seen from the object around: its path begins with `name`.
    pub(crate) fn under(mut self, name: &str) -> Self {
        if let Self::DuplicateKey { param, .. }
        | Self::WrongType { param, .. }
        | Self::OutOfRange { param, .. } = &mut self
        {
            let joint = match param.as_bytes().first() {
                None | Some(b'[') => "",
                Some(_) => ".",
            };
            *param = format!("{}{joint}{param}", shortened(name));
        }
        self
    }

    /// The same error, seen from the array around.
    pub(crate) fn under_index(self, index: usize) -> Self {
        self.under(&format!("[{index}]"))
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the body is empty: send a JSON object"),
            Self::NoBodyExpected => f.write_str("this endpoint takes no body"),
            Self::ByteOrderMark => {
                f.write_str("the body begins with a byte order mark: send UTF-8 without it")
            }
            Self::NotUtf8 { at } => {
                write!(f, "the body is not UTF-8 at byte {at}: encode it as UTF-8")
            }
            Self::Syntax { at, expected } => {
                write!(f, "the body is not valid JSON at byte {at}: expected {expected}")
            }
            Self::TooDeep { at, limit } => write!(
                f,
                "the body nests arrays and objects deeper than {limit} levels at byte {at}: flatten it"
            ),
            Self::NotAnObject => f.write_str("the body is not a JSON object: send one"),
            Self::DuplicateKey { param, at } => {
                write!(f, "`{param}` stands twice in the same object, again at byte {at}: send it once")
            }
            Self::Missing { param } => write!(f, "`{param}` is required: add it"),
            Self::WrongType { param, at, expected } | Self::OutOfRange { param, at, expected } => {
                write!(f, "`{param}` at byte {at} must be {expected}")
            }
            Self::TooManyPieces { limit } => {
                write!(f, "the input has more than {limit} messages, parts and prompts: split the request")
            }
        }
    }
}

impl std::error::Error for RequestError {}

/// A key of the client's may be of any length; the path in an error is not.
fn shortened(name: &str) -> &str {
    name.char_indices().nth(LONGEST_NAME).and_then(|(at, _)| name.get(..at)).unwrap_or(name)
}

/// Characters of a key that an error repeats.
const LONGEST_NAME: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_grows_from_the_inside_out() {
        let error = RequestError::wrong_type(7, "a string")
            .under("text")
            .under_index(0)
            .under("content")
            .under_index(12)
            .under("messages");
        assert_eq!(error.param(), Some("messages[12].content[0].text"));
        assert_eq!(error.at(), Some(7));
        assert_eq!(error.to_string(), "`messages[12].content[0].text` at byte 7 must be a string");
    }

    #[test]
    fn a_long_key_is_not_repeated_whole() {
        let error = RequestError::DuplicateKey { param: String::new(), at: 1 }.under(&"é".repeat(10_000));
        assert_eq!(error.param().map(|param| param.chars().count()), Some(64));
    }
}
