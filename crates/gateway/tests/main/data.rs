//! The data file: what a restart finds again, what is refused, and what goes in and out.

#![cfg(test)]

mod files;
mod kills;

use std::path::{Path, PathBuf};

use fairlane::config::Source;
use fairlane::data::{By, DataFile, Query, Usage};
use fairlane::serve::{Origin, Overrides, start};
use serde_json::{Value, json};

use crate::cases_a::metrics;
use crate::cases_b::reload;
use crate::support::{Backend, KEY, TestGateway, chat_answer, chat_body, in_time, pool, send, until};

/// A folder of its own, gone with the test.
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fairlane-test-{}-data-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(super) fn data(&self) -> PathBuf {
        self.file("fairlane.redb")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Starts a gateway that keeps its data in `data`.
async fn begin(data: &Path, yaml: &str) -> Result<TestGateway, String> {
    let text = format!("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\ndata: {}\n{yaml}", data.display());
    let source = Source::from_text("test.yaml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let running = start(Origin::Fixed(Box::new(source)), Overrides::default()).await?;
    Ok(TestGateway { running })
}

/// Ends it in order.
async fn end(gateway: TestGateway) {
    in_time("an orderly end", gateway.running.stop()).await;
}

/// A tenant with a run budget of 10,000, at most 64 steps, and a bucket of 20,000 tokens a day.
fn tenant(backend: std::net::SocketAddr) -> String {
    format!(
        "{}tenants:
  - name: t
    keys: [\"{KEY}\"]
    limits: {{tokens: 20000/day burst 1d, output_tokens: 1000/s burst 10s}}
    runs: {{token_budget: 10000, max_steps: 64}}
",
        pool(&[backend], "")
    )
}

async fn ask(gateway: &TestGateway, run: &str) -> u16 {
    let headers = [("x-fairlane-run", run)];
    gateway.post_with("/v1/chat/completions", &headers, &chat_body(100, 300)).await.status
}

/// What a run's limits hold: budget and steps.
async fn run_levels(gateway: &TestGateway) -> Vec<(i64, i64)> {
    let shown = gateway.admin("/api/v1/tenants/t").await;
    let level = |run: &Value, name: &str| {
        let limits = run["limits"].as_array().unwrap();
        limits.iter().find(|limit| limit["name"] == name).unwrap()["level"].as_i64().unwrap()
    };
    let runs = shown["runs"].as_array().unwrap().iter();
    runs.map(|run| (level(run, "run/t/token_budget"), level(run, "run/t/max_steps"))).collect()
}

async fn usage(gateway: &TestGateway, by: &str) -> Value {
    gateway.admin(&format!("/api/v1/usage?by={by}")).await
}

#[tokio::test]
async fn b11_a_restart_is_no_refill_and_runs_are_found_again() {
    let backend = Backend::always(chat_answer(100, 200)).await;
    let folder = Folder::new("restart");
    let yaml = tenant(backend.address);
    let gateway = begin(&folder.data(), &yaml).await.unwrap();
    for _ in 0..3 {
        assert_eq!(ask(&gateway, "agent-7").await, 200);
    }
    gateway.idle().await;
    let ids: Vec<_> = gateway.records().iter().map(|record| record.id).collect();
    end(gateway).await;
    for tried in 0..2 {
        let gateway = begin(&folder.data(), &yaml).await.unwrap();
        assert_eq!(run_levels(&gateway).await, [(9_100, 61)], "{tried}");
        assert_eq!(gateway.level("t", "tenant/t/tokens").await, 19_100, "{tried}");
        let after: Vec<_> = gateway.records().iter().map(|record| record.id).collect();
        assert_eq!(after, ids);
        end(gateway).await;
    }
    let gateway = begin(&folder.data(), &yaml).await.unwrap();
    assert_eq!(ask(&gateway, "agent-7").await, 200);
    gateway.idle().await;
    assert_eq!(run_levels(&gateway).await, [(8_800, 60)], "the same run by the same name");
    until("it is stored", || gateway.running.gateway.metrics.data.records_stored() == 1).await;
    let summed = usage(&gateway, "run").await;
    assert_eq!((&summed["rows"][0]["requests"], &summed["rows"][0]["charged"]), (&json!(4), &json!(1_200)));
    end(gateway).await;
}

#[tokio::test]
async fn a_budget_that_is_spent_stays_spent_over_a_restart() {
    let backend = Backend::always(chat_answer(100, 300)).await;
    let folder = Folder::new("spent");
    let yaml = tenant(backend.address);
    let mut answers = Vec::new();
    for _ in 0..3 {
        let gateway = begin(&folder.data(), &yaml).await.unwrap();
        for _ in 0..10 {
            answers.push(ask(&gateway, "agent-1").await);
        }
        end(gateway).await;
    }
    let served = answers.iter().filter(|status| **status == 200).count();
    assert_eq!(served, 25, "400 tokens each, of 10,000: {answers:?}");
    assert!(answers[25..].iter().all(|status| *status == 429));
}

#[tokio::test]
async fn only_what_spends_more_than_is_claimed_waits_for_the_disk() {
    let backend = Backend::always(chat_answer(1, 1)).await;
    let folder = Folder::new("claims");
    let gateway = begin(&folder.data(), &tenant(backend.address)).await.unwrap();
    let counted = async |name: &str| {
        let text = metrics(&gateway).await;
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let stored = async |count| {
        let counters = &gateway.running.gateway.metrics.data;
        until("a record is stored, and balances with it", || counters.records_stored() == count).await;
    };
    let small = chat_body(1, 1);
    for count in 1..4 {
        // A step of a run is claimed ahead, and the row that is stored next claims the one after it.
        assert_eq!(gateway.chat(&small).await.status, 200);
        stored(count).await;
        assert_eq!(
            counted("fairlane_data_claims_waited_total").await,
            1,
            "before the first one nothing was claimed"
        );
    }
    assert!(metrics(&gateway).await.contains("fairlane_data_up 1"));
    // More than the thirty-second part of the run's budget at once.
    assert_eq!(gateway.chat(&chat_body(500, 500)).await.status, 200);
    assert_eq!(counted("fairlane_data_claims_waited_total").await, 2);
    end(gateway).await;
}

#[tokio::test]
async fn the_usage_log_keeps_to_its_bound_and_a_reload_changes_it() {
    let backend = Backend::always(chat_answer(10, 10)).await;
    let folder = Folder::new("bound");
    let yaml = format!(
        "{}tenants: [{{name: t, keys: [\"{KEY}\"]}}]\nusage: {{records: 5}}\n",
        pool(&[backend.address], "")
    );
    let gateway = begin(&folder.data(), &yaml).await.unwrap();
    for _ in 0..12 {
        assert_eq!(gateway.chat(&chat_body(10, 10)).await.status, 200);
    }
    gateway.idle().await;
    let kept = async |count: u64| {
        let stored = async || usage(&gateway, "day").await["rows"][0]["requests"].clone();
        let waits = async {
            while stored().await != json!(count) {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        in_time("the log has its bound", waits).await;
    };
    until("all are stored", || gateway.running.gateway.metrics.data.records_stored() == 12).await;
    kept(5).await;
    let fewer = yaml.replace("records: 5", "records: 2");
    reload(&gateway, &format!("data: {}\n{fewer}", folder.data().display()));
    assert_eq!(gateway.chat(&chat_body(10, 10)).await.status, 200);
    kept(2).await;
    end(gateway).await;
    let file = DataFile::open_existing(&folder.data()).unwrap();
    let summed = Usage::of_file(&file, &Query { by: By::Tenant, from_ms: 0 }).unwrap();
    assert_eq!(summed.rows[0].requests, 2);
}

#[tokio::test]
async fn without_a_data_file_usage_is_summed_over_the_last_requests_and_nothing_is_written() {
    let backend = Backend::always(chat_answer(10, 5)).await;
    let folder = Folder::new("off");
    let yaml = format!("{}tenants: [{{name: t, keys: [\"{KEY}\"]}}]\n", pool(&[backend.address], ""));
    let gateway = begin(Path::new("off"), &yaml).await.unwrap();
    assert_eq!(gateway.chat(&chat_body(10, 10)).await.status, 200);
    assert_eq!(gateway.chat(&json!({"model": "m"})).await.status, 400);
    gateway.idle().await;
    let summed = usage(&gateway, "model").await;
    let row = &summed["rows"][0];
    assert_eq!((&row["name"], &row["input"], &row["output"]), (&json!("m"), &json!(10), &json!(5)));
    let wrong = send(gateway.running.admin.unwrap(), "GET", "/api/v1/usage?by=colour", &[], "".into()).await;
    assert_eq!(wrong.status, 400);
    assert!(metrics(&gateway).await.contains("fairlane_data_up 0"));
    assert_eq!(std::fs::read_dir(&folder.path).unwrap().count(), 0);
    assert!(!Path::new("off").exists());
    end(gateway).await;
}

#[tokio::test]
async fn an_export_and_its_import_say_the_same() {
    let backend = Backend::always(chat_answer(100, 200)).await;
    let folder = Folder::new("export");
    let yaml = tenant(backend.address);
    let gateway = begin(&folder.data(), &yaml).await.unwrap();
    for run in ["one", "two", "two"] {
        assert_eq!(ask(&gateway, run).await, 200);
    }
    let mut levels = run_levels(&gateway).await;
    levels.sort_unstable();
    gateway.idle().await;
    end(gateway).await;
    let (first, second, copy) = (folder.file("1.jsonl"), folder.file("2.jsonl"), folder.file("copy.redb"));
    let counts = {
        let file = DataFile::open_existing(&folder.data()).unwrap();
        let counts = fairlane::data::export(&file, &first).unwrap();
        assert!(fairlane::data::export(&file, &first).is_err(), "nothing is written over");
        counts
    };
    assert_eq!(counts.1, 3);
    assert_eq!(fairlane::data::import(&first, &copy).unwrap(), counts);
    let error = fairlane::data::import(&first, &copy).unwrap_err().to_string();
    assert!(error.contains("exists already"), "{error}");
    {
        let file = DataFile::open_existing(&copy).unwrap();
        assert_eq!(fairlane::data::export(&file, &second).unwrap(), counts);
    }
    assert_eq!(std::fs::read(&first).unwrap(), std::fs::read(&second).unwrap());
    let gateway = begin(&copy, &yaml).await.unwrap();
    let mut after = run_levels(&gateway).await;
    after.sort_unstable();
    assert_eq!(after, levels);
    end(gateway).await;
    let broken = std::fs::read_to_string(&first).unwrap().replace("\"level\"", "\"levle\"");
    std::fs::write(folder.file("broken.jsonl"), broken).unwrap();
    let nothing = folder.file("nothing.redb");
    let error = fairlane::data::import(&folder.file("broken.jsonl"), &nothing).unwrap_err().to_string();
    assert!(error.contains("broken.jsonl") && error.contains("line 2"), "{error}");
    assert!(!nothing.exists(), "half an import is none");
}
