//! What can be wrong with a data file, each with its remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use redb::{DatabaseError, StorageError};

/// What is wrong with a data file.
#[derive(Debug)]
pub struct DataError {
    file: PathBuf,
    fault: Fault,
}

#[derive(Debug)]
pub(super) enum Fault {
    /// Another process has it.
    InUse,
    /// It is there, and not as it was written.
    Damaged(String),
    /// Another version wrote it.
    Version(String),
    /// It is another program's.
    Foreign(String),
    /// The system refuses.
    Io(&'static str, String),
    /// There is something where nothing may be, or nothing where something must be.
    Place(String),
}

impl DataError {
    pub(super) fn new(file: &Path, fault: Fault) -> Self {
        Self { file: file.to_owned(), fault }
    }

    pub(super) fn io(file: &Path, what: &'static str, error: &io::Error) -> Self {
        Self::new(file, Fault::Io(what, error.to_string()))
    }

    pub(super) fn damaged(file: &Path, what: impl fmt::Display) -> Self {
        Self::new(file, Fault::Damaged(what.to_string()))
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the library may add errors; all others are about what is in the file"
    )]
    pub(super) fn open(file: &Path, error: DatabaseError) -> Self {
        let fault = match error {
            DatabaseError::DatabaseAlreadyOpen => Fault::InUse,
            DatabaseError::UpgradeRequired(format) => Fault::Version(format!("file format {format}")),
            DatabaseError::Storage(error) => return Self::storage(file, error),
            other => Fault::Damaged(other.to_string()),
        };
        Self::new(file, fault)
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the library may add errors; all others are about what is in the file"
    )]
    pub(super) fn storage(file: &Path, error: impl Into<redb::Error>) -> Self {
        let fault = match error.into() {
            redb::Error::Io(error) if is_content(&error) => Fault::Damaged(error.to_string()),
            redb::Error::Io(error) => Fault::Io("it cannot be read or written", error.to_string()),
            redb::Error::PreviousIo => {
                Fault::Io("it cannot be read or written", StorageError::PreviousIo.to_string())
            }
            redb::Error::DatabaseAlreadyOpen => Fault::InUse,
            other => Fault::Damaged(other.to_string()),
        };
        Self::new(file, fault)
    }

    /// Whether another process has the file.
    #[must_use]
    pub const fn is_in_use(&self) -> bool {
        matches!(self.fault, Fault::InUse)
    }
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the data file {}: ", self.file.display())?;
        match &self.fault {
            Fault::InUse => f.write_str(
                "another process has it open; end that gateway, or give each gateway a file of its own",
            ),
            Fault::Damaged(what) => write!(
                f,
                "it is damaged ({what}); nothing was changed. Put back a copy of it, or move it away to begin with full budgets and \
                 an empty usage log"
            ),
            Fault::Version(found) => write!(
                f,
                "another version of Fairlane wrote it ({found}); nothing was changed. Export it with that version (`fairlane data \
                 export`), move it away and import it with this one (`fairlane data import`)"
            ),
            Fault::Foreign(what) => write!(
                f,
                "it is not a data file of Fairlane ({what}); nothing was changed. Give `data` another name, or move the file away"
            ),
            Fault::Io(what, error) => write!(
                f,
                "{what}: {error}; give `data` a file in a folder that exists and may be written, with room on its disk"
            ),
            Fault::Place(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for DataError {}

/// Whether the system speaks of what is in the file, and not of reaching it.
fn is_content(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}
