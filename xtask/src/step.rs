//! One step of a task: a command that runs with a title, is timed, and stops the task when it fails.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::counts::Counts;
use crate::repository;

/// The steps done so far, with their times.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(&'static str, Duration)>,
}

impl Steps {
    /// Runs `work` under a title.
    ///
    /// # Errors
    /// What `work` tells, with the step's title before it.
    pub(crate) fn run<T>(
        &mut self,
        title: &'static str,
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        println!("\n== {title}");
        let started = clock();
        let outcome = work();
        let elapsed = started.elapsed();
        self.done.push((title, elapsed));
        let word = if outcome.is_ok() { "done" } else { "FAILED" };
        println!("== {title}: {word} in {:.1} s", elapsed.as_secs_f64());
        outcome.map_err(|failure| format!("step `{title}` failed: {failure}"))
    }

    /// One line with every step's time.
    pub(crate) fn summary(&self) -> String {
        let times: Vec<String> = self
            .done
            .iter()
            .map(|(title, elapsed)| format!("{title} {:.1} s", elapsed.as_secs_f64()))
            .collect();
        let total: f64 = self.done.iter().map(|(_, elapsed)| elapsed.as_secs_f64()).sum();
        format!("steps: {}; total {total:.1} s", times.join(", "))
    }
}

/// A cargo command in the repository's root, run by the cargo that runs this task.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(repository::root());
    command
}

/// Runs a command to its end, its output shown as it comes.
///
/// # Errors
/// When it cannot be started or ends with another code than 0.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("cannot start {}: {error}", shown(command)))?;
    accept(command, status)
}

/// Runs a command in silence and gives the first line that it prints on standard output.
///
/// `None` when it cannot be started or fails: the question was whether it is there.
pub(crate) fn first_line(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    if !output.status.success() {
        return None;
    }
    Some(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

/// Runs a test runner, its output shown as it comes, and adds its counts to `counts`, also when it fails.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_counted(command: &mut Command, counts: &mut Counts) -> Result<(), String> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", shown(command)))?;
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let reader = thread::spawn(move || count_lines(errors, std::io::stderr()));
    let told = count_lines(output, std::io::stdout());
    let told_as_errors = reader.join().unwrap_or_default();
    *counts = counts.plus(told).plus(told_as_errors);
    let status = child.wait().map_err(|error| format!("lost {}: {error}", shown(command)))?;
    accept(command, status)
}

fn count_lines(source: Option<impl Read>, mut shown: impl Write) -> Counts {
    let mut counts = Counts::default();
    let Some(source) = source else { return counts };
    let mut source = BufReader::new(source);
    let mut line = Vec::new();
    while source.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        // A closed terminal must not end the count: the exit code still tells.
        shown.write_all(&line).ok();
        counts.read_line(&String::from_utf8_lossy(&line));
        line.clear();
    }
    counts
}

fn accept(command: &Command, status: ExitStatus) -> Result<(), String> {
    if status.success() {
        return Ok(());
    }
    Err(format!("`{}` ended with {status}", shown(command)))
}

fn shown(command: &Command) -> String {
    let program =
        std::path::Path::new(command.get_program()).file_name().unwrap_or_else(|| command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

#[expect(
    clippy::disallowed_methods,
    reason = "the task runner times its own steps; no product code reads this"
)]
fn clock() -> Instant {
    Instant::now()
}
