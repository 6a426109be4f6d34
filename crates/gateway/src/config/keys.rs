//! Which key belongs to whom.

use std::collections::HashMap;

use fairlane_core::policy::{KeyId, TenantId};
use fairlane_core::reload::Renumbering;

use super::secret::KeyDigest;

/// Digests of all keys with their owners.
///
/// A presented key is digested, the table is searched by the digest's first eight bytes, and the candidates there are compared
/// whole in constant time. Searching by a prefix tells nothing: nobody can aim a key at a wanted SHA-256 prefix byte by byte.
#[derive(Clone, Debug, Default)]
pub struct KeyTable {
    by_prefix: HashMap<[u8; 8], Vec<(KeyDigest, KeyOwner)>>,
    open_tenant: Option<TenantId>,
    is_open: bool,
}

/// Whose a key is, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyOwner {
    /// The tenant.
    pub tenant: TenantId,
    /// The key among the tenant's.
    pub key: KeyId,
    /// Seconds since 1970 from which on it is refused.
    pub expires_unix_secs: Option<u64>,
}

/// What a presented key says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// It is this tenant's.
    Known {
        /// The tenant.
        tenant: TenantId,
        /// The key among the tenant's.
        key: KeyId,
    },
    /// No key was presented, or none exists, and requests without one belong to this tenant.
    Open(TenantId),
    /// It was somebody's and has expired.
    Expired,
    /// It is nobody's.
    Unknown,
    /// A key is asked for and none was presented.
    Missing,
}

impl KeyTable {
    /// A table without keys: every request, with a key or without, is `tenant`'s.
    #[must_use]
    pub fn open(tenant: TenantId) -> Self {
        Self { by_prefix: HashMap::new(), open_tenant: Some(tenant), is_open: true }
    }

    /// A table without keys where requests without a key are `open_tenant`'s, or refused.
    #[must_use]
    pub fn closed(open_tenant: Option<TenantId>) -> Self {
        Self { by_prefix: HashMap::new(), open_tenant, is_open: false }
    }

    /// Adds a key; gives back the owner who has it already, if one does.
    pub fn add(&mut self, digest: KeyDigest, owner: KeyOwner) -> Option<KeyOwner> {
        let candidates = self.by_prefix.entry(digest.prefix()).or_default();
        if let Some((_, first)) = candidates.iter().find(|(known, _)| *known == digest) {
            return Some(*first);
        }
        candidates.push((digest, owner));
        None
    }

    /// Who presents this key at `unix_secs` (seconds since 1970).
    #[must_use]
    pub fn find(&self, presented: Option<&[u8]>, unix_secs: u64) -> Lookup {
        if let (true, Some(tenant)) = (self.is_open, self.open_tenant) {
            return Lookup::Open(tenant);
        }
        let Some(presented) = presented else {
            return self.open_tenant.map_or(Lookup::Missing, Lookup::Open);
        };
        let digest = KeyDigest::of(presented);
        let candidates = self.by_prefix.get(&digest.prefix()).map(Vec::as_slice).unwrap_or_default();
        let Some((_, owner)) = candidates.iter().find(|(known, _)| known.equals(&digest)) else {
            return Lookup::Unknown;
        };
        if owner.expires_unix_secs.is_some_and(|expires| expires <= unix_secs) {
            return Lookup::Expired;
        }
        Lookup::Known { tenant: owner.tenant, key: owner.key }
    }

    /// Takes on the ids of an aligned policy.
    pub fn renumber(&mut self, moved: &Renumbering) {
        for (_, owner) in self.by_prefix.values_mut().flatten() {
            owner.key = moved.key(owner.tenant, owner.key);
            owner.tenant = moved.tenant(owner.tenant);
        }
        self.open_tenant = self.open_tenant.map(|tenant| moved.tenant(tenant));
    }

    /// How many keys there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.by_prefix.values().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: KeyOwner = KeyOwner { tenant: TenantId(2), key: KeyId(1), expires_unix_secs: Some(100) };

    #[test]
    fn a_key_is_its_owners_until_it_expires() {
        let mut table = KeyTable::closed(None);
        assert_eq!(table.add(KeyDigest::of(b"one"), OWNER), None);
        assert_eq!(table.find(Some(b"one"), 99), Lookup::Known { tenant: TenantId(2), key: KeyId(1) });
        assert_eq!(table.find(Some(b"one"), 100), Lookup::Expired);
        assert_eq!(table.find(Some(b"two"), 99), Lookup::Unknown);
        assert_eq!(table.find(None, 99), Lookup::Missing);
    }

    #[test]
    fn a_key_cannot_be_two_tenants() {
        let mut table = KeyTable::closed(None);
        table.add(KeyDigest::of(b"one"), OWNER);
        let second = KeyOwner { tenant: TenantId(3), ..OWNER };
        assert_eq!(table.add(KeyDigest::of(b"one"), second), Some(OWNER));
        assert_eq!(table.count(), 1);
    }

    #[test]
    fn an_open_tenant_takes_requests_without_a_key_and_not_those_with_a_wrong_one() {
        let table = KeyTable::closed(Some(TenantId(4)));
        assert_eq!(table.find(None, 0), Lookup::Open(TenantId(4)));
        assert_eq!(table.find(Some(b"wrong"), 0), Lookup::Unknown);
        assert_eq!(KeyTable::open(TenantId(0)).find(Some(b"any"), 0), Lookup::Open(TenantId(0)));
    }
}
