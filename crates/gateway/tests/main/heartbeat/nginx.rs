//! Behind a real nginx with its own settings, of which only the time is shortened: two seconds for the sixty that it waits.

#![cfg(test)]

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use super::{COMMENT, asked, beating};
use crate::sdk::clients::Library;
use crate::support::{
    Backend, KEY, STREAM_HEAD, Step, chat_body, chat_stream, delta, gateway, in_time, limited, send,
};

const READ_TIMEOUT_SECS: u64 = 2;

#[tokio::test]
async fn a_wait_longer_than_nginx_has_patience_survives_with_comments_and_not_without() {
    let Some(program) = program() else { return };
    let slow = || {
        Backend::start(|_| {
            let wait = std::time::Duration::from_millis(1_000 * READ_TIMEOUT_SECS + 700);
            vec![Step::Pause(wait), Step::Write(chat_stream(2, Some((3, 2))))]
        })
    };
    let (with, without) = (slow().await, slow().await);
    let beating = beating(with.address, "").await;
    let silent = gateway(&limited(without.address, "tokens: 20000/day burst 1d", "")).await;
    let before = Nginx::start(&program, beating.address()).await;
    let beside = Nginx::start(&program, silent.address()).await;
    let (survives, fails) = tokio::join!(ask(before.address), ask(beside.address));
    assert_eq!(fails.0, 504, "without comments nginx gives up");
    assert_eq!(survives.0, 200);
    let text = survives.1;
    assert!(text.starts_with(COMMENT) && text.ends_with("data: [DONE]\n\n"), "{text}");
    beating.idle().await;
    assert_eq!((beating.records()[0].outcome, beating.records()[0].charged), ("completed", 5));
}

#[tokio::test]
async fn openai_for_python_raises_a_late_refusal_through_nginx() {
    check(Library::OpenaiPython, &["chat_stream_whole", "responses_stream_whole"], "APIError").await;
}

#[tokio::test]
async fn anthropic_for_python_raises_a_late_refusal_through_nginx() {
    check(Library::AnthropicPython, &["messages_stream_whole"], "APIStatusError").await;
}

/// A library reads a stream to its end that is refused after some comments.
async fn check(library: Library, scenarios: &[&str], class: &str) {
    if !library.is_installed() {
        return;
    }
    let Some(program) = program() else { return };
    let holding = || vec![Step::Write(STREAM_HEAD.to_vec()), Step::Write(delta("w ")), Step::AwaitClose];
    let backend = Backend::start(move |_| holding()).await;
    let gateway = beating(backend.address, "classes: [{name: interactive, max_wait: 400ms}]").await;
    let nginx = Nginx::start(&program, gateway.address()).await;
    let url = format!("http://{}", nginx.address);
    // It takes the only slot.
    let running = gateway.stream(&chat_body(3, 20), 1).await;
    let options = ["--api-key", KEY, "--model", "m", "--max-retries", "2"];
    let results = library.run(&url, &options, scenarios).await;
    drop(running);
    for scenario in scenarios {
        let raised = results.error(scenario);
        let classes = raised.error["classes"].as_array().unwrap();
        assert!(classes.contains(&json!(class)), "{scenario}: {}", raised.error);
        let expected = if library == Library::AnthropicPython { "overloaded_error" } else { "overloaded" };
        assert_eq!(raised.kind(), expected, "{scenario}: {}", raised.error);
        assert!(
            raised.error["message"].as_str().unwrap().contains("no backend had room"),
            "{}",
            raised.error
        );
        assert_eq!(
            raised.attempts.len(),
            1,
            "a stream that has begun is not repeated: {:?}",
            raised.attempts
        );
        assert_eq!(raised.attempts[0]["status"], 200);
    }
    gateway.idle().await;
}

async fn ask(address: SocketAddr) -> (u16, String) {
    let key = format!("Bearer {KEY}");
    let headers = [("authorization", key.as_str())];
    let path = "/v1/chat/completions";
    let reply = send(address, "POST", path, &headers, asked(path).to_string().into()).await;
    (reply.status, reply.text())
}

/// A proxy in front of one gateway. Dropping it ends the process.
struct Nginx {
    address: SocketAddr,
    process: Child,
    folder: PathBuf,
}

impl Nginx {
    async fn start(program: &Path, gateway: SocketAddr) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("fairlane-nginx-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        let shown = folder.display();
        let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let folders = kinds.map(|kind| format!("{kind}_temp_path {shown}/{kind};")).join("\n");
        let text = format!(
            "daemon off;\nmaster_process off;\npid {shown}/pid;\nerror_log {shown}/error.log;\nevents {{}}\n\
             http {{\naccess_log off;\n{folders}\nserver {{\nlisten {address};\nlocation / {{\n\
             proxy_pass http://{gateway};\nproxy_read_timeout {READ_TIMEOUT_SECS}s;\n}}\n}}\n}}\n"
        );
        let file = folder.join("nginx.conf");
        std::fs::write(&file, text).unwrap();
        drop(free);
        let mut command = Command::new(program);
        command.arg("-p").arg(&folder).arg("-c").arg(&file).arg("-e").arg(folder.join("error.log"));
        let process =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let nginx = Self { address, process, folder };
        in_time("nginx listens", async {
            while tokio::net::TcpStream::connect(address).await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await;
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The program. If it is not there, the test fails where the tools are promised and is skipped aloud elsewhere.
fn program() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&paths).chain([PathBuf::from("/usr/sbin")]);
    let found = folders.map(|folder| folder.join("nginx")).find(|program| program.exists());
    if found.is_none() {
        let how =
            "nginx is not installed: run `cargo xtask test`, or `cargo xtask tools` to install it alone";
        assert!(std::env::var_os("FAIRLANE_TEST_TOOLS").is_none(), "{how}");
        // Not `eprintln!`, which the test runner keeps to itself when a test passes.
        writeln!(std::io::stderr(), "SKIPPED: {how}").unwrap();
    }
    found
}
