//! The options of the benches.

use std::path::PathBuf;

/// What the command line asks for.
#[derive(Debug, Default)]
pub(super) struct Flags {
    /// Interleaved rounds.
    pub(super) rounds: Option<u32>,
    /// Short runs, for a look.
    pub(super) quick: bool,
    /// Parts to run; all if empty.
    pub(super) only: Vec<String>,
    /// A built binary of Fairlane.
    pub(super) binary: Option<PathBuf>,
    /// Where the results go besides the terminal.
    pub(super) json: Option<PathBuf>,
    /// Compare with what is kept.
    pub(super) check: bool,
    /// Run before other work on the machine, as far as it allows.
    pub(super) foremost: bool,
}

impl Flags {
    /// Reads the words; only those options that are `known` are taken.
    ///
    /// # Errors
    /// An option is unknown here, or lacks its value.
    pub(super) fn read(words: &[&str], known: &[&str]) -> Result<Self, String> {
        let mut flags = Self::default();
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            if !known.contains(&word) {
                return Err(format!("`{word}` is not an option here; there are {}", known.join(" ")));
            }
            let mut value = || words.next().copied().ok_or_else(|| format!("{word} needs a value"));
            match word {
                "--quick" => flags.quick = true,
                "--check" => flags.check = true,
                "--foremost" => flags.foremost = true,
                "--rounds" => flags.rounds = Some(count(value()?)?),
                "--only" => flags.only.extend(value()?.split(',').map(str::to_owned)),
                "--binary" => flags.binary = Some(value()?.into()),
                _ => flags.json = Some(value()?.into()),
            }
        }
        Ok(flags)
    }

    /// Whether a part is asked for.
    pub(super) fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == part)
    }

    /// Refuses names that no part has.
    pub(super) fn check_parts(&self, parts: &[&str]) -> Result<(), String> {
        match self.only.iter().find(|wanted| !parts.contains(&wanted.as_str())) {
            Some(unknown) => Err(format!("nothing is called `{unknown}`; there are {}", parts.join(" "))),
            None => Ok(()),
        }
    }
}

fn count(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(count) if (1..=100).contains(&count) => Ok(count),
        _ => Err(format!("--rounds is a number from 1 to 100, not `{text}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_not_known_here_are_refused() {
        assert!(Flags::read(&["--check"], &["--quick"]).is_err());
        assert!(Flags::read(&["--rounds", "0"], &["--rounds"]).is_err());
        assert!(Flags::read(&["--rounds"], &["--rounds"]).is_err());
    }

    #[test]
    fn parts_are_named_in_one_list_or_in_several() {
        let flags = Flags::read(&["--only", "a,b", "--only", "c"], &["--only"]).unwrap();
        assert!(flags.wants("a") && flags.wants("c") && !flags.wants("d"));
        assert!(flags.check_parts(&["a", "b"]).is_err());
    }
}
