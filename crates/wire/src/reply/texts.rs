//! The generated text, kept for an exact count where the caller asked for it, up to a bound.

/// More choices than this are not told apart.
pub(crate) const CHOICES_MAX: usize = 128;

/// Text by choice. Keeps nothing unless given room.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    room: usize,
    wanted: bool,
    overflown: bool,
    pending: Vec<u8>,
    kept: Vec<(u32, Vec<u8>)>,
}

impl Texts {
    pub(crate) fn keep(&mut self, bytes_max: usize) {
        self.room = bytes_max;
        self.wanted = bytes_max > 0;
    }

    /// Text whose choice is not known yet, or whose event may still turn out to be broken.
    pub(crate) fn push(&mut self, part: &[u8]) {
        if !self.wanted {
            return;
        }
        if self.overflown || self.pending.len() + part.len() > self.room {
            self.overflown = true;
            return;
        }
        self.pending.extend_from_slice(part);
    }

    pub(crate) fn commit(&mut self, choice: u32) {
        if self.pending.is_empty() {
            return;
        }
        self.room -= self.pending.len();
        let place = match self.kept.iter().position(|(known, _)| *known == choice) {
            Some(place) => place,
            None if self.kept.len() < CHOICES_MAX => {
                self.kept.push((choice, Vec::new()));
                self.kept.len() - 1
            }
            None => {
                self.overflown = true;
                self.pending.clear();
                return;
            }
        };
        self.kept[place].1.append(&mut self.pending);
    }

    pub(crate) fn discard(&mut self) {
        self.pending.clear();
    }

    /// Bytes set aside, in use or not.
    pub(crate) fn held_bytes(&self) -> usize {
        let kept: usize = self.kept.iter().map(|(_, text)| text.capacity()).sum();
        kept + self.pending.capacity()
    }

    /// The text of each choice up to what is no UTF-8, and whether it is all of it. A character cut by the end is not missed.
    pub(crate) fn take(&mut self) -> (Vec<(u32, String)>, bool) {
        let mut complete = self.wanted && !self.overflown;
        let texts = core::mem::take(&mut self.kept)
            .into_iter()
            .map(|(choice, text)| {
                let text = String::from_utf8(text).unwrap_or_else(|error| {
                    complete &= error.utf8_error().error_len().is_none();
                    let valid_bytes = error.utf8_error().valid_up_to();
                    let mut text = error.into_bytes();
                    text.truncate(valid_bytes);
                    String::from_utf8(text).unwrap_or_default()
                });
                (choice, text)
            })
            .collect();
        (texts, complete)
    }
}
