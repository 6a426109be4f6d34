//! What the demo shows: who is served, who waits, who is refused and why.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fairlane_core::units::Moment;
use fairlane_lab::reference;
use serde_json::json;

use super::load::{Score, Scores};
use super::terminal::Terminal;
use super::{DemoArgs, Limits};
use crate::gateway::Gateway;
use crate::serve::Running;

/// The picture.
pub(super) struct Board {
    gateway: Arc<Gateway>,
    address: SocketAddr,
    admin: Option<SocketAddr>,
    scores: Arc<Scores>,
    pub(super) agent: bool,
    pub(super) burst: bool,
    pub(super) heavy: bool,
    pub(super) limits: Limits,
}

impl Board {
    pub(super) fn new(args: &DemoArgs, running: &Running, scores: Arc<Scores>) -> Self {
        Self {
            gateway: Arc::clone(&running.gateway),
            address: running.address,
            admin: running.admin,
            scores,
            agent: args.agent,
            burst: args.burst,
            heavy: args.heavy,
            limits: args.limits,
        }
    }

    pub(super) fn period(&self, terminal: &Terminal) -> Duration {
        if terminal.is_screen { REDRAW } else { REDRAW_IN_PIPE }
    }

    pub(super) fn begin(&self, terminal: &Terminal) -> Result<(), String> {
        let mut text = format!("Fairlane demo: clients at http://{}\n", self.address);
        if let Some(admin) = self.admin {
            // Writing to a string cannot fail.
            let _ =
                writeln!(text, "admin API at http://{admin}/api/v1/state, metrics at http://{admin}/metrics");
        }
        text.push_str("Four chat apps, a batch tenant and an agent share four simulated replicas.\n");
        if terminal.is_screen {
            text.insert_str(0, CLEAR);
        }
        print(&text)
    }

    pub(super) fn draw(&self, terminal: &Terminal, now: Moment) -> Result<(), String> {
        let scores = self.scores.read();
        if !terminal.is_screen {
            return print(&self.line(&scores, now));
        }
        let mut text = String::from(BELOW_HEADER);
        let _ = writeln!(text, "{}\n", self.switches(now));
        let _ = write!(text, "{}", table(&scores, &self.gateway));
        let _ = writeln!(text, "\n{}", self.queues());
        if terminal.has_keys() {
            text.push_str("\nkeys: a agent   b burst   h heavy batch   limits: 0 none  r 400 requests/min  t 800,000 tokens/min   q quit\n");
        }
        text = text.replace('\n', "\x1b[K\n");
        text.push_str("\x1b[J");
        print(&text)
    }

    pub(super) fn finish(&self, terminal: &Terminal, args: &DemoArgs) -> Result<(), String> {
        let scores = self.scores.read();
        if args.json {
            return print(&format!("{}\n", result_json(&scores, &self.gateway)));
        }
        let mut text = String::new();
        if terminal.is_screen {
            text.push('\n');
        }
        let _ = write!(text, "{}", table(&scores, &self.gateway));
        let chat = interactive(&scores);
        let _ = writeln!(
            text,
            "interactive requests started within 2 s: {} of {}",
            percent(chat.started_2s, chat.offered),
            chat.offered
        );
        let totals = self.gateway.driver.totals();
        let _ = writeln!(
            text,
            "ledger: reserved {} = settled {} + refunded {} + expired {} + outstanding {} tokens",
            totals.reserved, totals.settled, totals.refunded, totals.expired, totals.outstanding
        );
        print(&text)
    }

    fn switches(&self, now: Moment) -> String {
        let on = |switch: bool| if switch { "ON" } else { "off" };
        let limits = match self.limits {
            Limits::None => "none",
            Limits::Requests => "400 requests/min per tenant",
            Limits::Tokens => "800,000 tokens/min per tenant",
        };
        format!(
            "{:>4} s   agent {}   burst {}   heavy batch {}   limits: {limits}",
            now.0 / 1_000_000,
            on(self.agent),
            on(self.burst),
            on(self.heavy)
        )
    }

    fn queues(&self) -> String {
        let mut text = String::from("waiting in the queue: ");
        let policy = self.gateway.live();
        for pool in self.gateway.driver.pools() {
            for (class, queued, running, _) in &pool.classes {
                let name = &policy.policy.classes[class.0 as usize].name;
                let _ = write!(text, "{name} {queued} (running {running})   ");
            }
        }
        text
    }

    fn line(&self, scores: &[Score], now: Moment) -> String {
        let chat = interactive(scores);
        let refused: u64 = scores.iter().flat_map(|score| score.refused.values()).sum();
        let queued: u32 = self
            .gateway
            .driver
            .pools()
            .iter()
            .flat_map(|pool| &pool.classes)
            .map(|(_, queued, ..)| queued)
            .sum();
        format!(
            "{:>4} s: interactive started within 2 s {}, waiting {queued}, refused {refused}\n",
            now.0 / 1_000_000,
            percent(chat.started_2s, chat.offered),
        )
    }
}

/// All chat tenants together.
fn interactive(scores: &[Score]) -> Score {
    let mut sum = Score::default();
    for score in scores.iter().take(reference::BATCH) {
        sum.offered += score.offered;
        sum.started += score.started;
        sum.started_2s += score.started_2s;
        sum.waits_ms.extend(&score.waits_ms);
        for (why, count) in &score.refused {
            *sum.refused.entry(why.clone()).or_default() += count;
        }
    }
    sum
}

fn table(scores: &[Score], gateway: &Gateway) -> String {
    let mut text = format!(
        "{:<8} {:>8} {:>12} {:>10} {:>9} {:>9}  {}\n",
        "tenant", "offered", "start <= 2 s", "wait p95", "open", "tokens", "refused, and by which limit"
    );
    for (score, tenant) in scores.iter().zip(everybody()) {
        let tally = gateway.tallies.of(&tenant);
        let refused: Vec<String> =
            score.refused.iter().map(|(why, count)| format!("{count} by {why}")).collect();
        let _ = writeln!(
            text,
            "{:<8} {:>8} {:>12} {:>8.1} s {:>9} {:>9}  {}",
            tenant,
            score.offered,
            percent(score.started_2s, score.offered),
            quantile_ms(&score.waits_ms, 95) as f64 / 1_000.0,
            score.open,
            thousands(tally.input + tally.output),
            if refused.is_empty() { "-".to_owned() } else { refused.join(", ") },
        );
    }
    text
}

fn result_json(scores: &[Score], gateway: &Gateway) -> serde_json::Value {
    let one = |score: &Score| {
        json!({
            "offered": score.offered,
            "started": score.started,
            "started_2s": score.started_2s as f64 / score.offered.max(1) as f64,
            "refused": score.refused,
            "failed": score.failed,
            "wait_ms": {
                "p50": quantile_ms(&score.waits_ms, 50),
                "p95": quantile_ms(&score.waits_ms, 95),
                "p99": quantile_ms(&score.waits_ms, 99),
            },
        })
    };
    let tenants: serde_json::Map<String, serde_json::Value> =
        scores.iter().zip(everybody()).map(|(score, tenant)| (tenant, one(score))).collect();
    let totals = gateway.driver.totals();
    json!({
        "interactive": one(&interactive(scores)),
        "tenants": tenants,
        "ledger": {
            "reserved": totals.reserved, "settled": totals.settled, "refunded": totals.refunded,
            "expired": totals.expired, "outstanding": totals.outstanding, "overrun": totals.overrun,
        },
    })
}

fn everybody() -> impl Iterator<Item = String> {
    let switches = reference::Switches { agent: true, ..reference::Switches::default() };
    reference::tenants(switches).into_iter().map(|tenant| tenant.name.into_owned())
}

/// The ceil(percent × n)-th smallest.
fn quantile_ms(waits_ms: &[u64], percent: usize) -> u64 {
    let mut sorted = waits_ms.to_vec();
    sorted.sort_unstable();
    let place = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(place).copied().unwrap_or(0)
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

fn thousands(tokens: u64) -> String {
    if tokens < 10_000 { tokens.to_string() } else { format!("{:.1} k", tokens as f64 / 1_000.0) }
}

fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| error.to_string())
}

const CLEAR: &str = "\x1b[2J\x1b[H";
const BELOW_HEADER: &str = "\x1b[5;1H";
const REDRAW: Duration = Duration::from_millis(500);
const REDRAW_IN_PIPE: Duration = Duration::from_secs(10);
