//! Files beside the configuration that are read with the same strictness: scenarios of the lab.

use std::path::Path as FilePath;

use serde::de::DeserializeOwned;

use super::path::Path;
use super::places::Places;
use super::problem::{ConfigError, PROBLEMS_MAX, Problem, SourceFile};
use super::raw::Document;
use super::source::{Source, read_one};

/// Reads one file that includes no other.
///
/// # Errors
/// It cannot be read, is too large, is not YAML, or has a key or a value that is not known.
pub(crate) fn read_alone<T: DeserializeOwned + Default>(
    path: &FilePath,
) -> Result<(SourceFile, T), ConfigError> {
    read_one(path)
}

/// What is wrong in a file, told with its places.
pub(crate) struct FileProblems<'a> {
    file: &'a SourceFile,
    places: Places,
    problems: Vec<Problem>,
}

impl<'a> FileProblems<'a> {
    /// Nothing is wrong yet.
    pub(crate) fn of(file: &'a SourceFile) -> Self {
        Self { file, places: Places::of(&file.text), problems: Vec::new() }
    }

    /// Something is wrong with the value at `at`.
    pub(crate) fn add(&mut self, at: &Path, message: &str) {
        if self.problems.len() < PROBLEMS_MAX {
            let message = format!("{at}: {message}");
            self.problems.push(self.file.value_problem(&self.places, at, message));
        }
    }

    /// All that was wrong.
    ///
    /// # Errors
    /// There was something.
    pub(crate) fn finish(self) -> Result<(), ConfigError> {
        if self.problems.is_empty() { Ok(()) } else { Err(ConfigError { problems: self.problems }) }
    }
}

impl SourceFile {
    /// One thing that is wrong at `at`.
    pub(crate) fn problem_of(&self, at: &Path, message: &str) -> ConfigError {
        let mut problems = FileProblems::of(self);
        problems.add(at, message);
        ConfigError { problems: problems.problems }
    }
}

impl Source {
    /// A configuration that is a part of another file, below `root`.
    pub(crate) fn within(file: SourceFile, root: Path, document: Document) -> Self {
        Self {
            files: vec![file],
            document,
            parts: Vec::new(),
            keys: None,
            folder: std::path::PathBuf::new(),
            root,
        }
    }
}
