//! The gateway's classes in the engines' own words: vLLM serves the lowest number first, SGLang the highest.

use fairlane_core::policy::ClassId;
use fairlane_wire::dialect::Endpoint;
use fairlane_wire::splice::Priority;
use http::{HeaderName, HeaderValue};

use crate::config::Engine;

/// What becomes of `priority` in a body of this class. Engines take what has none for the middle (vLLM) or the last (SGLang), so
/// that vLLM's first class needs none.
#[must_use]
pub const fn in_body(engine: Engine, endpoint: Endpoint, class: ClassId) -> Priority {
    let class = class.0 as i64;
    match (engine, endpoint) {
        (Engine::Vllm, Endpoint::ChatCompletions | Endpoint::Completions | Endpoint::Responses)
            if class > 0 =>
        {
            Priority::Set(class)
        }
        (
            Engine::Sglang,
            Endpoint::ChatCompletions | Endpoint::Completions | Endpoint::Responses | Endpoint::Embeddings,
        ) => Priority::Set(-class),
        _ => Priority::Removed,
    }
}

/// The header of a request whose body has no such field: vLLM's messages.
#[must_use]
pub fn in_header(engine: Engine, endpoint: Endpoint, class: ClassId) -> Option<(HeaderName, HeaderValue)> {
    (engine == Engine::Vllm && endpoint == Endpoint::Messages && class.0 > 0)
        .then(|| (HeaderName::from_static("x-vllm-priority"), HeaderValue::from(class.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_class_is_lower_for_vllm_and_higher_for_sglang() {
        let chat = |engine, class| in_body(engine, Endpoint::ChatCompletions, ClassId(class));
        assert_eq!(
            [0, 1, 2].map(|class| chat(Engine::Vllm, class)),
            [Priority::Removed, Priority::Set(1), Priority::Set(2)]
        );
        assert_eq!([0, 1, 2].map(|class| chat(Engine::Sglang, class)), [0, -1, -2].map(Priority::Set));
        for engine in [Engine::Llamacpp, Engine::Openai, Engine::Anthropic] {
            assert_eq!(chat(engine, 2), Priority::Removed);
        }
        assert_eq!(in_header(Engine::Vllm, Endpoint::Messages, ClassId(2)).unwrap().1, "2");
        assert_eq!(in_header(Engine::Sglang, Endpoint::Messages, ClassId(2)), None);
    }
}
