//! What engines say of themselves: their metrics, read again and again, so that the gate can correct what it predicts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairlane_core::gate::Event;
use fairlane_core::occupancy::Reading;
use fairlane_core::policy::BackendId;
use fairlane_wire::engine_metrics;

use crate::clock;
use crate::config::{EdgeBackend, Engine};
use crate::gateway::Gateway;

/// Reads the metrics of every backend whose engine has some, for ever. One that gives none is asked less and less often.
pub async fn watch(gateway: Arc<Gateway>) {
    let mut silent: BTreeMap<BackendId, Silent> = BTreeMap::new();
    loop {
        let live = gateway.live();
        let now = clock::monotonic();
        let mut reads = Vec::new();
        for (id, pool, backend) in live.backends() {
            if has_metrics(pool.engine) && silent.get(&id).is_none_or(|silent| silent.until <= now) {
                reads.push(read(&gateway, id, backend));
            }
        }
        for (id, reading) in futures_util::future::join_all(reads).await {
            let Some(reading) = reading else {
                silent.entry(id).or_insert_with(|| Silent::new(now)).again(now);
                continue;
            };
            silent.remove(&id);
            gateway.driver.tell(Event::Scraped { backend: id, reading });
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// A backend that gave no metrics.
#[derive(Debug)]
struct Silent {
    pause: Duration,
    until: Instant,
}

impl Silent {
    const fn new(now: Instant) -> Self {
        Self { pause: INTERVAL, until: now }
    }

    fn again(&mut self, now: Instant) {
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.until = now + self.pause;
    }
}

/// Hosted APIs have none; they are paced by their time to first token.
const fn has_metrics(engine: Engine) -> bool {
    match engine {
        Engine::Vllm | Engine::Sglang | Engine::Llamacpp => true,
        Engine::Openai | Engine::Anthropic => false,
    }
}

async fn read(gateway: &Gateway, id: BackendId, backend: &EdgeBackend) -> (BackendId, Option<Reading>) {
    let answer = gateway.upstream.fetch(backend, "/metrics", TIMEOUT).await;
    let page = answer.ok().filter(|(status, _)| status.is_success()).map(|(_, page)| page);
    let reading = page.map(|page| engine_metrics::read(&page));
    (id, reading.filter(|reading| *reading != Reading::default()))
}

const INTERVAL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
