//! The gateway as a process of its own, and the memory that it holds as the system tells.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::support::in_time;

/// A gateway that runs until this is dropped.
pub(super) struct Process {
    child: Child,
    folder: PathBuf,
    pub(super) address: SocketAddr,
    pub(super) admin: SocketAddr,
}

impl Process {
    /// Starts one; `yaml` is the configuration without addresses and data, `name` tells its folder from others.
    pub(super) async fn begin(name: &str, yaml: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("fairlane-test-{}-memory-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let text = format!("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\ndata: off\n{yaml}");
        fs::write(folder.join("gateway.yaml"), text).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_fairlane"))
            .args(["serve", "--config"])
            .arg(folder.join("gateway.yaml"))
            .env("NO_COLOR", "1")
            .env("FAIRLANE_LOG", "info")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (told, serving) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let mut told = Some(told);
            // Read to the end, so that the pipe never fills.
            for line in lines.map_while(Result::ok) {
                if line.contains(" serving ") {
                    told.take().map(|told| told.send(line));
                } else {
                    println!("{line}");
                }
            }
        });
        let serving = in_time("the gateway serves", serving).await.unwrap();
        let after = |name: &str| {
            let (_, rest) = serving.split_once(name).unwrap();
            rest.split([' ', ')']).next().unwrap().parse().unwrap()
        };
        Self { child, folder, address: after("listen="), admin: after("admin=Some(") }
    }

    /// Memory that is resident, in KiB.
    pub(super) fn resident_kib(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most that was resident since [`Self::forget_peak`], in KiB.
    pub(super) fn peak_kib(&self) -> u64 {
        self.status("VmHWM:")
    }

    /// What was resident before no longer counts as the peak.
    pub(super) fn forget_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").unwrap();
    }

    /// Open file descriptors.
    pub(super) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    fn status(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
