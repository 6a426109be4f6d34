//! What has to be there before anything is measured: Debian's packages and the bench's own programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{repository, step, tools};

/// The bench's own crate, outside the workspace.
pub(super) const MANIFEST: &str = "benches/Cargo.toml";

/// Installs what is missing of these programs, each named with its Debian package.
///
/// # Errors
/// One is missing and cannot be installed.
pub(super) fn provide(programs: &[(&str, &str)]) -> Result<(), String> {
    let missing: Vec<&str> =
        programs.iter().filter(|(program, _)| find(program).is_none()).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    tools::install_packages(&missing)?;
    match programs.iter().find(|(program, _)| find(program).is_none()) {
        Some((program, package)) => Err(format!("{program} is still missing: install the package {package}")),
        None => Ok(()),
    }
}

/// Where a program is; servers are not always on the path of a user.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The version that a program tells.
pub(super) fn version(program: &str, flag: &str) -> String {
    let Some(path) = find(program) else { return "missing".to_owned() };
    let told = Command::new(path).arg(flag).output();
    let told = told.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
    String::from_utf8_lossy(&told).lines().next().unwrap_or_default().to_owned()
}

/// Builds the bench's programs and gives the folder that they are in.
///
/// # Errors
/// They do not build.
pub(super) fn build_programs(arguments: &[&str]) -> Result<PathBuf, String> {
    let target = target_folder().join("benches");
    let mut build = step::cargo(&["build", "--quiet", "--release", "--manifest-path", MANIFEST]);
    step::run(build.args(arguments).arg("--target-dir").arg(&target))?;
    Ok(target.join("release"))
}

/// Fairlane's binary: the one named, else a release build of this checkout.
///
/// # Errors
/// It does not build, or is not where it was said to be.
pub(super) fn binary(named: Option<&Path>) -> Result<PathBuf, String> {
    let named = named.map(Path::to_path_buf).or_else(|| std::env::var_os("FAIRLANE_BIN").map(PathBuf::from));
    let binary = match named {
        Some(named) => named,
        None => {
            step::run(&mut step::cargo(&[
                "build",
                "--quiet",
                "--release",
                "--locked",
                "--package",
                "fairlane",
            ]))?;
            target_folder().join("release/fairlane")
        }
    };
    match binary.canonicalize() {
        Ok(binary) => Ok(binary),
        Err(error) => Err(format!("no Fairlane at {}: {error}", binary.display())),
    }
}

/// The folder for what the bench writes while it runs.
///
/// # Errors
/// It cannot be made.
pub(super) fn scratch() -> Result<PathBuf, String> {
    let folder = target_folder().join("bench");
    std::fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    Ok(folder)
}

fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository::root().join("target"), PathBuf::from)
}
