//! How a pool counts input: by need. The decision rarely needs an exact count, and the settlement uses the engine's own.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use fairlane_wire::count::{
    InputEstimate, InputRules, Memo, MemoKey, Vocabulary, count_input, estimate_input, uncounted_bytes,
};
use fairlane_wire::estimate::{Calibration, Interval};
use fairlane_wire::request::RequestFacts;

use crate::config::{EdgePool, TokenizerMode, Vocabulary as Named};
use crate::random;

/// A pool's counter, with what it has learned of its models.
pub struct Counter {
    memo: Memo,
    vocabulary: Arc<Vocabulary>,
    rules: InputRules,
    mode: TokenizerMode,
    calibrations: Mutex<HashMap<String, Calibration>>,
}

impl Counter {
    /// The counter that a pool's configuration asks for.
    ///
    /// # Errors
    /// Its vocabulary cannot be read.
    pub fn new(pool: &EdgePool) -> Result<Self, String> {
        let vocabulary = match &pool.tokenizer.vocabulary {
            Named::O200k => Vocabulary::o200k(),
            Named::Cl100k => Vocabulary::cl100k(),
            Named::Words => Vocabulary::words(),
            Named::File(path) => Vocabulary::open(&path.display().to_string())
                .map_err(|error| format!("pool {}: {error}", pool.name))?,
        };
        let overhead = vocabulary.chat_overhead();
        let vocabulary = Arc::new(vocabulary);
        let key = MemoKey([u64::from_le_bytes(random::bytes()), u64::from_le_bytes(random::bytes())]);
        Ok(Self {
            memo: Memo::new(Arc::clone(&vocabulary), key, MEMO_ENTRIES_MAX),
            vocabulary,
            rules: InputRules {
                overhead,
                image: pool.images.rule,
                attachment_tokens: pool.images.attachment_tokens.0,
            },
            mode: pool.tokenizer.mode,
            calibrations: Mutex::default(),
        })
    }

    /// When input is counted exactly.
    #[must_use]
    pub const fn mode(&self) -> TokenizerMode {
        self.mode
    }

    /// The vocabulary, where output that nobody reports is to be counted exactly too.
    #[must_use]
    pub fn exact_vocabulary(&self) -> Option<Arc<Vocabulary>> {
        (self.mode == TokenizerMode::Exact).then(|| Arc::clone(&self.vocabulary))
    }

    /// What the input is thought to be: the raw estimate to learn from, and the interval as this model has been seen to count.
    #[must_use]
    pub fn estimate(&self, model: &str, facts: &RequestFacts<'_>) -> (InputEstimate, Interval) {
        let estimate = estimate_input(facts, &self.rules);
        let calibrations = self.calibrations.lock().unwrap_or_else(PoisonError::into_inner);
        let interval = match calibrations.get(model) {
            Some(calibration) => estimate.calibrated(calibration),
            None => estimate.interval(),
        };
        (estimate, interval)
    }

    /// What the input is.
    #[must_use]
    pub fn count(&self, facts: &RequestFacts<'_>) -> u64 {
        count_input(facts, &self.memo, &self.rules, u64::MAX).unwrap_or(u64::MAX)
    }

    /// Whether a count takes long enough to be done off the request's thread.
    #[must_use]
    pub fn is_long(&self, facts: &RequestFacts<'_>) -> bool {
        uncounted_bytes(facts, &self.memo) > LONG_BYTES
    }

    /// Learns from the engine's own count.
    pub fn learn(&self, model: &str, estimate: InputEstimate, reported: u64) {
        let mut calibrations = self.calibrations.lock().unwrap_or_else(PoisonError::into_inner);
        if calibrations.len() < MODELS_MAX || calibrations.contains_key(model) {
            estimate.teach(calibrations.entry(model.to_owned()).or_default(), reported);
        }
    }

    /// Reported ÷ estimated per model, in millionths.
    #[must_use]
    pub fn ratios_millionths(&self) -> Vec<(String, u64)> {
        let calibrations = self.calibrations.lock().unwrap_or_else(PoisonError::into_inner);
        calibrations
            .iter()
            .map(|(model, calibration)| (model.clone(), calibration.ratio_millionths()))
            .collect()
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter")
            .field("vocabulary", &self.vocabulary.name())
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

/// Counts remembered per pool.
const MEMO_ENTRIES_MAX: usize = 65_536;
/// Models that a pool learns ratios of; the policy's list of models bounds them too.
const MODELS_MAX: usize = 1_000;
/// Above this much text an exact count is done off the request's thread (58 µs per kB measured for bpe-openai).
const LONG_BYTES: usize = 32 * 1024;
