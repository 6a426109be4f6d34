//! kill -9 under load and start again: no budget grows, no settled record is lost.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fairlane::clock::monotonic;
use fairlane::engine::{self, EngineOptions, Pace};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use super::Folder;
use crate::support::{DEADLINE, KEY, Reply, chat_body, in_time, pool, read, send, until};

/// The gateway as a process of its own.
struct Process {
    child: Child,
    address: SocketAddr,
    admin: SocketAddr,
}

/// A finished answer as its client saw it.
#[derive(Clone, Debug)]
struct Seen {
    id: String,
    run: usize,
    tokens: i64,
    at: Instant,
    /// The process that served it.
    life: usize,
}

/// What a process began with.
#[derive(Clone, Debug)]
struct Begun {
    at: Instant,
    /// Per run, what its budget held.
    budgets: Vec<i64>,
    /// What the tenant's bucket held.
    level: i64,
    /// When it was killed.
    killed: Option<Instant>,
}

impl Process {
    async fn begin(folder: &Folder) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fairlane"))
            .args(["serve", "--config"])
            .arg(folder.file("gateway.yaml"))
            .env("NO_COLOR", "1")
            .env("FAIRLANE_LOG", "info")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (told, serving) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let mut before = String::new();
            let mut told = Some(told);
            // Read to the end, so that the pipe never fills.
            for line in lines.by_ref().map_while(Result::ok) {
                if line.contains(" serving ") {
                    told.take().map(|told| told.send(Ok(line)));
                } else {
                    before.push_str(&line);
                }
            }
            told.take().map(|told| told.send(Err(before)));
        });
        let serving = in_time("the gateway serves", serving).await.unwrap().unwrap();
        let after = |name: &str| {
            let (_, rest) = serving.split_once(name).unwrap();
            rest.split([' ', ')']).next().unwrap().parse().unwrap()
        };
        Self { child, address: after("listen="), admin: after("admin=Some(") }
    }

    async fn admin(&self, path: &str) -> Value {
        send(self.admin, "GET", path, &[], "".into()).await.json()
    }

    /// What the runs' budgets hold, by their hash.
    async fn budgets(&self) -> BTreeMap<String, i64> {
        let shown = self.admin("/api/v1/tenants/t").await;
        let runs = shown["runs"].as_array().unwrap().iter();
        runs.map(|run| (text(&run["run"]), level(&run["limits"], "run/t/token_budget"))).collect()
    }

    /// The run of every stored record, by the record's id.
    async fn stored(&self) -> BTreeMap<String, String> {
        let shown = self.admin("/api/v1/requests?limit=10000").await;
        let records = shown["requests"].as_array().unwrap().iter();
        records.map(|record| (text(&record["id"]), text(&record["run"]))).collect()
    }

    async fn kill(mut self) {
        self.child.kill().unwrap();
        self.ended().await;
    }

    /// Asks it to end, and waits for that.
    async fn terminate(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert_eq!(self.ended().await, Some(0));
    }

    async fn ended(&mut self) -> Option<i32> {
        let mut code = None;
        until("the gateway has ended", || {
            let status = self.child.try_wait().unwrap();
            code = status.and_then(|status| status.code());
            status.is_some()
        })
        .await;
        code
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A test that failed leaves no gateway behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_twenty_times_under_load_no_budget_grows_and_no_record_is_lost() {
    let series = (0..SERIES).map(|number| tokio::spawn(killed_again_and_again(number)));
    let mut kills = 0;
    for done in series.collect::<Vec<_>>() {
        kills += done.await.unwrap();
    }
    assert_eq!(kills, 20);
}

async fn killed_again_and_again(number: u64) -> usize {
    let folder = Folder::new(&format!("kills-{number}"));
    let options = EngineOptions { pace: Pace::Instant, models: vec!["m".into()], ..EngineOptions::default() };
    let engine = engine::spawn(options).await.unwrap();
    let yaml = format!(
        "listen: 127.0.0.1:0
admin: 127.0.0.1:0
data: fairlane.redb
bounds: {{max_recent_requests: 10000}}
{}tenants:
  - name: t
    keys: [\"{KEY}\"]
    limits: {{tokens: {BUCKET}/day burst 1d}}
    runs: {{token_budget: {BUDGET}}}
",
        pool(&[engine.addresses()[0]], "")
    );
    std::fs::write(folder.file("gateway.yaml"), yaml).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut lives = Vec::new();
    for life in 0..KILLS {
        let process = Process::begin(&folder).await;
        lives.push(check(&process, &seen, &lives).await);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                tokio::spawn(keep_asking(process.address, (client % RUNS, life), Arc::clone(&seen)))
            })
            .collect();
        let age = Duration::from_millis(1_100 + 70 * number);
        until("a record is older than a second, while more come", || {
            let seen = seen.lock().unwrap();
            seen.iter().any(|seen: &Seen| seen.life == life && seen.at.elapsed() > age)
        })
        .await;
        lives[life].killed = Some(monotonic());
        process.kill().await;
        for client in clients {
            in_time("a client notices", client).await.unwrap();
        }
    }
    let process = Process::begin(&folder).await;
    check(&process, &seen, &lives).await;
    let from_gateway = process.admin("/api/v1/usage?by=tenant").await;
    process.terminate().await;
    let printed = Command::new(env!("CARGO_BIN_EXE_fairlane"))
        .args(["usage", "--json", "--config"])
        .arg(folder.file("gateway.yaml"))
        .output()
        .unwrap();
    let from_file: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(from_file, from_gateway);
    KILLS
}

/// The laws after a start: every budget is at most what the process before began with, less what it served; what was claimed and
/// in flight at the kill is all that is lost; and every record older than a second at its process's kill is there.
async fn check(process: &Process, seen: &Mutex<Vec<Seen>>, lives: &[Begun]) -> Begun {
    let at = monotonic();
    let limits = process.admin("/api/v1/tenants/t").await["limits"].clone();
    let level = level(&limits, "tenant/t/tokens");
    let Some(before) = lives.last() else {
        return Begun { at, budgets: vec![BUDGET; RUNS], level, killed: None };
    };
    let seen = seen.lock().unwrap().clone();
    let stored = process.stored().await;
    let held = process.budgets().await;
    assert_eq!(held.len(), RUNS);
    let mut budgets = Vec::new();
    let mut served_in_all = 0;
    for (run, began_with) in before.budgets.iter().enumerate() {
        let mine = || seen.iter().filter(move |seen| seen.run == run);
        let hash = mine().find_map(|seen| stored.get(&seen.id)).unwrap();
        let served: i64 = mine().filter(|seen| seen.life + 1 == lives.len()).map(|seen| seen.tokens).sum();
        let (left, most) = (held[hash], began_with - served);
        assert!(left <= most, "after {} kills {left} are left, of at most {most}", lives.len());
        let lost_most = 2 * BUDGET / 32 + CLIENTS as i64 * (WORDS as i64 + BOUND as i64) + 1;
        assert!(left >= most - lost_most, "after {} kills {left} are left of {most}", lives.len());
        budgets.push(left);
        served_in_all += served;
    }
    let refilled = before.at.elapsed().as_secs() as i64 * BUCKET / 86_400 + BUCKET / 86_400 + 1;
    let most = (before.level - served_in_all + refilled).min(BUCKET);
    assert!(level <= most, "after {} kills the bucket holds {level}, of at most {most}", lives.len());
    for seen in &seen {
        let killed = lives[seen.life].killed.unwrap();
        if killed.saturating_duration_since(seen.at) > Duration::from_secs(1) {
            assert!(stored.contains_key(&seen.id), "{seen:?} is not among {} records", stored.len());
        }
    }
    Begun { at, budgets, level, killed: None }
}

/// Asks one after the other until the gateway is gone.
async fn keep_asking(address: SocketAddr, (run, life): (usize, usize), seen: Arc<Mutex<Vec<Seen>>>) {
    while let Some(reply) = try_once(address, &format!("run-{run}")).await {
        assert_eq!(reply.status, 200, "{}", reply.text());
        let tokens = reply.json()["usage"]["total_tokens"].as_i64().unwrap();
        let id = reply.header("x-fairlane-request-id").to_owned();
        seen.lock().unwrap().push(Seen { id, run, tokens, at: monotonic(), life });
        // A pace that leaves the budgets enough for all lives.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// One request; none if the gateway goes away before its answer is whole.
async fn try_once(address: SocketAddr, run: &str) -> Option<Reply> {
    let stream = TcpStream::connect(address).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    tokio::spawn(connection);
    let request = http::Request::post("/v1/chat/completions")
        .header("host", "gateway")
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {KEY}"))
        .header("x-fairlane-run", run);
    let body = Full::new(Bytes::from(chat_body(WORDS, BOUND).to_string()));
    let response = tokio::time::timeout(DEADLINE, sender.send_request(request.body(body).unwrap())).await;
    let reply = read(response.unwrap().ok()?).await;
    (!reply.broken).then_some(reply)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn level(limits: &Value, name: &str) -> i64 {
    let mut limits = limits.as_array().unwrap().iter();
    limits.find(|limit| limit["name"] == name).unwrap()["level"].as_i64().unwrap()
}

const SERIES: u64 = 4;
const KILLS: usize = 5;
const CLIENTS: usize = 4;
const RUNS: usize = 2;
const WORDS: usize = 20;
const BOUND: u64 = 30;
/// Five lives serve each run at most 140,000 tokens, and each kill may cost 25,000.
const BUDGET: i64 = 400_000;
const BUCKET: i64 = 2_000_000;
