//! Licences of the packages that others wrote: each must allow us to ship a binary under Apache-2.0.

use crate::metadata::Package;

const ALLOWED: [&str; 14] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MPL-2.0", // its files stay under it; ours beside them do not come under it
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Packages whose licence is not on the list.
pub(super) fn faults(packages: &[Package]) -> Vec<String> {
    let refused = packages.iter().filter(|package| !is_allowed(&package.licence));
    refused
        .map(|package| {
            format!("package {} has a licence that is not on the list: `{}`", package.name, package.licence)
        })
        .collect()
}

/// `AND` needs all of its parts, `OR` (also written `/`) one; a bracket holds one or the other.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.trim();
    let parts = split_outside_brackets(expression, " AND ");
    if parts.len() > 1 {
        return parts.into_iter().all(is_allowed);
    }
    let parts = split_outside_brackets(expression, " OR ");
    if parts.len() > 1 {
        return parts.into_iter().any(is_allowed);
    }
    if let Some(inner) = expression.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        return is_allowed(inner);
    }
    expression.split('/').any(|name| ALLOWED.contains(&name.trim()))
}

fn split_outside_brackets<'a>(expression: &'a str, word: &str) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let mut from = 0;
    for (at, _) in expression.match_indices(word) {
        let before = &expression[..at];
        if before.matches('(').count() == before.matches(')').count() {
            parts.push(&expression[from..at]);
            from = at + word.len();
        }
    }
    parts.push(&expression[from..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_allowed_choice_is_enough() {
        assert!(is_allowed("MIT OR GPL-3.0-only"));
        assert!(is_allowed("MIT/Apache-2.0"));
        assert!(is_allowed("Apache-2.0 WITH LLVM-exception OR Apache-2.0"));
    }

    #[test]
    fn every_joined_part_must_be_allowed() {
        assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(!is_allowed("(MIT OR Apache-2.0) AND GPL-3.0-only"));
        assert!(!is_allowed("MIT AND (GPL-3.0-only OR AGPL-3.0-only)"));
    }

    #[test]
    fn no_licence_is_not_allowed() {
        assert!(!is_allowed(""));
        assert!(!is_allowed("GPL-3.0-only"));
    }
}
