//! What the engine reads and remembers of a request's headers. Values of credentials are never kept.

use http::header::{AUTHORIZATION, HeaderMap};
use sha2::{Digest, Sha256};

use super::fault::Fault;
use super::problem::Problem;

/// Overrides for tests, and facts for the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HeaderFacts {
    /// `x-sim-fault`.
    pub(super) fault: Option<Fault>,
    /// `x-sim-prompt-tokens`.
    pub(super) prompt_tokens: Option<u64>,
    /// `x-sim-output-tokens`.
    pub(super) output_tokens: Option<u64>,
    /// `x-vllm-priority`; a bad value is ignored, as vLLM does.
    pub(super) priority: Option<i64>,
    /// `sha256:` and the first 16 digits of the digest of the credential that came.
    pub(super) credential: Option<String>,
    /// `x-request-id`.
    pub(super) request_id: Option<String>,
    /// Names of the headers that start with `x-` or `anthropic-`, sorted, those of the SDKs' telemetry left out.
    pub(super) names: Vec<String>,
}

impl HeaderFacts {
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let fault = match text(headers, "x-sim-fault") {
            Some(name) => {
                Some(name.parse().map_err(|bad| Problem::bad_request(format!("x-sim-fault: {bad}")))?)
            }
            None => None,
        };
        Ok(Self {
            fault,
            prompt_tokens: count(headers, "x-sim-prompt-tokens")?,
            output_tokens: count(headers, "x-sim-output-tokens")?,
            priority: text(headers, "x-vllm-priority").and_then(|value| value.parse().ok()),
            credential: credential(headers),
            request_id: text(headers, "x-request-id").map(|id| id.chars().take(ID_LENGTH_MAX).collect()),
            names: names(headers),
        })
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn count(headers: &HeaderMap, name: &str) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let count = value.to_str().ok().and_then(|value| value.parse().ok());
    count.map(Some).ok_or_else(|| Problem::bad_request(format!("{name}: must be an integer of 0 or more")))
}

fn credential(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(AUTHORIZATION).or_else(|| headers.get("x-api-key"))?.as_bytes();
    let key = value.strip_prefix(b"Bearer ").unwrap_or(value);
    let digest = Sha256::digest(key);
    let digits: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("sha256:{digits}"))
}

fn names(headers: &HeaderMap) -> Vec<String> {
    let of_interest = |name: &&str| {
        (name.starts_with("x-") || name.starts_with("anthropic-")) && !name.starts_with("x-stainless-")
    };
    let mut names: Vec<String> = headers
        .keys()
        .map(http::HeaderName::as_str)
        .filter(of_interest)
        .take(NAMES_MAX)
        .map(String::from)
        .collect();
    names.sort_unstable();
    names
}

const NAMES_MAX: usize = 32;
const ID_LENGTH_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::HeaderFacts;

    #[test]
    fn a_credential_is_kept_as_a_digest_whatever_header_brings_it() {
        let mut bearer = HeaderMap::new();
        bearer.insert("authorization", "Bearer secret-key".parse().unwrap());
        let mut anthropic = HeaderMap::new();
        anthropic.insert("x-api-key", "secret-key".parse().unwrap());
        let facts = HeaderFacts::of(&bearer).unwrap();
        assert_eq!(facts.credential, HeaderFacts::of(&anthropic).unwrap().credential);
        assert_eq!(facts.credential.unwrap().len(), "sha256:".len() + 16);
    }

    #[test]
    fn bad_overrides_are_errors_that_name_the_header() {
        for (name, value) in [("x-sim-fault", "cut"), ("x-sim-prompt-tokens", "-1")] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            assert!(HeaderFacts::of(&headers).unwrap_err().message.starts_with(name));
        }
    }
}
