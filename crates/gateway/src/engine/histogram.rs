//! A histogram in Prometheus' text form, with the buckets that vLLM uses.

use std::fmt::Write;

/// Upper bounds of the time to the first token and of a whole request, in seconds.
pub(super) const LONG_BOUNDS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
/// Upper bounds of the time between two tokens, in seconds.
pub(super) const SHORT_BOUNDS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];

/// Observed seconds.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    bounds: &'static [f64],
    /// One more than bounds: the last has no upper bound.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    pub(super) fn with(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub(super) fn observe(&mut self, seconds: f64) {
        let place = self.bounds.partition_point(|bound| *bound < seconds);
        self.counts[place] += 1;
        self.sum += seconds;
    }

    /// Appends the lines of this histogram; `labels` without braces.
    pub(super) fn render(&self, name: &str, labels: &str, page: &mut String) {
        let _ = writeln!(page, "# TYPE {name} histogram");
        let mut total = 0;
        let bounds = self.bounds.iter().map(f64::to_string).chain([String::from("+Inf")]);
        for (bound, count) in bounds.zip(&self.counts) {
            total += count;
            let _ = writeln!(page, "{name}_bucket{{{labels},le=\"{bound}\"}} {total}");
        }
        let _ = writeln!(page, "{name}_sum{{{labels}}} {}", self.sum);
        let _ = writeln!(page, "{name}_count{{{labels}}} {total}");
    }
}

#[cfg(test)]
mod tests {
    use super::{Histogram, SHORT_BOUNDS};

    #[test]
    fn buckets_count_everything_up_to_their_bound() {
        let mut histogram = Histogram::with(SHORT_BOUNDS);
        for seconds in [0.01, 0.02, 100.0] {
            histogram.observe(seconds);
        }
        let mut page = String::new();
        histogram.render("h", "a=\"b\"", &mut page);
        for line in [
            "h_bucket{a=\"b\",le=\"0.01\"} 1",
            "le=\"0.025\"} 2",
            "le=\"80\"} 2",
            "le=\"+Inf\"} 3",
            "h_count{a=\"b\"} 3",
        ] {
            assert!(page.contains(line), "{line} in {page}");
        }
    }
}
