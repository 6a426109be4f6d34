//! The terminal: single keys in, and the state that it had given back at the end.

use std::io::{IsTerminal as _, Read as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

use super::Limits;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Agent,
    Burst,
    Heavy,
    Limits(Limits),
    Quit,
}

/// The terminal of the demo, if there is one.
pub(super) struct Terminal {
    before: Option<Termios>,
    pub(super) is_screen: bool,
}

impl Terminal {
    /// Lets single keys through, as far as there is a keyboard.
    pub(super) fn open(pressed: mpsc::Sender<Key>) -> Self {
        let is_screen = std::io::stdout().is_terminal();
        let before = std::io::stdin().is_terminal().then(single_keys).flatten();
        if before.is_some() {
            // Reading a terminal cannot be cancelled, so a thread of its own does it; it ends with the process.
            std::thread::spawn(move || read_keys(&pressed));
        }
        Self { before, is_screen }
    }

    pub(super) const fn has_keys(&self) -> bool {
        self.before.is_some()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // A terminal that is gone needs no mending.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

fn single_keys() -> Option<Termios> {
    let before = tcgetattr(std::io::stdin()).ok()?;
    let mut single = before.clone();
    single.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    tcsetattr(std::io::stdin(), OptionalActions::Now, &single).ok()?;
    Some(before)
}

fn read_keys(pressed: &mpsc::Sender<Key>) {
    let mut byte = [0];
    while std::io::stdin().read_exact(&mut byte).is_ok() {
        if let Some(key) = key(byte[0])
            && pressed.blocking_send(key).is_err()
        {
            return;
        }
    }
}

const fn key(byte: u8) -> Option<Key> {
    Some(match byte {
        b'a' => Key::Agent,
        b'b' => Key::Burst,
        b'h' => Key::Heavy,
        b'0' => Key::Limits(Limits::None),
        b'r' => Key::Limits(Limits::Requests),
        b't' => Key::Limits(Limits::Tokens),
        b'q' => Key::Quit,
        _ => return None,
    })
}
