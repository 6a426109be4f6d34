//! A configuration file: it is read or refused with a place, always ends, and means the same twice.

use std::collections::BTreeMap;

use fairlane::config::{ConfigError, PROBLEMS_MAX, Place, Source, Surroundings};

/// Reads `input` as a file.
pub fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    // Other files are not the fuzzer's to open.
    if text.contains("include") || text.contains("ca_file") || text.contains('\\') {
        return;
    }
    let source = match Source::from_text("fuzzed.yaml", text) {
        Ok(source) => source,
        Err(error) => return told(&error, text),
    };
    let discovered = BTreeMap::from([("main".to_owned(), vec!["found".to_owned(), "m".to_owned()])]);
    let around = Surroundings { env: &env, discovered: &discovered, unix_secs: UNIX_SECS };
    match source.resolve(&around) {
        Err(error) => told(&error, text),
        Ok(config) => {
            for warning in &config.warnings {
                assert!(!warning.message.is_empty() && warning.message.len() < MESSAGE_BYTES_MAX);
                assert!(warning.place.is_none_or(|place| lies_in(place, text)), "{warning:?}");
            }
            let again = source.resolve(&around).expect("it was resolved once");
            assert_eq!(format!("{:?}", again.policy), format!("{:?}", config.policy));
        }
    }
}

fn told(error: &ConfigError, text: &str) {
    assert!(!error.problems.is_empty() && error.problems.len() <= PROBLEMS_MAX);
    for problem in &error.problems {
        assert!(!problem.message.is_empty());
        assert!(problem.message.len() < MESSAGE_BYTES_MAX, "{} bytes", problem.message.len());
        assert!(problem.file.is_some(), "{problem:?}");
        let place = problem.place.unwrap_or_else(|| panic!("no place: {problem:?}"));
        assert!(lies_in(place, text), "{problem:?}");
        let line = problem.snippet.as_ref().map_or(0, String::len);
        assert!(line < MESSAGE_BYTES_MAX, "a snippet of {line} bytes");
    }
    assert!(error.to_string().len() < PROBLEMS_MAX * 2 * MESSAGE_BYTES_MAX);
}

/// Lines and columns count from 1; what is missing is told behind the last of them.
fn lies_in(place: Place, text: &str) -> bool {
    place.line >= 1 && place.column >= 1 && place.line <= text.split(['\n', '\r']).count() + 1
}

fn env(name: &str) -> Option<String> {
    (!name.starts_with("UNSET")).then(|| format!("value-of-{name}-0123456789"))
}

const UNIX_SECS: u64 = 1_800_000_000;
const MESSAGE_BYTES_MAX: usize = 8 * 1024;
