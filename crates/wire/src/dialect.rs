//! Which API a request speaks, told from its method and path alone.

/// The API family of a request: it decides the shape of refusals and budget headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dialect {
    /// The OpenAI API and everything that imitates it.
    OpenAi,
    /// The Anthropic Messages API.
    Anthropic,
}

/// One operation that the gateway understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Endpoint {
    /// `POST /v1/chat/completions`
    ChatCompletions,
    /// `POST /v1/completions`
    Completions,
    /// `POST /v1/embeddings`
    Embeddings,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/messages`
    Messages,
    /// `POST /v1/messages/count_tokens`
    CountTokens,
    /// `GET /v1/models` and `GET /v1/models/{id}`
    Models,
}

impl Endpoint {
    /// The endpoint of a method and a path. A query (`?beta=true`) is ignored.
    ///
    /// `None` for everything else, also for `HEAD` and for what lies under `/v1/responses/`.
    ///
    /// ```
    /// use fairlane_wire::dialect::Endpoint;
    ///
    /// assert_eq!(Endpoint::from_path("POST", "/v1/messages?beta=true"), Some(Endpoint::Messages));
    /// assert_eq!(Endpoint::from_path("HEAD", "/"), None);
    /// ```
    #[must_use]
    pub fn from_path(method: &str, path: &str) -> Option<Self> {
        let path = path.split_once('?').map_or(path, |(before, _)| before);
        match (method, path) {
            ("POST", "/v1/chat/completions") => Some(Self::ChatCompletions),
            ("POST", "/v1/completions") => Some(Self::Completions),
            ("POST", "/v1/embeddings") => Some(Self::Embeddings),
            ("POST", "/v1/responses") => Some(Self::Responses),
            ("POST", "/v1/messages") => Some(Self::Messages),
            ("POST", "/v1/messages/count_tokens") => Some(Self::CountTokens),
            ("GET", "/v1/models") => Some(Self::Models),
            ("GET", _) => {
                let id = path.strip_prefix("/v1/models/")?;
                (!id.is_empty()).then_some(Self::Models)
            }
            _ => None,
        }
    }

    /// The API family. Both families list models at the same path: `Models` counts as OpenAI.
    #[must_use]
    pub const fn dialect(self) -> Dialect {
        match self {
            Self::ChatCompletions | Self::Completions | Self::Embeddings | Self::Responses | Self::Models => {
                Dialect::OpenAi
            }
            Self::Messages | Self::CountTokens => Dialect::Anthropic,
        }
    }

    /// Whether the answer holds generated tokens, so that an output bound is reserved.
    #[must_use]
    pub const fn generates(self) -> bool {
        match self {
            Self::ChatCompletions | Self::Completions | Self::Responses | Self::Messages => true,
            Self::Embeddings | Self::CountTokens | Self::Models => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_endpoint_is_found_by_its_method_and_path() {
        let table = [
            ("POST", "/v1/chat/completions", Endpoint::ChatCompletions),
            ("POST", "/v1/completions", Endpoint::Completions),
            ("POST", "/v1/embeddings", Endpoint::Embeddings),
            ("POST", "/v1/responses?x=/v1/messages", Endpoint::Responses),
            ("POST", "/v1/messages?beta=true", Endpoint::Messages),
            ("POST", "/v1/messages/count_tokens", Endpoint::CountTokens),
            ("GET", "/v1/models", Endpoint::Models),
            ("GET", "/v1/models/org/name", Endpoint::Models),
        ];
        for (method, path, endpoint) in table {
            assert_eq!(Endpoint::from_path(method, path), Some(endpoint), "{path}");
        }
    }

    #[test]
    fn other_methods_and_deeper_paths_are_not_ours() {
        let table = [
            ("HEAD", "/"),
            ("HEAD", "/v1/models"),
            ("GET", "/v1/chat/completions"),
            ("POST", "/v1/responses/resp_1/cancel"),
            ("GET", "/v1/responses/resp_1"),
            ("POST", "/v1/messages/batches"),
            ("POST", "/v1/chat/completions/"),
            ("GET", "/v1/models/"),
            ("GET", "/v1/models/?after=x"),
            ("POST", ""),
        ];
        for (method, path) in table {
            assert_eq!(Endpoint::from_path(method, path), None, "{method} {path}");
        }
    }
}
