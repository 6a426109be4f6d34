//! What every attack is made against: a gateway, its backend, and what they are like before.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use super::engine::{Engine, Script};
use super::neighbour::{self, Neighbour, median};
use super::process::Process;
use super::{GROWTH_KIB_MAX, Scale};
use crate::support::{KEY, chat_body, send, until};

/// A gateway with two tenants: `t`, whose clients attack, and its neighbour.
pub(super) struct Scene {
    pub(super) scale: Scale,
    pub(super) process: Process,
    pub(super) engine: Engine,
    name: &'static str,
    before_kib: u64,
}

impl Scene {
    /// Opens one, serves some requests, and remembers what it holds then. `tenant` goes under the attacker, `more` beside the rest.
    pub(super) async fn open(name: &'static str, tenant: &str, more: &str) -> Self {
        let engine = Engine::start().await;
        let yaml = format!(
            "pools:
  - name: main
    models: [m]
    engine: vllm
    backends: [{{url: \"http://{}\"}}]
    tokenizer: {{vocabulary: words, mode: exact}}
    health: off
tenants:
  - name: t
    keys: [\"{KEY}\"]
{tenant}
  - name: n
    keys: [\"{}\"]
{more}
",
            engine.address,
            neighbour::KEY
        );
        let process = Process::begin(name, &yaml).await;
        let mut scene = Self { scale: Scale::asked(), process, engine, name, before_kib: 0 };
        // Every worker has served before.
        for _ in 0..WARM_CONNECTIONS {
            Neighbour::connect(scene.process.address).await.median(WARM_UP).await;
        }
        scene.post(None, chat_body(3, 5).to_string().into()).await;
        scene.before_kib = scene.process.resident_kib();
        scene.process.forget_peak();
        scene
    }

    /// A request of the attacker; the status and the body of its answer, as far as it came.
    pub(super) async fn post(&self, encoding: Option<&str>, body: Bytes) -> (u16, Bytes) {
        let bearer = format!("Bearer {KEY}");
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend(encoding.map(|encoding| ("content-encoding", encoding)));
        let reply = send(self.process.address, "POST", "/v1/chat/completions", &headers, body).await;
        (reply.status, reply.body)
    }

    /// The bytes of a request of the attacker for a scripted answer.
    pub(super) fn scripted(script: Script) -> String {
        let mut body = chat_body(5, 50);
        body["stream"] = Value::Bool(!matches!(script, Script::Reply(_)));
        let body = body.to_string();
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\nx-script: {}\r\ncontent-length: {}\r\n\r\n{body}",
            script.header(),
            body.len()
        )
    }

    /// Waits until so many of the attacker's requests have ended so; the last of them.
    pub(super) async fn ended(&self, outcome: &str, count: usize) -> Value {
        let label = format!("outcome=\"{outcome}\"");
        let is_counted = |line: &&str| {
            line.starts_with("fairlane_requests_total{")
                && line.contains("tenant=\"t\"")
                && line.contains(&label)
        };
        loop {
            let metrics = send(self.process.admin, "GET", "/metrics", &[], "".into()).await.text();
            let counts = metrics.lines().filter(is_counted).filter_map(|line| line.rsplit(' ').next());
            if counts.filter_map(|number| number.parse::<usize>().ok()).sum::<usize>() >= count {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let shown =
            send(self.process.admin, "GET", "/api/v1/requests?limit=100", &[], "".into()).await.json();
        let mut records = shown["requests"].as_array().unwrap().iter();
        records.find(|record| record["tenant"] == "t" && record["outcome"] == outcome).unwrap().clone()
    }

    /// What the attack has added at its worst, in KiB.
    pub(super) fn grown_kib(&self) -> u64 {
        self.process.peak_kib().saturating_sub(self.before_kib)
    }

    /// The attack has added no more than the cases allow; says how much.
    pub(super) fn assert_bounded(&self, what: &str) {
        self.assert_below(what, GROWTH_KIB_MAX);
    }

    /// The attack has added no more than this; says how much.
    pub(super) fn assert_below(&self, what: &str, bound_kib: u64) {
        let grown = self.grown_kib();
        println!(
            "hostile: {}: {what}: {} KiB resident before, at most {grown} KiB more",
            self.name, self.before_kib
        );
        assert!(grown <= bound_kib, "{what}: {grown} KiB more, {bound_kib} are allowed");
    }

    /// The neighbour is served while `attack` goes on, which ends by itself. At full size it says what the neighbour notices.
    pub(super) async fn beside<T>(&self, what: &str, attack: impl Future<Output = T>) -> T {
        let mut neighbour = Neighbour::connect(self.process.address).await;
        let mut direct = Neighbour::connect(self.engine.address).await;
        let count = self.scale.pick(1, 500);
        let backend = direct.median(count).await;
        let idle = neighbour.median(count).await;
        let mut took = Vec::new();
        tokio::pin!(attack);
        let done = loop {
            tokio::select! {
                biased;
                done = &mut attack => break done,
                asked = neighbour.ask_after(PACE) => took.push(asked),
            }
        };
        if self.scale == Scale::Full {
            let served = took.len();
            let added = |whole: Duration| whole.saturating_sub(backend).as_secs_f64() * 1e6;
            let (idle, attacked) = (added(idle), added(median(took)));
            println!(
                "hostile: {}: {what}: the gateway adds {idle:.0} µs at the median when idle, {attacked:.0} µs under attack: {:.2} times ({served} requests)",
                self.name,
                attacked / idle
            );
        }
        done
    }

    /// Everything that was opened is closed again.
    pub(super) async fn assert_closed(&self, before: usize) {
        until("everything is closed", || self.process.descriptors() <= before + KEPT_MAX).await;
    }
}

const WARM_UP: usize = 50;
const WARM_CONNECTIONS: usize = 8;
/// The neighbour's pause between two requests.
const PACE: Duration = Duration::from_millis(5);
/// Connections to the backend that the gateway may have kept meanwhile.
const KEPT_MAX: usize = 10;
