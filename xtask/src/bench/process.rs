//! The processes that the bench starts: their CPU time and memory as the kernel tells them, and their end by their ids.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::{plain_http, setup};

/// A process with its children, ended when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    name: String,
    child: Child,
}

impl Running {
    /// Starts a program; its errors go to a log file.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(
        name: &str,
        command: &Command,
        (log, output): (&Path, Stdio),
    ) -> Result<Self, String> {
        let told =
            fs::File::create(log).map_err(|error| format!("cannot write {}: {error}", log.display()))?;
        let child = dependent(command).stdin(Stdio::piped()).stdout(output).stderr(told).spawn();
        let child = child.map_err(|error| format!("cannot start {name}: {error}"))?;
        Ok(Self { name: name.to_owned(), child })
    }

    /// The process itself.
    pub(super) const fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits until a GET is answered.
    ///
    /// # Errors
    /// It has ended, or takes longer than a minute.
    pub(super) fn wait_ready(&mut self, port: u16, path: &str) -> Result<(), String> {
        let mut last = String::new();
        for _ in 0..READY_TRIES {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("{} ended with {status}: see its log under target/bench", self.name));
            }
            match plain_http::get(port, path) {
                Ok(_) => return Ok(()),
                Err(error) => last = error,
            }
            thread::sleep(READY_PAUSE);
        }
        Err(format!("{} does not answer: {last}", self.name))
    }

    /// CPU time used so far, in microseconds: user and system, of the process and its children.
    pub(super) fn cpu_us(&self) -> f64 {
        self.ids().into_iter().filter_map(cpu_ticks).sum::<u64>() as f64 * US_PER_TICK
    }

    /// Memory in KiB: the proportional set, so that what workers share counts once.
    pub(super) fn memory_kib(&self) -> f64 {
        self.ids().into_iter().filter_map(proportional_kib).sum::<u64>() as f64
    }

    /// The process and its children, and theirs.
    fn ids(&self) -> Vec<u32> {
        let mut ids = vec![self.child.id()];
        let mut next = 0;
        while next < ids.len() {
            ids.extend(children(ids[next]));
            next += 1;
        }
        ids
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let ids = self.ids();
        // A master process takes its workers with it only if it is asked to end.
        signal("-TERM", &ids[..1]);
        for _ in 0..END_TRIES {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                break;
            }
            thread::sleep(END_PAUSE);
        }
        let left: Vec<u32> = ids.into_iter().filter(|id| is_alive(*id)).collect();
        if !left.is_empty() {
            signal("-KILL", &left);
        }
        let _ = self.child.wait();
    }
}

/// The same command, but ended by the kernel when this process is: where it is killed, nothing else would end what it started.
fn dependent(command: &Command) -> Command {
    let Some(wrapper) = setup::find("setpriv") else {
        let mut plain = Command::new(command.get_program());
        plain.args(command.get_args());
        return plain;
    };
    let mut wrapped = Command::new(wrapper);
    wrapped.args(["--pdeathsig", "TERM"]).arg(command.get_program()).args(command.get_args());
    wrapped
}

fn signal(name: &str, ids: &[u32]) {
    let mut kill = Command::new("kill");
    let _ = kill.arg(name).args(ids.iter().map(u32::to_string)).stderr(Stdio::null()).status();
}

fn is_alive(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    after_name(&stat).and_then(|fields| fields.first().copied()).is_some_and(|state| state != "Z")
}

fn children(id: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{id}/task")) else {
        return Vec::new();
    };
    let lists =
        tasks.flatten().map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    let lists: Vec<String> = lists.collect();
    lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|word| word.parse().ok()).collect()
}

fn cpu_ticks(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let fields = after_name(&stat)?;
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

/// The fields after the name, which may hold blanks itself.
fn after_name(stat: &str) -> Option<Vec<&str>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace().collect())
}

fn proportional_kib(id: u32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).ok()?;
    let line = rollup.lines().find(|line| line.starts_with("Pss:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Linux tells CPU time in hundredths of a second on every platform that Rust supports.
const US_PER_TICK: f64 = 10_000.0;
const READY_TRIES: u32 = 600;
const READY_PAUSE: Duration = Duration::from_millis(100);
const END_TRIES: u32 = 100;
const END_PAUSE: Duration = Duration::from_millis(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_a_name_with_blanks() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 40 2 0";
        let fields = after_name(stat).unwrap();
        assert_eq!((fields[0], fields[11], fields[12]), ("S", "40", "2"));
    }
}
