//! The repository as files: its root and the paths that git tracks or would track.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A repository file, read as text.
pub(crate) struct TextFile {
    /// Path from the root, with `/` between its parts.
    pub(crate) path: String,
    /// Its whole content.
    pub(crate) text: String,
}

/// The folder that holds the workspace's `Cargo.toml`.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// Reads one file, named from the root.
pub(crate) fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(root().join(path)).map_err(|error| format!("cannot read {path}: {error}"))
}

/// Every text file that git tracks, or that a `git add` would make it track.
///
/// # Errors
/// When git is missing or fails, or a file cannot be read.
pub(crate) fn text_files() -> Result<Vec<TextFile>, String> {
    let mut files = Vec::new();
    for path in paths()? {
        let full = root().join(&path);
        if !full.is_file() {
            continue; // deleted in the work tree, still in the index
        }
        let bytes = fs::read(&full).map_err(|error| format!("cannot read {path}: {error}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(TextFile { path, text });
        }
    }
    Ok(files)
}

fn paths() -> Result<Vec<String>, String> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .map_err(|error| format!("cannot start git: {error}; tidy reads the list of files from it"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git ls-files failed: {}", told.trim()));
    }
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut paths: Vec<String> =
        listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}
