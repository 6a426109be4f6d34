//! Balances and the usage log in one file that outlives the process.
//!
//! One thread writes: finished requests come through a bounded channel, balances are gathered from the gate, and both are committed
//! together every few milliseconds. No request waits for the disk, except one that would spend more than what is claimed ahead.

mod counters;
mod error;
mod file;
mod row;
mod transfer;
mod usage;
mod writer;

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::DataSettings;
use crate::driver::Driver;
use crate::usage_log::Record;

pub use counters::Counters;
pub use error::DataError;
pub use file::{DataFile, Loaded};
pub use transfer::{export, import};
pub use usage::{By, Query, Sum, Usage};

use file::SharedFile;
use writer::{Retention, Writer};

/// What the writer is told.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are records: moving one is cheaper than a box for it"
)]
pub(crate) enum Message {
    /// A request is finished.
    Record(Record),
    /// Somebody waits for a claim.
    Hurry,
    /// Store everything and end.
    Stop,
}

/// The way to the writer.
#[derive(Clone, Debug)]
pub struct Sender {
    messages: SyncSender<Message>,
    counters: Counters,
}

/// A file that is being written.
#[derive(Debug)]
pub struct Data {
    sender: Sender,
    file: Arc<SharedFile>,
    retention: Arc<Mutex<Retention>>,
    writer: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Data {
    /// Puts the file's balances into the driver and begins to write. Nothing may have been admitted before.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn start(
        file: DataFile,
        loaded: Loaded,
        driver: &Arc<Driver>,
        (settings, counters): (&DataSettings, Counters),
    ) -> Result<Self, DataError> {
        let (messages, received) = std::sync::mpsc::sync_channel(MESSAGES_MAX);
        let sender = Sender { messages, counters: counters.clone() };
        let leftover = driver.keep(loaded.cells, loaded.stamp, sender.clone());
        let gone = leftover.over.into_iter().map(|name| (name, None));
        let kept = leftover.unknown.into_iter().map(|(name, row)| (name, Some(row)));
        file.store(&mut gone.chain(kept), &[], driver.wall())?;
        let retention = Arc::new(Mutex::new(Retention::of(settings)));
        let file = Arc::new(SharedFile::new(file));
        let writer = Writer {
            received,
            driver: Arc::clone(driver),
            file: Arc::clone(&file),
            retention: Arc::clone(&retention),
            counters,
        };
        let writer = std::thread::Builder::new()
            .name("fairlane-data".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| DataError::io(&settings.file, "no thread to write it", &error))?;
        Ok(Self { sender, file, retention, writer: Mutex::new(Some(writer)) })
    }

    /// The way to the writer.
    #[must_use]
    pub const fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Keeps more or less of the usage log from here on.
    pub fn retain(&self, settings: &DataSettings) {
        *self.retention.lock().unwrap_or_else(PoisonError::into_inner) = Retention::of(settings);
    }

    /// Sums over the stored records. It reads the file: not for a thread that serves requests.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn usage(&self, query: &Query) -> Result<Usage, DataError> {
        self.file.with(|file| usage::sum(file, query))
    }

    /// Stores everything and ends the writer. It waits for the disk: not for a thread that serves requests.
    pub fn close(&self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        // If the writer is gone, there is nobody to tell.
        let _ = self.sender.messages.send(Message::Stop);
        if writer.is_some_and(|writer| writer.join().is_err()) {
            tracing::error!("the writer of the data file has panicked: what it had not stored is lost");
        }
    }
}

impl Sender {
    /// Hands over a finished request. It never waits: a writer that is that far behind loses the record, and that is counted.
    pub fn record(&self, record: Record) {
        if self.messages.try_send(Message::Record(record)).is_err() {
            self.counters.dropped();
        }
    }

    /// Somebody waits for the next commit.
    pub(crate) fn hurry(&self) {
        // With a full channel the writer does not rest anyway.
        let _ = self.messages.try_send(Message::Hurry);
    }

    /// What is counted about the writer.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// Records on their way to the writer: a second and a half at 10,000 a second.
const MESSAGES_MAX: usize = 16 * 1024;
