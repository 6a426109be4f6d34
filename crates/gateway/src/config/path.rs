//! Paths inside a configuration, such as `tenants[0].limits.tokens`.

use std::fmt;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A key of a map.
    Key(String),
    /// A place in a list, from 0.
    Index(usize),
}

/// Where in a file something is written, by keys and indices. It may name a key that is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path(pub(crate) Vec<Step>);

impl Path {
    /// The path of a top-level key.
    #[must_use]
    pub(crate) fn of(key: &str) -> Self {
        Self::default().key(key)
    }

    /// The path of `key` below this one.
    #[must_use]
    pub(crate) fn key(&self, key: &str) -> Self {
        self.with(Step::Key(key.to_owned()))
    }

    /// The path of the list's place `index` below this one.
    #[must_use]
    pub(crate) fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    /// This path in a document that has its beginning at `root`.
    #[must_use]
    pub(crate) fn below(&self, root: &Self) -> Self {
        Self(root.0.iter().chain(&self.0).cloned().collect())
    }

    /// The path without its last step.
    #[must_use]
    pub(crate) fn parent(&self) -> Self {
        Self(self.0[..self.0.len().saturating_sub(1)].to_vec())
    }

    fn with(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) if is_plain(key) => {
                    let dot = if position == 0 { "" } else { "." };
                    write!(f, "{dot}{key}")?;
                }
                Step::Key(key) => write!(f, "[{}]", super::scalars::quoted(key))?,
            }
        }
        Ok(())
    }
}

fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::Path;

    #[test]
    fn a_path_quotes_the_keys_that_need_it() {
        let path = Path::of("tenants").index(3).key("models").key("llama-3.1").key("limits");
        assert_eq!(path.to_string(), "tenants[3].models[\"llama-3.1\"].limits");
        assert_eq!(path.parent().to_string(), "tenants[3].models[\"llama-3.1\"]");
    }
}
