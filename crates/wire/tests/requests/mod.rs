//! Request bodies: the table of known cases, and laws over generated bodies.

#![cfg(test)]

mod facts;
mod laws;
mod refusals;
mod splicing;
mod table;
mod written;

use fairlane_wire::dialect::Endpoint;
use fairlane_wire::request::{Attachment, Image, RequestFacts, Segment, read};
use fairlane_wire::splice::{ChatBound, Edits, Priority, UsageChunk, splice};

/// All texts, unescaped: roles, names, and content.
fn texts<'a>(facts: &RequestFacts<'a>) -> Vec<String> {
    let text = |segment: &Segment<'a>| match segment {
        Segment::Text(text) | Segment::System(text) | Segment::Role(text) | Segment::Name(text) => {
            Some(text.decode().into_owned())
        }
        Segment::Json(json) | Segment::Tool(json) => Some((*json).to_owned()),
        Segment::Message
        | Segment::Prompt
        | Segment::ToolCall
        | Segment::TokenIds(_)
        | Segment::Image(_)
        | Segment::Attachment(_) => None,
    };
    facts.segments().iter().filter_map(text).collect()
}

fn count(facts: &RequestFacts<'_>, marker: Segment<'static>) -> usize {
    facts.segments().iter().filter(|segment| **segment == marker).count()
}

fn images<'a>(facts: &RequestFacts<'a>) -> Vec<Image<'a>> {
    let segments = facts.segments().iter();
    let image = |segment: &Segment<'a>| if let Segment::Image(image) = segment { Some(*image) } else { None };
    segments.filter_map(image).collect()
}

fn attachments(facts: &RequestFacts<'_>) -> Vec<Attachment> {
    let segments = facts.segments().iter();
    let attachment =
        |segment: &Segment<'_>| if let Segment::Attachment(found) = segment { Some(*found) } else { None };
    segments.filter_map(attachment).collect()
}

fn spliced(endpoint: Endpoint, body: &str, edits: &Edits) -> String {
    let facts = read(endpoint, body.as_bytes()).unwrap();
    let edited = splice(&facts.layout, edits);
    let bytes = edited.apply(body.as_bytes()).into_owned();
    assert_eq!(edited.len_bytes(), bytes.len());
    String::from_utf8(bytes).unwrap()
}

const ASKED: Edits = Edits {
    output_bound: None,
    chat_bound: ChatBound::MaxTokens,
    usage: UsageChunk::Asked,
    priority: Priority::Removed,
};

const CHAT: &str = r#"{
    "model": "m\u00e9", "stream": true, "n": 2, "best_of": "kept", "temperature": 1e400,
    "stream_options": {"include_usage": true, "x": [1, {"y": null}]},
    "max_tokens": null, "max_completion_tokens": 300, "user": "u", "safety_identifier": "s",
    "prompt_cache_key": "k", "metadata": {"user_id": "mu", "session_id": "ms", "n": "1"},
    "litellm_metadata": {"user": "lu"}, "session_id": "sid", "unknown": {"a": {"a": 1}},
    "tools": [{"type": "function", "function": {"name": "f"}}], "functions": [],
    "messages": [
        {"role": "system", "content": "one\n\"two\""},
        {"role": "user", "name": "Ann", "content": [
            {"type": "text", "text": "three"},
            {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]},
        {"role": "assistant", "content": null, "refusal": null, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "four \ud83d\ude00"}
    ]}"#;

const MESSAGES: &str = r#"{"model":"c","max_tokens":2000,"stream":false,
    "system":[{"type":"text","text":"sys","cache_control":{"type":"ephemeral"}}],
    "thinking":{"type":"enabled","budget_tokens":1024},"metadata":{"user_id":"u"},
    "messages":[
        {"role":"user","content":[
            {"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}},
            {"source":{"type":"url","url":"https://x/y.pdf"},"type":"document","title":"T"},
            {"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAAAAAA"}},
            {"type":"document","source":{"type":"text","media_type":"text/plain","data":"plain"}},
            {"type":"document","source":{"type":"content","content":[{"type":"text","text":"inner"}]}}]},
        {"role":"assistant","content":[
            {"type":"thinking","thinking":"hm","signature":"c2ln"},
            {"type":"tool_use","id":"t","name":"get","input":{"q": [1]}}]},
        {"role":"user","content":[
            {"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"res"}]},
            {"type":"tool_result","tool_use_id":"t","content":"res2"}]}]}"#;

const RESPONSES: &str = r#"{"model":"r","max_output_tokens":50,"instructions":"ins",
    "previous_response_id":"resp_1","conversation":{"id":"conv_1"},"background":true,
    "input":[
        {"role":"user","content":"a"},
        {"type":"message","role":"user","content":[
            {"type":"input_text","text":"b"},
            {"type":"input_image","image_url":"data:image\/png;base64,iVBORw0KGgo=","detail":"high"}]},
        {"type":"function_call","call_id":"1","name":"f","arguments":"{}"},
        {"type":"function_call_output","call_id":"1","output":"out"},
        {"type":"reasoning","summary":[{"type":"summary_text","text":"sum"}],"encrypted_content":"zzz"}]}"#;
