//! Balances as bytes, and their names as text.

use fairlane_core::bucket::{Rate, Shape};
use fairlane_core::policy::Dimension;
use fairlane_core::snapshot::{CellName, OwnerName, Saved};
use fairlane_core::units::{Amount, Micros, Moment};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A cell's name as text: scope, names, model, dimension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NameText(String, Vec<String>, Option<String>, String);

/// A balance as it is exported. Amounts are millionths of a unit, times microseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RowText {
    level: i64,
    remainder: u64,
    claim: i64,
    time_us: u64,
    rate: (u64, u64),
    capacity: i64,
    debt_max: i64,
    raised: i64,
    expiry_us: u64,
}

impl NameText {
    pub(super) fn of(name: &CellName) -> Self {
        let (scope, names): (&str, Vec<String>) = match name.owner.clone() {
            OwnerName::Service => ("service", vec![]),
            OwnerName::Team(team) => ("team", vec![team]),
            OwnerName::Tenant(tenant) => ("tenant", vec![tenant]),
            OwnerName::Key(tenant, key) => ("key", vec![tenant, key]),
            OwnerName::Pool(pool) => ("pool", vec![pool]),
            OwnerName::Backend(pool, backend) => ("backend", vec![pool, backend]),
            OwnerName::Run(tenant, run) => ("run", vec![tenant, format!("{run:032x}")]),
            OwnerName::KeyRun(tenant, None) => ("key_run", vec![tenant]),
            OwnerName::KeyRun(tenant, Some(key)) => ("key_run", vec![tenant, key]),
            OwnerName::EndUser(tenant, user) => ("end_user", vec![tenant, format!("{user:032x}")]),
            OwnerName::OtherEndUsers(tenant) => ("other_end_users", vec![tenant]),
        };
        Self(scope.to_owned(), names, name.model.clone(), name.dimension.name().to_owned())
    }

    /// The name, unless it has parts that no name has.
    pub(super) fn name(self) -> Option<CellName> {
        let Self(scope, names, model, dimension) = self;
        let mut names = names.into_iter();
        let mut next = || names.next();
        let hash = |text: String| u128::from_str_radix(&text, 16).ok();
        let owner = match scope.as_str() {
            "service" => OwnerName::Service,
            "team" => OwnerName::Team(next()?),
            "tenant" => OwnerName::Tenant(next()?),
            "key" => OwnerName::Key(next()?, next()?),
            "pool" => OwnerName::Pool(next()?),
            "backend" => OwnerName::Backend(next()?, next()?),
            "run" => OwnerName::Run(next()?, hash(next()?)?),
            "key_run" => OwnerName::KeyRun(next()?, next()),
            "end_user" => OwnerName::EndUser(next()?, hash(next()?)?),
            "other_end_users" => OwnerName::OtherEndUsers(next()?),
            _ => return None,
        };
        let dimension = DIMENSIONS.into_iter().find(|known| known.name() == dimension)?;
        names.next().is_none().then_some(CellName { owner, model, dimension })
    }

    /// As a key of the file.
    pub(super) fn key(&self) -> String {
        // Strings and lists of strings can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn from_key(key: &str) -> Option<CellName> {
        serde_json::from_str::<Self>(key).ok()?.name()
    }
}

impl RowText {
    pub(super) fn of(saved: &Saved) -> Self {
        Self {
            level: saved.level.0,
            remainder: saved.remainder,
            claim: saved.claim.0,
            time_us: saved.time.0,
            rate: saved.shape.rate.parts(),
            capacity: saved.shape.capacity.0,
            debt_max: saved.shape.debt_max.0,
            raised: saved.raised.0,
            expiry_us: saved.expiry.0,
        }
    }

    /// The balance, unless a number is outside what a limit can have.
    pub(super) fn saved(&self) -> Option<Saved> {
        let within =
            |least: i64, amount: i64| (least..=AMOUNT_MAX).contains(&amount).then_some(Amount(amount));
        let rate = Rate::new(self.rate.0, self.rate.1)?;
        let remainder = (self.remainder < rate.parts().1).then_some(self.remainder)?;
        let shape = Shape { rate, capacity: within(0, self.capacity)?, debt_max: within(0, self.debt_max)? };
        Some(Saved {
            level: within(-AMOUNT_MAX, self.level)?,
            remainder,
            claim: within(0, self.claim)?,
            time: Moment(self.time_us),
            shape,
            raised: within(0, self.raised)?,
            expiry: Micros(self.expiry_us),
        })
    }
}

/// A balance as bytes, with a checksum over it and its key: the file's own is looked at when it is opened, and not between.
pub(super) fn encode(key: &str, saved: &Saved) -> Vec<u8> {
    let row = RowText::of(saved);
    let mut bytes = Vec::with_capacity(ROW_BYTES);
    for number in [row.level, row.claim, row.capacity, row.debt_max, row.raised] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    for number in [row.remainder, row.time_us, row.rate.0, row.rate.1, row.expiry_us] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&checksum(key, &bytes));
    bytes
}

/// The balance in these bytes; `None` if they are not as they were written.
pub(super) fn decode(key: &str, bytes: &[u8]) -> Option<Saved> {
    let (body, sum) = bytes.split_at_checked(ROW_BYTES - SUM_BYTES)?;
    if sum != checksum(key, body) {
        return None;
    }
    let mut numbers = body.chunks_exact(8).map(|chunk| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(chunk);
        u64::from_le_bytes(bytes)
    });
    let mut next = || numbers.next();
    let row = RowText {
        level: next()?.cast_signed(),
        claim: next()?.cast_signed(),
        capacity: next()?.cast_signed(),
        debt_max: next()?.cast_signed(),
        raised: next()?.cast_signed(),
        remainder: next()?,
        time_us: next()?,
        rate: (next()?, next()?),
        expiry_us: next()?,
    };
    row.saved()
}

fn checksum(key: &str, body: &[u8]) -> [u8; SUM_BYTES] {
    let digest = Sha256::new().chain_update(key).chain_update([0]).chain_update(body).finalize();
    let mut sum = [0; SUM_BYTES];
    sum.copy_from_slice(&digest[..SUM_BYTES]);
    sum
}

const DIMENSIONS: [Dimension; 9] = [
    Dimension::Requests,
    Dimension::Tokens,
    Dimension::InputTokens,
    Dimension::OutputTokens,
    Dimension::Work,
    Dimension::ConcurrentRequests,
    Dimension::RunBudget,
    Dimension::RunSteps,
    Dimension::NewRuns,
];
const SUM_BYTES: usize = 8;
const ROW_BYTES: usize = 10 * 8 + SUM_BYTES;
/// Amounts stay below 2^53, see [`Amount`]; ten buckets of debt are less than ten times as much.
const AMOUNT_MAX: i64 = Amount::WHOLE_MAX as i64 * 1_000_000 * 10;

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Saved = Saved {
        level: Amount(-5_000_001),
        remainder: 2,
        claim: Amount(7),
        time: Moment(1_700_000_000_000_000),
        shape: Shape { rate: Rate::NEVER, capacity: Amount(9), debt_max: Amount(90) },
        raised: Amount(3),
        expiry: Micros(1_800_000_000),
    };

    fn row() -> Saved {
        let rate = Rate::new(200_000, 60).unwrap();
        Saved { shape: Shape { rate, ..ROW.shape }, ..ROW }
    }

    #[test]
    fn a_row_comes_back_as_it_was_written() {
        assert_eq!(decode("a", &encode("a", &row())), Some(row()));
        assert_eq!(RowText::of(&row()).saved(), Some(row()));
    }

    #[test]
    fn a_row_with_any_bit_changed_or_under_another_key_is_refused() {
        let bytes = encode("a", &row());
        assert_eq!(decode("b", &bytes), None);
        assert_eq!(decode("a", &bytes[..bytes.len() - 1]), None);
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode("a", &changed), None, "bit {bit}");
        }
    }

    #[test]
    fn every_name_comes_back_and_no_two_are_the_same() {
        let text = |text: &str| text.to_owned();
        let owners = [
            OwnerName::Service,
            OwnerName::Team(text("a")),
            OwnerName::Tenant(text("a")),
            OwnerName::Key(text("a/b"), text("c")),
            OwnerName::Key(text("a"), text("b/c")),
            OwnerName::Pool(text("a")),
            OwnerName::Backend(text("a"), text("b\"]")),
            OwnerName::Run(text("a"), u128::MAX),
            OwnerName::KeyRun(text("a"), None),
            OwnerName::KeyRun(text("a"), Some(text("k"))),
            OwnerName::EndUser(text("a"), 7),
            OwnerName::OtherEndUsers(text("a")),
        ];
        let mut keys = std::collections::BTreeSet::new();
        for owner in owners {
            for model in [None, Some(text("m"))] {
                let name = CellName { owner: owner.clone(), model, dimension: Dimension::Tokens };
                let key = NameText::of(&name).key();
                assert_eq!(NameText::from_key(&key), Some(name));
                assert!(keys.insert(key));
            }
        }
        assert_eq!(NameText::from_key("[\"tenant\",[],null,\"tokens\"]"), None);
        assert_eq!(NameText::from_key("[\"tenant\",[\"a\",\"b\"],null,\"tokens\"]"), None);
        assert_eq!(NameText::from_key("[\"tenant\",[\"a\"],null,\"tokns\"]"), None);
    }
}
