//! The reference traffic in real time, sent as its clients would: over HTTP, each with its own key.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fairlane_core::units::Moment;
use fairlane_lab::reference::{self, Batch, Switches};
use fairlane_lab::{Arrival, Source};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::DemoArgs;
use crate::clock::Clock;

/// How one tenant fares.
#[derive(Clone, Debug, Default)]
pub(super) struct Score {
    /// Requests sent.
    pub(super) offered: u64,
    /// Answers under way.
    pub(super) open: u64,
    /// Started within two seconds.
    pub(super) started_2s: u64,
    /// Started at all.
    pub(super) started: u64,
    /// Refused, by the limit or the reason named.
    pub(super) refused: BTreeMap<String, u64>,
    /// Failed in any other way.
    pub(super) failed: u64,
    /// Waits in the queue in milliseconds, of those that started.
    pub(super) waits_ms: Vec<u64>,
}

/// How every tenant fares, by its place.
#[derive(Debug, Default)]
pub(super) struct Scores {
    tenants: Mutex<Vec<Score>>,
}

/// Sends the traffic.
pub(super) struct Load {
    sources: Vec<Source>,
    client: Client<HttpConnector, Full<Bytes>>,
    address: SocketAddr,
    scores: Arc<Scores>,
    agent: bool,
    burst: bool,
    heavy: bool,
    seed: u64,
}

impl Scores {
    pub(super) fn read(&self) -> Vec<Score> {
        self.lock().clone()
    }

    /// Nothing is under way.
    pub(super) fn is_quiet(&self) -> bool {
        self.lock().iter().all(|score| score.open == 0)
    }

    fn change(&self, tenant: usize, change: impl FnOnce(&mut Score)) {
        let mut tenants = self.lock();
        if tenants.len() <= tenant {
            tenants.resize(tenant + 1, Score::default());
        }
        change(&mut tenants[tenant]);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Score>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    pub(super) fn new(args: &DemoArgs, address: SocketAddr, scores: Arc<Scores>) -> Self {
        let batch = if args.heavy { Batch::Heavy } else { Batch::Normal };
        let tenants = reference::tenants(Switches { batch, agent: true, burst: args.burst });
        scores.change(tenants.len() - 1, |_| {});
        let mut sources: Vec<Source> = tenants
            .into_iter()
            .enumerate()
            .map(|(index, tenant)| Source::seeded(tenant, index, args.seed))
            .collect();
        if !args.agent {
            sources[reference::AGENT].change_rate(Moment(0), 0.0);
        }
        Self {
            sources,
            client: Client::builder(TokioExecutor::new()).build_http(),
            address,
            scores,
            agent: args.agent,
            burst: false,
            heavy: args.heavy,
            seed: args.seed,
        }
    }

    /// Sends everything that is due.
    pub(super) fn send_due(&mut self, now: Moment, until: Option<Moment>) {
        let due = until.map_or(now, |until| now.min(Moment(until.0.saturating_sub(1))));
        for source in &mut self.sources {
            while source.next_at().is_some_and(|at| at <= due) {
                let Some(arrival) = source.take() else { break };
                let name = source.tenant().name.clone();
                self.scores.change(arrival.tenant, |score| {
                    score.offered += 1;
                    score.open += 1;
                });
                tokio::spawn(ask(self.client.clone(), self.address, name, arrival, Arc::clone(&self.scores)));
            }
        }
    }

    /// Waits until the next request is due, at most a quarter of a second.
    pub(super) async fn wait(&self, clock: &Clock, until: Option<Moment>) {
        let next = self.sources.iter().filter_map(Source::next_at).min();
        let next = next.filter(|at| until.is_none_or(|until| *at < until));
        let longest = tokio::time::Instant::from_std(crate::clock::monotonic()) + LONGEST_NAP;
        let at = next.map_or(longest, |at| tokio::time::Instant::from_std(clock.instant(at)).min(longest));
        tokio::time::sleep_until(at).await;
    }

    pub(super) fn toggle_agent(&mut self, now: Moment) -> bool {
        self.agent = !self.agent;
        self.sources[reference::AGENT].change_rate(now, if self.agent { reference::AGENT_RATE } else { 0.0 });
        self.agent
    }

    pub(super) fn toggle_burst(&mut self, now: Moment) -> bool {
        self.burst = !self.burst;
        let factor = if self.burst { reference::BURST_FACTOR } else { 1.0 };
        for source in &mut self.sources[..reference::BATCH] {
            source.change_rate(now, reference::CHAT_RATE * factor);
        }
        self.burst
    }

    /// The other amount of batch work; its blocks have another size, so its arrivals begin anew.
    pub(super) fn toggle_heavy(&mut self, now: Moment) -> bool {
        self.heavy = !self.heavy;
        let batch = if self.heavy { Batch::Heavy } else { Batch::Normal };
        let tenant =
            reference::tenants(Switches { batch, ..Switches::default() }).swap_remove(reference::BATCH);
        let rate = tenant.rate;
        let mut source = Source::seeded(tenant, reference::BATCH, self.seed);
        source.change_rate(Moment(0), 0.0);
        source.change_rate(now, rate);
        self.sources[reference::BATCH] = source;
        self.heavy
    }
}

/// One request, from its sending to the end of its answer.
async fn ask(
    client: Client<HttpConnector, Full<Bytes>>,
    address: SocketAddr,
    name: Cow<'static, str>,
    arrival: Arrival,
    scores: Arc<Scores>,
) {
    let tenant = arrival.tenant;
    let answer = client.request(request(address, &name, &arrival)).await;
    match answer {
        Ok(response) if response.status().is_success() => {
            let wait_ms = header(&response, "x-fairlane-queue-ms").parse().unwrap_or(0);
            scores.change(tenant, |score| {
                score.started += 1;
                score.started_2s += u64::from(wait_ms <= STARTED_WITHIN_MS);
                score.waits_ms.push(wait_ms);
            });
            let whole = drain(response).await;
            scores.change(tenant, |score| score.failed += u64::from(!whole));
        }
        Ok(response) => {
            let limit = header(&response, "x-fairlane-limit");
            let reason = if limit.is_empty() { header(&response, "x-fairlane-reason") } else { limit };
            scores.change(tenant, |score| *score.refused.entry(reason).or_default() += 1);
        }
        Err(_) => scores.change(tenant, |score| score.failed += 1),
    }
    scores.change(tenant, |score| score.open -= 1);
}

fn request(address: SocketAddr, name: &str, arrival: &Arrival) -> Request<Full<Bytes>> {
    let words = "w ".repeat(usize::try_from(arrival.prompt.0).unwrap_or(0));
    let body = serde_json::json!({
        "model": "sim",
        "stream": true,
        "max_tokens": arrival.max_tokens.0,
        "messages": [{"role": "user", "content": words.trim_end()}],
    });
    let mut request = Request::new(Full::new(Bytes::from(body.to_string())));
    *request.method_mut() = Method::POST;
    let uri = format!("http://{address}/v1/chat/completions");
    *request.uri_mut() = uri.parse().unwrap_or_default();
    let headers = request.headers_mut();
    for (name, value) in [
        ("authorization", format!("Bearer {}", key_of(name))),
        ("content-type", "application/json".to_owned()),
        ("x-sim-output-tokens", arrival.output.to_string()),
    ] {
        if let Ok(value) = value.parse() {
            headers.insert(name, value);
        }
    }
    request
}

fn header(response: &Response<Incoming>, name: &str) -> String {
    response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// Reads an answer to its end; whether it came whole.
async fn drain(response: Response<Incoming>) -> bool {
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        if frame.is_err() {
            return false;
        }
    }
    true
}

/// The key of a tenant of the demo.
pub(super) fn key_of(name: &str) -> String {
    format!("demo-key-of-{name}")
}

const STARTED_WITHIN_MS: u64 = 2_000;
const LONGEST_NAP: Duration = Duration::from_millis(250);
