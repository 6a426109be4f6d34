//! Rules for Rust files: who may read the clock, who may make randomness, and what a file begins with.

use crate::repository::TextFile;

/// A word that may stand in one file only, with the reason.
struct Confined {
    words: &'static [&'static str],
    home: &'static str,
    why: &'static str,
}

const CONFINED: [Confined; 2] = [
    Confined {
        words: &["Instant::now", "SystemTime::now"],
        home: "crates/gateway/src/clock.rs",
        why: "reads the clock: take the moment as an argument",
    },
    Confined {
        words: &["getrandom::", "rand::", "fastrand::", "RandomState"],
        home: "crates/gateway/src/random.rs",
        why: "makes randomness: take the seed or the bytes as an argument",
    },
];

/// Tests over real sockets may measure real time; each place says why for clippy.
const REAL_TIME_TESTS: &str = "crates/gateway/tests/";

/// Faults of all Rust files under `crates/` and, for what a file begins with, `xtask/`.
pub(super) fn faults(files: &[TextFile]) -> Vec<String> {
    let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
    rust.flat_map(|file| {
        let mut faults = confined_words(file);
        faults.extend(first_line(file));
        faults.extend(tests(file));
        faults
    })
    .collect()
}

fn confined_words(file: &TextFile) -> Vec<String> {
    if !file.path.starts_with("crates/") || file.path.starts_with(REAL_TIME_TESTS) {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for rule in CONFINED.iter().filter(|rule| rule.home != file.path) {
        for (number, line) in code_lines(&file.text) {
            if let Some(word) = rule.words.iter().find(|word| has_word(line, word)) {
                faults
                    .push(format!("{}:{number}: `{word}` {} (only {} may)", file.path, rule.why, rule.home));
            }
        }
    }
    faults
}

fn first_line(file: &TextFile) -> Option<String> {
    let documented = file.text.starts_with("//!");
    (!documented).then(|| format!("{}:1: a file begins with a `//!` line that says its duty", file.path))
}

fn tests(file: &TextFile) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in code_lines(&file.text) {
        let line = line.trim_start();
        if line.starts_with("#[ignore") {
            faults
                .push(format!("{}:{number}: an ignored test proves nothing: run it or remove it", file.path));
        }
        if line.starts_with("fn test_") || line.starts_with("async fn test_") {
            faults.push(format!(
                "{}:{number}: a test's name is the claim it proves, without `test_`",
                file.path
            ));
        }
    }
    faults
}

fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    numbered.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Whether `word` stands in `line` and is not the end of a longer name.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_in(path: &str, text: &str) -> usize {
        faults(&[TextFile { path: path.to_owned(), text: format!("//! Duty.\n{text}") }]).len()
    }

    #[test]
    fn the_clock_is_read_in_its_file_and_in_real_time_tests_only() {
        let line = "let start = std::time::Instant::now();";
        assert_eq!(faults_in("crates/gateway/src/proxy.rs", line), 1);
        assert_eq!(faults_in("crates/core/tests/laws.rs", line), 1);
        assert_eq!(faults_in("crates/gateway/src/clock.rs", line), 0);
        assert_eq!(faults_in("crates/gateway/tests/clients.rs", line), 0);
        assert_eq!(faults_in("crates/gateway/src/proxy.rs", "// Instant::now is not called here"), 0);
    }

    #[test]
    fn randomness_is_made_in_its_file_only() {
        assert_eq!(faults_in("crates/lab/src/world.rs", "getrandom::fill(&mut bytes)"), 1);
        assert_eq!(faults_in("crates/gateway/src/random.rs", "getrandom::fill(&mut bytes)"), 0);
        assert_eq!(faults_in("crates/lab/src/world.rs", "operand::left()"), 0);
    }

    #[test]
    fn a_file_without_its_duty_is_a_fault() {
        let bare = TextFile { path: "xtask/src/main.rs".to_owned(), text: "fn main() {}\n".to_owned() };
        assert_eq!(faults(&[bare]).len(), 1);
    }

    #[test]
    fn ignored_and_misnamed_tests_are_faults() {
        assert_eq!(
            faults_in("crates/core/src/bucket.rs", "    #[ignore = \"slow\"]\n    fn test_bucket() {}"),
            2
        );
    }
}
