//! Problems and warnings of a configuration: file, line, column, what is wrong, the remedy, and the line itself.

use std::fmt;
use std::path::PathBuf;

use serde_saphyr::Error as YamlError;

use super::path::Path;
use super::places::{AllSecret, Place, Places, Prefer, SECRET_KEYS, is_secret, lines};
use super::scalars::quoted;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, if it is in one.
    pub file: Option<PathBuf>,
    /// Where in the file.
    pub place: Option<Place>,
    /// What is wrong, and the remedy.
    pub message: String,
    /// The line with a mark under the place; secrets are replaced by `***`.
    pub snippet: Option<String>,
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// What is wrong, one or more, at most [`PROBLEMS_MAX`].
    pub problems: Vec<Problem>,
}

/// Something that works but may not be what was meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The file, if it is in one.
    pub file: Option<PathBuf>,
    /// Where in the file.
    pub place: Option<Place>,
    /// What it is.
    pub message: String,
}

/// From the first character of something to behind its last.
type Extent = (Place, Place);

/// A file of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    pub(crate) name: PathBuf,
    pub(crate) text: String,
    pub(crate) all_secret: AllSecret,
}

impl SourceFile {
    /// A problem at `path`.
    pub(crate) fn problem(&self, places: &Places, path: &Path, message: String) -> Problem {
        self.problem_at(places, places.place(path), message, None)
    }

    /// A problem with the value at `path`.
    pub(crate) fn value_problem(&self, places: &Places, path: &Path, message: String) -> Problem {
        self.problem_at(places, places.value_place(path), message, None)
    }

    /// A problem whose line is shown without secrets, and without what stands in `also_hidden`.
    fn problem_at(
        &self,
        places: &Places,
        place: Option<Place>,
        message: String,
        also_hidden: Option<Extent>,
    ) -> Problem {
        let snippet = place.and_then(|place| self.snippet(places, place, also_hidden));
        Problem { file: Some(self.name.clone()), place, message, snippet }
    }

    /// What the YAML library found, in our words.
    pub(crate) fn yaml_problem(&self, error: &YamlError) -> Problem {
        let error = innermost(error);
        let place = error
            .location()
            .filter(|location| location.line() > 0)
            .map(|location| Place { line: location.line() as usize, column: location.column() as usize });
        if is_syntax(error) {
            return self.syntax_problem(error, place);
        }
        let places = Places::of(&self.text);
        let prefer = preference(error);
        let path = place.map(|place| places.path(place, prefer)).unwrap_or_default();
        // The library gives the key's place for a value of the wrong type.
        let is_of_value = matches!(error, YamlError::SerdeInvalidType { .. }) && prefer == Prefer::Key;
        let place = if is_of_value { places.value_place(&path).or(place) } else { place };
        let message = describe(error, &path, self.all_secret);
        let unknown = hides_value(error).then(|| places.extent(&path)).flatten();
        let mut problem = self.problem_at(&places, place, message, unknown);
        if hides_line(error, &path, self.all_secret) {
            problem.snippet = None;
        }
        problem
    }

    fn syntax_problem(&self, error: &YamlError, place: Option<Place>) -> Problem {
        let message = format!("not valid YAML: {}", without_place(error));
        // The text around a syntax error has no structure by which secrets could be told from the rest.
        let line = place.and_then(|place| lines(&self.text).nth(place.line.saturating_sub(1)));
        let harmless = self.all_secret == AllSecret::No && line.is_some_and(is_harmless);
        let snippet = place.filter(|_| harmless).zip(line).map(|(place, line)| marked(line, place, &[]));
        Problem { file: Some(self.name.clone()), place, message, snippet }
    }

    fn snippet(&self, places: &Places, place: Place, also_hidden: Option<Extent>) -> Option<String> {
        let line = lines(&self.text).nth(place.line.checked_sub(1)?)?;
        let hidden: Vec<(usize, usize)> = places
            .secrets(self.all_secret)
            .chain(also_hidden)
            .filter(|(start, end)| (start.line..=end.line).contains(&place.line))
            .map(|(start, end)| {
                let from = if start.line == place.line { start.column } else { 1 };
                let to = if end.line == place.line { end.column } else { usize::MAX };
                (from, to)
            })
            .collect();
        Some(marked(line, place, &hidden))
    }
}

/// The line with `hidden` columns replaced and a mark under `place`.
fn marked(line: &str, place: Place, hidden: &[(usize, usize)]) -> String {
    let number = place.line.to_string();
    let mut shown = String::new();
    let mut mark_at = None;
    let mut was_hidden = false;
    for (position, letter) in line.chars().enumerate().take(LINE_CHARS_MAX) {
        let column = position + 1;
        if column == place.column {
            mark_at = Some(shown.chars().count());
        }
        let hide = hidden.iter().any(|(from, to)| (*from..*to).contains(&column));
        if !hide {
            shown.push(if letter.is_control() { ' ' } else { letter });
        } else if !was_hidden {
            shown.push_str("***");
        }
        was_hidden = hide;
    }
    let mark = " ".repeat(mark_at.unwrap_or_else(|| shown.chars().count()));
    let margin = " ".repeat(number.len());
    format!(" {number} | {shown}\n {margin} | {mark}^")
}

fn innermost(error: &YamlError) -> &YamlError {
    let error = error.without_snippet();
    if let YamlError::AliasError { error, .. } = error { innermost(error) } else { error }
}

/// Whether the error's place is that of a key or of a value, which begin together where a block map does.
#[expect(clippy::wildcard_enum_match_arm, reason = "the library's list is long and grows")]
fn preference(error: &YamlError) -> Prefer {
    match error {
        YamlError::SerdeUnknownField { .. } | YamlError::DuplicateMappingKey { .. } => Prefer::Key,
        YamlError::SerdeInvalidType { unexpected, .. } if unexpected != "map" => Prefer::Key,
        _ => Prefer::Value,
    }
}

fn is_syntax(error: &YamlError) -> bool {
    matches!(
        error,
        YamlError::ExternalMessage { .. }
            | YamlError::Eof { .. }
            | YamlError::MultipleDocuments { .. }
            | YamlError::UnknownAnchor { .. }
            | YamlError::Budget { .. }
            | YamlError::ContainerEndMismatch { .. }
    )
}

fn is_harmless(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    line.contains(':') && !["key", "token", "secret", "sk-"].iter().any(|word| lower.contains(word))
}

/// Whether the value of an unknown key must not be shown: it may be a secret whose key is misspelt.
fn hides_value(error: &YamlError) -> bool {
    let YamlError::SerdeUnknownField { field, expected, .. } = error else { return false };
    suggestion(field, expected.iter().copied()).is_none_or(|known| SECRET_KEYS.contains(&known))
}

/// Whether even the key's own text must not be shown: a secret written where a key is expected.
fn hides_line(error: &YamlError, path: &Path, all_secret: AllSecret) -> bool {
    let YamlError::SerdeUnknownField { field, expected, .. } = error else { return false };
    (is_secret(&path.parent().0) || all_secret == AllSecret::Yes)
        && suggestion(field, expected.iter().copied()).is_none()
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library's list is long and grows")]
fn describe(error: &YamlError, path: &Path, all_secret: AllSecret) -> String {
    let here = owner(path);
    match error {
        YamlError::SerdeUnknownField { field, expected, .. } => {
            let parent = path.parent();
            let place = if parent.0.is_empty() { String::new() } else { format!(" in {parent}") };
            match suggestion(field, expected.iter().copied()) {
                Some(known) => format!("unknown key {}{place}; did you mean \"{known}\"?", quoted(field)),
                None if is_secret(&parent.0) || all_secret == AllSecret::Yes => {
                    format!("unknown key{place}; known are {}", expected.join(", "))
                }
                None => format!("unknown key {}{place}; known are {}", quoted(field), expected.join(", ")),
            }
        }
        YamlError::SerdeUnknownVariant { variant, expected, .. } => {
            match suggestion(variant, expected.iter().copied()) {
                Some(known) => format!("{here}: {} is not known; did you mean \"{known}\"?", quoted(variant)),
                None => {
                    format!("{here}: {} is not known; it is one of {}", quoted(variant), expected.join(", "))
                }
            }
        }
        YamlError::SerdeMissingField { field, .. } => format!("{here} has no \"{field}\", which is required"),
        // What was found there instead may be a secret, so that only its kind is told.
        YamlError::SerdeInvalidType { unexpected, expected, .. }
        | YamlError::SerdeInvalidValue { unexpected, expected, .. } => {
            format!("{here} is {}, not {expected}", kind_of(unexpected))
        }
        YamlError::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().map_or_else(|| "a key".to_owned(), quoted);
            format!("{key} is written twice in {}", owner(&path.parent()))
        }
        YamlError::NullIntoString { .. } => format!("{here} has no value: give it one or remove the key"),
        YamlError::InvalidBooleanStrict { .. } => format!("{here} is neither true nor false"),
        YamlError::InvalidScalar { ty, .. } if ty.starts_with("bool") => {
            format!("{here} is neither true nor false")
        }
        YamlError::Unexpected { expected, .. } => format!("{here} is not {}", shape_of(expected)),
        YamlError::Message { msg, .. } => format!("{here}: {msg}"),
        other => format!("{here}: {}", without_place(other)),
    }
}

fn kind_of(unexpected: &str) -> &'static str {
    match unexpected.split([' ', '`', '"']).next().unwrap_or_default() {
        "string" => "a text",
        "integer" | "floating" => "a number",
        "boolean" => "true or false",
        "sequence" => "a list",
        "map" => "a map",
        _ => "something else",
    }
}

fn shape_of(expected: &str) -> &str {
    match expected {
        "sequence start" => "a list",
        "mapping start" => "a map of options",
        "string scalar" => "a single text or number",
        other => other,
    }
}

fn owner(path: &Path) -> String {
    if path.0.is_empty() { "the file".to_owned() } else { path.to_string() }
}

/// The library's own text, which ends with a place that we print at the front.
fn without_place(error: &YamlError) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let cut = first.rfind(" at line ").or_else(|| first.rfind(" (line ")).unwrap_or(first.len());
    first[..cut].trim_end_matches([',', ':', ' ']).to_owned()
}

/// The known name closest to `text`, if it is close.
pub(crate) fn suggestion<'a>(text: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if text.len() > SUGGESTION_BYTES_MAX {
        return None;
    }
    let allowed = text.chars().count().div_ceil(3).min(3);
    known
        .filter(|name| name.len() <= SUGGESTION_BYTES_MAX)
        .map(|name| (distance(text, name), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// The least number of single letters to add, drop or change (Levenshtein 1966), over letters in lower case.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.to_lowercase().chars().enumerate() {
        let mut diagonal = index;
        row[0] = index + 1;
        for (column, other) in right.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_place(f, self.file.as_ref(), self.place)?;
        f.write_str(&self.message)?;
        self.snippet.iter().try_for_each(|snippet| write!(f, "\n{snippet}"))
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_place(f, self.file.as_ref(), self.place)?;
        f.write_str(&self.message)
    }
}

fn write_place(f: &mut fmt::Formatter<'_>, file: Option<&PathBuf>, place: Option<Place>) -> fmt::Result {
    let Some(file) = file else { return Ok(()) };
    match place {
        Some(place) => write!(f, "{}:{}:{}: ", file.display(), place.line, place.column),
        None => write!(f, "{}: ", file.display()),
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, problem) in self.problems.iter().enumerate() {
            let line = if position == 0 { "" } else { "\n" };
            write!(f, "{line}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        Self { problems: vec![problem] }
    }
}

/// Most problems that are told at once.
pub const PROBLEMS_MAX: usize = 20;
const LINE_CHARS_MAX: usize = 200;
const SUGGESTION_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_name_is_suggested_and_a_far_one_is_not() {
        let known = ["tokens", "requests", "input_tokens", "work"];
        assert_eq!(suggestion("tokns", known.into_iter()), Some("tokens"));
        assert_eq!(suggestion("Tokens", known.into_iter()), Some("tokens"));
        assert_eq!(suggestion("wrk", known.into_iter()), Some("work"));
        assert_eq!(suggestion("colour", known.into_iter()), None);
        assert_eq!(suggestion(&"t".repeat(10_000), known.into_iter()), None);
    }

    #[test]
    fn the_mark_stands_under_the_place_though_a_secret_before_it_is_hidden() {
        let place = Place { line: 7, column: 17 };
        assert_eq!(
            marked("keys: [abcdefg, {nam: x}]", place, &[(8, 15)]),
            " 7 | keys: [***, {nam: x}]\n   |             ^"
        );
    }
}
