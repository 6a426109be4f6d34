//! Reads how many tests passed and failed from the closing lines of cargo-nextest and of cargo's own test runner.

/// Tests counted over several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Tests that passed.
    pub(crate) passed: u64,
    /// Tests that failed, timed out or could not start.
    pub(crate) failed: u64,
}

impl Counts {
    /// Adds what a line of a runner's output tells, if it is a closing line.
    pub(crate) fn read_line(&mut self, line: &str) {
        let plain = without_colour(line);
        let told = nextest_summary(&plain).or_else(|| cargo_summary(&plain));
        for (number, word) in told.into_iter().flat_map(numbered_words) {
            match word {
                "passed" => self.passed += number,
                "failed" | "timed" | "exec" => self.failed += number,
                _ => {}
            }
        }
    }

    /// Both counts of two runs together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { passed: self.passed + other.passed, failed: self.failed + other.failed }
    }
}

/// `     Summary [   0.005s] 12 tests run: 10 passed (1 slow), 2 failed, 3 skipped`
fn nextest_summary(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("Summary [")?;
    rest.split_once("run: ").map(|(_, told)| told)
}

/// `test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.01s`
///
/// Only at the line's start: further in it is the output of a failed test, which nextest shows and counts itself.
fn cargo_summary(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("test result: ")?;
    rest.split_once(". ").map(|(_, told)| told)
}

fn numbered_words(told: &str) -> impl Iterator<Item = (u64, &str)> {
    told.split([',', ';']).filter_map(|part| {
        let mut words = part.split_whitespace();
        let number = words.next()?.parse().ok()?;
        Some((number, words.next()?))
    })
}

fn without_colour(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' {
            letters.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(letter);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(lines: &[&str]) -> (u64, u64) {
        let mut counts = Counts::default();
        for line in lines {
            counts.read_line(line);
        }
        (counts.passed, counts.failed)
    }

    #[test]
    fn nextest_closing_line_is_counted_with_failures_and_timeouts() {
        assert_eq!(counted(&["     Summary [   0.005s] 12 tests run: 12 passed, 3 skipped"]), (12, 0));
        let broken = "     Summary [  61.2s] 9 tests run: 5 passed (1 slow), 2 failed, 1 timed out, 1 exec failed, 0 skipped";
        assert_eq!(counted(&[broken]), (5, 4));
    }

    #[test]
    fn nextest_run_cut_short_is_counted_too() {
        assert_eq!(
            counted(&["     Summary [   0.1s] 7/12 tests run: 6 passed, 1 failed, 0 skipped"]),
            (6, 1)
        );
    }

    #[test]
    fn cargo_closing_lines_add_up() {
        let line =
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.01s";
        let broken = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!(counted(&[line, broken]), (13, 2));
    }

    #[test]
    fn colours_do_not_hide_a_closing_line() {
        assert_eq!(
            counted(&[
                "\u{1b}[32;1m     Summary\u{1b}[0m [ 0.005s] \u{1b}[1m12\u{1b}[0m tests run: \u{1b}[1m12\u{1b}[0m passed"
            ]),
            (12, 0)
        );
    }

    #[test]
    fn other_lines_count_nothing() {
        assert_eq!(
            counted(&["running 12 tests", "12 passed", "test a ... ok", "Summary of 3 passed"]),
            (0, 0)
        );
    }

    #[test]
    fn a_failed_tests_own_output_is_not_counted_again() {
        let shown = "    test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 22 filtered out";
        let summary = "     Summary [ 1.7s] 2 tests run: 1 passed, 1 failed, 0 skipped";
        assert_eq!(counted(&[shown, summary]), (1, 1));
    }
}
