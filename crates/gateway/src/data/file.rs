//! The file: opened whole or not at all, stamped with its version, written in groups.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use fairlane_core::snapshot::{CellName, Saved};
use fairlane_core::units::Moment;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};

use super::error::{DataError, Fault};
use super::row::{self, NameText};
use crate::random;

/// An open data file. No other process has it open.
#[derive(Debug)]
pub struct DataFile {
    path: PathBuf,
    database: Database,
}

/// What a data file says when it is opened.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The key of the hashes that stand for runs and end users.
    pub hash_key: [u8; 16],
    /// The wall clock of the latest commit, in microseconds since 1970.
    pub stamp: Moment,
    /// Balances.
    pub cells: BTreeMap<CellName, Saved>,
}

/// A data file that several threads use; it is closed and opened again after a failure of the disk.
#[derive(Debug)]
pub(super) struct SharedFile {
    path: PathBuf,
    file: Mutex<Option<Arc<DataFile>>>,
}

/// What goes: everything older than the moment, and what is more than the number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) oldest_ms: u64,
    pub(super) records_max: u64,
}

impl DataFile {
    /// Opens the file, or makes it if there is none.
    ///
    /// # Errors
    /// It is in use, damaged, or of another version, or the system refuses.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        match path.symlink_metadata() {
            Ok(_) => Self::open_existing(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::create(path)?;
                Self::open_existing(path)
            }
            Err(error) => Err(DataError::io(path, "it cannot be looked at", &error)),
        }
    }

    /// Opens a file that is there, and checks every page of it.
    ///
    /// # Errors
    /// As [`Self::open`], or there is none.
    pub fn open_existing(path: &Path) -> Result<Self, DataError> {
        let found = path.metadata().map_err(|error| DataError::io(path, "it cannot be looked at", &error))?;
        if !found.is_file() {
            return Err(DataError::new(path, Fault::Foreign("it is not a file".to_owned())));
        }
        if found.len() == 0 {
            return Err(DataError::damaged(path, "it is empty"));
        }
        if !begins_well(path)? {
            return Err(DataError::new(path, Fault::Foreign("it begins with other bytes".to_owned())));
        }
        let opened = guarded(path, || {
            let mut builder = Builder::new();
            builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
            builder.open(path).map_err(|error| DataError::open(path, error))
        })?;
        let file = Self { path: path.to_owned(), database: opened };
        guarded(path, || file.check_version())?;
        Ok(file)
    }

    /// Reads what a gateway begins with.
    ///
    /// # Errors
    /// Something in it is not as it was written.
    pub fn load(&self) -> Result<Loaded, DataError> {
        guarded(&self.path, || self.load_all())
    }

    /// Stores balances (`None` takes one away) and finished requests in one commit; `stamp` is the wall clock.
    ///
    /// # Errors
    /// The disk fails; then nothing is stored.
    pub fn store(
        &self,
        rows: &mut dyn Iterator<Item = (CellName, Option<Saved>)>,
        records: &[(u64, Vec<u8>)],
        stamp: Moment,
    ) -> Result<(), DataError> {
        self.write(rows, records, stamp, None)
    }

    pub(super) fn write(
        &self,
        rows: &mut dyn Iterator<Item = (CellName, Option<Saved>)>,
        records: &[(u64, Vec<u8>)],
        stamp: Moment,
        bound: Option<Bound>,
    ) -> Result<(), DataError> {
        let result: Result<(), redb::Error> = (|| {
            let transaction = self.database.begin_write()?;
            {
                let mut cells = transaction.open_table(CELLS)?;
                for (name, saved) in rows {
                    let key = NameText::of(&name).key();
                    match saved {
                        Some(saved) => drop(cells.insert(&*key, &*row::encode(&key, &saved))?),
                        None => drop(cells.remove(&*key)?),
                    }
                }
                let mut usage = transaction.open_table(USAGE)?;
                let next = usage.last()?.map_or(0, |(number, _)| number.value() + 1);
                for (number, (time_ms, record)) in (next..).zip(records) {
                    usage.insert(number, (*time_ms, &**record))?;
                }
                if let Some(bound) = bound {
                    shorten(&mut usage, bound, records.len())?;
                }
                transaction.open_table(META)?.insert(STAMP, &stamp.0.to_le_bytes()[..])?;
            }
            transaction.commit()?;
            Ok(())
        })();
        result.map_err(|error| DataError::storage(&self.path, error))
    }

    /// Calls `each` with every stored record that ended at `from_ms` or later, oldest first.
    ///
    /// # Errors
    /// The file cannot be read, or `each` refuses a record, saying why.
    pub fn for_each_record(
        &self,
        from_ms: u64,
        mut each: impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), DataError> {
        guarded(&self.path, || {
            let broken = |error: redb::Error| DataError::storage(&self.path, error);
            let read = self.database.begin_read().map_err(|error| broken(error.into()))?;
            let usage = read.open_table(USAGE).map_err(|error| broken(error.into()))?;
            for entry in usage.iter().map_err(|error| broken(error.into()))? {
                let (number, value) = entry.map_err(|error| broken(error.into()))?;
                let (time_ms, record) = value.value();
                if time_ms >= from_ms {
                    each(record).map_err(|why| {
                        DataError::damaged(&self.path, format!("record {}: {why}", number.value()))
                    })?;
                }
            }
            Ok(())
        })
    }

    /// The last `count` records, oldest first.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn last_records(&self, count: usize) -> Result<Vec<Vec<u8>>, DataError> {
        let read: Result<Vec<Vec<u8>>, redb::Error> = (|| {
            let usage = self.database.begin_read()?.open_table(USAGE)?;
            let mut records = Vec::new();
            for entry in usage.iter()?.rev().take(count) {
                records.push(entry?.1.value().1.to_vec());
            }
            records.reverse();
            Ok(records)
        })();
        read.map_err(|error| DataError::storage(&self.path, error))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a file with nothing in it but its version, under another name until it is whole: a crash leaves no half of one.
    fn create(path: &Path) -> Result<(), DataError> {
        let hash_key = random::bytes();
        Self::create_with(path, &hash_key)
    }

    pub(super) fn create_with(path: &Path, hash_key: &[u8; 16]) -> Result<(), DataError> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".new-{}", std::process::id()));
        let unfinished = path.with_file_name(name);
        // From a crash of an earlier process with the same number.
        let _ = std::fs::remove_file(&unfinished);
        let io = |what| move |error: io::Error| DataError::io(path, what, &error);
        // What is hashed with the key inside is nobody else's to read.
        let mode = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&unfinished);
        drop(mode.map_err(io("it cannot be made"))?);
        let made: Result<(), redb::Error> = (|| {
            let database = Database::create(&unfinished)?;
            let transaction = database.begin_write()?;
            {
                let mut meta = transaction.open_table(META)?;
                meta.insert(VERSION, &VERSION_HERE.to_le_bytes()[..])?;
                meta.insert(HASH_KEY, &hash_key[..])?;
                transaction.open_table(CELLS)?;
                transaction.open_table(USAGE)?;
            }
            transaction.commit()?;
            Ok(())
        })();
        made.map_err(|error| DataError::storage(path, error))?;
        if path.symlink_metadata().is_ok() {
            return Err(DataError::new(path, Fault::InUse));
        }
        std::fs::rename(&unfinished, path).map_err(io("it cannot be made"))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or_else(|| Path::new(".")));
        folder.and_then(|folder| folder.sync_all()).map_err(io("its folder cannot be written"))
    }

    fn check_version(&self) -> Result<(), DataError> {
        let number = |bytes: Vec<u8>| bytes.try_into().map(u32::from_le_bytes).ok();
        match self.meta(VERSION)?.and_then(number) {
            Some(VERSION_HERE) => Ok(()),
            Some(other) => {
                let found = format!("version {other}, this one knows version {VERSION_HERE}");
                Err(DataError::new(&self.path, Fault::Version(found)))
            }
            None => Err(DataError::new(&self.path, Fault::Foreign("it has no version".to_owned()))),
        }
    }

    fn load_all(&self) -> Result<Loaded, DataError> {
        let broken = |error: redb::Error| DataError::storage(&self.path, error);
        let missing = |what| DataError::damaged(&self.path, what);
        let hash_key = self.meta(HASH_KEY)?.and_then(|bytes| bytes.try_into().ok());
        let hash_key = hash_key.ok_or_else(|| missing("the key of its hashes is missing"))?;
        let stamp = self.meta(STAMP)?.and_then(|bytes| bytes.try_into().ok());
        let stamp = Moment(stamp.map_or(0, u64::from_le_bytes));
        let read = self.database.begin_read().map_err(|error| broken(error.into()))?;
        let table = read.open_table(CELLS).map_err(|error| broken(error.into()))?;
        let mut cells = BTreeMap::new();
        for entry in table.iter().map_err(|error| broken(error.into()))? {
            let (key, value) = entry.map_err(|error| broken(error.into()))?;
            let found = NameText::from_key(key.value()).zip(row::decode(key.value(), value.value()));
            let (name, saved) = found.ok_or_else(|| missing("a balance is not as it was written"))?;
            cells.insert(name, saved);
        }
        Ok(Loaded { hash_key, stamp, cells })
    }

    fn meta(&self, name: &str) -> Result<Option<Vec<u8>>, DataError> {
        let read: Result<Option<Vec<u8>>, redb::Error> = (|| {
            let read = self.database.begin_read()?;
            let meta = match read.open_table(META) {
                Ok(meta) => meta,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            Ok(meta.get(name)?.map(|bytes| bytes.value().to_vec()))
        })();
        read.map_err(|error| DataError::storage(&self.path, error))
    }
}

impl SharedFile {
    pub(super) fn new(file: DataFile) -> Self {
        Self { path: file.path.clone(), file: Mutex::new(Some(Arc::new(file))) }
    }

    /// Uses the file; opens it again if a failure has closed it.
    pub(super) fn with<T>(
        &self,
        act: impl FnOnce(&DataFile) -> Result<T, DataError>,
    ) -> Result<T, DataError> {
        let file = {
            let mut held = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            match &*held {
                Some(file) => Arc::clone(file),
                None => {
                    let file = Arc::new(DataFile::open_existing(&self.path)?);
                    *held = Some(Arc::clone(&file));
                    file
                }
            }
        };
        act(&file)
    }

    /// Closes it; the next use opens it again.
    pub(super) fn close(&self) {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Whether the file begins as those of the library do.
fn begins_well(path: &Path) -> Result<bool, DataError> {
    use std::io::Read as _;
    let mut begin = [0; MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    match read {
        Ok(()) => Ok(begin == *MAGIC),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(DataError::io(path, "it cannot be read", &error)),
    }
}

/// A page that points to nowhere makes the library panic: for us it is a damaged file like any other.
fn guarded<T>(path: &Path, act: impl FnOnce() -> Result<T, DataError>) -> Result<T, DataError> {
    catch_unwind(AssertUnwindSafe(act))
        .unwrap_or_else(|_| Err(DataError::damaged(path, "a page of it points to nowhere")))
}

/// Takes away old records, a bounded number at a time.
fn shorten(
    usage: &mut redb::Table<'_, u64, (u64, &'static [u8])>,
    bound: Bound,
    added: usize,
) -> Result<(), redb::Error> {
    for _ in 0..added.saturating_mul(2) + SHORTENED_MIN {
        let is_over = usage.len()? > bound.records_max;
        let is_old = usage.first()?.is_some_and(|(_, value)| value.value().0 < bound.oldest_ms);
        if !is_over && !is_old {
            break;
        }
        usage.pop_first()?;
    }
    Ok(())
}

/// Version of the tables below.
pub(super) const VERSION_HERE: u32 = 1;
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const CELLS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("cells");
/// When a request ended, in milliseconds since 1970, and its record as JSON.
const USAGE: TableDefinition<'_, u64, (u64, &[u8])> = TableDefinition::new("usage");
const VERSION: &str = "version";
const HASH_KEY: &str = "hash_key";
const STAMP: &str = "stamp_us";
/// The first bytes of the library's files.
const MAGIC: &[u8; 4] = b"redb";
const CACHE_BYTES: usize = 32 << 20;
const SHORTENED_MIN: usize = 64;
