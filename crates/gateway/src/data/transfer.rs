//! Export and import: a data file as lines of JSON.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use fairlane_core::units::Moment;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::error::{DataError, Fault};
use super::file::{DataFile, VERSION_HERE};
use super::row::{NameText, RowText};
use crate::usage_log::Record;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    fairlane_data: u32,
    stamp_us: u64,
    hash_key: String,
}

/// Every other line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// A balance.
    Cell(NameText, RowText),
    /// A finished request.
    Usage(Box<RawValue>),
}

/// Writes everything in the data file to `target`, which must not exist; gives the number of balances and of records.
///
/// # Errors
/// Either file cannot be read or written.
pub fn export(file: &DataFile, target: &Path) -> Result<(usize, usize), DataError> {
    let cannot = |error: std::io::Error| DataError::io(target, "it cannot be written", &error);
    let loaded = file.load()?;
    let created = create_private(target).map_err(cannot)?;
    let mut out = BufWriter::new(created);
    let hash_key = loaded.hash_key.iter().map(|byte| format!("{byte:02x}")).collect();
    let head = Head { fairlane_data: VERSION_HERE, stamp_us: loaded.stamp.0, hash_key };
    write_line(&mut out, &head).map_err(cannot)?;
    for (name, saved) in &loaded.cells {
        write_line(&mut out, &Line::Cell(NameText::of(name), RowText::of(saved))).map_err(cannot)?;
    }
    let mut records = 0;
    file.for_each_record(0, |record| {
        records += 1;
        let text = String::from_utf8(record.to_vec()).map_err(|error| error.to_string())?;
        let record = RawValue::from_string(text).map_err(|error| error.to_string())?;
        write_line(&mut out, &Line::Usage(record)).map_err(|error| error.to_string())
    })?;
    out.flush().map_err(cannot)?;
    out.get_ref().sync_all().map_err(cannot)?;
    Ok((loaded.cells.len(), records))
}

/// Makes the data file `target`, which must not exist, from what was exported to `source`; gives the number of balances and of
/// records.
///
/// # Errors
/// Either file cannot be read or written, or a line is wrong: then there is no data file.
pub fn import(source: &Path, target: &Path) -> Result<(usize, usize), DataError> {
    if target.symlink_metadata().is_ok() {
        let what = "it exists already, and an import replaces nothing; move it away, or name another file";
        return Err(DataError::new(target, Fault::Place(what.to_owned())));
    }
    let result = import_all(source, target);
    if result.is_err() {
        // Half of an import is nothing to begin with.
        let _ = std::fs::remove_file(target);
    }
    result
}

fn import_all(source: &Path, target: &Path) -> Result<(usize, usize), DataError> {
    let unreadable = |error: std::io::Error| DataError::io(source, "it cannot be read", &error);
    let opened = File::open(source).map_err(unreadable)?;
    let mut lines = BufReader::new(opened).lines();
    let wrong = |line: usize, why: &str| {
        let what = format!("line {line}: {why}; export it again");
        DataError::new(source, Fault::Place(what))
    };
    let head = lines.next().transpose().map_err(unreadable)?.unwrap_or_default();
    let head: Head =
        serde_json::from_str(&head).map_err(|_| wrong(1, "this is not an export of Fairlane"))?;
    if head.fairlane_data != VERSION_HERE {
        return Err(DataError::new(source, Fault::Version(format!("version {}", head.fairlane_data))));
    }
    let key =
        u128::from_str_radix(&head.hash_key, 16).map_err(|_| wrong(1, "the key of the hashes is wrong"))?;
    DataFile::create_with(target, &key.to_be_bytes())?;
    let file = DataFile::open_existing(target)?;
    let (mut cells, mut records) = (Vec::new(), Vec::new());
    let mut counts = (0, 0);
    for (number, line) in (2..).zip(lines) {
        let line = line.map_err(unreadable)?;
        match serde_json::from_str(&line).map_err(|error| wrong(number, &error.to_string()))? {
            Line::Cell(name, row) => {
                let found = name.name().zip(row.saved());
                let (name, saved) = found.ok_or_else(|| wrong(number, "this is no balance"))?;
                counts.0 += 1;
                cells.push((name, Some(saved)));
            }
            Line::Usage(record) => {
                let read: Record = serde_json::from_str(record.get())
                    .map_err(|error| wrong(number, &format!("this is no record: {error}")))?;
                counts.1 += 1;
                records.push((read.time_ms, record.get().as_bytes().to_vec()));
            }
        }
        if cells.len() + records.len() >= GROUP {
            file.store(&mut cells.drain(..), &records, Moment(head.stamp_us))?;
            records.clear();
        }
    }
    file.store(&mut cells.drain(..), &records, Moment(head.stamp_us))?;
    Ok(counts)
}

fn create_private(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn write_line(out: &mut impl Write, line: &impl Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Lines per commit.
const GROUP: usize = 10_000;
