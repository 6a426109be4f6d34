//! Messages, input items and content parts of all dialects, read by their keys into segments.
//!
//! The dialects use the same few keys for the same things, so one reader serves them all, and what
//! counts does not depend on whether `type` stands before or after the content.

use super::error::RequestError;
use super::keys::Keys;
use super::scan::{Kind, Member, Scanned, Scanner};
use super::segment::{Attachment, AttachmentKind, Base64, Detail, Image, ImageSource, Segment};
use super::text::Text;
use super::values::optional_text;

/// Pieces of input that are followed; a request with more is refused. The largest documented
/// request has 100,000 messages.
pub const SEGMENTS_LIMIT: usize = 400_000;

/// The pieces collected so far.
pub(crate) struct Segments<'a> {
    list: Vec<Segment<'a>>,
}

impl<'a> Segments<'a> {
    pub(crate) fn new() -> Self {
        Self { list: Vec::with_capacity(16) }
    }

    pub(crate) fn push(&mut self, segment: Segment<'a>) -> Scanned<()> {
        if self.list.len() == SEGMENTS_LIMIT {
            return Err(RequestError::TooManyPieces { limit: SEGMENTS_LIMIT });
        }
        self.list.push(segment);
        Ok(())
    }

    pub(crate) fn into_list(self) -> Vec<Segment<'a>> {
        self.list
    }
}

/// `messages`: an array of objects.
pub(crate) fn messages<'a>(scanner: &mut Scanner<'a>, out: &mut Segments<'a>) -> Scanned<()> {
    expect(scanner, Kind::Array, "an array of messages")?;
    items(scanner, out)
}

/// `input` of a response: a text, an array of items, or nothing.
pub(crate) fn input_items<'a>(scanner: &mut Scanner<'a>, out: &mut Segments<'a>) -> Scanned<()> {
    match scanner.kind()? {
        Kind::Text => {
            out.push(Segment::Message)?;
            out.push(Segment::Text(scanner.string()?))
        }
        Kind::Array => items(scanner, out),
        Kind::Null => scanner.null(),
        Kind::Object | Kind::Number | Kind::Bool => {
            Err(RequestError::wrong_type(scanner.at(), "a string or an array of input items"))
        }
    }
}

/// `system` or `instructions`: a text, an array of text blocks, or nothing.
pub(crate) fn system<'a>(scanner: &mut Scanner<'a>, out: &mut Segments<'a>) -> Scanned<()> {
    let first = out.list.len();
    match scanner.kind()? {
        Kind::Text | Kind::Array => value(scanner, out)?,
        Kind::Null => scanner.null()?,
        Kind::Object | Kind::Number | Kind::Bool => {
            let expected = "a string or an array of text blocks";
            return Err(RequestError::wrong_type(scanner.at(), expected));
        }
    }
    for segment in out.list.iter_mut().skip(first) {
        if let Segment::Text(text) = *segment {
            *segment = Segment::System(text);
        }
    }
    Ok(())
}

/// `tools` or `functions`: the definitions, and how many there are.
pub(crate) fn tools<'a>(scanner: &mut Scanner<'a>, out: &mut Segments<'a>) -> Scanned<usize> {
    if scanner.kind()? == Kind::Null {
        scanner.null()?;
        return Ok(0);
    }
    expect(scanner, Kind::Array, "an array")?;
    scanner.open_array()?;
    let mut count = 0;
    while scanner.next_element()? {
        out.push(Segment::Tool(scanner.skip_raw()?))?;
        count += 1;
    }
    Ok(count)
}

/// Any value that may hold content: a text, a part, or an array of them. Other values say nothing.
pub(crate) fn value<'a>(scanner: &mut Scanner<'a>, out: &mut Segments<'a>) -> Scanned<()> {
    match scanner.kind()? {
        Kind::Text => out.push(Segment::Text(scanner.string()?)),
        Kind::Object => Part::read(scanner, out, Level::Part),
        Kind::Array => {
            scanner.open_array()?;
            let mut index = 0;
            while scanner.next_element()? {
                value(scanner, out).map_err(|error| error.under_index(index))?;
                index += 1;
            }
            Ok(())
        }
        Kind::Number | Kind::Bool | Kind::Null => scanner.skip().map(drop),
    }
}

fn items<'a>(scanner: &mut Scanner<'a>, out: &mut Segments<'a>) -> Scanned<()> {
    scanner.open_array()?;
    let mut index = 0;
    while scanner.next_element()? {
        expect(scanner, Kind::Object, "an object")
            .and_then(|()| out.push(Segment::Message))
            .and_then(|()| Part::read(scanner, out, Level::Message))
            .map_err(|error| error.under_index(index))?;
        index += 1;
    }
    Ok(())
}

fn expect(scanner: &mut Scanner<'_>, kind: Kind, expected: &'static str) -> Scanned<()> {
    if scanner.kind()? == kind { Ok(()) } else { Err(RequestError::wrong_type(scanner.at(), expected)) }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Message,
    Part,
}

/// What must be known of a whole part before it can be told what it is.
#[derive(Default)]
struct Part<'a> {
    image: Option<ImageSource<'a>>,
    detail: Detail,
    attachment: Option<Attachment>,
    source: Option<Source<'a>>,
    is_document: bool,
    is_tool_call: bool,
}

/// Anthropic's `source` of an image or a document.
#[derive(Default)]
struct Source<'a> {
    data: Option<Text<'a>>,
    url: Option<Text<'a>>,
    is_image: bool,
    is_text: bool,
}

impl<'a> Part<'a> {
    fn read(scanner: &mut Scanner<'a>, out: &mut Segments<'a>, level: Level) -> Scanned<()> {
        let mut part = Self::default();
        let mut keys = Keys::new();
        scanner.open_object()?;
        while let Some(member) = scanner.next_member(&mut keys)? {
            part.member(scanner, out, (&member, level)).map_err(|error| error.under(&member.name))?;
        }
        part.finish(out)
    }

    fn member(
        &mut self,
        scanner: &mut Scanner<'a>,
        out: &mut Segments<'a>,
        (member, level): (&Member<'a>, Level),
    ) -> Scanned<()> {
        match &*member.name {
            "role" => match optional_text(scanner)? {
                Some(role) => out.push(Segment::Role(role)),
                None => Ok(()),
            },
            "name" => match (optional_text(scanner)?, level) {
                (Some(name), Level::Message) => out.push(Segment::Name(name)),
                (Some(name), Level::Part) => out.push(Segment::Text(name)),
                (None, _) => Ok(()),
            },
            "type" => self.kind(optional_text(scanner)?),
            "content" | "text" | "refusal" | "thinking" | "reasoning" | "reasoning_content" | "output"
            | "summary" | "title" | "context" | "code" | "prompt_string" => value(scanner, out),
            "arguments" | "input" | "action" | "tools" => structured(scanner, out),
            "tool_calls" => tool_calls(scanner, out),
            "function_call" => tool_call(scanner, out),
            "function" => value(scanner, out),
            "source" => self.source(scanner, out),
            _ => self.media(scanner, member),
        }
    }

    fn kind(&mut self, kind: Option<Text<'a>>) -> Scanned<()> {
        match kind.map(Text::decode).as_deref() {
            Some("document") => self.is_document = true,
            Some(
                "tool_use" | "server_tool_use" | "mcp_tool_use" | "function_call" | "custom_tool_call"
                | "mcp_call",
            ) => self.is_tool_call = true,
            _ => {}
        }
        Ok(())
    }

    fn media(&mut self, scanner: &mut Scanner<'a>, member: &Member<'a>) -> Scanned<()> {
        match &*member.name {
            "image_url" => self.image_url(scanner),
            "detail" => self.detail(scanner),
            "image_embeds" | "image" => self.stored_image(scanner),
            "input_audio" | "audio_url" | "audio_embeds" => self.attach(scanner, AttachmentKind::Audio),
            "video_url" | "video" => self.attach(scanner, AttachmentKind::Video),
            "file" | "file_data" | "file_url" => self.attach(scanner, AttachmentKind::Document),
            _ => scanner.skip().map(drop),
        }
    }

    /// `image_url`: an address or a data URL, alone or in an object beside its `detail`.
    fn image_url(&mut self, scanner: &mut Scanner<'a>) -> Scanned<()> {
        match scanner.kind()? {
            Kind::Text => self.image = Some(image_source(scanner.string()?)),
            Kind::Object => {
                self.image = Some(ImageSource::Stored);
                let mut keys = Keys::new();
                scanner.open_object()?;
                while let Some(member) = scanner.next_member(&mut keys)? {
                    match &*member.name {
                        "url" => {
                            let url = optional_text(scanner).map_err(|e| e.under("url"))?;
                            self.image = url.map(image_source);
                        }
                        "detail" => self.detail(scanner).map_err(|e| e.under("detail"))?,
                        _ => scanner.skip().map(drop)?,
                    }
                }
            }
            Kind::Array | Kind::Number | Kind::Bool | Kind::Null => scanner.skip().map(drop)?,
        }
        Ok(())
    }

    fn detail(&mut self, scanner: &mut Scanner<'a>) -> Scanned<()> {
        let detail = optional_text(scanner)?.map(Text::decode);
        self.detail = match detail.as_deref() {
            Some("low") => Detail::Low,
            None | Some("auto") => Detail::Auto,
            Some(_) => Detail::High,
        };
        Ok(())
    }

    fn stored_image(&mut self, scanner: &mut Scanner<'a>) -> Scanned<()> {
        self.image.get_or_insert(ImageSource::Stored);
        scanner.skip().map(drop)
    }

    fn attach(&mut self, scanner: &mut Scanner<'a>, kind: AttachmentKind) -> Scanned<()> {
        let encoded_bytes = scanner.skip()?.len();
        let before = self.attachment.map_or(0, |other| other.encoded_bytes);
        self.attachment = Some(Attachment { kind, encoded_bytes: encoded_bytes.saturating_add(before) });
        Ok(())
    }

    /// `source`: of an image or a document, or the text of a search result's address.
    fn source(&mut self, scanner: &mut Scanner<'a>, out: &mut Segments<'a>) -> Scanned<()> {
        if scanner.kind()? != Kind::Object {
            return value(scanner, out);
        }
        let mut source = Source::default();
        let mut keys = Keys::new();
        scanner.open_object()?;
        while let Some(member) = scanner.next_member(&mut keys)? {
            source.member(scanner, out, &member).map_err(|error| error.under(&member.name))?;
        }
        self.source = Some(source);
        Ok(())
    }

    fn finish(mut self, out: &mut Segments<'a>) -> Scanned<()> {
        if self.is_tool_call {
            out.push(Segment::ToolCall)?;
        }
        if let Some(source) = self.source.take() {
            self.resolve(source, out)?;
        }
        if let Some(source) = self.image {
            let detail = self.detail;
            out.push(Segment::Image(Image { source, detail }))?;
        }
        match self.attachment {
            Some(attachment) => out.push(Segment::Attachment(attachment)),
            None => Ok(()),
        }
    }

    fn resolve(&mut self, source: Source<'a>, out: &mut Segments<'a>) -> Scanned<()> {
        match source.data {
            Some(text) if source.is_text => return out.push(Segment::Text(text)),
            Some(data) if source.is_image => {
                self.image = Some(ImageSource::Base64(Base64::new(data)));
            }
            None if !self.is_document => {
                self.image = Some(source.url.map_or(ImageSource::Stored, image_source));
            }
            data => {
                self.attachment = Some(Attachment {
                    kind: AttachmentKind::Document,
                    encoded_bytes: data.map_or(0, |data| data.raw().len()),
                });
            }
        }
        Ok(())
    }
}

impl<'a> Source<'a> {
    fn member(
        &mut self,
        scanner: &mut Scanner<'a>,
        out: &mut Segments<'a>,
        member: &Member<'a>,
    ) -> Scanned<()> {
        match &*member.name {
            "data" => self.data = optional_text(scanner)?,
            "url" => self.url = optional_text(scanner)?,
            "media_type" | "type" => {
                let kind = optional_text(scanner)?.map(Text::decode);
                let kind = kind.as_deref().unwrap_or_default();
                self.is_image |= kind.starts_with("image/");
                self.is_text |= kind.starts_with("text");
            }
            "content" => value(scanner, out)?,
            _ => scanner.skip().map(drop)?,
        }
        Ok(())
    }
}

fn tool_calls<'a>(scanner: &mut Scanner<'a>, out: &mut Segments<'a>) -> Scanned<()> {
    if scanner.kind()? != Kind::Array {
        return scanner.skip().map(drop);
    }
    scanner.open_array()?;
    let mut index = 0;
    while scanner.next_element()? {
        tool_call(scanner, out).map_err(|error| error.under_index(index))?;
        index += 1;
    }
    Ok(())
}

fn tool_call<'a>(scanner: &mut Scanner<'a>, out: &mut Segments<'a>) -> Scanned<()> {
    if scanner.kind()? != Kind::Object {
        return scanner.skip().map(drop);
    }
    out.push(Segment::ToolCall)?;
    Part::read(scanner, out, Level::Part)
}

/// A value that the model sees as JSON, or as text where it is a string.
fn structured<'a>(scanner: &mut Scanner<'a>, out: &mut Segments<'a>) -> Scanned<()> {
    match scanner.kind()? {
        Kind::Text => out.push(Segment::Text(scanner.string()?)),
        Kind::Object | Kind::Array => out.push(Segment::Json(scanner.skip_raw()?)),
        Kind::Number | Kind::Bool | Kind::Null => scanner.skip().map(drop),
    }
}

/// An address, or the data of a `data:` URL, whose slashes some writers escape.
fn image_source(url: Text<'_>) -> ImageSource<'_> {
    let head = url.beginning(LONGEST_DATA_HEAD_BYTES).raw().as_bytes();
    let is_data = head.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"data:"));
    match memchr::memmem::find(head, b"base64,") {
        Some(at) if is_data => ImageSource::Base64(Base64::new(url.after(at + b"base64,".len()))),
        Some(_) | None => ImageSource::Url(url),
    }
}

/// `data:image/png;charset=...;base64,` with room for parameters.
const LONGEST_DATA_HEAD_BYTES: usize = 256;
