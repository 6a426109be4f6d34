//! A line on the terminal that says what is being measured; silent in a pipe.

use std::io::{IsTerminal as _, Write as _};

/// Shows one line, in place of the one before.
pub(super) fn show(text: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        // A closed terminal must not end the measurement.
        let _ = write!(terminal, "\r\x1b[2K{text}");
        let _ = terminal.flush();
    }
}

/// Takes the line away.
pub(super) fn clear() {
    show("");
}
