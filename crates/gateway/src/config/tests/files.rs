//! Configurations of several files.

use super::*;

/// A folder for files of one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn with(files: &[(&str, &str)]) -> Self {
        let name = format!("fairlane-config-{}", u64::from_ne_bytes(crate::random::bytes()));
        let folder = Self(std::env::temp_dir().join(name));
        for (name, text) in files {
            let path = folder.0.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    fn resolve(&self) -> Result<Config, ConfigError> {
        let discovered = nothing_discovered();
        let around = Surroundings { env: &env, discovered: &discovered, unix_secs: NOW_UNIX_SECS };
        Source::read(&self.0.join("main.yaml"))?.resolve(&around)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn included_files_and_a_file_of_keys_are_added_in_order() {
    let folder = Folder::with(&[
        (
            "main.yaml",
            &format!("{POOL}include: [more/a.yaml]\nkeys_file: keys.yaml\ntenants: [{{name: own}}]\n"),
        ),
        ("more/a.yaml", "include: [b.yaml]\nteams: [{name: t}]\ntenants: [{name: in-a, team: t}]\n"),
        (
            "more/b.yaml",
            "tenants: [{name: in-b, tier: small}]\ntiers: {small: {limits: {requests: 60/min}}}\n",
        ),
        (
            "keys.yaml",
            "own: [key-of-own-0123456789]\nin-a: [{name: x, key: key-of-in-a-0123456789}]\nin-b: [\"env:B\"]\n",
        ),
    ]);
    let config = folder.resolve().unwrap();
    let names: Vec<&str> = config.policy.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    assert_eq!(names, ["own", "in-a", "in-b"]);
    assert_eq!(config.edge.keys.count(), 3);
    assert!(matches!(
        config.edge.keys.find(Some(b"key-of-in-a-0123456789"), 0),
        KeyLookup::Known { tenant: TenantId(1), .. }
    ));
    assert_eq!(shape(&config.policy.tenants[2].limits.all, Dimension::Requests), Some((60, 10)));
    assert_eq!(config.warnings, []);
}

#[test]
fn mistakes_in_other_files_are_told_in_those_files() {
    let table: [(&[(&str, &str)], &str); 7] = [
        (
            &[("main.yaml", "include: [a.yaml]\n"), ("a.yaml", "teams:\n  - {nam: t}\n")],
            "a.yaml:2:6: unknown key \"nam\" in teams[0]",
        ),
        (
            &[("main.yaml", "include: [a.yaml]\n"), ("a.yaml", "tenants: [{name: a, team: t}]\n")],
            "a.yaml:1:27: tenants[0].team: there is no team",
        ),
        (
            &[("main.yaml", "include: [a.yaml]\n"), ("a.yaml", "listen: x\n")],
            "a.yaml:1:1: unknown key \"listen\"",
        ),
        (&[("main.yaml", "include: [main.yaml]\n")], "main.yaml:1:11: "),
        (&[("main.yaml", "include: [gone.yaml]\n")], "main.yaml:1:11: cannot read "),
        (
            &[("main.yaml", "keys_file: k.yaml\n"), ("k.yaml", "who: [hunter2-hunter2-hunter2]\n")],
            "k.yaml:1:6: who: there is no tenant \"who\"",
        ),
        (
            &[("main.yaml", "keys_file: k.yaml\n"), ("k.yaml", "who: [{hunter2-hunter2-hunter2: 1}]\n")],
            "k.yaml:1:8: unknown key in who[0]",
        ),
    ];
    for (files, expected) in table {
        let folder = Folder::with(files);
        let text = folder.resolve().unwrap_err().to_string();
        assert!(text.contains(expected) && !text.contains("hunter2"), "found {text}\nexpected {expected}");
    }
    let looped = Folder::with(&[
        ("main.yaml", "include: [a.yaml]\n"),
        ("a.yaml", "include: [b.yaml]\n"),
        ("b.yaml", "include: [a.yaml]\n"),
    ]);
    assert!(looped.resolve().unwrap_err().to_string().contains("is read already"));
}

#[test]
fn files_have_bounds() {
    let many: Vec<(String, String)> = (0..70)
        .map(|index| (format!("f{index}.yaml"), format!("include: [f{}.yaml]\n", index + 1)))
        .collect();
    let mut files: Vec<(&str, &str)> =
        many.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    files.push(("main.yaml", "include: [f0.yaml]\n"));
    assert!(Folder::with(&files).resolve().unwrap_err().to_string().contains("more than 64 files"));

    let long = format!("# {}\n", "x".repeat(8 << 20));
    assert!(Folder::with(&[("main.yaml", &long)]).resolve().unwrap_err().to_string().contains("too large"));

    let folder = Folder::with(&[("main.yaml", "")]);
    std::fs::write(folder.0.join("main.yaml"), b"a: 1\nb: \xff\n").unwrap();
    assert!(folder.resolve().unwrap_err().to_string().contains("not UTF-8 in line 2"));
}
