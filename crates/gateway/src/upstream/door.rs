//! How a backend is addressed: what every request to it has in common, made once.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, header};

use crate::config::{CredentialHeader, EdgeBackend, Scheme};

/// A backend's address and credential, ready to be written.
#[derive(Clone, Debug)]
pub struct Door {
    /// `host:port`, by which its connections are kept.
    pub(super) key: Arc<str>,
    pub(super) host: HeaderValue,
    pub(super) credential: Option<(HeaderName, HeaderValue)>,
    pub(super) scheme: Scheme,
}

impl Door {
    /// The door of a backend.
    ///
    /// # Errors
    /// Its name or its credential cannot be sent as a header.
    pub fn new(backend: &EdgeBackend) -> Result<Self, String> {
        let target = &backend.target;
        let origin = target.origin();
        let host = origin.split_once("://").map_or(origin.as_str(), |(_, host)| host);
        let host = HeaderValue::from_str(host)
            .map_err(|_| format!("the host of backend {} cannot be sent as a header", backend.name))?;
        let credential = match &backend.credential {
            None => None,
            Some(secret) => {
                let (name, text) = match backend.credential_header {
                    CredentialHeader::Bearer => {
                        (header::AUTHORIZATION, format!("Bearer {}", secret.expose()))
                    }
                    CredentialHeader::XApiKey => {
                        (HeaderName::from_static("x-api-key"), secret.expose().to_owned())
                    }
                };
                let mut value = HeaderValue::from_str(&text).map_err(|_| {
                    format!("the credential of backend {} cannot be sent as a header", backend.name)
                })?;
                value.set_sensitive(true);
                Some((name, value))
            }
        };
        let key = format!("{}:{}", target.host, target.port).into();
        Ok(Self { key, host, credential, scheme: target.scheme })
    }
}

/// The path that a backend is asked for: below its base path.
///
/// # Errors
/// The two make no path.
pub(super) fn path_of(backend: &EdgeBackend, path: &PathAndQuery) -> Result<PathAndQuery, String> {
    if backend.target.base_path.is_empty() {
        return Ok(path.clone());
    }
    PathAndQuery::try_from(format!("{}{path}", backend.target.base_path))
        .map_err(|error| format!("the backend's address cannot be used: {error}"))
}
