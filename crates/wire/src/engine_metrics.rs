//! The metrics page of an engine, to what a scheduler asks of it: who waits, what was preempted, how full the KV cache is and how
//! large. Names of vLLM, SGLang, TensorRT-LLM, TGI and llama.cpp, present and former.

use fairlane_core::occupancy::Reading;
use fairlane_core::units::Tokens;

/// Reads a page in the Prometheus text format. What it does not hold, or holds in a form that makes no sense, is absent. A page
/// with several engines (data-parallel ranks) is read as one: counts and sizes are added, ratios averaged.
///
/// # Examples
///
/// ```
/// use fairlane_wire::engine_metrics::read;
///
/// let reading = read(b"vllm:num_requests_waiting{engine=\"0\"} 3\nvllm:kv_cache_usage_perc 0.25\n");
/// assert_eq!((reading.waiting, reading.memory_used_ppm), (Some(3), Some(250_000)));
/// ```
#[must_use]
pub fn read(page: &[u8]) -> Reading {
    let mut found = Found::default();
    for line in page.split(|byte| *byte == b'\n') {
        // Histograms make most of a page.
        if line.first().is_some_and(|byte| *byte != b'#')
            && let Ok(line) = std::str::from_utf8(line)
        {
            found.take(line);
        }
    }
    Reading {
        waiting: found.first(&WAITING).map(|sum| sum.total as u64),
        preemptions: found.first(&PREEMPTIONS).map(|sum| sum.total as u64),
        memory_used_ppm: found.first(&MEMORY_USED).map(|sum| (sum.total / sum.count * 1e6).min(1e6) as u32),
        memory: found.memory(),
    }
}

/// What samples of one name come to.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    total: f64,
    count: f64,
}

#[derive(Debug, Default)]
struct Found {
    sums: [Sum; NAMES.len()],
    /// Tokens by the two labels of a configuration.
    configured: u64,
    tokens_per_block: u64,
    blocks: u64,
}

impl Found {
    fn take(&mut self, line: &str) {
        let name_end = line.find(['{', ' ', '\t']).unwrap_or(line.len());
        let (name, rest) = line.split_at(name_end);
        if name.ends_with(":cache_config_info") {
            let size = |labels: &str| Some(label(labels, SIZES)?.saturating_mul(label(labels, COUNTS)?));
            self.configured = self.configured.saturating_add(size(rest).unwrap_or(0));
            return;
        }
        let plain = name.strip_suffix("_total").unwrap_or(name);
        let Some(place) = NAMES.iter().position(|known| *known == plain) else { return };
        let Some(value) = value(rest) else { return };
        match plain {
            "trtllm_kv_cache_tokens_per_block" => self.tokens_per_block = value as u64,
            "trtllm_kv_cache_max_blocks" => self.blocks = self.blocks.saturating_add(value as u64),
            _ => {
                self.sums[place].total += value;
                self.sums[place].count += 1.0;
            }
        }
    }

    /// The first of these names that the page has: for a while engines export a former name beside the present one.
    fn first(&self, names: &[&str]) -> Option<Sum> {
        names.iter().find_map(|name| {
            let place = NAMES.iter().position(|known| known == name)?;
            let sum = self.sums[place];
            (sum.count > 0.0).then_some(sum)
        })
    }

    fn memory(&self) -> Option<Tokens> {
        let by_blocks = self.tokens_per_block.saturating_mul(self.blocks);
        [self.configured, by_blocks].into_iter().find(|tokens| (1..=TOKENS_MAX).contains(tokens)).map(Tokens)
    }
}

/// The sample's value: what follows the labels; not a number, infinite or negative is none.
fn value(rest: &str) -> Option<f64> {
    let after_labels = rest.rfind('}').map_or(rest, |end| &rest[end + 1..]);
    let value: f64 = after_labels.split_ascii_whitespace().next()?.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// The number in the label of one of these names.
fn label(labels: &str, names: [&str; 2]) -> Option<u64> {
    names.into_iter().find_map(|name| {
        let start = labels.match_indices(name).find_map(|(at, _)| {
            let is_whole = at > 0 && matches!(labels.as_bytes()[at - 1], b'{' | b',' | b' ');
            let rest = labels[at + name.len()..].strip_prefix("=\"")?;
            is_whole.then_some(rest)
        })?;
        start.split('"').next()?.parse().ok()
    })
}

const WAITING: [&str; 5] = [
    "vllm:num_requests_waiting",
    "sglang:num_queue_reqs",
    "trtllm_num_requests_waiting",
    "tgi_queue_size",
    "llamacpp:requests_deferred",
];
const PREEMPTIONS: [&str; 2] = ["vllm:num_preemptions", "sglang:num_retracted_requests"];
const MEMORY_USED: [&str; 5] = [
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
    "trtllm_kv_cache_utilization",
    "llamacpp:kv_cache_usage_ratio",
];
/// All of these names, and those of the parts of a size.
const NAMES: [&str; 14] = [
    WAITING[0],
    WAITING[1],
    WAITING[2],
    WAITING[3],
    WAITING[4],
    PREEMPTIONS[0],
    PREEMPTIONS[1],
    MEMORY_USED[0],
    MEMORY_USED[1],
    MEMORY_USED[2],
    MEMORY_USED[3],
    MEMORY_USED[4],
    "trtllm_kv_cache_tokens_per_block",
    "trtllm_kv_cache_max_blocks",
];
/// Labels of `cache_config_info`: vLLM's and SGLang's.
const SIZES: [&str; 2] = ["block_size", "page_size"];
const COUNTS: [&str; 2] = ["num_gpu_blocks", "num_pages"];
/// No cache is larger: 4 billion tokens.
const TOKENS_MAX: u64 = 4_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_each_engine_are_known() {
        let pages = [
            "vllm:num_requests_waiting{model_name=\"m\",engine=\"0\"} 2.0\nvllm:num_preemptions_total{engine=\"0\"} 7.0\n\
             vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\nvllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"100\"} 1.0\n",
            "vllm:gpu_cache_usage_perc 0.5\nvllm:num_requests_waiting 2\nvllm:num_preemptions 7\n\
             vllm:cache_config_info{cache_dtype=\"auto\", num_gpu_blocks=\"100\", block_size=\"16\"} 1\n",
            "sglang:num_queue_reqs{tp_rank=\"0\"} 2\nsglang:token_usage{tp_rank=\"0\"} 5e-1\n\
             sglang:num_retracted_requests_total 7\nsglang:cache_config_info{page_size=\"16\",num_pages=\"100\"} 1\n",
        ];
        let expected = Reading {
            waiting: Some(2),
            preemptions: Some(7),
            memory_used_ppm: Some(500_000),
            memory: Some(Tokens(1_600)),
        };
        for page in pages {
            assert_eq!(read(page.as_bytes()), expected, "{page}");
        }
        let trt = "trtllm_kv_cache_tokens_per_block 32\ntrtllm_kv_cache_max_blocks 50\n\
                   trtllm_kv_cache_utilization 0.5\ntrtllm_num_requests_waiting 2\n";
        assert_eq!(read(trt.as_bytes()), Reading { preemptions: None, ..expected });
        let deferred = Reading { waiting: Some(3), ..Reading::default() };
        assert_eq!(read(b"llamacpp:requests_deferred 3\n"), deferred);
        assert_eq!(read(b"tgi_queue_size 3\n"), deferred);
    }

    #[test]
    fn several_engines_on_a_page_are_one_and_a_former_name_beside_the_present_one_counts_once() {
        let page = "vllm:num_requests_waiting{engine=\"0\"} 1\nvllm:num_requests_waiting{engine=\"1\"} 4\n\
                    vllm:kv_cache_usage_perc{engine=\"0\"} 0.2\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.6\n\
                    vllm:gpu_cache_usage_perc{engine=\"0\"} 0.9\n\
                    vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"10\"} 1\n\
                    vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"20\"} 1\n";
        let reading = read(page.as_bytes());
        assert_eq!(reading.waiting, Some(5));
        assert_eq!(reading.memory_used_ppm, Some(400_000));
        assert_eq!(reading.memory, Some(Tokens(480)));
    }

    #[test]
    fn what_makes_no_sense_is_absent() {
        for page in [
            "",
            "vllm:num_requests_waiting",
            "vllm:num_requests_waiting NaN",
            "vllm:num_requests_waiting -1",
            "vllm:num_requests_waiting +Inf",
            "vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 3",
            "# vllm:num_requests_waiting 3",
            "vllm:cache_config_info{block_size=\"None\",num_gpu_blocks=\"9\"} 1",
            "vllm:cache_config_info{my_block_size=\"16\",num_gpu_blocks=\"9\"} 1",
            "vllm:cache_config_info{block_size=\"4000000000\",num_gpu_blocks=\"4000000000\"} 1",
            "\u{0}\u{1}{{{{\"",
        ] {
            assert_eq!(read(page.as_bytes()), Reading::default(), "{page}");
        }
        assert_eq!(read(b"\xff\xfe 3\nsglang:token_usage 7\n").memory_used_ppm, Some(1_000_000));
    }

    #[test]
    fn a_page_cut_at_any_byte_is_read_without_a_fault() {
        let page = b"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"10\"} 1\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.2\n";
        for end in 0..page.len() {
            let reading = read(&page[..end]);
            assert!(
                reading.memory.is_none_or(|memory| memory == Tokens(160) || memory == Tokens(16)),
                "{end}"
            );
        }
    }
}
