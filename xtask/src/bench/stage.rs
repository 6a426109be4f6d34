//! Everything that runs during a bench: the mock backend, the proxies, and Fairlane in one or several variants.

use std::cell::Cell;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::fairlane::{self, Ports, Variant};
use super::load;
use super::plain_http::{free_port, get, get_json};
use super::process::Running;
use super::setup;

/// What is there for every part of the bench.
pub(super) struct Stage {
    /// Fairlane's binary.
    binary: PathBuf,
    /// The load generator.
    pub(super) generator: PathBuf,
    scratch: PathBuf,
    backend: Running,
    sockets: Vec<u16>,
    next_socket: Cell<usize>,
}

/// Something that requests are sent to.
pub(super) struct Peer {
    /// Its name in results.
    pub(super) name: &'static str,
    /// Where it listens.
    pub(super) port: u16,
    /// Its process; the mock itself has none of its own here.
    pub(super) running: Option<Running>,
    /// Of Fairlane alone: its admin port and its socket of the mock.
    sums: Option<(u16, u16)>,
}

impl Stage {
    /// Starts the mock.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn new(binary: PathBuf, programs: &Path, scratch: PathBuf) -> Result<Self, String> {
        let mut command = Command::new(programs.join("backend"));
        command.args(["--sockets", &SOCKETS.to_string()]);
        let mut backend =
            Running::start("the mock backend", &command, (&scratch.join("backend.log"), Stdio::piped()))?;
        let output = backend.child().stdout.take().ok_or("the mock backend has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(|error| format!("the mock backend: {error}"))?;
        let sockets: Vec<u16> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        if sockets.len() != SOCKETS {
            return Err(format!("the mock backend told no ports: `{}`", line.trim()));
        }
        let generator = programs.join("load");
        Ok(Self { binary, generator, scratch, backend, sockets, next_socket: Cell::new(1) })
    }

    /// CPU time that the mock has used, in microseconds.
    pub(super) fn backend_cpu_us(&self) -> f64 {
        self.backend.cpu_us()
    }

    /// The mock without a proxy.
    pub(super) fn direct(&self) -> Peer {
        Peer { name: "direct", port: self.sockets[0], running: None, sums: None }
    }

    /// Lets held streams go on.
    ///
    /// # Errors
    /// The mock does not answer.
    pub(super) fn release(&self) -> Result<(), String> {
        get(self.sockets[0], "/release").map(|_| ())
    }

    /// Starts nginx with two workers and connections kept to the mock.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn nginx(&self) -> Result<Peer, String> {
        let (port, folder) = (free_port()?, self.scratch.display());
        let text = format!(
            "\
worker_processes 2; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx-errors.log error;
events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 1000000000; client_max_body_size 0; client_body_buffer_size 2m;
  client_body_temp_path {folder}/nginx-1; proxy_temp_path {folder}/nginx-2; fastcgi_temp_path {folder}/nginx-3;
  uwsgi_temp_path {folder}/nginx-4; scgi_temp_path {folder}/nginx-5;
  upstream mock {{ server 127.0.0.1:{}; keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://mock; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_buffering off; proxy_read_timeout 120s; }}
  }}
}}
",
            self.sockets[0]
        );
        let file = self.write("nginx.conf", &text)?;
        let mut command = self.proxy("nginx")?;
        self.started("nginx", command.arg("-c").arg(file), port)
    }

    /// Starts haproxy with two threads and connections kept to the mock.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn haproxy(&self) -> Result<Peer, String> {
        let port = free_port()?;
        let text = format!(
            "\
global
  nbthread 2
  maxconn 8192
defaults
  mode http
  timeout connect 5s
  timeout client 120s
  timeout server 120s
  option http-keep-alive
  option http-no-delay
  http-reuse always
frontend clients
  bind 127.0.0.1:{port}
  default_backend mock
backend mock
  server mock 127.0.0.1:{}
",
            self.sockets[0]
        );
        let file = self.write("haproxy.cfg", &text)?;
        let mut command = self.proxy("haproxy")?;
        self.started("haproxy", command.arg("-db").arg("-f").arg(file), port)
    }

    /// Starts Fairlane before a socket of the mock that is its own.
    ///
    /// # Errors
    /// It cannot be started, or does not take its configuration.
    pub(super) fn fairlane(&self, variant: &Variant) -> Result<Peer, String> {
        let socket = self.next_socket.replace(self.next_socket.get() + 1);
        let backend = *self.sockets.get(socket).ok_or("the mock has no socket left")?;
        let ports = Ports { client: free_port()?, admin: free_port()?, backend };
        let digests = load::digests(&self.generator, variant.tenants)?;
        let files = fairlane::configuration(variant, ports, &digests);
        for (name, text) in &files {
            self.write(name, text)?;
        }
        let mut command = Command::new(&self.binary);
        command.args(["serve", "--config"]).arg(self.scratch.join(&files[0].0));
        let log = self.scratch.join(format!("{}.log", variant.name));
        let mut running = Running::start(variant.name, &command, (&log, Stdio::null()))?;
        running.wait_ready(ports.admin, "/readyz")?;
        let sums = Some((ports.admin, backend));
        Ok(Peer { name: variant.name, port: ports.client, running: Some(running), sums })
    }

    fn started(&self, name: &'static str, command: &Command, port: u16) -> Result<Peer, String> {
        let log = self.scratch.join(format!("{name}.log"));
        let mut running = Running::start(name, command, (&log, Stdio::null()))?;
        running.wait_ready(port, "/v1/models")?;
        Ok(Peer { name, port, running: Some(running), sums: None })
    }

    fn proxy(&self, program: &str) -> Result<Command, String> {
        setup::find(program).map(Command::new).ok_or_else(|| format!("{program} is not installed"))
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let path = self.scratch.join(name);
        fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(path)
    }
}

/// What a gateway has charged and what the mock has reported to it, in tokens.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    /// Charged: settled, and used beyond reservations.
    pub(super) charged: u64,
    /// Reported by the mock.
    pub(super) reported: u64,
    /// Whole answers of the mock.
    pub(super) answers: u64,
    /// The ledger as it stands.
    pub(super) ledger: Value,
}

impl Sums {
    /// Whether every token is charged once and nothing is left open.
    pub(super) fn agree(&self) -> bool {
        self.charged == self.reported
            && self.ledger["outstanding"] == 0
            && self.ledger["expired"] == 0
            && self.ledger["forgiven"] == 0
    }
}

impl Peer {
    /// The sums of a gateway once nothing is open any more; `None` for what keeps no ledger.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) fn sums(&self) -> Result<Option<Sums>, String> {
        let Some((admin, backend)) = self.sums else { return Ok(None) };
        let mut sums = sums(admin, backend)?;
        for _ in 0..SETTLE_TRIES {
            if sums.agree() {
                break;
            }
            thread::sleep(SETTLE_PAUSE);
            sums = self::sums(admin, backend)?;
        }
        Ok(Some(sums))
    }
}

fn sums(admin: u16, backend: u16) -> Result<Sums, String> {
    let state = get_json(admin, "/api/v1/state")?;
    let counts = get_json(backend, "/counts")?;
    let ledger = state["ledger"].clone();
    let of = |value: &Value, name: &str| value[name].as_u64().unwrap_or_default();
    Ok(Sums {
        charged: of(&ledger, "settled") + of(&ledger, "overrun"),
        reported: of(&counts, "input") + of(&counts, "output"),
        answers: of(&counts, "answers"),
        ledger,
    })
}

const SOCKETS: usize = 8;
const SETTLE_TRIES: u32 = 50;
const SETTLE_PAUSE: Duration = Duration::from_millis(100);
