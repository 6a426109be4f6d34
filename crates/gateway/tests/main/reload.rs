//! The configuration read again: by change on disk, by wish, by what backends list; what is in flight stays.

#![cfg(test)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fairlane::serve::{Origin, Overrides, start};
use serde_json::json;

use crate::cases_a::metrics;
use crate::cases_b::reload;
use crate::support::{
    Backend, KEY, STREAM_HEAD, Step, TestGateway, chat_answer, chat_body, chat_stream_end, delta, gateway,
    json_answer, limited, pool, send, until,
};

/// A folder with a configuration in it, gone with the test.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fairlane-test-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    fn file(&self) -> PathBuf {
        self.path.join("gateway.yaml")
    }

    /// Puts a file in the place of the old one at once, as editors and ConfigMaps do.
    fn replace(&self, yaml: &str) {
        let fresh = self.path.join("gateway.yaml.next");
        std::fs::write(&fresh, format!("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n{yaml}")).unwrap();
        std::fs::rename(fresh, self.file()).unwrap();
    }

    async fn gateway(&self) -> TestGateway {
        let running = start(Origin::File(self.file()), Overrides::default()).await;
        TestGateway { running: running.unwrap_or_else(|error| panic!("{error}")) }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn with_bucket(address: SocketAddr, tokens: u32) -> String {
    limited(address, &format!("tokens: {tokens}/day burst 1d"), "")
}

fn capacity(gateway: &TestGateway) -> i64 {
    let limits = gateway.running.gateway.driver.limits(fairlane_core::policy::TenantId(0));
    limits[0].view.shape.capacity.floor_units()
}

#[tokio::test]
async fn a_changed_file_is_picked_up_and_keeps_what_was_used() {
    let backend = Backend::always(chat_answer(10, 10)).await;
    let folder = Folder::new("changed");
    folder.replace(&with_bucket(backend.address, 2_000));
    let gateway = folder.gateway().await;
    assert_eq!(gateway.chat(&chat_body(10, 10)).await.status, 200);
    gateway.idle().await;
    folder.replace(&with_bucket(backend.address, 3_000));
    until("the file is read again", || capacity(&gateway) == 3_000).await;
    assert_eq!(gateway.level("t", "tenant/t/tokens").await, 1_980);
    // Written over in place, too.
    let yaml = format!("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n{}", with_bucket(backend.address, 4_000));
    std::fs::write(folder.file(), yaml).unwrap();
    until("the file is read again", || capacity(&gateway) == 4_000).await;
    assert!(!metrics(&gateway).await.contains("fairlane_config_reloads_total{result=\"ok\"} 0"));
}

#[tokio::test]
async fn a_broken_file_changes_nothing_and_is_counted() {
    let backend = Backend::always(chat_answer(10, 10)).await;
    let folder = Folder::new("broken");
    folder.replace(&with_bucket(backend.address, 2_000));
    let gateway = folder.gateway().await;
    folder.replace("tenants: [{nam: t}]\n");
    let unseen = "fairlane_config_reloads_total{result=\"error\"} 0";
    crate::support::in_time("the mistake is seen", async {
        while metrics(&gateway).await.contains(unseen) {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(gateway.chat(&chat_body(10, 10)).await.status, 200);
    assert_eq!(capacity(&gateway), 2_000);
    folder.replace(&with_bucket(backend.address, 2_500));
    until("the mended file is read", || capacity(&gateway) == 2_500).await;
}

#[tokio::test]
async fn a_file_that_another_one_includes_is_watched_where_it_lies() {
    let backend = Backend::always(chat_answer(10, 10)).await;
    let folder = Folder::new("wish");
    let parts = Folder::new("wish-parts");
    let main = format!("include: [\"{}\"]\n{}", parts.file().display(), pool(&[backend.address], ""));
    let part = |tokens: u32| {
        format!("tenants: [{{name: t, keys: [\"{KEY}\"], limits: {{tokens: {tokens}/day burst 1d}}}}]\n")
    };
    std::fs::write(parts.file(), part(2_000)).unwrap();
    folder.replace(&main);
    let gateway = folder.gateway().await;
    std::fs::write(parts.file(), part(5_000)).unwrap();
    until("it is read again", || capacity(&gateway) == 5_000).await;
}

#[tokio::test]
async fn a_wish_to_read_again_is_enough_where_changes_are_not_seen() {
    let backend = Backend::always(chat_answer(10, 10)).await;
    let gateway = gateway(&with_bucket(backend.address, 2_000)).await;
    let before = metrics(&gateway).await;
    gateway.running.reread();
    crate::support::in_time("it is read again", async {
        while !metrics(&gateway).await.contains("fairlane_config_reloads_total{result=\"ok\"} 1") {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(before.contains("fairlane_config_reloads_total{result=\"ok\"} 0"));
}

#[tokio::test]
async fn requests_in_flight_survive_and_removed_keys_stop_working() {
    let backend = Backend::start(|_| {
        vec![
            Step::Write(STREAM_HEAD.to_vec()),
            Step::Write(delta("w")),
            Step::Wait,
            Step::Write(chat_stream_end(Some((10, 1)))),
        ]
    })
    .await;
    let with = |tenants: &str| format!("{}tenants:\n{tenants}", pool(&[backend.address], ""));
    let t = format!("  - {{name: t, keys: [\"{KEY}\"], limits: {{tokens: 2000/day burst 1d}}}}\n");
    let u = "  - {name: u, keys: [\"key-of-tenant-u-0001\"]}\n";
    let gateway = gateway(&with(&format!("{t}{u}"))).await;
    let mut stream = gateway.stream(&chat_body(10, 10), 1).await;
    // Its tenant goes, another one comes in its place.
    reload(&gateway, &with(u));
    assert_eq!(gateway.chat(&chat_body(10, 10)).await.status, 401);
    backend.go_on();
    while stream.more().await {}
    assert!(String::from_utf8_lossy(&stream.body).ends_with("data: [DONE]\n\n"));
    gateway.idle().await;
    let record = gateway.records().into_iter().find(|record| record.outcome == "completed").unwrap();
    assert_eq!((&*record.tenant, record.charged), ("t", 11));
    let headers = [("authorization", "Bearer key-of-tenant-u-0001")];
    let body = chat_body(10, 10).to_string();
    backend.go_on();
    let reply = send(gateway.address(), "POST", "/v1/chat/completions", &headers, body.into()).await;
    assert_eq!(reply.status, 200);
    gateway.idle().await;
    assert_eq!(&*gateway.records()[0].tenant, "u");
    // The tenant that comes back has what it left.
    reload(&gateway, &with(&format!("{u}{t}")));
    assert_eq!(gateway.level("t", "tenant/t/tokens").await, 1_989);
}

#[tokio::test]
async fn a_backend_that_is_taken_out_finishes_what_it_runs_and_gets_nothing_more() {
    let old = Backend::start(|_| vec![Step::Wait, Step::Write(chat_answer(10, 1))]).await;
    let fresh = Backend::always(chat_answer(10, 2)).await;
    let gateway = gateway(&with_bucket(old.address, 2_000)).await;
    let body = chat_body(10, 10);
    let change = async {
        old.has_got(1).await;
        reload(&gateway, &with_bucket(fresh.address, 2_000));
        assert_eq!(gateway.chat(&body).await.status, 200);
        old.go_on();
    };
    let (reply, ()) = tokio::join!(gateway.chat(&body), change);
    assert_eq!((reply.status, reply.json()["usage"]["completion_tokens"].as_u64()), (200, Some(1)));
    assert_eq!((old.got().len(), fresh.got().len()), (1, 1));
    gateway.idle().await;
    let shown = gateway.admin("/api/v1/state").await;
    assert_eq!(shown["backends"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn models_are_those_that_the_backends_list_and_others_that_come_are_found() {
    let listed = Arc::new(AtomicUsize::new(1));
    let known = Arc::clone(&listed);
    let backend = Backend::for_all(move |got| {
        if got.head.starts_with("GET /v1/models") {
            let data: Vec<_> = (0..known.load(Ordering::Relaxed))
                .map(|number| json!({"id": format!("model-{number}"), "object": "model", "owned_by": "backend"}))
                .collect();
            return vec![Step::Write(json_answer(200, &json!({"object": "list", "data": data})))];
        }
        vec![Step::Write(chat_answer(10, 10))]
    })
    .await;
    let gateway = gateway(&with_bucket(backend.address, 2_000).replace("models: [m]", "models: \"*\"")).await;
    let ask = async |model: &str| {
        let mut body = chat_body(10, 10);
        body["model"] = json!(model);
        gateway.chat(&body).await.status
    };
    assert_eq!((ask("model-0").await, ask("model-1").await), (200, 404));
    let bearer = format!("Bearer {KEY}");
    let headers = [("authorization", bearer.as_str())];
    let models = send(gateway.address(), "GET", "/v1/models", &headers, "".into()).await.json();
    assert_eq!(models["data"], json!([{"id": "model-0", "object": "model", "owned_by": "backend"}]));
    listed.store(2, Ordering::Relaxed);
    gateway.running.reread();
    until("the other model is found", || gateway.running.gateway.live().model_names().count() == 2).await;
    assert_eq!(ask("model-1").await, 200);
    let one = send(gateway.address(), "GET", "/v1/models/model-1", &headers, "".into()).await;
    assert_eq!((one.status, one.json()["owned_by"].as_str()), (200, Some("backend")));
}
