//! The keys seen in one object, so that a second of the same name is noticed.

use std::borrow::Cow;
use std::collections::BTreeSet;

/// Names of one object, compared after unescaping. Few names cost no allocation; many cost no
/// more than a search tree.
pub(crate) struct Keys<'a> {
    first: [&'a str; FEW],
    few: usize,
    more: BTreeSet<Cow<'a, str>>,
}

impl<'a> Keys<'a> {
    pub(crate) const fn new() -> Self {
        Self { first: [""; FEW], few: 0, more: BTreeSet::new() }
    }

    /// Adds a name. `false` if it is there already.
    #[must_use]
    pub(crate) fn add(&mut self, name: Cow<'a, str>) -> bool {
        if self.first[..self.few].contains(&&*name) {
            return false;
        }
        match name {
            Cow::Borrowed(plain) if self.few < FEW => {
                if !self.more.is_empty() && self.more.contains(&name) {
                    return false;
                }
                self.first[self.few] = plain;
                self.few += 1;
                true
            }
            Cow::Borrowed(_) | Cow::Owned(_) => self.more.insert(name),
        }
    }
}

const FEW: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_key_is_noticed_among_few_and_among_many() {
        let names: Vec<String> = (0..100).map(|n| format!("k{n}")).collect();
        let mut keys = Keys::new();
        for name in &names {
            assert!(keys.add(Cow::Borrowed(name)));
        }
        for name in &names {
            assert!(!keys.add(Cow::Borrowed(name)));
            assert!(!keys.add(Cow::Owned(name.clone())));
        }
    }

    #[test]
    fn an_escaped_key_equals_its_plain_form_in_either_order() {
        let mut keys = Keys::new();
        assert!(keys.add(Cow::Owned("a".to_owned())));
        assert!(!keys.add(Cow::Borrowed("a")));
        assert!(keys.add(Cow::Borrowed("b")));
        assert!(!keys.add(Cow::Owned("b".to_owned())));
    }
}
