//! Who sends a request: the key it presents.

use fairlane_core::policy::{KeyId, TenantId};
use fairlane_wire::answer::Problem;
use http::{HeaderMap, HeaderName, header};

use crate::clock;
use crate::config::KeyLookup;
use crate::live::Live;

/// Tenant and key of a request.
///
/// # Errors
/// No key, an unknown one, or one that has expired.
pub fn identify(live: &Live, headers: &HeaderMap) -> Result<(TenantId, Option<KeyId>), Problem> {
    let presented = presented_key(headers);
    let message = match live.edge.keys.find(presented, clock::unix_secs()) {
        KeyLookup::Known { tenant, key } => return Ok((tenant, Some(key))),
        KeyLookup::Open(tenant) => return Ok((tenant, None)),
        KeyLookup::Expired => "this API key has expired; ask the operator for another one",
        KeyLookup::Unknown => "this API key is not known here; check it, or ask the operator for one",
        KeyLookup::Missing => {
            "no API key was sent; send it as \"authorization: Bearer KEY\" or \"x-api-key: KEY\""
        }
    };
    Err(Problem::Unauthorized { message: message.to_owned() })
}

/// The key as OpenAI's or Anthropic's clients send it.
fn presented_key(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes()).and_then(|value| {
        let (scheme, key) = value.split_at_checked(BEARER.len())?;
        scheme.eq_ignore_ascii_case(BEARER).then(|| key.trim_ascii())
    });
    let plain = headers.get(&X_API_KEY).map(|value| value.as_bytes().trim_ascii());
    bearer.or(plain).filter(|key| !key.is_empty())
}

static X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const BEARER: &[u8] = b"Bearer ";
