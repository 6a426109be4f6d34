//! The usage log: the last finished requests, for the admin API.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

/// A finished request. Tokens and milliseconds are whole numbers; ids of runs and end users are hashed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Record {
    /// The id that the answer carried as `x-fairlane-request-id`.
    pub id: String,
    /// When it ended, in milliseconds since 1970.
    pub time_ms: u64,
    /// Who was charged.
    pub tenant: String,
    /// Its parent.
    pub team: Option<String>,
    /// The key's name.
    pub key: Option<String>,
    /// Class.
    pub class: String,
    /// Pool.
    pub pool: String,
    /// The backend that ran it last.
    pub backend: Option<String>,
    /// Model.
    pub model: String,
    /// The agent run, hashed.
    pub run: Option<String>,
    /// The end user, hashed.
    pub end_user: Option<String>,
    /// All input tokens, cached ones included.
    pub input: u64,
    /// Input tokens from a cache.
    pub cached: u64,
    /// Input tokens written to a cache.
    pub cache_write: u64,
    /// Output tokens.
    pub output: u64,
    /// Where these come from.
    pub usage_source: &'static str,
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
    pub outcome: &'static str,
    /// Why it was refused, if it was.
    pub refusal: Option<String>,
    /// Dispatches to a backend.
    pub attempts: u32,
}

/// The last records, newest last. Bounded.
#[derive(Debug)]
pub struct UsageLog {
    records: Mutex<VecDeque<Record>>,
    records_max: usize,
}

impl UsageLog {
    /// A log that keeps `records_max` records.
    #[must_use]
    pub const fn new(records_max: usize) -> Self {
        Self { records: Mutex::new(VecDeque::new()), records_max }
    }

    /// Adds a record; the oldest one makes room.
    pub fn add(&self, record: Record) {
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
