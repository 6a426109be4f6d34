//! What the engine really did: one record for each request that ended, for comparing charges with.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::watch;

/// One request that ended, however it ended. Counts are tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Record {
    /// Counts up from 1 in the order in which requests came; also in the answer's `x-sim-request`.
    pub id: u64,
    /// The path.
    pub endpoint: String,
    /// The model asked for.
    pub model: String,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// Status answered; none if the connection closed before.
    pub status: Option<u16>,
    /// Prompt tokens, cached ones included.
    pub prompt: u64,
    /// Prompt tokens found in the prefix cache.
    pub cached: u64,
    /// Output tokens made, of all choices.
    pub produced: u64,
    /// Output tokens handed to the connection.
    pub sent: u64,
    /// Choices asked for.
    pub choices: usize,
    /// Whether the engine stopped before the natural end, because the client left or a fault broke the answer.
    pub cancelled: bool,
    /// The fault shown, `none` for none.
    pub fault: String,
    /// The output bound in the body.
    pub max_tokens: Option<u64>,
    /// The `priority` in the body or the header.
    pub priority: Option<i64>,
    /// Whether `stream_options.include_usage` was set.
    pub include_usage: bool,
    /// `sha256:` and 16 digits of the digest of the credential that came.
    pub credential: Option<String>,
    /// The request's `x-request-id`, which engines take on as their own.
    pub request_id: Option<String>,
    /// Names of the request's headers that start with `x-` or `anthropic-`, sorted.
    pub headers: Vec<String>,
    /// Names of the body's top-level fields, sorted.
    pub fields: Vec<String>,
}

/// The last records; older ones are dropped.
#[derive(Debug)]
pub(super) struct Log {
    records: Mutex<VecDeque<Record>>,
    /// Records ever written.
    written: watch::Sender<u64>,
}

impl Log {
    pub(super) fn empty() -> Self {
        Self { records: Mutex::default(), written: watch::Sender::new(0) }
    }

    pub(super) fn write(&self, record: Record) {
        let mut records = self.lock();
        if records.len() == RECORDS_MAX {
            records.pop_front();
        }
        records.push_back(record);
        drop(records);
        self.written.send_modify(|written| *written += 1);
    }

    /// The records kept, oldest first.
    pub(super) fn records(&self) -> Vec<Record> {
        self.lock().iter().cloned().collect()
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    /// Waits until so many records were written since the start.
    pub(super) async fn reaches(&self, written: u64) {
        let mut seen = self.written.subscribe();
        // The sender lives as long as the log, so that the wait cannot fail.
        let _ = seen.wait_for(|count| *count >= written).await;
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const RECORDS_MAX: usize = 100_000;
