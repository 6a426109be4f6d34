//! Where each value of a YAML file is written: from a path to line and column, and back. Only read when there is something to tell.

use std::borrow::Borrow;

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span};

use super::path::{Path, Step};

/// A place in a text, both counted from 1, columns in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

/// Every value of a file with its place.
pub(crate) struct Places {
    nodes: Vec<Node>,
}

struct Node {
    parent: usize,
    step: Option<Step>,
    key: Option<Place>,
    value: Place,
    end: Place,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A list, a map or an alias.
    Other,
    /// A scalar that means nothing: empty, `~` or `null`.
    Null,
    /// A scalar that names a secret instead of holding it: `env:` or `sha256:`.
    Reference,
    /// A scalar that holds a secret wherever it stands: an address with a user's name.
    Secret,
    Scalar,
}

enum Frame {
    Map {
        node: usize,
        key: Option<(String, Place)>,
    },
    List {
        node: usize,
        next: usize,
    },
    /// A container in the place of a key, which no configuration has.
    OddKey,
}

impl Places {
    /// Reads the places of `text`, as far as it is YAML and no further than the bound on nodes.
    pub(crate) fn of(text: &str) -> Self {
        let mut places = Self { nodes: Vec::new() };
        let mut frames = Vec::new();
        for event in Parser::new_from_str(text) {
            let Ok((event, span)) = event else { break };
            if places.nodes.len() >= NODES_MAX {
                break;
            }
            places.take(&mut frames, &event, &span);
        }
        places
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the parser's list may grow")]
    fn take(&mut self, frames: &mut Vec<Frame>, event: &Event<'_>, span: &Span) {
        match event {
            Event::Scalar(text, style, ..) => {
                if let Some(Frame::Map { key: key @ None, .. }) = frames.last_mut() {
                    *key = Some((text.to_string(), place(span)));
                    return;
                }
                self.add(frames, span, kind(text, *style));
            }
            Event::Alias(_) => {
                if let Some(Frame::Map { key: key @ None, .. }) = frames.last_mut() {
                    *key = Some(("*".to_owned(), place(span)));
                    return;
                }
                self.add(frames, span, Kind::Other);
            }
            Event::MappingStart(..) => self.open(frames, span, |node| Frame::Map { node, key: None }),
            Event::SequenceStart(..) => self.open(frames, span, |node| Frame::List { node, next: 0 }),
            Event::MappingEnd | Event::SequenceEnd => self.close(frames, span),
            _ => {}
        }
    }

    fn open(&mut self, frames: &mut Vec<Frame>, span: &Span, frame: impl Fn(usize) -> Frame) {
        match frames.last_mut() {
            Some(Frame::Map { key: None, .. } | Frame::OddKey) => frames.push(Frame::OddKey),
            _ => {
                let node = self.add(frames, span, Kind::Other);
                frames.push(frame(node));
            }
        }
    }

    fn close(&mut self, frames: &mut Vec<Frame>, span: &Span) {
        match frames.pop() {
            Some(Frame::Map { node, .. } | Frame::List { node, .. }) => self.nodes[node].end = end(span),
            Some(Frame::OddKey) => {
                if let Some(Frame::Map { key, .. }) = frames.last_mut() {
                    *key = Some(("?".to_owned(), place(span)));
                }
            }
            None => {}
        }
    }

    fn add(&mut self, frames: &mut [Frame], span: &Span, kind: Kind) -> usize {
        let (parent, step, key) = match frames.last_mut() {
            Some(Frame::Map { node, key }) => {
                let (name, at) = key.take().unwrap_or_default();
                (*node, Some(Step::Key(name)), Some(at))
            }
            Some(Frame::List { node, next }) => {
                *next += 1;
                (*node, Some(Step::Index(*next - 1)), None)
            }
            Some(Frame::OddKey) | None => (0, None, None),
        };
        self.nodes.push(Node { parent, step, key, value: place(span), end: end(span), kind });
        self.nodes.len() - 1
    }

    /// The place of `path`: its key if it has one, else its value, else that of the nearest parent that is written.
    pub(crate) fn place(&self, path: &Path) -> Option<Place> {
        self.find(path).map(|node| node.key.unwrap_or(node.value))
    }

    /// The place of the value at `path`, else that of the nearest parent that is written.
    pub(crate) fn value_place(&self, path: &Path) -> Option<Place> {
        self.find(path).map(|node| node.value)
    }

    /// From the first character of the value at `path` to behind its last.
    pub(crate) fn extent(&self, path: &Path) -> Option<(Place, Place)> {
        self.find(path).map(|node| (node.value, node.end))
    }

    fn find(&self, path: &Path) -> Option<&Node> {
        let mut current = 0;
        for step in &path.0 {
            let below = |node: &Node| node.parent == current && node.step.as_ref() == Some(step);
            let Some(found) = self.nodes.iter().position(below) else { break };
            current = found;
        }
        self.nodes.get(current)
    }

    /// The path of the key or of the value that begins at `at`, else of the innermost value around it.
    pub(crate) fn path(&self, at: Place, prefer: Prefer) -> Path {
        let by_key = || self.nodes.iter().position(|node| node.key == Some(at));
        let by_value = || self.nodes.iter().position(|node| node.value == at && node.step.is_some());
        let exact = match prefer {
            Prefer::Key => by_key().or_else(by_value),
            Prefer::Value => by_value().or_else(by_key),
        };
        let around =
            || self.nodes.iter().rposition(|node| node.key.unwrap_or(node.value) <= at && at < node.end);
        exact.or_else(around).map(|node| self.path_of(node)).unwrap_or_default()
    }

    /// The first value that is written but empty, with its path.
    pub(crate) fn first_null(&self) -> Option<Path> {
        let empty = |node: &Node| node.kind == Kind::Null && node.step.is_some();
        self.nodes.iter().position(empty).map(|node| self.path_of(node))
    }

    /// The scalars that hold a secret, from the first character to behind the last.
    pub(crate) fn secrets(&self, all: AllSecret) -> impl Iterator<Item = (Place, Place)> {
        self.nodes
            .iter()
            .filter(move |node| match node.kind {
                Kind::Secret => true,
                Kind::Scalar => all == AllSecret::Yes || is_secret(&self.steps(node)),
                Kind::Other | Kind::Null | Kind::Reference => false,
            })
            .map(|node| (node.value, node.end))
    }

    fn path_of(&self, node: usize) -> Path {
        Path(self.steps(&self.nodes[node]).into_iter().cloned().collect())
    }

    fn steps<'a>(&'a self, mut node: &'a Node) -> Vec<&'a Step> {
        let mut steps = Vec::new();
        while let Some(step) = &node.step {
            steps.push(step);
            node = &self.nodes[node.parent];
        }
        steps.reverse();
        steps
    }
}

/// The lines of a file as YAML counts them: they end in LF, CR or both.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'))
}

/// What an error's place most likely stands on, where a key and a value begin at the same place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prefer {
    Key,
    Value,
}

/// Whether every scalar of a file is a secret, as in a file of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllSecret {
    Yes,
    No,
}

/// Whether the value there may be a key or a token.
pub(crate) fn is_secret<S: Borrow<Step>>(steps: &[S]) -> bool {
    let mut above = steps.iter().rev().map(Borrow::borrow).skip_while(|step| matches!(step, Step::Index(_)));
    matches!(above.next(), Some(Step::Key(key)) if SECRET_KEYS.contains(&key.as_str()))
}

fn kind(text: &str, style: ScalarStyle) -> Kind {
    if style == ScalarStyle::Plain && matches!(text, "" | "~" | "null" | "Null" | "NULL") {
        return Kind::Null;
    }
    if text.contains("://") && text.contains('@') {
        return Kind::Secret;
    }
    let reference =
        text.starts_with(super::secret::ENV_PREFIX) || text.starts_with(super::secret::DIGEST_PREFIX);
    if reference { Kind::Reference } else { Kind::Scalar }
}

fn place(span: &Span) -> Place {
    Place { line: span.start.line(), column: span.start.col() + 1 }
}

fn end(span: &Span) -> Place {
    Place { line: span.end.line(), column: span.end.col() + 1 }
}

/// Options that hold a key or a token, alone or in a list.
pub(crate) const SECRET_KEYS: [&str; 5] = ["key", "keys", "digest", "api_key", "admin_token"];
const NODES_MAX: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a:\n  - {b: 1, c: x}\n  - d:\n      e: env:F\nkeys: [top, env:G]\n";

    #[test]
    fn a_path_and_its_place_lead_to_each_other() {
        let places = Places::of(TEXT);
        let path = Path::of("a").index(1).key("d").key("e");
        let at = Place { line: 4, column: 7 };
        assert_eq!(places.place(&path), Some(at));
        assert_eq!(places.path(at, Prefer::Key), path);
        assert_eq!(places.path(at, Prefer::Value), path.parent());
        assert_eq!(places.value_place(&path), Some(Place { line: 4, column: 10 }));
        assert_eq!(places.place(&path.key("absent")), Some(at));
        assert_eq!(places.path(Place { line: 2, column: 12 }, Prefer::Key), Path::of("a").index(0).key("c"));
    }

    #[test]
    fn secrets_are_found_and_references_left() {
        let places = Places::of(TEXT);
        let found: Vec<_> = places.secrets(AllSecret::No).collect();
        assert_eq!(found, [(Place { line: 5, column: 8 }, Place { line: 5, column: 11 })]);
    }

    #[test]
    fn an_empty_value_is_found() {
        assert_eq!(Places::of("a: {b: }\n").first_null(), Some(Path::of("a").key("b")));
        assert_eq!(Places::of("a: ''\n").first_null(), None);
        assert_eq!(Places::of("").first_null(), None);
    }
}
