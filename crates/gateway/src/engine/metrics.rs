//! The metrics page, with the names that vLLM uses.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use super::log::Record;
use super::plan::{Finish, Plan};
use super::prefix::BLOCK_WORDS;
use super::server::Engine;

/// Requests that ended, by why, and what the prefix cache was asked.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    stop: AtomicU64,
    length: AtomicU64,
    abort: AtomicU64,
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
}

impl Outcomes {
    pub(super) fn count(&self, plan: &Plan, record: &Record) {
        let finish = plan.choices.first().map_or(Finish::Stop, |choice| choice.finish);
        let counter = match finish {
            _ if record.cancelled => &self.abort,
            Finish::Length => &self.length,
            Finish::Stop | Finish::Tool => &self.stop,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.prompt_tokens.fetch_add(record.prompt, Ordering::Relaxed);
        self.cached_tokens.fetch_add(record.cached, Ordering::Relaxed);
    }
}

/// The page of one replica.
pub(super) fn page(engine: &Engine) -> String {
    let counters = engine.driver.counters();
    let shape = engine.driver.shape();
    let outcomes = &engine.outcomes;
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let model = engine.options.models.first().map_or("", String::as_str);
    let labels = format!("model_name=\"{}\",engine=\"0\"", model.replace('\\', "\\\\").replace('"', "\\\""));
    let kv_ratio = counters.kv_held.0 as f64 / shape.kv.0.max(1) as f64;
    let mut page = String::new();
    let mut line = |kind: &str, name: &str, value: String| {
        let _ = writeln!(page, "# TYPE vllm:{name} {kind}\nvllm:{name}{{{labels}}} {value}");
    };
    line("gauge", "num_requests_running", counters.running.to_string());
    line("gauge", "num_requests_waiting", counters.waiting.to_string());
    line("gauge", "kv_cache_usage_perc", kv_ratio.to_string());
    line("counter", "prompt_tokens_total", counters.prompt_tokens.0.to_string());
    line("counter", "generation_tokens_total", counters.output_tokens.0.to_string());
    // The simulated cache is given out for whole sequences, so that none is ever preempted.
    line("counter", "num_preemptions_total", String::from("0"));
    line("counter", "prefix_cache_queries_total", read(&outcomes.prompt_tokens).to_string());
    line("counter", "prefix_cache_hits_total", read(&outcomes.cached_tokens).to_string());
    let _ = writeln!(page, "# TYPE vllm:request_success_total counter");
    let reasons = [("stop", &outcomes.stop), ("length", &outcomes.length), ("abort", &outcomes.abort)];
    for (reason, counter) in reasons {
        let _ = writeln!(
            page,
            "vllm:request_success_total{{{labels},finished_reason=\"{reason}\"}} {}",
            read(counter)
        );
    }
    let _ = writeln!(
        page,
        "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{block_size=\"{BLOCK_WORDS}\",engine=\"0\",\
         num_gpu_blocks=\"{}\"}} 1",
        shape.kv.0 / BLOCK_WORDS
    );
    let timings = engine.driver.timings();
    timings.first_token.render("vllm:time_to_first_token_seconds", &labels, &mut page);
    timings.between_tokens.render("vllm:inter_token_latency_seconds", &labels, &mut page);
    timings.whole.render("vllm:e2e_request_latency_seconds", &labels, &mut page);
    page
}
