//! A whole answer: read the same at every choice of cuts, and its usage beside what a JSON tree says.

use fairlane_wire::dialect::Endpoint;
use fairlane_wire::reply::ReplyReader;
use fairlane_wire::stream::{EndOfStream, Outcome, Summary};
use fairlane_wire::usage::{TOKENS_MAX, UsageSource};
use serde_json::Value;

use super::input::{ENDPOINTS, Input, pieces};

/// Reads `input` as endpoint, end, cuts and body.
pub fn check(input: &[u8]) {
    let mut input = Input::new(input);
    let endpoint = ENDPOINTS[input.pick(ENDPOINTS.len())];
    let end = if input.byte() & 1 == 0 { EndOfStream::Clean } else { EndOfStream::Broken };
    let cuts = input.cuts();
    let body = input.rest();
    let whole = read(endpoint, end, &[body]);
    assert_eq!(read(endpoint, end, &pieces(body, &cuts)), whole);
    plausible(&whole);
    if let Ok(tree @ (Value::Object(_) | Value::Array(_))) = serde_json::from_slice(body) {
        assert_eq!(whole.events, 1, "the body is JSON");
        told(endpoint, end, &whole, &tree, body);
    }
}

fn read(endpoint: Endpoint, end: EndOfStream, chunks: &[&[u8]]) -> Summary {
    let mut reader = ReplyReader::new(endpoint).keeping_text(TEXT_BYTES_MAX);
    chunks.iter().for_each(|chunk| reader.feed(chunk));
    reader.finish(end)
}

fn plausible(summary: &Summary) {
    let usage = &summary.usage;
    let figures = [usage.input, usage.output, usage.cached, usage.cache_write];
    assert!(figures.into_iter().flatten().all(|tokens| tokens <= TOKENS_MAX), "{summary:?}");
    assert!(summary.release.is_empty() && summary.events_hidden == 0);
    let texts: usize = summary.texts.iter().map(|(_, text)| text.len()).sum();
    assert!(texts <= TEXT_BYTES_MAX, "{texts} bytes of text are kept");
    assert!(summary.source != UsageSource::None || usage.output.unwrap_or(0) == 0, "{summary:?}");
}

/// A usage block that says its two figures as whole numbers is the usage.
fn told(endpoint: Endpoint, end: EndOfStream, summary: &Summary, tree: &Value, body: &[u8]) {
    let (names, generates) = match endpoint {
        Endpoint::ChatCompletions | Endpoint::Completions => (["prompt_tokens", "completion_tokens"], true),
        Endpoint::Messages | Endpoint::Responses => (["input_tokens", "output_tokens"], true),
        Endpoint::Embeddings | Endpoint::CountTokens | Endpoint::Models => return,
    };
    if end == EndOfStream::Clean && generates {
        assert_ne!(summary.outcome, Outcome::Interrupted, "the body is whole");
    }
    // Where a name stands twice, readers may differ.
    let text = String::from_utf8_lossy(body);
    let is_simple = !text.contains('\\')
        && ["\"usage\"", "\"error\"", "\"type\"", "\"timings\""]
            .iter()
            .all(|name| text.matches(name).count() <= 1)
        && text.matches("_tokens").count() == 2
        && !text.contains("\"error\"");
    let Value::Object(usage) = &tree["usage"] else { return };
    let figures = names.map(|name| usage.get(name).and_then(Value::as_u64));
    if let (true, [Some(input), Some(output)]) = (is_simple, figures) {
        assert_eq!(summary.usage.input, Some(input.min(TOKENS_MAX)), "{text}");
        assert_eq!(summary.usage.output, Some(output.min(TOKENS_MAX)), "{text}");
        assert_eq!(summary.source, UsageSource::Reported, "{text}");
    }
}

const TEXT_BYTES_MAX: usize = 1 << 12;
