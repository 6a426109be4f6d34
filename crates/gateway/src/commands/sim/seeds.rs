//! Seeds as they are written on the command line.

use std::str::FromStr;

/// A seed, or a range of seeds with both its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    first: u64,
    last: u64,
}

impl Seeds {
    /// All of them, in order.
    #[must_use]
    pub fn list(self) -> Vec<u64> {
        (self.first..=self.last).collect()
    }
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let ends = match text.split_once("..") {
            Some((first, last)) => number(first).zip(number(last.trim_start_matches('='))),
            None => number(text).map(|seed| (seed, seed)),
        };
        let (first, last) =
            ends.ok_or_else(|| "seeds are written as 1..20, both ends counted, or as one number".to_owned())?;
        if first > last || last - first >= SEEDS_MAX {
            return Err(format!("a range has its lower end first and at most {SEEDS_MAX} seeds"));
        }
        Ok(Self { first, last })
    }
}

const SEEDS_MAX: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::Seeds;

    #[test]
    fn a_range_of_seeds_counts_both_ends() {
        let read = |text: &str| text.parse::<Seeds>();
        assert_eq!(read("1..3").unwrap().list(), [1, 2, 3]);
        assert_eq!(read("1..=2").unwrap().list(), [1, 2]);
        assert_eq!(read("7").unwrap().list(), [7]);
        assert!(read("3..1").is_err());
        assert!(read("1..").is_err());
        assert!(read("0..999999999").is_err());
    }
}
