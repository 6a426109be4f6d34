//! Which crate may know which: a crate is a promise about what its code cannot do.

use crate::metadata::Member;

/// A crate and the crates of this workspace that it may depend on.
const ALLOWED: [(&str, &[&str]); 5] = [
    ("fairlane-core", &[]),
    ("fairlane-wire", &["fairlane-core"]),
    ("fairlane-lab", &["fairlane-core"]),
    ("fairlane", &["fairlane-core", "fairlane-wire", "fairlane-lab"]),
    ("xtask", &[]),
];

/// The crate that nothing but the standard library's `core` and `alloc` stands under.
const WITHOUT_DEPENDENCIES: &str = "fairlane-core";

/// Arrows between crates that must not be there.
pub(super) fn faults(members: &[Member]) -> Vec<String> {
    let ours: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let mut faults = Vec::new();
    for member in members {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == member.name) else {
            faults.push(format!(
                "crate {} is unknown: say in xtask/src/tidy/arrows.rs what it may depend on",
                member.name
            ));
            continue;
        };
        let inside = member.dependencies.iter().filter(|name| ours.contains(&name.as_str()));
        for name in inside.filter(|name| !allowed.contains(&name.as_str())) {
            faults.push(format!("crate {} must not depend on {name}", member.name));
        }
        if member.name == WITHOUT_DEPENDENCIES {
            faults.extend(
                member.built_with.iter().map(|name| {
                    format!("crate {WITHOUT_DEPENDENCIES} must have no dependency, and has {name}")
                }),
            );
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, built_with: &[&str], tested_with: &[&str]) -> Member {
        let named = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Member {
            name: name.to_owned(),
            dependencies: named(&[built_with, tested_with].concat()),
            built_with: named(built_with),
        }
    }

    #[test]
    fn allowed_arrows_and_test_dependencies_of_core_pass() {
        let members = [
            member("fairlane-core", &[], &["proptest"]),
            member("fairlane-wire", &["fairlane-core", "memchr"], &[]),
            member("fairlane", &["fairlane-core", "fairlane-wire", "tokio"], &[]),
        ];
        assert_eq!(faults(&members), Vec::<String>::new());
    }

    #[test]
    fn core_with_any_dependency_is_a_fault() {
        assert_eq!(faults(&[member("fairlane-core", &["memchr"], &[])]).len(), 1);
    }

    #[test]
    fn arrow_to_the_gateway_is_a_fault_also_in_tests() {
        let members = [member("fairlane", &[], &[]), member("fairlane-lab", &[], &["fairlane"])];
        assert_eq!(faults(&members), ["crate fairlane-lab must not depend on fairlane"]);
    }

    #[test]
    fn unknown_crate_is_a_fault() {
        assert_eq!(faults(&[member("fairlane-extra", &[], &[])]).len(), 1);
    }
}
