//! Headers as the gateway reads them: whose key it is, which class it may have, how long it waits.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use fairlane::config::{Source, Surroundings};
use fairlane::gateway::Gateway;
use fairlane::identify::identify;
use fairlane::intake::{Sender, take_in};
use fairlane_core::policy::{ClassId, TenantId};
use fairlane_wire::dialect::Endpoint;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Reads `input` as lines `name: value`.
pub fn check(input: &[u8]) {
    let headers = headers(input);
    let live = GATEWAY.live();
    if let Ok((tenant, key)) = identify(&live, &headers) {
        let presented = format!("{:?}", keys_in(&headers));
        assert!(
            key.is_some() && presented.contains(KEYS[tenant.0 as usize]),
            "{presented} is tenant {tenant:?}"
        );
    }
    for tenant in [TenantId(0), TenantId(1)] {
        let asked = headers.get("x-fairlane-class").and_then(|value| value.to_str().ok());
        let class = live.class(tenant, asked);
        let own = live.policy.tenants[tenant.0 as usize].class;
        assert!(class >= own && (class.0 as usize) < live.policy.classes.len(), "{class:?} above {own:?}");
        arrive(tenant, class, &headers);
    }
}

fn arrive(tenant: TenantId, class: ClassId, headers: &HeaderMap) {
    let live = GATEWAY.live();
    let sender = Sender { tenant, key: None, class };
    let reading =
        take_in(&GATEWAY, &live, Endpoint::ChatCompletions, (sender, headers), Bytes::from_static(BODY));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime without drivers");
    if let Ok(intake) = runtime.block_on(reading) {
        let arrival = &intake.arrival;
        assert_eq!((arrival.tenant, arrival.class), (tenant, class));
        // The highest bit tells an id from a number of the gateway's own.
        assert!([arrival.run, arrival.end_user].into_iter().flatten().all(|id| id >> 127 == 1));
    }
}

fn headers(input: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n').take(HEADERS_MAX) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers
}

fn keys_in(headers: &HeaderMap) -> Vec<&HeaderValue> {
    headers.get_all("authorization").iter().chain(headers.get_all("x-api-key")).collect()
}

static GATEWAY: LazyLock<Arc<Gateway>> = LazyLock::new(|| {
    let discovered = BTreeMap::new();
    let around = Surroundings { env: &|_| None, discovered: &discovered, unix_secs: 1_800_000_000 };
    let source = Source::from_text("fuzzed.yaml", CONFIGURATION).expect("it is a configuration");
    Gateway::new(source.resolve(&around).expect("it can be resolved")).expect("it can be used")
});

const KEYS: [&str; 2] = ["sk-of-the-first-tenant", "sk-of-the-second-tenant"];
const CONFIGURATION: &str = r#"
pools: [{name: main, models: [m], backends: ["http://127.0.0.1:1"], tokenizer: {vocabulary: words, mode: exact}}]
tenants:
  - {name: first, class: interactive, keys: ["sk-of-the-first-tenant"]}
  - {name: second, class: batch, keys: ["sk-of-the-second-tenant", {key: "sk-that-has-expired", expires: 2020-01-01}]}
"#;
const BODY: &[u8] = br#"{"model":"m","messages":[{"role":"user","content":"one two"}],"max_tokens":5}"#;
const HEADERS_MAX: usize = 100;
