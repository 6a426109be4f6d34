//! The one thread that writes: it gathers, commits, and says what is sure.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fairlane_core::snapshot::{CellName, Gathered, Saved};
use fairlane_core::units::Moment;

use super::file::{Bound, SharedFile};
use super::{Counters, DataError, Message};
use crate::clock;
use crate::config::DataSettings;
use crate::driver::Driver;
use crate::usage_log::Record;

/// How much of the usage log is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retention {
    keep: Duration,
    records_max: u64,
}

pub(super) struct Writer {
    pub(super) received: Receiver<Message>,
    pub(super) driver: Arc<Driver>,
    pub(super) file: Arc<SharedFile>,
    pub(super) retention: Arc<Mutex<Retention>>,
    pub(super) counters: Counters,
}

/// What came since the last commit.
#[derive(Debug, Default)]
struct Inbox {
    records: Vec<(u64, Vec<u8>)>,
    is_over: bool,
}

impl Retention {
    pub(super) const fn of(settings: &DataSettings) -> Self {
        Self { keep: settings.keep, records_max: settings.records_max }
    }
}

impl Writer {
    /// Writes until it is told to stop, or nobody is left to tell it anything.
    pub(super) fn run(self) {
        self.counters.opened();
        let mut inbox = Inbox::default();
        while !inbox.is_over {
            self.receive(&mut inbox);
            let gathered = self.driver.gather();
            self.commit(&mut inbox, gathered.as_ref());
            if let Some(gathered) = gathered {
                self.driver.committed(gathered.batch);
            }
        }
        let last = self.driver.last_rows();
        if let Err(error) = self.try_commit(&inbox.records, last.as_ref()) {
            tracing::error!("{error}; what was claimed ahead is lost with this end");
        }
        self.file.close();
        self.counters.closed();
    }

    /// Receives for one period, until there is enough for a commit, or until somebody waits for one.
    fn receive(&self, inbox: &mut Inbox) {
        let until = clock::monotonic() + COMMIT_PERIOD;
        while inbox.records.len() < RECORDS_MAX {
            match self.received.recv_timeout(until.saturating_duration_since(clock::monotonic())) {
                Ok(Message::Record(record)) => inbox.add(&record),
                Ok(Message::Hurry) | Err(RecvTimeoutError::Timeout) => break,
                Ok(Message::Stop) => {
                    while let Ok(message) = self.received.try_recv() {
                        if let Message::Record(record) = message {
                            inbox.add(&record);
                        }
                    }
                    inbox.is_over = true;
                    break;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    inbox.is_over = true;
                    break;
                }
            }
        }
    }

    /// Stores what there is; while the disk fails it tries again and takes in nothing else.
    fn commit(&self, inbox: &mut Inbox, gathered: Option<&Gathered>) {
        if inbox.records.is_empty() && gathered.is_none() {
            return;
        }
        let mut failures = 0_u32;
        while let Err(error) = self.try_commit(&inbox.records, gathered) {
            if failures == 0 {
                tracing::error!(
                    "{error}; limits hold in memory, and a crash would forget what is not stored"
                );
            }
            failures += 1;
            self.counters.failed();
            self.file.close();
            if self.is_told_to_stop(failures) {
                inbox.is_over = true;
                return;
            }
        }
        if failures > 0 {
            tracing::info!(failures, "the data file can be written again");
        }
        inbox.records.clear();
    }

    fn try_commit(&self, records: &[(u64, Vec<u8>)], gathered: Option<&Gathered>) -> Result<(), DataError> {
        let retention = *self.retention.lock().unwrap_or_else(PoisonError::into_inner);
        let keep_ms = u64::try_from(retention.keep.as_millis()).unwrap_or(u64::MAX);
        let oldest_ms = clock::unix_millis().saturating_sub(keep_ms);
        let bound = Bound { oldest_ms, records_max: retention.records_max };
        let stamp: Moment = self.driver.wall();
        self.file.with(|file| {
            let rows: &mut dyn Iterator<Item = (CellName, Option<Saved>)> = match gathered {
                Some(gathered) => &mut gathered.rows(),
                None => &mut std::iter::empty(),
            };
            file.write(rows, records, stamp, Some(bound))
        })?;
        self.counters.committed(records.len());
        Ok(())
    }

    /// Waits before the next try. Records that come are lost: there is a bound on what can wait.
    fn is_told_to_stop(&self, failures: u32) -> bool {
        let until: Instant = clock::monotonic() + RETRY_PERIOD * failures.min(RETRY_PERIODS_MAX);
        loop {
            match self.received.recv_timeout(until.saturating_duration_since(clock::monotonic())) {
                Ok(Message::Record(_)) => self.counters.dropped(),
                Ok(Message::Hurry) => {}
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }
}

impl Inbox {
    fn add(&mut self, record: &Record) {
        // A record has nothing that JSON cannot say.
        if let Ok(json) = serde_json::to_vec(record) {
            self.records.push((record.time_ms, json));
        }
    }
}

/// The longest that a finished request waits to be stored, beside the commit itself.
const COMMIT_PERIOD: Duration = Duration::from_millis(50);
const RECORDS_MAX: usize = 1_000;
const RETRY_PERIOD: Duration = Duration::from_millis(250);
const RETRY_PERIODS_MAX: u32 = 20;
