//! The usage log: the last finished requests, for the admin API.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use fairlane_core::gate::{Outcome, UsageSource};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::data::Sender;

use crate::names::Name;

/// A finished request. Tokens and milliseconds are whole numbers; ids of runs and end users are hashed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The id that the answer carried as `x-fairlane-request-id`.
    pub id: RequestTag,
    /// When it ended, in milliseconds since 1970.
    pub time_ms: u64,
    /// Who was charged.
    pub tenant: Name,
    /// Its parent.
    pub team: Option<Name>,
    /// The key's name.
    pub key: Option<Name>,
    /// Class.
    pub class: Name,
    /// Pool.
    pub pool: Name,
    /// The backend that ran it last.
    pub backend: Option<Name>,
    /// Model.
    pub model: Name,
    /// The agent run, hashed.
    pub run: Option<SubjectTag>,
    /// The end user, hashed.
    pub end_user: Option<SubjectTag>,
    /// All input tokens, cached ones included.
    pub input: u64,
    /// Input tokens from a cache.
    pub cached: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// Output tokens.
    pub output: u64,
    /// Where these come from.
    #[serde(deserialize_with = "usage_source")]
    pub usage_source: Word,
    /// Tokens reserved at admission.
    pub reserved: u64,
    /// Tokens charged.
    pub charged: u64,
    /// Time in the queue.
    pub queue_ms: u64,
    /// Time from arrival to the first token; absent if none was seen passing.
    pub ttft_ms: Option<u64>,
    /// Time from arrival to the end.
    pub total_ms: u64,
    /// The status that the client got, 0 if it left before.
    pub status: u16,
    /// The ending's name.
    #[serde(deserialize_with = "outcome")]
    pub outcome: Word,
    /// Why it was refused, if it was.
    pub refusal: Option<String>,
    /// Dispatches to a backend.
    pub attempts: u32,
}

/// One of a few names that the program knows.
pub type Word = &'static str;

/// A request's id, shown in hexadecimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTag(pub u64);

/// The hash of a run's or an end user's id, shown in hexadecimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubjectTag(pub u128);

impl fmt::Display for RequestTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for SubjectTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Serialize for RequestTag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for SubjectTag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RequestTag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16).map(Self).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for SubjectTag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map(Self).map_err(serde::de::Error::custom)
    }
}

fn outcome<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Word, D::Error> {
    known(&String::deserialize(deserializer)?, OUTCOMES.map(Outcome::name))
}

fn usage_source<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Word, D::Error> {
    known(&String::deserialize(deserializer)?, SOURCES.map(UsageSource::name))
}

fn known<const N: usize, E: serde::de::Error>(name: &str, names: [Word; N]) -> Result<Word, E> {
    let found = names.into_iter().find(|known| *known == name);
    found.ok_or_else(|| E::custom("a name that this version does not know"))
}

/// The last records, newest last. Bounded.
#[derive(Debug)]
pub struct UsageLog {
    records: Mutex<VecDeque<Record>>,
    records_max: usize,
    /// Where they are stored, if they are.
    stored: OnceLock<Sender>,
}

impl UsageLog {
    /// A log that keeps `records_max` records.
    #[must_use]
    pub const fn new(records_max: usize) -> Self {
        Self { records: Mutex::new(VecDeque::new()), records_max, stored: OnceLock::new() }
    }

    /// Stores every record from here on, too.
    pub fn store(&self, sender: Sender) {
        // There is one file for the whole life of a process.
        let _ = self.stored.set(sender);
    }

    /// Adds a record; the oldest one makes room.
    pub fn add(&self, record: Record) {
        if let Some(sender) = self.stored.get() {
            sender.record(record.clone());
        }
        self.remember(record);
    }

    /// Adds a record that is stored already.
    pub fn remember(&self, record: Record) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        while records.len() >= self.records_max && !records.is_empty() {
            records.pop_front();
        }
        if self.records_max > 0 {
            records.push_back(record);
        }
    }

    /// The last `limit` records, newest first.
    #[must_use]
    pub fn last(&self, limit: usize) -> Vec<Record> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.iter().rev().take(limit).cloned().collect()
    }
}

const OUTCOMES: [Outcome; 10] = [
    Outcome::Completed,
    Outcome::Interrupted,
    Outcome::UpstreamError,
    Outcome::UpstreamErrorMidStream,
    Outcome::UpstreamEmpty,
    Outcome::UpstreamTimeout,
    Outcome::ClientGone,
    Outcome::BudgetEnd,
    Outcome::Shutdown,
    Outcome::Refused,
];
const SOURCES: [UsageSource; 5] = [
    UsageSource::Reported,
    UsageSource::ReportedPartial,
    UsageSource::Mixed,
    UsageSource::Estimated,
    UsageSource::None,
];
