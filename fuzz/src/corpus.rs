//! Reads a committed corpus through a check, for tests that need no fuzzer.

use std::path::{Path, PathBuf};

/// Checks every file of the target's corpus; a failure names its file.
pub fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.expect("a folder can be listed").path()).collect();
    files.sort();
    assert!(files.len() >= FILES_MIN, "{} has {} files", folder.display(), files.len());
    for file in files {
        let bytes = std::fs::read(&file).expect("a file of the corpus can be read");
        let _named = Named(&file);
        check(&bytes);
    }
}

/// Says which file it was, when its check has failed.
struct Named<'a>(&'a Path);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("fuzz corpus: {}", self.0.display());
        }
    }
}

/// A corpus that got lost must not pass.
const FILES_MIN: usize = 10;
