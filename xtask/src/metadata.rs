//! What `cargo metadata` tells: the workspace's crates, every package of the lock file and who depends on whom.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::step;

/// The platform whose build is counted against the package budget.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// One crate of the workspace.
pub(crate) struct Member {
    /// The package's name.
    pub(crate) name: String,
    /// The names of all packages it names in its `Cargo.toml`, of every kind.
    pub(crate) dependencies: BTreeSet<String>,
    /// Of these, the ones that are not only for its tests.
    pub(crate) built_with: BTreeSet<String>,
}

/// One package that is not of this workspace.
pub(crate) struct Package {
    /// Name and version.
    pub(crate) name: String,
    /// Its licence expression, empty if it names none.
    pub(crate) licence: String,
}

/// A parsed answer of `cargo metadata`.
pub(crate) struct Metadata {
    answer: Value,
}

/// Asks cargo about every platform's packages.
///
/// # Errors
/// When cargo fails, for example because `Cargo.lock` is out of date.
pub(crate) fn every_platform() -> Result<Metadata, String> {
    ask(&[])
}

/// Asks cargo about the packages of the platform whose build is counted.
///
/// # Errors
/// As [`every_platform`].
pub(crate) fn counted_platform() -> Result<Metadata, String> {
    ask(&["--filter-platform", PLATFORM])
}

fn ask(more: &[&str]) -> Result<Metadata, String> {
    let mut command = step::cargo(&["metadata", "--format-version", "1", "--locked"]);
    let output =
        command.args(more).output().map_err(|error| format!("cannot start cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let answer = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata printed what is not JSON: {error}"))?;
    Ok(Metadata { answer })
}

impl Metadata {
    /// The crates of the workspace.
    pub(crate) fn members(&self) -> Vec<Member> {
        self.packages().filter(|package| is_ours(package)).map(member).collect()
    }

    /// The packages that others wrote.
    pub(crate) fn foreign_packages(&self) -> Vec<Package> {
        let foreign = self.packages().filter(|package| !is_ours(package));
        foreign
            .map(|package| Package {
                name: format!("{} {}", text(package, "name"), text(package, "version")),
                licence: text(package, "license").to_owned(),
            })
            .collect()
    }

    /// Name and version of every package that is built to get the binary of `root`, itself included.
    pub(crate) fn built_for(&self, root: &str) -> BTreeSet<String> {
        let nodes: BTreeMap<&str, &Value> =
            list(&self.answer["resolve"], "nodes").map(|node| (text(node, "id"), node)).collect();
        let names: BTreeMap<&str, String> = self
            .packages()
            .map(|package| {
                (text(package, "id"), format!("{} {}", text(package, "name"), text(package, "version")))
            })
            .collect();
        let first = self.packages().find(|package| is_ours(package) && text(package, "name") == root);
        let mut waiting: Vec<&str> = first.map(|package| text(package, "id")).into_iter().collect();
        let mut seen = BTreeSet::new();
        while let Some(id) = waiting.pop() {
            if seen.insert(id) {
                waiting.extend(nodes.get(id).into_iter().flat_map(|node| built_dependencies(node)));
            }
        }
        seen.into_iter().filter_map(|id| names.get(id).cloned()).collect()
    }

    fn packages(&self) -> impl Iterator<Item = &Value> {
        list(&self.answer, "packages")
    }
}

fn member(package: &Value) -> Member {
    let named = |kept: fn(&Value) -> bool| {
        list(package, "dependencies")
            .filter(|&one| kept(one))
            .map(|one| text(one, "name").to_owned())
            .collect()
    };
    Member {
        name: text(package, "name").to_owned(),
        dependencies: named(|_| true),
        built_with: named(|dependency| text(dependency, "kind") != "dev"),
    }
}

fn built_dependencies(node: &Value) -> impl Iterator<Item = &str> {
    let built = |dependency: &&Value| list(dependency, "dep_kinds").any(|kind| text(kind, "kind") != "dev");
    list(node, "deps").filter(built).map(|dependency| text(dependency, "pkg"))
}

fn is_ours(package: &Value) -> bool {
    package["source"].is_null()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}
