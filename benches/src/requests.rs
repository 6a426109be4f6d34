//! The requests of the load: chat bodies of a wanted size, from many tenants, runs and end users in rotation.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// What a load consists of.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The model, which tells the mock how to answer: `quick`, `paced` or `held`.
    pub model: String,
    /// Whether the answer is a stream.
    pub streams: bool,
    /// Tenants in rotation.
    pub tenants: usize,
    /// Bytes of a body, about.
    pub body_bytes: usize,
    /// For the `host` header.
    pub host: String,
}

/// The key of a tenant.
#[must_use]
pub fn key(tenant: usize) -> String {
    format!("bench-key-of-tenant-{tenant:06}")
}

/// The digest of a tenant's key, as a configuration writes it.
#[must_use]
pub fn digest(tenant: usize) -> String {
    let mut text = String::from("sha256:");
    for byte in Sha256::digest(key(tenant).as_bytes()) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Every request of the rotation, ready to be written: tenants follow each other, and each has [`SUBJECTS`] runs and end users
/// as far as memory allows.
#[must_use]
pub fn rotation(wanted: &Wanted) -> Vec<Vec<u8>> {
    let affordable = (ROTATION_BYTES_MAX / (wanted.body_bytes + HEAD_BYTES)).max(1);
    let count = (wanted.tenants * SUBJECTS).min(affordable);
    (0..count).map(|number| request(wanted, number % wanted.tenants, number / wanted.tenants)).collect()
}

fn request(wanted: &Wanted, tenant: usize, subject: usize) -> Vec<u8> {
    let body = body(wanted, tenant, subject);
    let mut request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nuser-agent: fairlane-bench\r\naccept: */*\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\nx-fairlane-run: run-{tenant}-{subject}\r\ncontent-length: {}\r\n\r\n",
        wanted.host,
        key(tenant),
        body.len()
    );
    request.push_str(&body);
    request.into_bytes()
}

/// A chat body. Its first fields are those that the mock reads.
#[must_use]
pub fn body(wanted: &Wanted, tenant: usize, subject: usize) -> String {
    let stream =
        if wanted.streams { r#""stream":true,"stream_options":{"include_usage":true},"# } else { "" };
    let mut body = format!(
        r#"{{"model":"{}",{stream}"user":"user-{tenant}-{subject}","max_tokens":64,"temperature":0.2,"messages":[{{"role":"system","content":"You answer the questions of a bench, briefly."}},{{"role":"user","content":""#,
        wanted.model
    );
    let end = "\"}]}";
    while body.len() + SENTENCE.len() + end.len() <= wanted.body_bytes {
        body.push_str(SENTENCE);
    }
    body.push_str(end);
    body
}

/// Runs and end users of each tenant.
pub const SUBJECTS: usize = 4;

const SENTENCE: &str = "A lamp in the harbour turns twice a minute, and nobody has counted the ships. ";
const HEAD_BYTES: usize = 320;
const ROTATION_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_names_every_tenant_before_it_names_one_again() {
        let wanted = Wanted {
            model: "quick".to_owned(),
            streams: false,
            tenants: 3,
            body_bytes: 1_000,
            host: "localhost".to_owned(),
        };
        let rotation = rotation(&wanted);
        assert_eq!(rotation.len(), 3 * SUBJECTS);
        for (number, request) in rotation.iter().enumerate() {
            let text = String::from_utf8(request.clone()).unwrap();
            assert!(text.contains(&key(number % 3)));
            let body = text.split_once("\r\n\r\n").unwrap().1;
            assert!((900..=1_000).contains(&body.len()));
            serde_json::from_str::<serde_json::Value>(body).unwrap();
        }
    }
}
