//! Addresses of backends.

use http::Uri;

use crate::config::edge::{Lookup, Scheme, Target};
use crate::config::scalars::quoted;

/// Reads `url:`.
pub(super) fn url(text: &str) -> Result<Target, String> {
    let wrong = |why: &str| {
        format!("{} is not a backend's address: {why}, such as http://10.0.0.11:8000", shown(text))
    };
    let uri: Uri = text.parse().map_err(|_| wrong("it is a URL"))?;
    let scheme = match uri.scheme_str() {
        Some("http") => Scheme::Http,
        Some("https") => Scheme::Https,
        _ => return Err(wrong("it begins with http:// or https://")),
    };
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("a credential in the address would be logged: put it into api_key".to_owned());
    }
    if uri.query().is_some() {
        return Err(wrong("it has no query"));
    }
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("it names a host"))?;
    let port = port_of(&uri, scheme).ok_or_else(|| wrong("its port is from 1 to 65535"))?;
    let path = uri.path().trim_end_matches('/');
    let base_path = path.strip_suffix("/v1").unwrap_or(path).trim_end_matches('/').to_owned();
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    Ok(Target { scheme, host, port, base_path, lookup: Lookup::OnConnect })
}

/// Reads `dns:`.
pub(super) fn dns(text: &str) -> Result<Target, String> {
    let wrong = || format!("{} is not a name with a port, such as vllm.internal:8000", shown(text));
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let has_port = with_scheme.parse::<Uri>().ok().and_then(|uri| uri.port_u16()).is_some();
    let target = url(&with_scheme).map_err(|_| wrong())?;
    if !has_port || !target.base_path.is_empty() {
        return Err(wrong());
    }
    Ok(Target { lookup: Lookup::Repeated, ..target })
}

fn port_of(uri: &Uri, scheme: Scheme) -> Option<u16> {
    let authority = uri.authority()?.as_str();
    match uri.port_u16() {
        Some(port) => (port > 0).then_some(port),
        // A port that is not a number is not a missing one.
        None if authority.rsplit(']').next().is_some_and(|rest| rest.contains(':')) => None,
        None => Some(match scheme {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }),
    }
}

/// The text without what stands before an `@`, which may be a password.
fn shown(text: &str) -> String {
    quoted(text.rsplit('@').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_apart() {
        let table = [
            ("http://10.0.0.11:8000", "http://10.0.0.11:8000", ""),
            ("https://api.example.com", "https://api.example.com", ""),
            ("https://api.example.com/v1/", "https://api.example.com", ""),
            ("https://api.example.com:443/openai/v1", "https://api.example.com", "/openai"),
            ("http://[::1]:8000/", "http://[::1]:8000", ""),
            ("http://Host.Example", "http://host.example", ""),
        ];
        for (text, origin, base_path) in table {
            let target = url(text).unwrap();
            assert_eq!((target.origin().as_str(), target.base_path.as_str()), (origin, base_path), "{text}");
        }
        assert_eq!(url("https://h/a/v1").unwrap().address("/v1/models"), "https://h/a/v1/models");
    }

    #[test]
    fn a_wrong_address_is_refused() {
        for text in [
            "",
            "10.0.0.11:8000",
            "ftp://host",
            "http://",
            "http://host:0",
            "http://host:99999",
            "http://host?x=1",
            "http://a b",
        ] {
            assert!(url(text).is_err(), "{text}");
        }
        let error = url("http://user:hunter2@host").unwrap_err();
        assert!(error.contains("api_key") && !error.contains("hunter2"));
        for text in ["vllm.internal", "vllm.internal:8000/v1x", ":8000"] {
            assert!(dns(text).is_err(), "{text}");
        }
        assert_eq!(dns("https://vllm.internal:8443").unwrap().origin(), "https://vllm.internal:8443");
    }
}
