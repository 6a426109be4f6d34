//! Keys of tenants, by their digests.

use std::collections::{HashMap, HashSet};

use fairlane_core::policy::{Key, KeyId, TenantId};

use super::tenants::Known;
use super::{Resolver, Spot, time, unknown};
use crate::config::keys::{KeyOwner, KeyTable};
use crate::config::path::Path;
use crate::config::raw;
use crate::config::scalars::quoted;
use crate::config::secret::{Credential, KeyDigest, Secret, plain_secret};

impl<'a> Resolver<'a> {
    /// The keys of one tenant, entered into the table.
    pub(super) fn keys_of(
        &mut self,
        tenant: TenantId,
        written: &[(Spot, &'a raw::Key)],
        table: &mut KeyTable,
        known: &Known<'_>,
    ) -> Vec<Key> {
        let mut names = HashSet::new();
        let mut keys = Vec::new();
        for (index, (spot, entry)) in written.iter().enumerate() {
            let name =
                entry.name.as_ref().map_or_else(|| format!("key-{}", index + 1), |name| name.0.clone());
            if !names.insert(name.clone()) {
                self.problem(
                    spot,
                    format!("the tenant has another key called {}: rename one", quoted(&name)),
                );
            }
            let owner =
                KeyOwner { tenant, key: KeyId(index as u32), expires_unix_secs: self.expires(spot, entry) };
            if let Some(digest) = self.digest(spot, entry)
                && let Some(first) = table.add(digest, owner)
            {
                let whose = if first.tenant == tenant {
                    "the same tenant has it".to_owned()
                } else {
                    self.other_owner(first.tenant)
                };
                self.problem(spot, format!("the key is taken: {whose} already; a key belongs to one tenant"));
            }
            self.check_limits(&spot.key("limits"), entry.limits.as_ref());
            keys.push(Key {
                name,
                limits: self.scope_limits(spot, entry.limits.as_ref(), &entry.models, known),
            });
        }
        keys
    }

    /// The keys in `keys_file`, by tenant.
    pub(super) fn filed_keys(
        &mut self,
        tenants: &HashMap<String, u32>,
    ) -> HashMap<u32, Vec<(Spot, &'a raw::Key)>> {
        let mut filed = HashMap::new();
        let Some((file, keys)) = &self.source.keys else { return filed };
        for (name, entries) in keys {
            let spot = Spot { file: *file, path: Path::of(&name.0) };
            let Some(tenant) = tenants.get(&name.0) else {
                let message = unknown("tenant", &name.0, tenants.keys().map(String::as_str));
                self.problem(&spot, message);
                continue;
            };
            let entries = entries.iter().enumerate().map(|(index, entry)| (spot.index(index), &entry.0));
            filed.insert(*tenant, entries.collect());
        }
        filed
    }

    /// The value of an environment variable, as a secret.
    pub(super) fn env(&mut self, spot: &Spot, name: &str) -> Option<Secret> {
        let Some(value) = (self.around.env)(name) else {
            self.problem(spot, format!("the environment variable {name} is not set"));
            return None;
        };
        plain_secret(value.trim())
            .map_err(|error| self.problem(spot, format!("in the environment variable {name} {error}")))
            .ok()
    }

    /// The digest of a credential that clients present.
    pub(super) fn digest_of(&mut self, spot: &Spot, written: &Credential) -> Option<KeyDigest> {
        match written {
            Credential::Digest(digest) => Some(*digest),
            Credential::Plain(secret) => Some(KeyDigest::of(secret.expose().as_bytes())),
            Credential::Env(name) => {
                let secret = self.env(spot, name)?;
                match Credential::from_text(secret.expose()) {
                    // A digest may come from the environment, too.
                    Ok(Credential::Digest(digest)) => Some(digest),
                    _ => Some(KeyDigest::of(secret.expose().as_bytes())),
                }
            }
        }
    }

    fn digest(&mut self, spot: &Spot, entry: &raw::Key) -> Option<KeyDigest> {
        match (&entry.key, &entry.digest) {
            (Some(key), None) => {
                if let Credential::Plain(secret) = key
                    && secret.expose().len() < KEY_BYTES_USUAL
                {
                    self.warn(spot, format!("the key has fewer than {KEY_BYTES_USUAL} characters and can be guessed: `fairlane keys new` prints a better one"));
                }
                self.digest_of(spot, key)
            }
            (None, Some(Credential::Digest(digest))) => Some(*digest),
            (None, Some(_)) => {
                self.problem(
                    &spot.key("digest"),
                    "a digest is sha256: and 64 hexadecimal digits; the text of a key goes into \"key\"",
                );
                None
            }
            (Some(_), Some(_)) => {
                self.problem(spot, "a key has either key or digest: remove one");
                None
            }
            (None, None) => {
                self.problem(spot, "the key has neither key nor digest: `fairlane keys new` prints both");
                None
            }
        }
    }

    fn expires(&mut self, spot: &Spot, entry: &raw::Key) -> Option<u64> {
        let written = entry.expires.as_deref()?;
        let spot = spot.key("expires");
        let Some(expires) = time::unix_secs(written) else {
            self.problem(
                &spot,
                format!("{} is not a date such as 2027-06-30 or 2027-06-30T12:00:00Z", quoted(written)),
            );
            return None;
        };
        if expires <= self.around.unix_secs {
            self.warn(&spot, "the key has expired and is refused: remove it or give it a later date");
        }
        Some(expires)
    }

    fn other_owner(&self, tenant: TenantId) -> String {
        let entries = self.listed("tenants", &self.source.document.tenants, |part| &part.tenants);
        let name =
            entries.get(tenant.0 as usize).map(|(_, tenant)| quoted(&tenant.name.0)).unwrap_or_default();
        format!("tenant {name} has it")
    }
}

const KEY_BYTES_USUAL: usize = 16;
