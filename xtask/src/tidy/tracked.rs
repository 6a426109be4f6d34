//! Text that must not be tracked: paths of one machine, hosts of package registries, addresses in lock files.

use crate::repository::TextFile;

/// Folders that exist on one machine only. Split, so that this file does not hold them itself.
const MACHINE_PATHS: [&str; 5] = [
    concat!("/", "work/"),
    concat!("/", "root/"),
    concat!("/", "tmp/"),
    concat!("/", "home/"),
    concat!("/", "Users/"),
];

const REGISTRY_HOSTS: [&str; 8] = [
    concat!("registry.", "npmjs.org"),
    concat!("pypi.", "org/simple"),
    concat!("files.", "pythonhosted.org"),
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("deb.", "debian.org"),
    concat!("proxy.", "golang.org"),
    concat!("registry.", "yarnpkg.com"),
];

/// Files that pin packages by version and digest, and must work with any registry.
const PINS: [&str; 3] = ["package-lock.json", "requirements.txt", ".npmrc"];

/// The one source that `Cargo.lock` may name.
const CARGO_SOURCE: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

/// Faults of every tracked text file.
pub(super) fn faults(files: &[TextFile]) -> Vec<String> {
    files.iter().flat_map(faults_of).collect()
}

fn faults_of(file: &TextFile) -> Vec<String> {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    let mut faults = Vec::new();
    for (number, line) in (1_usize..).zip(file.text.lines()) {
        let place = format!("{}:{number}", file.path);
        if let Some(path) = MACHINE_PATHS.iter().find(|path| names_folder(line, path)) {
            faults.push(format!("{place}: `{path}` is a path of one machine"));
        }
        if let Some(host) = REGISTRY_HOSTS.iter().find(|host| line.contains(*host)) {
            faults.push(format!("{place}: `{host}` is a package registry's host: pin versions, not places"));
        }
        if PINS.contains(&name) && line.contains("://") {
            faults.push(format!("{place}: a pinned package must not record an address"));
        }
        if name == "Cargo.lock" && line.starts_with("source = ") && line != CARGO_SOURCE {
            faults.push(format!("{place}: a package does not come from the standard index"));
        }
    }
    faults
}

/// Whether `line` names `folder` from the root, and not a folder of that name inside another or in a URL.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|letter| letter.is_alphanumeric() || "._-/}*~$)".contains(letter))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_in(path: &str, text: &str) -> usize {
        faults(&[TextFile { path: path.to_owned(), text: text.to_owned() }]).len()
    }

    #[test]
    fn a_path_of_one_machine_is_a_fault() {
        assert_eq!(faults_in("README.md", concat!("see /", "work/main")), 1);
        assert_eq!(faults_in("README.md", concat!("\"/", "tmp/x.sock\"")), 1);
        assert_eq!(faults_in("README.md", "https://example.com/work/main and target/tmp/x"), 0);
    }

    #[test]
    fn a_registry_in_a_lock_file_is_a_fault() {
        assert_eq!(faults_in("a/package-lock.json", "\"resolved\": \"http://mirror.example/x.tgz\""), 1);
        assert_eq!(faults_in("Cargo.lock", "source = \"registry+https://mirror.example/index\""), 1);
        assert_eq!(faults_in("Cargo.lock", CARGO_SOURCE), 0);
        assert_eq!(faults_in("docs/setup.md", concat!("use registry.", "npmjs.org")), 1);
    }
}
