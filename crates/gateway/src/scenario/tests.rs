//! Scenario files: what is read, and what is said of mistakes.

use std::path::PathBuf;

use fairlane_core::policy::{Fit, Order, Placement};
use fairlane_core::units::{Micros, Moment, Tokens};
use fairlane_lab::world::{Comeback, Fault};
use fairlane_lab::{Pattern, Scenario, Size};

use super::read;

fn parse(name: &str, text: &str) -> Result<Scenario, String> {
    let path = std::env::temp_dir().join(format!("fairlane-scenario-{}-{name}.yaml", std::process::id()));
    std::fs::write(&path, text).unwrap();
    let result = read(&path).map_err(|error| error.to_string());
    std::fs::remove_file(&path).unwrap();
    result
}

#[test]
fn a_scenario_says_who_sends_what_to_which_replicas_under_which_policies() {
    let scenario = parse("whole", WHOLE).unwrap();
    assert_eq!((scenario.name.as_str(), scenario.length, scenario.drain), ("Whole", LENGTH, Micros(0)));
    assert_eq!((scenario.replicas.len(), scenario.replicas[0].kv), (2, Tokens(10_000)));
    let names: Vec<&str> = scenario.clients.iter().map(|clients| clients.traffic.name.as_ref()).collect();
    assert_eq!(names, ["chat-a", "chat-b", "batch", "bursty"]);
    assert_eq!(scenario.clients[0].traffic.rate_changes, [(Moment(30_000_000), 3.75)]);
    assert_eq!(scenario.clients[0].comeback, Comeback::AsTold { jitter_percent: 30, tries_max: 5 });
    assert_eq!(scenario.clients[2].traffic.pattern, Pattern::Even { block: 15 });
    assert_eq!(scenario.clients[2].traffic.prompt, Size::Growing { from: 1_000.0, by: 500.0, over: LENGTH });
    assert_eq!(scenario.clients[3].traffic.pattern, Pattern::Gamma { variation: 2.5 });
    assert!(matches!(scenario.faults[..], [(Moment(5_000_000), Fault::Dies(_)), (_, Fault::Returns(_))]));
    let (name, reference) = &scenario.policies[1];
    assert_eq!((name.as_str(), reference.order), ("reference", Order::Lanes));
    let placing = reference.pools[0].placing;
    assert_eq!((placing.fit, placing.placement), (Fit::Reserved, Placement::FewestRunning));
    assert_eq!(reference.tenants[0].name, "batch", "what is written comes first");
    assert_eq!(reference.tenants.len(), 4, "and whoever is not written has no limit");
    assert_eq!(scenario.policies[0].1.pools[0].placing.fit, Fit::Predicted);
}

#[test]
fn mistakes_are_told_with_their_places() {
    let mistakes = [
        ("lenght: 10s\n", "unknown key \"lenght\"; did you mean \"length\"?"),
        ("traffic:\n  - {name: a, rate: 1, prompt: {mean: 1}, output: {}}\npolicies: {p: {}}\n", ":2:"),
        ("traffic:\n  - {name: a, rate: 1, prompt: {mean: 1}, output: {}}\n", "traffic[0].output: a size is"),
        (
            "backends: {replicas: 0}\npolicies: {p: {}}\n",
            "backends.replicas: the value is outside its bound, 1 to 256",
        ),
        ("length: 25h\n", "length: the value is outside its bound"),
        ("traffic: []\n", "traffic: nobody sends anything"),
        (NO_TIER, "policies.p.tenants[0].tier: there is no tier \"app\""),
        (TOO_MANY, "at most 2000000"),
    ];
    for (index, (text, expected)) in mistakes.iter().enumerate() {
        let error = parse(&format!("mistake-{index}"), text).unwrap_err();
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn every_example_is_right() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios");
    let mut read_files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let scenario = read(&path).unwrap_or_else(|error| panic!("{error}"));
        assert!(scenario.policies.iter().any(|(name, _)| name == "default"), "{}", path.display());
        read_files += 1;
    }
    assert!(read_files >= 12, "{read_files}");
}

const LENGTH: Micros = Micros::from_secs(60);

const WHOLE: &str = "
name: Whole
length: 60s
drain: 0
backends: {replicas: 2, kv_tokens: 10_000}
traffic:
  - name: chat
    copies: 2
    rate: 1.5
    changes: [{at: 30s, rate: 3.75}]
    prompt: {mean: 900, spread: 20%}
    output: {mean: 250, spread: 40%}
    refused: {as_told: {jitter: 30%, tries: 5}}
  - name: batch
    class: batch
    rate: 3.75
    arrivals: {blocks: 15}
    prompt: {from: 1000, by: 500, over: 60s}
    output: {mean: 100}
  - {name: bursty, rate: 1, arrivals: {gamma: 2.5}, prompt: {mean: 10}, output: {mean: 10}}
faults:
  - {at: 9s, replica: 2, does: returns}
  - {at: 5s, replica: 2, does: dies}
policies:
  default: {}
  reference:
    rules: reference
    order: lanes
    tenants: [{name: batch, limits: {tokens: 1000/min}}]
";

const NO_TIER: &str = "
traffic: [{name: a, rate: 1, prompt: {mean: 1}, output: {mean: 1}}]
policies:
  p:
    tenants: [{name: a, tier: app}]
";

const TOO_MANY: &str = "
length: 24h
traffic: [{name: a, rate: 1000, prompt: {mean: 1}, output: {mean: 1}}]
policies: {p: {}}
";
