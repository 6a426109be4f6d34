//! What a request gives the model to read, piece by piece.

use super::text::Text;

/// One piece of the input of a request, in the order of the body. It borrows from the body.
///
/// Markers (`Message`, `Prompt`, `ToolCall`) stand before what belongs to them, so that a counter
/// can add what a chat template adds for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment<'a> {
    /// A message or an input item begins; it lasts until the next marker of its kind.
    Message,
    /// One prompt (completions) or one input (embeddings) begins.
    Prompt,
    /// A call of a tool begins: its name and its arguments follow.
    ToolCall,
    /// The role of the message.
    Role(Text<'a>),
    /// The name of the author of the message.
    Name(Text<'a>),
    /// Instructions that stand outside the messages: Anthropic's `system`, Responses'
    /// `instructions`. Each text block of `system` is one.
    System(Text<'a>),
    /// Any other text.
    Text(Text<'a>),
    /// A value that the model reads as JSON text (the arguments of a tool call): the bytes of the
    /// body.
    Json(&'a str),
    /// One tool or function definition: the bytes of the body.
    Tool(&'a str),
    /// This many token ids of a prompt given as numbers.
    TokenIds(u64),
    /// An image.
    Image(Image<'a>),
    /// Sound, film, a document, or another thing that is not text.
    Attachment(Attachment),
}

/// An image of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// Where its pixels are.
    pub source: ImageSource<'a>,
    /// How closely the model shall look.
    pub detail: Detail,
}

/// Where the pixels of an image are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageSource<'a> {
    /// At an address that the backend fetches.
    Url(Text<'a>),
    /// In the body.
    Base64(Base64<'a>),
    /// In a file that the backend keeps, or in a form that only the backend reads.
    Stored,
}

/// How closely a model shall look at an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Detail {
    /// The smallest size.
    Low,
    /// The model's full size, also for values that only some models know (`original`).
    High,
    /// As the model chooses; also when nothing was said.
    #[default]
    Auto,
}

/// Something that is neither text nor an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// What it is.
    pub kind: AttachmentKind,
    /// How many bytes of the body it takes, encoded as it is; 0 where it lies elsewhere.
    pub encoded_bytes: usize,
}

/// What an attachment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachmentKind {
    /// Sound.
    Audio,
    /// Moving pictures.
    Video,
    /// A file, such as a PDF.
    Document,
}

/// Bytes written as base64 inside a JSON string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base64<'a> {
    text: Text<'a>,
}

impl<'a> Base64<'a> {
    pub(crate) const fn new(text: Text<'a>) -> Self {
        Self { text }
    }

    /// How many bytes of the body it takes.
    #[must_use]
    pub const fn encoded_bytes(self) -> usize {
        self.text.raw().len()
    }

    /// The first `limit_bytes` decoded bytes, or fewer where the data ends or is not base64.
    ///
    /// ```
    /// use fairlane_wire::request::{Base64, Text};
    ///
    /// let data = Base64::from(Text::plain("iVBORw0KGgo="));
    /// assert_eq!(data.first_bytes(4), b"\x89PNG");
    /// ```
    #[must_use]
    pub fn first_bytes(self, limit_bytes: usize) -> Vec<u8> {
        let needed = limit_bytes.div_ceil(3).saturating_mul(4);
        let text = self.text.beginning(needed.saturating_mul(LONGEST_ESCAPE_BYTES));
        let mut decoded = Vec::with_capacity(limit_bytes.min(text.raw().len()));
        let (mut bits, mut held) = (0_u32, 0_u32);
        let characters = text.decode();
        let written = characters.bytes().filter(|byte| !byte.is_ascii_whitespace());
        for digit in written.take(needed).map_while(digit) {
            bits = bits << 6 | digit;
            held += 6;
            if held >= 8 {
                held -= 8;
                decoded.push((bits >> held) as u8);
                bits &= (1 << held) - 1;
            }
        }
        decoded.truncate(limit_bytes);
        decoded
    }
}

impl<'a> From<Text<'a>> for Base64<'a> {
    fn from(text: Text<'a>) -> Self {
        Self::new(text)
    }
}

/// Both alphabets of RFC 4648: the plain one and the one for addresses.
fn digit(byte: u8) -> Option<u32> {
    match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    }
}

/// `\u002f`: some JSON writers escape `/`, which base64 uses.
const LONGEST_ESCAPE_BYTES: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded_up_to_the_limit_only() {
        let data = Base64::new(Text::plain("aGVsbG8gd29ybGQ="));
        assert_eq!(data.first_bytes(5), b"hello");
        assert_eq!(data.first_bytes(100), b"hello world");
        assert_eq!(data.first_bytes(0), b"");
    }

    #[test]
    fn base64_with_escaped_slashes_is_decoded() {
        let data = Base64::new(Text::escaped(r"\/9j\/4AAQ\u002f"));
        assert_eq!(data.first_bytes(6), [0xFF, 0xD8, 0xFF, 0xE0, 0x00, 0x10]);
    }

    #[test]
    fn what_is_not_base64_ends_the_data() {
        let data = Base64::new(Text::plain("aGVs!!!!"));
        assert_eq!(data.first_bytes(100), b"hel");
    }
}
