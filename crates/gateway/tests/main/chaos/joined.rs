//! Joins what three parties say of one request: the usage log, its client, and the engines' logs.

#![cfg(test)]

use std::collections::HashMap;

use fairlane::gateway::Gateway;
use fairlane::usage_log::Record;

use super::client::Seen;
use super::fleet::Written;
use super::settings::{TENANTS, Tag};

/// One request of the gate.
#[derive(Clone, Debug)]
pub(super) struct Joined<'a> {
    pub(super) record: &'a Record,
    pub(super) seen: &'a Seen,
    /// The engine's record of the last try, if it has one.
    pub(super) last: Option<&'a Written>,
    /// Those of the tries before it.
    pub(super) earlier: Vec<&'a Written>,
}

/// All of them; every record has its client, and every client that the gate answered its record.
pub(super) fn join<'a>(
    gateway: &Gateway,
    records: &'a [Record],
    seen: &'a [Seen],
    written: &'a [Written],
) -> Result<Vec<Joined<'a>>, String> {
    let by_hash: HashMap<u128, &Seen> = seen
        .iter()
        .filter_map(|seen| match TENANTS[seen.tenant].tag {
            Tag::Run => Some((gateway.hash("run", &seen.tag), seen)),
            Tag::User => Some((gateway.hash("user", &seen.tag), seen)),
            Tag::Neither => None,
        })
        .collect();
    let by_id: HashMap<&str, &Seen> =
        seen.iter().filter_map(|seen| seen.id.as_deref().map(|id| (id, seen))).collect();
    let mut by_tag: HashMap<&str, Vec<&Written>> = HashMap::new();
    for one in written {
        by_tag.entry(one.record.request_id.as_deref().unwrap_or_default()).or_default().push(one);
    }
    let mut joined = Vec::new();
    let mut answered: HashMap<String, u16> = HashMap::new();
    for record in records {
        let id = record.id.to_string();
        let hashes = [record.run, record.end_user].into_iter().flatten();
        let seen = by_id
            .get(id.as_str())
            .copied()
            .or_else(|| hashes.filter_map(|tag| by_hash.get(&tag.0).copied()).next());
        // Requests of another path name nobody: those that left unseen have no client here.
        let Some(seen) = seen else {
            if record.charged == 0 || record.charged == super::settings::PASSED_COST || record.run.is_none() {
                continue;
            }
            return Err(format!("no client has sent {record:?}"));
        };
        if answered.insert(id, record.status).is_some() {
            return Err(format!("two records have the id {}", record.id));
        }
        let tries = by_tag.get(seen.tag.as_str()).map_or(&[][..], Vec::as_slice);
        let backend = record.backend.as_deref().unwrap_or_default();
        let last = tries.iter().rposition(|one| one.backend == backend);
        let earlier = tries.iter().enumerate().filter(|(place, _)| Some(*place) != last);
        joined.push(Joined {
            record,
            seen,
            last: last.map(|place| tries[place]),
            earlier: earlier.map(|(_, one)| *one).collect(),
        });
    }
    for seen in seen.iter().filter(|seen| seen.decided) {
        let status = answered.get(seen.id.as_deref().unwrap_or_default());
        if status.copied() != seen.status {
            return Err(format!("the usage log says status {status:?} of {seen:?}"));
        }
    }
    Ok(joined)
}
