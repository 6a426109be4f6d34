//! The places inside an answer that matter, as a tree: which member of which object leads where.
//!
//! One tree serves streams and whole replies of all dialects: their shapes do not contradict each other.

/// A place in the JSON of an answer or of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// Of no interest, with everything inside.
    Skip,
    Root,
    /// `type` of an event or reply.
    Kind,
    /// `object` at the root: older engines say `error` there.
    ObjectName,
    /// `message` at the root: Anthropic's message, or the text of a bare error.
    RootMessage,
    RootCode,
    Usage,
    UsageDetails,
    InputTokens,
    OutputTokens,
    TotalTokens,
    CacheRead,
    CacheWrite,
    /// llama.cpp's own measurements.
    Timings,
    TimingsPrompt,
    TimingsCache,
    TimingsPredicted,
    Error,
    ErrorCode,
    ErrorKind,
    ErrorMessage,
    Choices,
    Choice,
    ChoiceIndex,
    /// `finish_reason` or `stop_reason`: done as soon as it is not null.
    FinishReason,
    /// `delta` or `message` of a choice.
    ChoiceDelta,
    /// Chat content: a string or a list of parts.
    Content,
    /// Two spellings of the same text, which some engines send both.
    Reasoning,
    ToolCalls,
    ToolCall,
    Function,
    Audio,
    /// Generated text.
    Text,
    /// A list of objects that hold generated text.
    Parts,
    Part,
    /// Generated JSON that is not inside a string.
    Json,
    /// Anything but null here is content that has no countable text.
    Present,
    /// A list whose elements are such content.
    PresentList,
    /// `delta` at the root: Anthropic's object or the string of a Responses event.
    EventDelta,
    /// `response` of a Responses event.
    Response,
    /// `output` of a Responses reply.
    Output,
    OutputItem,
}

/// What is done with a string found at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StringUse {
    Skip,
    /// Short and compared with known words.
    Word,
    /// Unescaped and handed out piece by piece.
    Text,
}

impl Node {
    /// Where the member `key` of the object at this place leads.
    pub(crate) fn member(self, key: &[u8]) -> Self {
        match self {
            Self::Root => root_member(key),
            Self::RootMessage | Self::Response => match key {
                b"usage" => Self::Usage,
                b"error" if self == Self::Response => Self::Error,
                _ => Self::Skip,
            },
            Self::Usage | Self::UsageDetails => usage_member(key),
            Self::Timings => match key {
                b"prompt_n" => Self::TimingsPrompt,
                b"cache_n" => Self::TimingsCache,
                b"predicted_n" => Self::TimingsPredicted,
                _ => Self::Skip,
            },
            Self::Error => match key {
                b"code" => Self::ErrorCode,
                b"type" => Self::ErrorKind,
                b"message" => Self::ErrorMessage,
                _ => Self::Skip,
            },
            Self::Choice => match key {
                b"index" => Self::ChoiceIndex,
                b"finish_reason" => Self::FinishReason,
                b"delta" | b"message" => Self::ChoiceDelta,
                b"text" => Self::Text,
                _ => Self::Skip,
            },
            Self::ChoiceDelta => match key {
                b"content" => Self::Content,
                b"reasoning_content" | b"reasoning" => Self::Reasoning,
                b"tool_calls" => Self::ToolCalls,
                b"function_call" => Self::Function,
                b"refusal" => Self::Text,
                b"audio" => Self::Audio,
                _ => Self::Skip,
            },
            Self::ToolCall => match key {
                b"function" | b"custom" => Self::Function,
                _ => Self::Skip,
            },
            Self::Function => match key {
                b"name" | b"arguments" | b"input" => Self::Text,
                _ => Self::Skip,
            },
            Self::Audio => match key {
                b"transcript" => Self::Text,
                b"data" => Self::Present,
                _ => Self::Skip,
            },
            Self::Part | Self::EventDelta | Self::OutputItem => part_member(self, key),
            Self::Skip
            | Self::Kind
            | Self::ObjectName
            | Self::RootCode
            | Self::InputTokens
            | Self::OutputTokens
            | Self::TotalTokens
            | Self::CacheRead
            | Self::CacheWrite
            | Self::TimingsPrompt
            | Self::TimingsCache
            | Self::TimingsPredicted
            | Self::ErrorCode
            | Self::ErrorKind
            | Self::ErrorMessage
            | Self::Choices
            | Self::ChoiceIndex
            | Self::FinishReason
            | Self::Content
            | Self::Reasoning
            | Self::ToolCalls
            | Self::Text
            | Self::Parts
            | Self::Json
            | Self::Present
            | Self::PresentList
            | Self::Output => Self::Skip,
        }
    }

    /// What the elements of the array at this place are.
    pub(crate) fn element(self) -> Self {
        if self == Self::Choices {
            Self::Choice
        } else if self == Self::ToolCalls {
            Self::ToolCall
        } else if matches!(self, Self::Parts | Self::Content) {
            Self::Part
        } else if self == Self::PresentList {
            Self::Present
        } else if self == Self::Output {
            Self::OutputItem
        } else {
            Self::Skip
        }
    }

    pub(crate) fn string_use(self) -> StringUse {
        if matches!(
            self,
            Self::Text
                | Self::Content
                | Self::Reasoning
                | Self::EventDelta
                | Self::Error
                | Self::ErrorMessage
                | Self::RootMessage
        ) {
            StringUse::Text
        } else if matches!(
            self,
            Self::Kind
                | Self::ObjectName
                | Self::RootCode
                | Self::ErrorCode
                | Self::ErrorKind
                | Self::FinishReason
                | Self::Present
        ) {
            StringUse::Word
        } else {
            StringUse::Skip
        }
    }
}

fn root_member(key: &[u8]) -> Node {
    match key {
        b"choices" => Node::Choices,
        b"usage" => Node::Usage,
        b"type" => Node::Kind,
        b"delta" => Node::EventDelta,
        b"error" => Node::Error,
        b"timings" => Node::Timings,
        b"message" => Node::RootMessage,
        b"response" => Node::Response,
        b"content_block" => Node::Part,
        b"content" => Node::Parts,
        b"output" => Node::Output,
        b"data" => Node::PresentList,
        b"stop_reason" => Node::FinishReason,
        b"object" => Node::ObjectName,
        b"code" => Node::RootCode,
        b"error_type" => Node::ErrorKind,
        b"input_tokens" => Node::Present,
        _ => Node::Skip,
    }
}

fn usage_member(key: &[u8]) -> Node {
    match key {
        b"prompt_tokens" | b"input_tokens" => Node::InputTokens,
        b"completion_tokens" | b"output_tokens" => Node::OutputTokens,
        b"total_tokens" => Node::TotalTokens,
        b"prompt_tokens_details" | b"input_tokens_details" => Node::UsageDetails,
        b"cached_tokens" | b"cache_read_input_tokens" | b"prompt_cache_hit_tokens" => Node::CacheRead,
        b"cache_write_tokens" | b"cache_creation_input_tokens" => Node::CacheWrite,
        _ => Node::Skip,
    }
}

/// Members of a content part, of Anthropic's `delta` and `content_block`, and of an output item.
fn part_member(parent: Node, key: &[u8]) -> Node {
    match key {
        b"text" | b"thinking" | b"partial_json" | b"name" | b"arguments" | b"refusal" | b"transcript" => {
            Node::Text
        }
        b"input" => Node::Json,
        b"data" | b"result" => Node::Present,
        b"stop_reason" => Node::FinishReason,
        b"content" | b"summary" if parent == Node::OutputItem => Node::Parts,
        _ => Node::Skip,
    }
}
