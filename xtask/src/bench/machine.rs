//! On what, and of what, something was measured: figures of different machines are not to be compared.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::{repository, step};

/// Machine, compiler and commit.
pub(super) fn told() -> Value {
    let line = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        step::first_line(command.args(words).current_dir(repository::root())).unwrap_or_default()
    };
    let is_dirty = !line("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty();
    json!({
        "cpu": cpu(),
        "cores": cores(),
        "kernel": line("uname", &["-sr"]),
        "rustc": line("rustc", &["--version"]),
        "commit": line("git", &["rev-parse", "--short=12", "HEAD"]),
        "has_uncommitted_changes": is_dirty,
        "date": line("date", &["-u", "+%Y-%m-%d"]),
    })
}

/// The same in one line, for tables.
pub(super) fn line(machine: &Value) -> String {
    let text = |name: &str| machine[name].as_str().unwrap_or("unknown").to_owned();
    let changes = if machine["has_uncommitted_changes"] == true { " with uncommitted changes" } else { "" };
    format!(
        "{} × {}, {}, {}, commit {}{changes}, {}",
        machine["cores"],
        text("cpu"),
        text("kernel"),
        text("rustc"),
        text("commit"),
        text("date")
    )
}

/// Work that waits for a core, on average over the last minute.
pub(super) fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN)
}

fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    match (field("model name"), field("model\t"), field("stepping")) {
        (Some(name), Some(model), Some(stepping)) => format!("{name} (model {model}, stepping {stepping})"),
        (Some(name), ..) => name,
        (None, ..) => "unknown".to_owned(),
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
