//! The gateway's configuration in a run, and how each reload changes it.

#![cfg(test)]

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::dice::{Dice, SETTINGS};

/// A tenant of every run.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) name: &'static str,
    pub(super) keys: [&'static str; 2],
    pub(super) tag: Tag,
}

/// Which identity of a request is free to name it: one that no limit of its tenant counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    Run,
    User,
    Neither,
}

pub(super) const TENANTS: [Tenant; 7] = [
    tenant("plain", ["key-plain-1", "key-plain-2"], Tag::Run),
    tenant("runner", ["key-runner-1", "key-runner-2"], Tag::User),
    tenant("crowd", ["key-crowd-1", "key-crowd-2"], Tag::Run),
    tenant("strict", ["key-strict-1", "key-strict-2"], Tag::Run),
    tenant("agent", ["key-agent-1", "key-agent-2"], Tag::Neither),
    tenant("shade", ["key-shade-1", "key-shade-2"], Tag::Run),
    tenant("whale", ["key-whale-1", "key-whale-2"], Tag::Run),
];

const fn tenant(name: &'static str, keys: [&'static str; 2], tag: Tag) -> Tenant {
    Tenant { name, keys, tag }
}

/// The configuration after so many reloads. Limits, slots, backends, keys, charging and a whole tenant change; what the teams
/// count stays, to be compared with what the engines made.
pub(super) fn yaml(seed: u64, reloads: u64, engines: &[SocketAddr]) -> String {
    let mut dice = Dice::of(seed, SETTINGS, reloads);
    // The first one has everything.
    let is_first = reloads == 0;
    let mut text = String::from(EDGE);
    let order = if is_first { "lanes+fair" } else { dice.one(&["fifo", "lanes", "fair", "lanes+fair"]) };
    let _ = writeln!(
        text,
        "order: {order}\nqueue_heartbeat: {}",
        if seed.is_multiple_of(2) { "200ms" } else { "off" }
    );
    pools(&mut text, &mut dice, is_first, engines);
    teams(&mut text);
    tenants(&mut text, &mut dice, is_first);
    text
}

fn pools(text: &mut String, dice: &mut Dice, is_first: bool, engines: &[SocketAddr]) {
    let (quick, main) = engines.split_last().expect("there are engines");
    let shown = if is_first || dice.chance(75) { main.len() } else { main.len() - 1 };
    let slots = dice.one(&[3, 8, 24]);
    let kv = dice.one(&["", "    kv_tokens: 1500\n", "    kv_tokens: 20000\n"]);
    let limit =
        dice.one(&["", ", limits: {requests: 60/s burst 1s}", ", limits: {tokens: 20000/s burst 1s}"]);
    let backends: Vec<String> = (0..shown)
        .map(|place| {
            format!(
                "{{name: b{place}, url: \"http://{}\"{}}}",
                main[place],
                if place == 0 { limit } else { "" }
            )
        })
        .collect();
    let backends = backends.join(", ");
    let shared = dice.one(&[
        "{}",
        "{tokens: 60000/s burst 1s}",
        "{requests: 300/s burst 1s, concurrent_requests: 20}",
    ]);
    let _ = write!(
        text,
        "pools:
  - name: main
    models: [a, b]
    engine: vllm
    backends: [{backends}]
    slots: {slots}
{kv}    limits: {shared}
    work: {{input: 1, cached_input: 0.5, output: 4}}
    tokenizer: {{vocabulary: words, mode: exact}}
    health: {{interval: 100ms, timeout: 500ms, unhealthy_after: 2}}
  - name: quick
    models: [q]
    engine: openai
    backends: [{{name: b{last}, url: \"http://{quick}\"}}]
    slots: 12
    tokenizer: {{vocabulary: words, mode: auto}}
    passthrough: [{{path: /tokenize, cost: {PASSED_COST}}}]
    health: {{interval: 200ms, timeout: 500ms}}
",
        last = main.len(),
    );
}

fn teams(text: &mut String) {
    text.push_str("teams:\n");
    for team in ["left", "right"] {
        let limits =
            COUNTED.map(|dimension| format!("{dimension}: {{rate: {RATE_PER_DAY}/day, burst: 366d}}"));
        let _ = writeln!(text, "  - {{name: {team}, limits: {{{}}}}}", limits.join(", "));
    }
}

fn tenants(text: &mut String, dice: &mut Dice, is_first: bool) {
    let mut rate = |usual: u64| usual * dice.one(&[1, 3, 10]) / 3;
    let (plain, plain_requests) = (rate(12_000), rate(120));
    let (run, user, users_requests) = (rate(6_000), rate(6_000), rate(60));
    let (work, input, output) = (rate(40_000), rate(12_000), rate(12_000));
    let (budget, steps) = (rate(30_000), rate(120));
    let charging = |dice: &mut Dice, usual| {
        if is_first { usual } else { dice.one(&["reserve", "quantile", "postpay", usual]) }
    };
    let (first, second, third) =
        (charging(dice, "reserve"), charging(dice, "quantile"), charging(dice, "postpay"));
    let (concurrency, strictly) = (dice.within(1, 6), dice.within(4, 12));
    let gone = dice.one(&["cancel", "drain"]);
    let spent = dice.one(&["finish", "stop"]);
    let nobody = if !is_first && dice.chance(5) { ", tokens: 0" } else { "" };
    let excess = dice.one(&["queue", "reject"]);
    let _ = write!(
        text,
        "tenants:
  - name: plain
    team: left
    charging: {first}
    keys: [\"key-plain-1\", {{name: second, key: \"key-plain-2\", limits: {{tokens: {plain}/s burst 1s, requests: 40/s}}}}]
    limits: {{tokens: {plain}/s burst 2s, requests: {plain_requests}/s burst 2s, max_output_tokens: 128, default_max_output_tokens: 64}}
    models: {{b: {{limits: {{tokens: {plain}/s burst 1s, concurrent_requests: {concurrency}}}}}}}
  - name: runner
    team: left
    charging: {second}
    keys: [\"key-runner-1\", \"key-runner-2\"]
    limits: {{default_max_output_tokens: 100}}
    runs: {{token_budget: {budget}, max_steps: {steps}, concurrent_requests: {concurrency}, tokens: {run}/s burst 2s, idle_expiry: 1s, max_live: 8, new_per_minute: 100000, without_id: shared}}
  - name: crowd
    team: right
    charging: {third}
    on_client_gone: {gone}
    on_budget_end: {spent}
    keys: [\"key-crowd-1\", \"key-crowd-2\"]
    end_users: {{tokens: {user}/s burst 1s, requests: {users_requests}/s burst 1s, concurrent_requests: {concurrency}, on_concurrency_excess: {excess}}}
  - name: strict
    team: right
    class: batch
    keys: [\"key-strict-1\", \"key-strict-2\"]
    limits: {{work: {work}/s burst 1s, input_tokens: {input}/s burst 1s, output_tokens: {output}/s burst 1s{nobody}, concurrent_requests: {strictly}, on_concurrency_excess: reject, on_output_excess: reject, max_output_tokens: 110, max_input_tokens: 70}}
  - name: agent
    team: left
    charging: {third}
    keys: [\"key-agent-1\", \"key-agent-2\"]
    limits: {{concurrent_requests: 8}}
    runs: {{token_budget: {budget}, tokens: {run}/s burst 2s, idle_expiry: 2s, max_live: 8, new_per_minute: 100000, without_id: end_user}}
    end_users: {{output_tokens: {user}/s burst 1s, concurrent_requests: 3}}
  - name: whale
    team: left
    charging: {second}
    weight: 2
    on_client_gone: drain
    keys: [\"key-whale-1\", \"key-whale-2\"]
    limits: {{concurrent_requests: 16, cached_input_weight: 0.25, tokens: 200000/s burst 5s}}
"
    );
    // A tenant that goes and comes back.
    if is_first || dice.chance(80) {
        let _ = write!(
            text,
            "  - name: shade
    team: right
    charging: {first}
    keys: [\"key-shade-1\", \"key-shade-2\"]
    limits: {{tokens: {user}/s burst 1s, requests: {users_requests}/s burst 1s, shadow: true, concurrent_requests: 6}}
"
        );
    }
}

/// Requests of this path cost this many tokens, whatever becomes of them.
pub(super) const PASSED_COST: u64 = 7;
/// The dimensions that teams count: their buckets are so large that they never refuse.
pub(super) const COUNTED: [&str; 5] = ["tokens", "input_tokens", "output_tokens", "requests", "work"];
/// What comes back to a team's buckets in a day: next to nothing during a run.
pub(super) const RATE_PER_DAY: u64 = 36_000;

const EDGE: &str = "bounds: {max_recent_requests: 100000}
timeouts: {connect: 1s, first_byte: 900ms, stream_idle: 500ms, total: 4s, client_body: 500ms, client_write: 400ms, client_header: 5s, client_gone: 800ms, shutdown: 2s}
classes:
  - {name: interactive, max_wait: 1s, queue: {requests: 60, tokens: 40000}, max_output_tokens: 40000}
  - {name: batch, max_wait: 2s, queue: {requests: 40}, min_share: 5%, headroom: 10%}
";
