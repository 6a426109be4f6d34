//! Every direct dependency has its line of why in DEPENDENCIES.md, and no line outlives its dependency.

use std::collections::BTreeMap;

use crate::metadata::Member;

/// The file with the reasons: a heading for each crate (`## fairlane-core`), below it a table row for each dependency.
pub(super) const FILE: &str = "DEPENDENCIES.md";

/// Dependencies without a reason and reasons without a dependency.
pub(super) fn faults(members: &[Member], text: &str) -> Vec<String> {
    let reasons = reasons(text);
    let mut faults = Vec::new();
    for member in members {
        let told = reasons.get(member.name.as_str()).cloned().unwrap_or_default();
        let foreign = |name: &&String| !members.iter().any(|member| &member.name == *name);
        for name in member.dependencies.iter().filter(foreign) {
            if !told.contains(&name.as_str()) {
                faults.push(format!("{FILE}: no line of why for `{name}` under `## {}`", member.name));
            }
        }
        for name in told.into_iter().filter(|name| !member.dependencies.contains(*name)) {
            faults.push(format!("{FILE}: {} does not depend on `{name}`: remove its line", member.name));
        }
    }
    faults
}

/// Crate → the dependencies that have a row `| name | reason |` with a reason.
fn reasons(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut crate_name = "";
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            crate_name = heading.trim().trim_matches('`');
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let ["", name, reason, ..] = cells.as_slice()
            && name.starts_with('`')
            && !reason.is_empty()
        {
            reasons.entry(crate_name).or_default().push(name.trim_matches('`'));
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(text: &str) -> Vec<String> {
        let dependencies = ["memchr".to_owned()].into();
        faults(
            &[Member {
                name: "fairlane-wire".to_owned(),
                built_with: ["memchr".to_owned()].into(),
                dependencies,
            }],
            text,
        )
    }

    #[test]
    fn a_row_with_a_reason_passes() {
        assert_eq!(faults_of("## fairlane-wire\n| `memchr` | finds line ends |"), Vec::<String>::new());
    }

    #[test]
    fn a_missing_or_empty_reason_is_a_fault() {
        assert_eq!(faults_of("## fairlane-wire\n").len(), 1);
        assert_eq!(faults_of("## fairlane-wire\n| `memchr` | |").len(), 1);
        assert_eq!(faults_of("## fairlane-core\n| `memchr` | finds line ends |").len(), 1);
    }

    #[test]
    fn a_reason_without_its_dependency_is_a_fault() {
        assert_eq!(
            faults_of("## fairlane-wire\n| `memchr` | finds line ends |\n| `regex` | none |").len(),
            1
        );
    }
}
