//! Whole configurations: what they mean, and every mistake with its line and column.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::*;
use fairlane_core::occupancy::Headroom;
use fairlane_core::policy::{
    Dimension, Limits, ModelId, OnExcess, Order, Policy, TeamId, TenantId, WithoutRunId,
};
use fairlane_core::units::{Amount, Micros, Tokens};

mod endings;
mod files;
mod hostile;
mod mistakes;

use mistakes::problems;

const NOW_UNIX_SECS: u64 = 1_800_000_000;

fn nothing_discovered() -> BTreeMap<String, Vec<String>> {
    BTreeMap::new()
}

fn env(name: &str) -> Option<String> {
    (!name.starts_with("UNSET")).then(|| format!("value-of-{name}-0123456789\n"))
}

fn resolve(text: &str) -> Result<Config, ConfigError> {
    let discovered = nothing_discovered();
    let around = Surroundings { env: &env, discovered: &discovered, unix_secs: NOW_UNIX_SECS };
    Source::from_text("gateway.yaml", text)?.resolve(&around)
}

fn warnings(text: &str) -> Vec<String> {
    resolve(text).unwrap().warnings.iter().map(ToString::to_string).collect()
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

fn shape(limits: &Limits, dimension: Dimension) -> Option<(u64, i64)> {
    let rate = limits.rates.iter().find(|rate| rate.dimension == dimension)?;
    Some((rate.shape.rate.units_per_minute(), rate.shape.capacity.floor_units()))
}

const POOL: &str = "pools: [{name: main, models: [m], backends: [\"http://127.0.0.1:1\"]}]\n";

#[test]
fn an_empty_file_is_valid_and_open() {
    for text in ["", "\n# nothing\n", "{}\n"] {
        let config = resolve(text).unwrap();
        assert_eq!(config.policy.tenants.len(), 1);
        assert_eq!(config.policy.classes.len(), 3);
        assert_eq!(config.edge.listen, "127.0.0.1:8080".parse().unwrap());
        assert_eq!(config.edge.admin, Some("127.0.0.1:9090".parse().unwrap()));
        assert_eq!(config.edge.keys.find(Some(b"anything"), 0), KeyLookup::Open(TenantId(0)));
    }
}

#[test]
fn a_model_that_no_pool_serves_is_an_error_unless_a_backend_may_list_it() {
    let tenant = "tenants: [{name: a, keys: [\"env:A\"], allowed_models: [mm], models: {mm: {limits: {requests: 1/min}}}}]\n";
    let found = problems(&format!("{POOL}{tenant}"));
    assert!(
        found[0].starts_with(
            "gateway.yaml:2:73: tenants[0].models.mm: there is no model \"mm\"; did you mean \"m\"?"
        ),
        "{found:?}"
    );
    assert!(
        found[1].starts_with("gateway.yaml:2:55: tenants[0].allowed_models[0]: there is no model"),
        "{found:?}"
    );

    let pool = "pools: [{name: main, models: \"*\", backends: [\"http://127.0.0.1:1\"]}]\n";
    let source = Source::from_text("gateway.yaml", &format!("{pool}{tenant}")).unwrap();
    let resolved = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let discovered = BTreeMap::from([("main".to_owned(), names)]);
        source.resolve(&Surroundings { env: &env, discovered: &discovered, unix_secs: 0 }).unwrap()
    };
    let before = resolved(&[]);
    assert_eq!(before.warnings.len(), 2);
    assert_eq!(
        before.policy.tenants[0].allowed_models,
        Some(Vec::new()),
        "nobody's model is not everybody's"
    );
    let after = resolved(&["other", "mm", "bad\u{1}name"]);
    assert_eq!(after.policy.tenants[0].allowed_models, Some(vec![ModelId(1)]));
    assert!(after.policy.tenants[0].limits.models.contains_key(&ModelId(1)));
    assert_eq!(after.policy.models.len(), 2);
}

#[test]
fn the_documented_file_means_what_it_says() {
    let discovered = nothing_discovered();
    let around = Surroundings { env: &env, discovered: &discovered, unix_secs: NOW_UNIX_SECS };
    let config = Source::read(&example("full.yaml")).unwrap().resolve(&around).unwrap();
    let policy = &config.policy;
    assert_eq!(shape(&policy.service, Dimension::Tokens), Some((4_000_000, 666_666)));
    assert_eq!(policy.pools[0].work.output_millis, 4_000);
    assert_eq!(
        policy.pools[0].backends.iter().map(|backend| backend.slots).collect::<Vec<_>>(),
        [64, 64, 64]
    );
    assert_eq!(shape(&policy.pools[0].backends[2].limits, Dimension::Tokens), Some((2_000_000, 333_333)));
    assert_eq!(policy.classes[0].wait_max, Micros::from_secs(10));
    assert_eq!(policy.classes[0].max_output, Some(Tokens(4_096)));

    let chat = &policy.tenants[0];
    assert_eq!((chat.name.as_str(), chat.team, chat.weight_millis), ("shop-chat", Some(TeamId(0)), 2_000));
    assert_eq!(shape(&chat.limits.all, Dimension::Tokens), Some((200_000, 66_666)));
    assert_eq!(shape(&chat.limits.all, Dimension::Requests), Some((400, 66)));
    assert_eq!(chat.limits.all.max_output, Some(Tokens(1_024)));
    assert_eq!(shape(&chat.limits.models[&ModelId(0)], Dimension::Tokens), Some((150_000, 25_000)));
    assert_eq!(shape(&chat.keys[1].limits.all, Dimension::Requests), Some((100, 16)));

    let agent = &policy.tenants[1];
    let runs = agent.runs.as_ref().unwrap();
    assert_eq!((runs.token_budget, runs.max_steps, runs.max_live), (Some(Tokens(500_000)), Some(40), 1_000));
    assert_eq!(
        runs.limits.all.concurrency.map(|concurrency| (concurrency.limit, concurrency.on_excess)),
        Some((2, OnExcess::Queue))
    );
    assert_eq!(
        runs.new_runs.map(|shape| (shape.rate.units_per_minute(), shape.capacity)),
        Some((60, Amount::whole(60)))
    );
    assert_eq!(runs.without_id, WithoutRunId::Shared);
    assert_eq!(shape(&agent.end_users.as_ref().unwrap().all, Dimension::Tokens), Some((20_000, 10_000)));

    let edge = &config.edge.pools[0];
    assert_eq!(edge.backends[1].target.lookup, Lookup::Repeated);
    assert_eq!(edge.backends[2].target.origin(), "https://api.example.com");
    assert_eq!(
        edge.backends[2].credential.as_ref().map(Secret::expose),
        Some("value-of-PROVIDER_KEY-0123456789")
    );
    let find = |key: &[u8]| config.edge.keys.find(Some(key), NOW_UNIX_SECS);
    assert!(matches!(
        find(b"value-of-SHOP_CHAT_KEY-0123456789"),
        KeyLookup::Known { tenant: TenantId(0), .. }
    ));
    assert!(matches!(find(b"example-key-of-the-web-shop"), KeyLookup::Known { tenant: TenantId(0), .. }));
    assert!(matches!(
        find(b"example-key-of-the-research-agent"),
        KeyLookup::Known { tenant: TenantId(1), .. }
    ));
    assert_eq!(
        config.edge.keys.find(Some(b"example-key-of-the-web-shop"), 1_814_313_600),
        KeyLookup::Expired
    );
    assert!(!format!("{config:?}").contains("value-of-"), "a secret is printed");
}

#[test]
fn options_that_nothing_acts_on_are_each_told_once() {
    let discovered = nothing_discovered();
    let around = Surroundings { env: &env, discovered: &discovered, unix_secs: NOW_UNIX_SECS };
    let config = Source::read(&example("full.yaml")).unwrap().resolve(&around).unwrap();
    let told: Vec<&str> = config.warnings.iter().map(|warning| warning.message.as_str()).collect();
    assert_eq!(told, Vec::<&str>::new());
    let found = warnings(&format!("{POOL}store: redis://h\n"));
    assert!(found.len() == 1 && found[0].contains("store is not applied by this version"), "{found:?}");
    let silent = format!(
        "{POOL}data: off\nstore: memory\norder: fifo\nqueue_heartbeat: 5s\nservice: {{hold: 0s}}\nteams: [{{name: a, weight: 1}}]\n"
    );
    assert_eq!(warnings(&silent), Vec::<String>::new());
}

#[test]
fn the_data_file_is_relative_to_the_configuration_and_its_log_is_bounded() {
    let discovered = nothing_discovered();
    let around = Surroundings { env: &env, discovered: &discovered, unix_secs: NOW_UNIX_SECS };
    let config = Source::read(&example("full.yaml")).unwrap().resolve(&around).unwrap();
    let data = config.edge.data.unwrap();
    assert_eq!(data.file, example("full.yaml").with_file_name("fairlane.redb"));
    assert_eq!((data.keep.as_secs(), data.records_max), (30 * 86_400, 1_000_000));
    let text = "data: kept/x.redb\nusage: {keep: 1h, records: 0}\n";
    let data = resolve(text).unwrap().edge.data.unwrap();
    assert_eq!((data.file.to_str(), data.keep.as_secs(), data.records_max), (Some("kept/x.redb"), 3_600, 0));
    assert!(resolve("data: off\n").unwrap().edge.data.is_none());
    for (wrong, place) in [
        ("data: \"\"\n", "1:7: data: name a file"),
        ("usage: {keep: 1s}\n", "1:15: usage.keep: the value is outside its bound, 1m to 366d"),
        ("usage: {records: 100000001}\n", "1:18: usage.records: the value is outside its bound"),
    ] {
        let told = resolve(wrong).unwrap_err().to_string();
        assert!(told.contains(place), "{told}");
    }
}

#[test]
fn the_order_and_what_classes_get_of_it_reach_the_policy() {
    let policy = resolve(POOL).unwrap().policy;
    let shares = |policy: &Policy| -> Vec<(u32, Headroom)> {
        policy.classes.iter().map(|class| (class.min_share_ppm, class.headroom)).collect()
    };
    let ppm = |share, headroom| (share, Headroom::ppm(headroom));
    assert_eq!(shares(&policy), [ppm(0, 0), ppm(50_000, 50_000), ppm(20_000, 100_000)]);
    assert_eq!((policy.order, policy.alpha_permille), (Order::LanesFair, 250));
    let text = "order: lanes\nservice: {tokens: 100/min, hold: 2s}\n\
                classes: [{name: a}, {name: b, min_share: 2.5%, headroom: 20%, ageing: 30s, evictable: true}]\n\
                pools: [{name: main, models: [m], backends: [\"http://127.0.0.1:1\"], stickiness: 1000}]\n";
    let policy = resolve(text).unwrap().policy;
    assert_eq!(shares(&policy), [ppm(0, 0), ppm(25_000, 200_000)]);
    assert_eq!(policy.order, Order::Lanes);
    assert_eq!((policy.classes[0].ageing, policy.classes[0].is_evictable), (None, false));
    assert_eq!(
        (policy.classes[1].ageing, policy.classes[1].is_evictable),
        (Some(Micros::from_secs(30)), true)
    );
    assert_eq!((policy.service.hold, policy.pools[0].stickiness), (Micros::from_secs(2), Tokens(1_000)));
}

#[test]
fn doubtful_things_are_warned_of() {
    let table = [
        (
            "pools: [{name: a, models: [m], backends: [{url: \"http://10.0.0.1:80\", api_key: \"env:A\"}]}]\n",
            "1:80: pools[0].backends[0].api_key: the credential goes over the network in the clear",
        ),
        (
            "tenants: [{name: a, keys: [{key: \"env:A\", expires: 2020-01-01}]}]\n",
            "1:52: tenants[0].keys[0].expires: the key has expired",
        ),
        ("tenants: [{name: a}]\n", "1:18: tenants[0].name: the tenant has no key"),
        (
            "tenants: [{name: a, keys: [short-key]}]\n",
            "1:28: tenants[0].keys[0]: the key has fewer than 16 characters",
        ),
        (
            "tenants: [{name: a, keys: [\"env:A\"], limits: {tokens: 1000000/day}}]\n",
            "1:55: tenants[0].limits.tokens: the bucket holds 115 tokens, less than the 1024",
        ),
        ("listen: 127.0.0.1:1\n", "1:1: pools: there is none"),
    ];
    for (text, expected) in table {
        let pool = if text.starts_with("pools") || text.starts_with("listen") { "" } else { POOL };
        let found = warnings(&format!("{text}{pool}"));
        let expected = format!("gateway.yaml:{expected}");
        assert!(
            found.len() == 1 && found[0].starts_with(&expected),
            "{text}\nfound    {found:?}\nexpected {expected}"
        );
    }
    let on_loopback =
        "pools: [{name: a, models: [m], backends: [{url: \"http://127.0.0.1:80\", api_key: \"env:A\"}]}]\n";
    assert_eq!(warnings(on_loopback), Vec::<String>::new());
}

#[test]
fn a_tenants_own_values_win_over_its_tier_field_by_field() {
    let config = resolve(&format!(
        "{POOL}tiers:\n  t:\n    class: batch\n    charging: postpay\n    limits: {{tokens: 600/min, requests: 60/min, concurrent_requests: 3, on_concurrency_excess: reject, shadow: true}}\n\
         \u{20}   runs: {{max_steps: 5, token_budget: 100}}\n    end_users: {{requests: 6/min}}\n\
         tenants:\n  - {{name: a, tier: t, keys: [\"env:A\"], limits: {{tokens: 1200/min, shadow: false}}, runs: {{max_steps: 7}}}}\n  - {{name: b, tier: t, class: interactive, charging: reserve, keys: [\"env:B\"]}}\n"
    ))
    .unwrap();
    let [a, b] = config.policy.tenants.as_slice() else { panic!("two tenants") };
    assert_eq!(shape(&a.limits.all, Dimension::Tokens), Some((1_200, 200)));
    assert_eq!(shape(&a.limits.all, Dimension::Requests), Some((60, 10)));
    assert_eq!(
        a.limits.all.concurrency.map(|c| (c.limit, c.on_excess, c.shadow)),
        Some((3, OnExcess::Reject, false))
    );
    assert!(
        a.limits.all.rates.iter().all(|rate| !rate.shadow)
            && b.limits.all.rates.iter().all(|rate| rate.shadow)
    );
    let runs = a.runs.as_ref().unwrap();
    assert_eq!((runs.max_steps, runs.token_budget), (Some(7), Some(Tokens(100))));
    assert_eq!(shape(&a.end_users.as_ref().unwrap().all, Dimension::Requests), Some((6, 1)));
    assert_eq!((a.class.0, b.class.0), (1, 0));
    assert_eq!(shape(&b.limits.all, Dimension::Tokens), Some((600, 100)));
}

#[test]
fn b12_zero_is_nobody_and_absent_is_no_limit() {
    let limits = |text: &str| {
        resolve(&format!("{POOL}tenants: [{{name: a, keys: [\"env:A\"], limits: {text}}}]\n"))
            .unwrap()
            .policy
            .tenants
            .remove(0)
            .limits
            .all
    };
    for zero in ["{requests: 0}", "{requests: 0/min}", "{requests: {rate: 0}}"] {
        assert_eq!(shape(&limits(zero), Dimension::Requests), Some((0, 0)), "{zero}");
    }
    assert_eq!(shape(&limits("{requests: 30/min}"), Dimension::Requests), Some((30, 5)));
    assert_eq!(limits("{}"), Limits::default());
    assert_eq!(limits("{concurrent_requests: 0}").concurrency.map(|concurrency| concurrency.limit), Some(0));
}

#[test]
fn b11_the_same_file_resolves_to_the_same_policy() {
    let text = std::fs::read_to_string(example("full.yaml")).unwrap();
    let (first, second) = (resolve(&text).unwrap(), resolve(&text).unwrap());
    assert_eq!(first.policy, second.policy);
    let other = resolve(&text.replace("150000/min", "150001/min")).unwrap();
    assert_ne!(first.policy, other.policy);
}

#[test]
fn shadow_of_a_block_holds_for_each_limit_unless_the_limit_says_otherwise() {
    let config = resolve(&format!("{POOL}service: {{shadow: true, requests: 1/min, tokens: {{rate: 9999/min, shadow: false}}, concurrent_requests: 5}}\n")).unwrap();
    let shadows: Vec<bool> = config.policy.service.rates.iter().map(|rate| rate.shadow).collect();
    assert_eq!(shadows, [true, false]);
    assert_eq!(config.policy.service.concurrency.map(|concurrency| concurrency.shadow), Some(true));
}

#[test]
fn ids_are_the_order_of_the_configuration_whatever_the_names() {
    let config = resolve(&format!("{POOL}tenants: [{{name: \"b:c\", keys: [\"env:A\"]}}, {{name: \"a:b\", keys: [\"env:B\"]}}, {{name: \"中\", keys: [\"env:C\"]}}]\n")).unwrap();
    let names: Vec<&str> = config.policy.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    assert_eq!(names, ["b:c", "a:b", "中"]);
}

#[test]
fn all_examples_can_be_used() {
    let mut count = 0;
    for entry in std::fs::read_dir(example("")).unwrap() {
        let path = entry.unwrap().path();
        // Scenarios of the lab are another kind of file.
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let discovered = nothing_discovered();
        let config = Source::read(&path).and_then(|source| {
            source.resolve(&Surroundings { env: &env, discovered: &discovered, unix_secs: NOW_UNIX_SECS })
        });
        let config = config.unwrap_or_else(|error| panic!("{error}"));
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(name == "full.yaml" || config.warnings.is_empty(), "{name}: {:?}", config.warnings);
        count += 1;
    }
    assert!(count >= 4);
}

#[test]
fn a_lone_backend_is_served_open() {
    let discovered = BTreeMap::from([("main".to_owned(), vec!["m".to_owned()])]);
    let around = Surroundings { env: &env, discovered: &discovered, unix_secs: 0 };
    let config = Config::open(&["http://127.0.0.1:8000".to_owned()], &around).unwrap();
    assert_eq!(config.policy.model("m"), Some(ModelId(0)));
    assert_eq!(config.edge.keys.find(None, 0), KeyLookup::Open(TenantId(0)));
    assert_eq!(config.policy.tenants[0].limits.all, Limits::default());
    assert_eq!(config.warnings, []);
    let error = Config::open(&["127.0.0.1:8000".to_owned()], &around).unwrap_err();
    assert!(error.to_string().contains("it begins with http:// or https://"), "{error}");
}
