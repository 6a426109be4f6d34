//! How far a long run is, on a terminal alone.

use std::io::{IsTerminal, Write, stderr};

/// A line that is written over.
pub(super) struct Progress {
    name: String,
    done: usize,
    all: usize,
    is_shown: bool,
}

impl Progress {
    pub(super) fn new(name: &str, all: usize) -> Self {
        let name = name.chars().take(NAME_CHARS_MAX).collect();
        Self { name, done: 0, all, is_shown: stderr().is_terminal() }
    }

    pub(super) fn step(&mut self) {
        self.done += 1;
        if self.is_shown {
            // Nobody is told where the terminal is gone.
            let _ = write!(stderr(), "\r\x1b[K{}: {} of {} runs", self.name, self.done, self.all);
            let _ = stderr().flush();
        }
    }

    pub(super) fn finish(self) {
        if self.is_shown {
            let _ = write!(stderr(), "\r\x1b[K");
            let _ = stderr().flush();
        }
    }
}

const NAME_CHARS_MAX: usize = 50;
