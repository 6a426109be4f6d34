//! Command lines of the bench's programs: `--name value` pairs, flags, and nothing that is not asked for.

use std::str::FromStr;

/// A command line that is taken apart name by name.
#[derive(Debug)]
pub struct Arguments(Vec<String>);

impl Arguments {
    /// Those that the program was started with.
    #[must_use]
    pub fn given() -> Self {
        Self(std::env::args().skip(1).collect())
    }

    /// Takes the next word that stands first, if it is no option.
    pub fn word(&mut self) -> Option<String> {
        let is_word = self.0.first().is_some_and(|word| !word.starts_with("--"));
        is_word.then(|| self.0.remove(0))
    }

    /// Whether a flag is there; it is taken.
    pub fn flag(&mut self, name: &str) -> bool {
        let place = self.0.iter().position(|word| word == name);
        place.map(|place| self.0.remove(place)).is_some()
    }

    /// The value of an option, or `default`.
    ///
    /// # Errors
    /// The value is missing or cannot be read.
    pub fn value<T: FromStr>(&mut self, name: &str, default: T) -> Result<T, String> {
        let Some(place) = self.0.iter().position(|word| word == name) else {
            return Ok(default);
        };
        self.0.remove(place);
        if place == self.0.len() {
            return Err(format!("{name} needs a value"));
        }
        let text = self.0.remove(place);
        text.parse().map_err(|_| format!("{name}: `{text}` cannot be read"))
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// Something is left that nobody asked for.
    pub fn end(self) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some(word) => Err(format!("`{word}` is not understood")),
        }
    }
}
