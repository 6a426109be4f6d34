//! An engine and a gateway before it, both in this process.

#![cfg(test)]

use std::time::Duration;

use fairlane::engine::{EngineOptions, Pace, Record, Running, spawn};

use crate::support::{KEY, TestGateway, gateway};

/// A gateway before one replica of the simulated engine.
pub(super) struct Setting {
    pub(super) engine: Running,
    pub(super) gateway: TestGateway,
}

impl Setting {
    /// `classes` is a line of the configuration; `tenant` are lines under the tenant, indented by four.
    pub(super) async fn start(pace: Pace, slots: u16, classes: &str, tenant: &str) -> Self {
        let engine = spawn(EngineOptions { pace, ..EngineOptions::default() }).await.unwrap();
        let gateway = gateway(&format!(
            "pools:
  - name: main
    models: [sim]
    engine: vllm
    backends: [{{url: \"{}\"}}]
    slots: {slots}
    tokenizer: {{vocabulary: words, mode: exact}}
    health: off
{classes}
tenants:
  - name: t
    keys: [\"{KEY}\"]
{tenant}",
            engine.urls()[0]
        ))
        .await;
        Self { engine, gateway }
    }

    pub(super) fn gateway_url(&self) -> String {
        format!("http://{}", self.gateway.address())
    }

    pub(super) fn engine_url(&self) -> String {
        self.engine.urls()[0].clone()
    }

    /// The engine's records of the requests after the first `before`, in the order in which they came.
    pub(super) async fn engine_records(&self, before: u64, count: usize) -> Vec<Record> {
        let ended = self.engine.recorded(0, before + count as u64);
        let mut records = tokio::time::timeout(Duration::from_secs(20), ended).await.unwrap();
        records.retain(|record| record.id > before);
        records.sort_by_key(|record| record.id);
        records
    }
}
