//! The admin API and the metrics: every route, its shape, its token, and the bounds of its labels.

#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::cases_a::metrics;
use crate::support::{
    Backend, KEY, Reply, Step, TestGateway, chat_answer, chat_body, chat_stream, fixture, gateway, in_time,
    limited, open, pool, send, streaming,
};

const TOKEN: &str = "admin_token: token-of-the-operator\n";

async fn ask(gateway: &TestGateway, method: &str, path: &str, body: &str) -> Reply {
    let headers = [("authorization", "Bearer token-of-the-operator")];
    let body = Bytes::copy_from_slice(body.as_bytes());
    send(gateway.running.admin.unwrap(), method, path, &headers, body).await
}

#[tokio::test]
async fn everything_but_the_health_checks_asks_for_the_token() {
    let backend = Backend::always(chat_answer(10, 10)).await;
    let gateway = gateway(&format!("{TOKEN}{}", fixture(backend.address, ""))).await;
    let admin = gateway.running.admin.unwrap();
    let routes = [
        ("GET", "/metrics"),
        ("GET", "/api/v1/state"),
        ("GET", "/api/v1/tenants/t"),
        ("GET", "/api/v1/requests"),
        ("GET", "/api/v1/events"),
        ("GET", "/api/v1/openapi.json"),
        ("POST", "/api/v1/explain"),
        ("POST", "/api/v1/tenants/t/runs/00/raise"),
    ];
    for (method, path) in routes {
        for headers in
            [&[][..], &[("authorization", "Bearer wrong")], &[("authorization", "token-of-the-operator")]]
        {
            let reply = send(admin, method, path, headers, Bytes::new()).await;
            assert_eq!(reply.status, 401, "{method} {path}");
            assert!(reply.json()["error"].as_str().unwrap().contains("Bearer"));
        }
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(send(admin, "GET", path, &[], Bytes::new()).await.status, 200);
        assert_eq!(send(gateway.address(), "GET", path, &[], Bytes::new()).await.status, 200);
    }
    assert_eq!(ask(&gateway, "GET", "/api/v1/state", "").await.status, 200);
    assert_eq!(ask(&gateway, "GET", "/nothing", "").await.status, 404);
}

#[tokio::test]
async fn the_description_lists_every_route_and_every_route_it_lists_answers() {
    let backend = Backend::always(chat_answer(10, 10)).await;
    let gateway = gateway(&fixture(backend.address, "")).await;
    let described = gateway.admin("/api/v1/openapi.json").await;
    assert!(described["openapi"].as_str().unwrap().starts_with("3."));
    let mut listed = BTreeSet::new();
    for (path, operations) in described["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            listed.insert(format!("{} {path}", method.to_uppercase()));
            if path.ends_with("/events") {
                continue;
            }
            let path = path.replace("{tenant}", "t").replace("{run}", "00");
            let admin = gateway.running.admin.unwrap();
            let reply = send(admin, &method.to_uppercase(), &path, &[], Bytes::new()).await;
            // A route that is there answers in its own words.
            assert_ne!(reply.status, 405, "{path}");
            assert!(!reply.text().contains("nothing is here"), "{path}");
        }
    }
    let routes = [
        "GET /healthz",
        "GET /readyz",
        "GET /metrics",
        "GET /api/v1/state",
        "GET /api/v1/tenants/{tenant}",
        "POST /api/v1/tenants/{tenant}/runs/{run}/raise",
        "GET /api/v1/requests",
        "POST /api/v1/explain",
        "GET /api/v1/events",
        "GET /api/v1/openapi.json",
    ];
    for route in routes {
        assert!(listed.contains(route), "{route} is not described");
    }
}

#[tokio::test]
async fn the_state_shows_queues_backends_and_the_ledger() {
    let backend = Backend::start(|_| vec![Step::Wait, Step::Write(chat_answer(10, 10))]).await;
    let tenants =
        format!("tenants: [{{name: t, keys: [\"{KEY}\"], limits: {{tokens: 2000/day burst 1d}}}}]\n");
    let gateway = gateway(&format!("{}{tenants}", pool(&[backend.address], "    slots: 1\n"))).await;
    let body = chat_body(10, 90);
    let look = async {
        backend.has_got(1).await;
        crate::support::until("one waits", || gateway.running.gateway.driver.pools()[0].classes[0].1 == 1)
            .await;
        let state = gateway.admin("/api/v1/state").await;
        let tenant = gateway.admin("/api/v1/tenants/t").await;
        (0..2).for_each(|_| backend.go_on());
        (state, tenant)
    };
    let (first, second, (state, tenant)) = tokio::join!(gateway.chat(&body), gateway.chat(&body), look);
    assert_eq!((first.status, second.status), (200, 200));
    assert_eq!(state["store"], json!({"kind": "memory", "up": true}));
    assert_eq!(state["pools"][0], json!({"name": "main", "queued": 1, "running": 1}));
    let class = &state["classes"][0];
    assert_eq!(
        (&class["queued"], &class["running"], &class["queued_tokens"]),
        (&json!(1), &json!(1), &json!(100))
    );
    let shown = &state["backends"][0];
    assert_eq!((&shown["in_flight"], &shown["slots"], &shown["alive"]), (&json!(1), &json!(1), &json!(true)));
    assert_eq!(state["ledger"]["reserved"], 200);
    assert_eq!(state["ledger"]["outstanding"], 200);
    assert_eq!(tenant["reserved"], 200);
    assert_eq!(
        tenant["limits"][0],
        json!({
            "scope": "tenant", "name": "tenant/t/tokens", "dimension": "tokens", "capacity": 2_000, "level": 1_800,
            "refill_per_minute": 1,
        })
    );
    gateway.idle().await;
    let state = gateway.admin("/api/v1/state").await;
    let ledger: BTreeMap<String, u64> = serde_json::from_value(state["ledger"].clone()).unwrap();
    let names = ["expired", "forgiven", "outstanding", "overrun", "refunded", "reserved", "settled"];
    assert_eq!(ledger.keys().map(String::as_str).collect::<Vec<_>>(), names);
    assert_eq!(ledger["reserved"], ledger["settled"] + ledger["refunded"] + ledger["expired"]);
    assert_eq!((ledger["settled"], ledger["refunded"]), (40, 160));
    let tenant = gateway.admin("/api/v1/tenants/t").await;
    let totals = &tenant["totals"];
    assert_eq!(
        *totals,
        json!({
            "requests": 2, "refused": 0, "input_tokens": 20, "cached_tokens": 0, "output_tokens": 20, "work": 40,
        })
    );
}

#[tokio::test]
async fn finished_requests_are_listed_newest_first_with_everything_that_is_known() {
    let backend = Backend::always(chat_stream(3, Some((10, 3)))).await;
    let yaml = limited(backend.address, "tokens: 2000/day burst 1d", "    runs: {token_budget: 3000}\n");
    let gateway = gateway(&yaml).await;
    let headers = [("x-fairlane-run", "secret-run"), ("x-fairlane-user", "secret-user")];
    let body = streaming(&chat_body(10, 100));
    let reply = gateway.post_with("/v1/chat/completions", &headers, &body).await;
    gateway.idle().await;
    assert_eq!(gateway.chat(&chat_body(1_000, 991)).await.status, 429);
    let listed = gateway.admin("/api/v1/requests?limit=2").await;
    let records = listed["requests"].as_array().unwrap();
    assert_eq!((&records[0]["outcome"], &records[1]["outcome"]), (&json!("refused"), &json!("completed")));
    assert!(records[0]["refusal"].as_str().unwrap().contains("tenant/t/tokens"), "{}", records[0]);
    let record = &records[1];
    let expected = [
        ("id", json!(reply.header("x-fairlane-request-id"))),
        ("tenant", json!("t")),
        ("team", Value::Null),
        ("key", json!("key-1")),
        ("class", json!("interactive")),
        ("pool", json!("main")),
        ("backend", json!(backend.address.to_string())),
        ("model", json!("m")),
        ("input", json!(10)),
        ("cached", json!(0)),
        ("cache_write", json!(0)),
        ("output", json!(3)),
        ("usage_source", json!("reported")),
        ("reserved", json!(110)),
        ("charged", json!(13)),
        ("status", json!(200)),
        ("refusal", Value::Null),
    ];
    for (name, value) in expected {
        assert_eq!(record[name], value, "{name}");
    }
    for name in ["queue_ms", "ttft_ms"] {
        assert!(record[name].is_u64(), "{name}");
    }
    for name in ["run", "end_user"] {
        assert_eq!(record[name].as_str().unwrap().len(), 32, "hashed");
    }
    assert!(!listed.to_string().contains("secret"));
    assert_eq!(gateway.admin("/api/v1/requests?limit=1").await["requests"].as_array().unwrap().len(), 1);
    let odd =
        send(gateway.running.admin.unwrap(), "GET", "/api/v1/requests?limit=x", &[], Bytes::new()).await;
    assert_eq!(odd.status, 400);
    assert!(odd.json()["error"].is_string());
}

#[tokio::test]
async fn a_spent_run_goes_on_once_its_budget_is_raised() {
    let backend = Backend::always(chat_answer(10, 10)).await;
    let gateway =
        gateway(&limited(backend.address, "concurrent_requests: 4", "    runs: {token_budget: 30}\n")).await;
    let step = async || {
        let headers = [("x-fairlane-run", "r")];
        let reply = gateway.post_with("/v1/chat/completions", &headers, &chat_body(10, 10)).await;
        gateway.idle().await;
        reply.status
    };
    assert_eq!((step().await, step().await), (200, 429));
    let shown = gateway.admin("/api/v1/tenants/t").await;
    let run = &shown["runs"][0];
    assert_eq!(
        (&run["limits"][0]["dimension"], &run["limits"][0]["level"]),
        (&json!("token_budget"), &json!(10))
    );
    let path = format!("/api/v1/tenants/t/runs/{}/raise", run["run"].as_str().unwrap());
    let admin = gateway.running.admin.unwrap();
    let raise = async |path: &str, body: &str| {
        send(admin, "POST", path, &[], Bytes::copy_from_slice(body.as_bytes())).await
    };
    assert_eq!(raise(&path, "{\"tokens\": 10}").await.json(), json!({"raised_by": 10}));
    assert_eq!((step().await, step().await), (200, 429));
    for (path, body, status) in [
        (path.as_str(), "{\"tokens\": -1}", 400),
        (path.as_str(), "{\"tokens\": 1, \"x\": 2}", 400),
        (path.as_str(), "", 400),
        ("/api/v1/tenants/t/runs/zz/raise", "{\"tokens\": 1}", 400),
        ("/api/v1/tenants/t/runs/1/raise", "{\"tokens\": 1}", 404),
        ("/api/v1/tenants/nobody/runs/1/raise", "{\"tokens\": 1}", 404),
    ] {
        let reply = raise(path, body).await;
        assert_eq!(reply.status, status, "{path} {body}");
        assert!(reply.json()["error"].is_string());
    }
}

#[tokio::test]
async fn an_explanation_tells_the_decision_and_its_steps_and_charges_nothing() {
    let backend = Backend::always(chat_answer(10, 10)).await;
    let gateway = gateway(&limited(backend.address, "tokens: 2000/day burst 1d", "")).await;
    let admin = gateway.running.admin.unwrap();
    let explain = async |question: Value| {
        send(admin, "POST", "/api/v1/explain", &[], Bytes::from(question.to_string())).await
    };
    let admitted = explain(json!({"tenant": "t", "body": chat_body(10, 100)})).await;
    assert_eq!(admitted.status, 200);
    let admitted = admitted.json();
    assert_eq!(admitted["decision"]["admitted"], true);
    let steps: Vec<&str> =
        admitted["steps"].as_array().unwrap().iter().filter_map(|step| step["step"].as_str()).collect();
    assert_eq!(steps, ["identify", "read", "bound the output", "reserve"]);
    assert_eq!(admitted["steps"][3]["limits"][0]["cost"], 110);
    let never = explain(json!({"tenant": "t", "body": chat_body(1_500, 501)})).await.json();
    assert_eq!(never["decision"]["admitted"], false);
    assert_eq!(never["decision"]["limit"], "tenant/t/tokens");
    let by_key = json!({
        "headers": {"authorization": format!("Bearer {KEY}")}, "path": "/v1/messages", "body": chat_body(10, 100),
    });
    assert_eq!(explain(by_key).await.json()["decision"]["admitted"], true);
    for question in [json!({"tenant": "nobody", "body": {}}), json!({"body": {}}), json!(3)] {
        assert_eq!(explain(question).await.status, 400);
    }
    assert_eq!(gateway.level("t", "tenant/t/tokens").await, 2_000);
    assert_eq!((gateway.records().len(), gateway.running.gateway.driver.totals().reserved), (0, 0));
    assert_eq!(backend.got().len(), 0);
}

#[tokio::test]
async fn the_state_comes_as_events_a_second_apart() {
    let backend = Backend::always(chat_answer(10, 10)).await;
    let gateway = gateway(&fixture(backend.address, "")).await;
    let admin = gateway.running.admin.unwrap();
    let mut response = open(admin, "GET", "/api/v1/events", &[], Bytes::new()).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut text = String::new();
    while text.matches("\n\n").count() < 2 {
        let frame = in_time("an event", response.body_mut().frame()).await.unwrap().unwrap();
        text.push_str(&String::from_utf8_lossy(frame.data_ref().unwrap()));
    }
    for event in text.split("\n\n").take(2) {
        let state: Value = serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
        assert!(state["ledger"].is_object());
    }
}

#[tokio::test]
async fn the_metrics_have_their_names_and_are_openmetrics() {
    let backend = Backend::always(chat_stream(3, Some((10, 3)))).await;
    let gateway =
        gateway(&limited(backend.address, "tokens: 2000/day burst 1d, max_output_tokens: 50", "")).await;
    assert_eq!(gateway.chat(&streaming(&chat_body(10, 100))).await.status, 200);
    gateway.idle().await;
    assert_eq!(gateway.chat(&chat_body(1_970, 20)).await.status, 429);
    let text = metrics(&gateway).await;
    let families = families(&text);
    let expected = [
        ("fairlane_requests", "counter"),
        ("fairlane_refusals", "counter"),
        ("fairlane_tokens", "counter"),
        ("fairlane_work", "counter"),
        ("fairlane_limit_tokens", "gauge"),
        ("fairlane_level_tokens", "gauge"),
        ("fairlane_queue_wait_seconds", "histogram"),
        ("fairlane_queue_requests", "gauge"),
        ("fairlane_time_to_first_token_seconds", "histogram"),
        ("fairlane_time_per_output_token_seconds", "histogram"),
        ("fairlane_attempts", "counter"),
        ("fairlane_backend_inflight", "gauge"),
        ("fairlane_ledger_tokens", "counter"),
        ("fairlane_ledger_outstanding_tokens", "gauge"),
        ("fairlane_estimate_ratio", "gauge"),
        ("fairlane_clamped", "counter"),
        ("fairlane_store_up", "gauge"),
        ("fairlane_config_reloads", "counter"),
    ];
    for (name, kind) in expected {
        assert_eq!(families.get(name).map(String::as_str), Some(kind), "{name}");
    }
    for line in [
        "fairlane_requests_total{tenant=\"t\",class=\"interactive\",outcome=\"completed\"} 1",
        "fairlane_requests_total{tenant=\"t\",class=\"interactive\",outcome=\"refused\"} 1",
        "fairlane_refusals_total{tenant=\"t\",class=\"interactive\",limit=\"tenant/t/tokens\",reason=\"limit_exhausted\"} 1",
        "fairlane_tokens_total{tenant=\"t\",model=\"m\",kind=\"uncached\"} 10",
        "fairlane_tokens_total{tenant=\"t\",model=\"m\",kind=\"output\"} 3",
        "fairlane_work_total{tenant=\"t\",pool=\"main\"} 13.0",
        "fairlane_limit_tokens{tenant=\"t\",limit=\"tenant/t/tokens\"} 2000",
        "fairlane_level_tokens{tenant=\"t\",limit=\"tenant/t/tokens\"} 1987",
        "fairlane_attempts_total{tenant=\"t\",kind=\"first\"} 2",
        "fairlane_ledger_tokens_total{state=\"reserved\"} 60",
        "fairlane_ledger_tokens_total{state=\"settled\"} 13",
        "fairlane_ledger_tokens_total{state=\"refunded\"} 47",
        "fairlane_ledger_outstanding_tokens 0",
        "fairlane_clamped_total{tenant=\"t\"} 1",
        "fairlane_store_up 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}

#[tokio::test]
async fn retries_that_clients_announce_are_counted_apart() {
    let backend = Backend::always(chat_answer(10, 10)).await;
    let gateway = gateway(&fixture(backend.address, "")).await;
    for count in ["0", "1", "2"] {
        let headers = [("x-stainless-retry-count", count)];
        gateway.post_with("/v1/chat/completions", &headers, &chat_body(10, 10)).await;
    }
    let text = metrics(&gateway).await;
    assert!(text.contains("fairlane_attempts_total{tenant=\"t\",kind=\"first\"} 1"), "{text}");
    assert!(text.contains("fairlane_attempts_total{tenant=\"t\",kind=\"retry\"} 2"), "{text}");
}

#[tokio::test]
async fn of_three_hundred_tenants_two_hundred_have_labels_and_the_rest_share_one() {
    let backend = Backend::always(chat_answer(10, 10)).await;
    let tenants: String = (0..300)
        .map(|number| {
            format!(
                "  - {{name: tenant-{number}, keys: [\"key-of-tenant-{number:04}\"], limits: {{tokens: 2000/day burst 1d}}}}\n"
            )
        })
        .collect();
    let gateway = gateway(&format!("{}tenants:\n{tenants}", pool(&[backend.address], ""))).await;
    for number in 0..300 {
        let key = format!("Bearer key-of-tenant-{number:04}");
        let headers = [("authorization", key.as_str())];
        for body in [chat_body(10, 10), chat_body(1_990, 5)] {
            let path = "/v1/chat/completions";
            send(gateway.address(), "POST", path, &headers, body.to_string().into()).await;
        }
    }
    gateway.idle().await;
    let text = metrics(&gateway).await;
    let mut names = BTreeSet::new();
    for line in text.lines() {
        if let Some((_, rest)) = line.split_once("tenant=\"") {
            names.insert(rest.split('"').next().unwrap().to_owned());
        }
    }
    names.remove("");
    assert_eq!(names.len(), 201);
    assert!(names.contains("other") && names.contains("tenant-199") && !names.contains("tenant-200"));
    assert!(!text.contains("tenant-200"), "not in the name of a limit either");
    let other = "fairlane_requests_total{tenant=\"other\",class=\"interactive\",outcome=\"completed\"} 100";
    assert!(text.contains(other));
}

/// The families of an OpenMetrics text with their types; panics where it is none. The rules are those of the OpenMetrics
/// specification, version 1.0: one TYPE per family before its samples, families not interleaved, suffixes by type, quoted labels,
/// `# EOF` at the end.
fn families(text: &str) -> BTreeMap<String, String> {
    assert!(text.ends_with("# EOF\n"));
    let mut families: BTreeMap<String, String> = BTreeMap::new();
    let mut current = String::new();
    let mut series = BTreeSet::new();
    for line in text.lines().take_while(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(families.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} twice");
            current = name.to_owned();
            continue;
        }
        if line.starts_with("# HELP ") || line.starts_with("# UNIT ") {
            continue;
        }
        assert!(!line.starts_with('#') && !line.is_empty(), "{line}");
        let (sample, value) = line.rsplit_once(' ').unwrap();
        value.parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
        assert!(series.insert(sample.to_owned()), "{sample} twice");
        let name = sample.split('{').next().unwrap();
        let suffix = name.strip_prefix(current.as_str()).unwrap_or_else(|| panic!("{line} under {current}"));
        let allowed: &[&str] = match families[&current].as_str() {
            "counter" => &["_total", "_created"],
            "histogram" => &["_bucket", "_sum", "_count", "_created"],
            "gauge" => &[""],
            other => panic!("type {other}"),
        };
        assert!(allowed.contains(&suffix), "{line} in a {}", families[&current]);
        if let Some(labels) = sample.strip_prefix(name).filter(|labels| !labels.is_empty()) {
            assert!(labels.starts_with('{') && labels.ends_with("\"}") && labels.contains("=\""), "{line}");
        }
    }
    families
}
