//! Installs what the tests need beside Rust: the real client libraries of OpenAI and Anthropic, pinned, and nginx.
//!
//! Each installation leaves a stamp with what it was made from, so that a second call does nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::repository;
use crate::step;

const PYTHON_CLIENTS: &str = "crates/gateway/tests/clients/python";
const NODE_CLIENTS: &str = "crates/gateway/tests/clients/node";
const OLDEST_NODE: u32 = 18;

/// Installs the clients that are missing or out of date, and says what it does.
///
/// # Errors
/// When Python or Node is missing and cannot be installed, or an installation fails.
pub(crate) fn install() -> Result<(), String> {
    let folder = repository::root().join("target/test-tools");
    fs::create_dir_all(&folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    provide_nginx()?;
    install_python_clients(&folder.join("py"))?;
    install_node_clients(&folder.join("node.stamp"))
}

/// The proxy that heartbeats are tested behind.
fn provide_nginx() -> Result<(), String> {
    let is_there = || {
        ["nginx", "/usr/sbin/nginx"].iter().any(|program| Command::new(program).arg("-v").output().is_ok())
    };
    if !is_there() {
        install_packages(&["nginx"])?;
    }
    if is_there() { Ok(()) } else { Err("nginx is missing: install it".into()) }
}

fn install_python_clients(venv: &Path) -> Result<(), String> {
    let python = provide_python()?;
    let pins = repository::read(&format!("{PYTHON_CLIENTS}/requirements.txt"))?;
    let stamp = Stamp { path: venv.join("stamp"), made_from: format!("{python}\n{pins}") };
    let named = pinned(&pins);
    if stamp.is_fresh() && venv.join("bin/python").exists() {
        println!("Python clients are in place ({named}; {python})");
        return Ok(());
    }
    println!("installing into target/test-tools/py: {named} and what they need, with {python}");
    step::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(venv))?;
    let requirements = repository::root().join(PYTHON_CLIENTS).join("requirements.txt");
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    step::run(pip.arg(requirements))?;
    stamp.write()
}

fn install_node_clients(stamp: &Path) -> Result<(), String> {
    let node = provide_node()?;
    let lock = repository::read(&format!("{NODE_CLIENTS}/package-lock.json"))?;
    let stamp = Stamp { path: stamp.to_path_buf(), made_from: format!("{node}\n{lock}") };
    let folder = repository::root().join(NODE_CLIENTS);
    if stamp.is_fresh() && folder.join("node_modules/openai").exists() {
        println!("Node clients are in place (package-lock.json; Node {node})");
        return Ok(());
    }
    println!("installing into {NODE_CLIENTS}/node_modules: what package-lock.json pins, for Node {node}");
    let mut npm = Command::new("npm");
    step::run(npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(folder))?;
    stamp.write()
}

/// The version of a Python that can make virtual environments.
fn provide_python() -> Result<String, String> {
    let able = || step::first_line(Command::new("python3").args(["-c", "import ensurepip, venv"]));
    if able().is_none() {
        install_packages(&["python3", "python3-venv"])?;
        able().ok_or(
            "python3 still cannot make virtual environments: install its venv and ensurepip modules",
        )?;
    }
    step::first_line(Command::new("python3").arg("--version"))
        .ok_or_else(|| "python3 does not tell its version".into())
}

/// The version of a Node that comes with npm and is not too old for the clients.
fn provide_node() -> Result<String, String> {
    let version = || step::first_line(Command::new("node").arg("--version"));
    let npm = || step::first_line(Command::new("npm").arg("--version"));
    if version().is_none() || npm().is_none() {
        install_packages(&["nodejs", "npm"])?;
    }
    npm().ok_or("npm is missing: install it beside Node.js")?;
    let version = version().ok_or("node is missing: install Node.js")?;
    let major = version.trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    match major {
        Some(major) if major >= OLDEST_NODE => Ok(version),
        Some(_) | None => {
            Err(format!("Node {version} is too old for the clients: {OLDEST_NODE} or later is needed"))
        }
    }
}

/// Installs Debian packages, where this is Debian and the user may.
///
/// # Errors
/// It is not, or they may not, or the installation fails.
pub(crate) fn install_packages(packages: &[&str]) -> Result<(), String> {
    let named = packages.join(" ");
    let apt = step::first_line(Command::new("apt-get").arg("--version")).is_some();
    let root = step::first_line(Command::new("id").arg("-u")).is_some_and(|user| user == "0");
    if !(apt && root) {
        return Err(format!(
            "{named} are needed: install them (on Debian: apt-get install {named}) and repeat"
        ));
    }
    println!("installing Debian packages: {named}");
    step::run(Command::new("apt-get").args(["update", "--quiet"]))?;
    let mut install = Command::new("apt-get");
    install.args(["install", "--quiet", "--yes", "--no-install-recommends"]).args(packages);
    step::run(install.env("DEBIAN_FRONTEND", "noninteractive"))
}

fn pinned(requirements: &str) -> String {
    let pins =
        requirements.lines().filter(|line| line.starts_with("openai==") || line.starts_with("anthropic=="));
    pins.map(|pin| pin.replace("==", " ")).collect::<Vec<_>>().join(", ")
}

/// A file that holds what an installation was made from.
struct Stamp {
    path: PathBuf,
    made_from: String,
}

impl Stamp {
    fn is_fresh(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|written| written == self.made_from)
    }

    fn write(&self) -> Result<(), String> {
        fs::write(&self.path, &self.made_from)
            .map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }
}
