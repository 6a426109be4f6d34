//! Secrets that cannot be printed by accident, and the digests that stand for keys.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

/// A text that must not be seen: `Debug` prints `***`, there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps it.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for the one place that sends it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The SHA-256 digest of a key. It says nothing about a random key and may be kept in files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyDigest([u8; 32]);

impl KeyDigest {
    /// The digest of a key as a client presents it.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// Reads 64 hexadecimal digits, or says what is wrong.
    ///
    /// # Errors
    /// The text is not 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<Self, String> {
        let wrong = || {
            let count = text.chars().count();
            format!(
                "a digest is sha256: and 64 hexadecimal digits, this one has {count}; `fairlane keys new` prints a key with its digest"
            )
        };
        if text.len() != 64 || !text.is_ascii() {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16).ok_or_else(wrong)?;
            let low = char::from(pair[1]).to_digit(16).ok_or_else(wrong)?;
            *byte = (high * 16 + low) as u8;
        }
        Ok(Self(bytes))
    }

    /// Whether `presented` has this digest, in a time that does not depend on where they differ.
    #[must_use]
    pub fn matches(&self, presented: &[u8]) -> bool {
        self.equals(&Self::of(presented))
    }

    /// Whether both are equal, in a time that does not depend on where they differ.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// The first bytes, by which a table may be searched: they are those of a digest, which nobody can aim at.
    pub(crate) fn prefix(&self) -> [u8; 8] {
        let mut prefix = [0; 8];
        prefix.copy_from_slice(&self.0[..8]);
        prefix
    }
}

impl fmt::Display for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(DIGEST_PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{DIGEST_PREFIX}{:02x}{:02x}…", self.0[0], self.0[1])
    }
}

/// A credential as the configuration writes it: `env:NAME`, `sha256:HEX` or the plain text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// Read from an environment variable.
    Env(String),
    /// Known by its digest alone.
    Digest(KeyDigest),
    /// Written out.
    Plain(Secret),
}

impl Credential {
    /// Reads it, or says what is wrong without repeating it.
    ///
    /// # Errors
    /// It is empty, has a control character, names no variable, or is not a digest.
    pub fn from_text(text: &str) -> Result<Self, String> {
        if let Some(hex) = text.strip_prefix(DIGEST_PREFIX) {
            return KeyDigest::from_hex(hex).map(Self::Digest);
        }
        if let Some(name) = text.strip_prefix(ENV_PREFIX) {
            let legal =
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            return legal.then(|| Self::Env(name.to_owned())).ok_or_else(|| {
                "env: is followed by the name of an environment variable, such as env:SHOP_CHAT_KEY"
                    .to_owned()
            });
        }
        plain_secret(text).map(Self::Plain)
    }
}

/// A secret that can be sent in a header, or what is wrong with it.
pub(crate) fn plain_secret(text: &str) -> Result<Secret, String> {
    if text.is_empty() {
        return Err("the key is empty".to_owned());
    }
    if text.len() > SECRET_BYTES_MAX {
        return Err(format!("the key has {} bytes, the most is {SECRET_BYTES_MAX}", text.len()));
    }
    if !text.bytes().all(|byte| (0x21..=0x7e).contains(&byte)) {
        return Err(
            "the key has a blank, a control character or a letter outside ASCII, which no header carries"
                .to_owned(),
        );
    }
    Ok(Secret::new(text.to_owned()))
}

impl<'de> Deserialize<'de> for Credential {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(CredentialVisitor)
    }
}

struct CredentialVisitor;

impl Visitor<'_> for CredentialVisitor {
    type Value = Credential;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key: env:NAME, sha256:DIGEST or the plain text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Credential, E> {
        Credential::from_text(text).map_err(E::custom)
    }
}

impl JsonSchema for Credential {
    fn schema_name() -> Cow<'static, str> {
        "Credential".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A key: `env:NAME` reads an environment variable, `sha256:` with 64 hexadecimal digits is a digest, anything else is the key itself.",
            "type": "string",
        })
    }
}

/// What a digest starts with.
pub(crate) const DIGEST_PREFIX: &str = "sha256:";
/// What the name of an environment variable starts with.
pub(crate) const ENV_PREFIX: &str = "env:";
const SECRET_BYTES_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_printed() {
        let credential = Credential::from_text("hunter2-hunter2").unwrap();
        assert_eq!(format!("{credential:?}"), "Plain(***)");
    }

    #[test]
    fn a_digest_is_read_back_from_what_it_prints() {
        let digest = KeyDigest::of(b"abc");
        assert_eq!(
            digest.to_string(),
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(Credential::from_text(&digest.to_string()), Ok(Credential::Digest(digest)));
        assert!(digest.matches(b"abc"));
        assert!(!digest.matches(b"abd"));
    }

    #[test]
    fn a_wrong_credential_is_refused_without_repeating_it() {
        for text in [
            "",
            "env:",
            "env:A B",
            "sha256:",
            "sha256:…",
            "sha256:zz7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "has blank-secret",
            "secret\u{7}",
        ] {
            let error = Credential::from_text(text).unwrap_err();
            assert!(!error.contains("secret") && !error.contains("zz78"), "{error}");
        }
    }
}
