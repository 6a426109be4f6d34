//! The facts that a body of each endpoint gives.

use fairlane_wire::request::{AttachmentKind, Detail, ImageSource};

use super::*;

#[test]
fn a_chat_body_gives_all_its_facts() {
    let facts = read(Endpoint::ChatCompletions, CHAT.as_bytes()).unwrap();
    assert_eq!(facts.model, "mé");
    assert!(facts.is_streaming && facts.asks_usage && facts.has_tools);
    assert!(!facts.is_background && !facts.has_unseen_input);
    assert_eq!((facts.output_bound, facts.generations()), (Some(300), 2));
    let identity = &facts.identity;
    assert_eq!(identity.user.as_deref(), Some("u"));
    assert_eq!(identity.safety_identifier.as_deref(), Some("s"));
    assert_eq!(identity.prompt_cache_key.as_deref(), Some("k"));
    assert_eq!(identity.metadata_user_id.as_deref(), Some("mu"));
    assert_eq!(identity.metadata_session_id.as_deref(), Some("ms"));
    assert_eq!(identity.litellm_user.as_deref(), Some("lu"));
    assert_eq!(identity.session_id.as_deref(), Some("sid"));
    assert_eq!(
        texts(&facts),
        [
            r#"{"type": "function", "function": {"name": "f"}}"#,
            "system",
            "one\n\"two\"",
            "user",
            "Ann",
            "three",
            "assistant",
            "f",
            "{\"a\":1}",
            "tool",
            "four \u{1F600}",
        ]
    );
    assert_eq!(count(&facts, Segment::Message), 4);
    assert_eq!(count(&facts, Segment::ToolCall), 1);
    let images = images(&facts);
    assert_eq!((images.len(), images[0].detail), (1, Detail::Low));
    assert!(matches!(images[0].source, ImageSource::Url(url) if url.raw() == "https://x/y.png"));
    let attachments = attachments(&facts);
    assert_eq!((attachments.len(), attachments[0].kind), (1, AttachmentKind::Audio));
}

#[test]
fn a_messages_body_gives_all_its_facts() {
    let facts = read(Endpoint::Messages, MESSAGES.as_bytes()).unwrap();
    assert_eq!((facts.output_bound, facts.thinking_budget), (Some(2000), Some(1024)));
    assert_eq!(
        texts(&facts),
        [
            "sys",
            "user",
            "T",
            "plain",
            "inner",
            "assistant",
            "hm",
            "get",
            "{\"q\": [1]}",
            "user",
            "res",
            "res2",
        ]
    );
    assert_eq!(count(&facts, Segment::ToolCall), 1);
    let documents: Vec<_> = attachments(&facts).iter().map(|document| document.encoded_bytes).collect();
    assert_eq!(documents, [0, 8, 0]);
    let images = images(&facts);
    let [Image { source: ImageSource::Base64(data), .. }] = images[..] else {
        panic!("the image is in the body");
    };
    assert_eq!(data.first_bytes(8), b"\x89PNG\r\n\x1a\n");
    assert_eq!(read(Endpoint::CountTokens, MESSAGES.as_bytes()).unwrap().generations(), 0);
}

#[test]
fn a_responses_body_gives_all_its_facts() {
    let facts = read(Endpoint::Responses, RESPONSES.as_bytes()).unwrap();
    assert!(facts.is_background && facts.has_unseen_input);
    assert_eq!(facts.output_bound, Some(50));
    assert_eq!(facts.identity.previous_response_id.as_deref(), Some("resp_1"));
    assert_eq!(facts.identity.conversation.as_deref(), Some("conv_1"));
    assert_eq!(texts(&facts), ["ins", "user", "a", "user", "b", "f", "{}", "out", "sum"]);
    assert_eq!(count(&facts, Segment::Message), 5);
    assert_eq!(count(&facts, Segment::ToolCall), 1);
    let image = images(&facts)[0];
    assert_eq!(image.detail, Detail::High);
    assert!(matches!(image.source, ImageSource::Base64(data) if data.first_bytes(4) == b"\x89PNG"));
    let short = read(Endpoint::Responses, br#"{"model":"r","input":"hi","conversation":"c"}"#).unwrap();
    assert_eq!(texts(&short), ["hi"]);
    assert_eq!(short.identity.conversation.as_deref(), Some("c"));
}

#[test]
fn embeddings_count_inputs_and_generate_nothing() {
    let body = br#"{"model":"e","input":["one two","three"],"max_tokens":"ignored"}"#;
    let facts = read(Endpoint::Embeddings, body).unwrap();
    assert_eq!((facts.prompts, facts.generations(), facts.output_bound), (2, 0, None));
    assert_eq!(texts(&facts), ["one two", "three"]);
    let ids = read(Endpoint::Embeddings, br#"{"model":"e","input":[[1,2],[3]]}"#).unwrap();
    assert_eq!((ids.prompts, ids.token_ids()), (2, 3));
}

#[test]
fn bounds_that_only_some_engines_know_are_reserved_and_clamped_too() {
    let body = r#"{"model":"m","messages":[],"max_tokens":10,"n_predict":9000,"n":1,"n_cmpl":4}"#;
    let facts = read(Endpoint::ChatCompletions, body.as_bytes()).unwrap();
    assert_eq!((facts.output_bound, facts.choices), (Some(9000), 4));
    let edits = Edits { output_bound: Some(4096), ..Edits::default() };
    assert_eq!(
        spliced(Endpoint::ChatCompletions, body, &edits),
        r#"{"model":"m","messages":[],"max_tokens":10,"n_predict":4096,"n":1,"n_cmpl":4}"#
    );
    let hidden = r#"{"model":"m","messages":[],"max_tokens":10,"n_predict":null}"#;
    let edits = Edits { output_bound: Some(10), ..Edits::default() };
    assert_eq!(
        spliced(Endpoint::ChatCompletions, hidden, &edits),
        r#"{"model":"m","messages":[],"max_tokens":10,"n_predict":10}"#
    );
}
