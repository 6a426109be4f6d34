//! Sees that files of the configuration change.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

use crate::config::Source;

/// A watch over the folders of the configuration's files. A folder, not a file: that is what sees a file replaced by another.
pub struct Watching {
    watcher: Option<RecommendedWatcher>,
    folders: BTreeSet<PathBuf>,
}

impl Watching {
    /// A watch that tells `changes`; it covers nothing yet.
    #[must_use]
    pub fn new(changes: mpsc::Sender<()>) -> Self {
        let told = move |event: notify::Result<notify::Event>| {
            if event.is_ok_and(|event| !event.kind.is_access()) {
                // One change is waiting to be looked at already, if the channel is full.
                let _ = changes.try_send(());
            }
        };
        let watcher = notify::recommended_watcher(told).inspect_err(unseen).ok();
        Self { watcher, folders: BTreeSet::new() }
    }

    /// Covers the file and everything that it includes from here on.
    pub fn cover(&mut self, main: &Path) {
        let mut files = vec![main.to_path_buf()];
        if let Ok(source) = Source::read(main) {
            files.extend(source.files().map(Path::to_path_buf));
        }
        for file in files {
            let parent = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            self.cover_folder(parent.unwrap_or_else(|| Path::new(".")));
        }
    }

    fn cover_folder(&mut self, folder: &Path) {
        let Some(watcher) = self.watcher.as_mut().filter(|_| !self.folders.contains(folder)) else { return };
        match watcher.watch(folder, RecursiveMode::NonRecursive) {
            Ok(()) => {
                self.folders.insert(folder.to_path_buf());
            }
            Err(error) => unseen(&error),
        }
    }
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watching").field("folders", &self.folders).finish_non_exhaustive()
    }
}

fn unseen(error: &notify::Error) {
    tracing::warn!(%error, "changes of the configuration are not seen; send SIGHUP");
}
