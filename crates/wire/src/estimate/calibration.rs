//! The estimate fitted to one model by the usage that its engine reports.

use super::Interval;

/// So many of the last samples count.
pub const SAMPLES_MAX: usize = 64;

/// What the reports of one model say of the estimate: by which ratio it is off, and how much of its
/// width is needed. Integers only, bounded, and without a clock.
///
/// The ratio is the median of the last [`SAMPLES_MAX`] reports, so that a few wrong ones move
/// nothing, and an engine that reports nonsense all the time moves it by a factor of eight at most.
/// The width shrinks with the spread that the samples show and never below it, nor below an eighth
/// of what the shape of the text says: a text unlike the ones seen keeps a wide interval.
///
/// # Examples
///
/// ```
/// use fairlane_wire::estimate::{Calibration, Interval};
///
/// let mut calibration = Calibration::default();
/// let shape = Interval { low: 80, mean: 100, high: 140 };
/// for _ in 0..64 {
///     calibration.learn(shape, 130); // a vocabulary that needs 30 % more
/// }
/// let interval = calibration.interval(shape);
/// assert!(interval.contains(130));
/// assert!(interval.high - interval.low < 20);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calibration {
    /// The last samples, the oldest overwritten.
    samples: Vec<Sample>,
    next: usize,
    fit: Option<Fit>,
}

/// One report beside its estimate, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    /// Reported ÷ mean.
    ratio: u64,
    /// (Mean − low) ÷ mean.
    down: u64,
    /// (High − mean) ÷ mean.
    up: u64,
}

/// What the samples say, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fit {
    /// The median ratio.
    ratio: u64,
    /// How far below the median ratio the reports spread, as a share of it.
    spread_down: u64,
    /// How far above.
    spread_up: u64,
    /// How much of the width below the mean was needed.
    needed_down: u64,
    /// How much of the width above.
    needed_up: u64,
}

impl Calibration {
    /// Takes one report: the uncalibrated `estimate` of an input and the tokens `reported` for it.
    /// Inputs below 16 tokens and reports of nothing teach nothing.
    pub fn learn(&mut self, estimate: Interval, reported: u64) {
        if estimate.mean < TOKENS_MIN || reported == 0 {
            return;
        }
        let share = |tokens: u64| millionths(tokens, estimate.mean);
        let sample = Sample {
            ratio: share(reported).clamp(RATIO_MIN, RATIO_MAX),
            down: share(estimate.mean.saturating_sub(estimate.low)),
            up: share(estimate.high.saturating_sub(estimate.mean)),
        };
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(sample);
        } else {
            self.samples[self.next] = sample;
        }
        self.next = (self.next + 1) % SAMPLES_MAX;
        if self.samples.len() < REFITS_EACH_BELOW || self.next.is_multiple_of(REFIT_EVERY) {
            self.fit = self.fitted();
        }
    }

    /// The interval for this model. As it came while fewer than eight samples are known.
    #[must_use]
    pub fn interval(&self, estimate: Interval) -> Interval {
        let Some(fit) = self.fit else { return estimate };
        let mean = scale(estimate.mean, fit.ratio);
        let width_down = scale(estimate.mean.saturating_sub(estimate.low), fit.ratio);
        let width_up = scale(estimate.high.saturating_sub(estimate.mean), fit.ratio);
        let down = scale(width_down, fit.needed_down).max(scale(mean, fit.spread_down));
        let up = scale(width_up, fit.needed_up).max(scale(mean, fit.spread_up));
        Interval {
            low: mean.saturating_sub(down.saturating_add(1)),
            mean,
            high: if estimate.high == 0 { 0 } else { mean.saturating_add(up.saturating_add(1)) },
        }
    }

    /// Reported ÷ estimated tokens in millionths, the median; a million before eight samples.
    #[must_use]
    pub fn ratio_millionths(&self) -> u64 {
        self.fit.map_or(MILLION, |fit| fit.ratio)
    }

    /// How many samples count, at most [`SAMPLES_MAX`].
    #[must_use]
    pub const fn samples(&self) -> usize {
        self.samples.len()
    }

    fn fitted(&self) -> Option<Fit> {
        let count = self.samples.len();
        if count < SAMPLES_MIN {
            return None;
        }
        let ratio = quantile(self.samples.iter().map(|sample| sample.ratio), count / 2);
        let outer = count / 32;
        let least = quantile(self.samples.iter().map(|sample| sample.ratio), outer);
        let most = quantile(self.samples.iter().map(|sample| sample.ratio), count - 1 - outer);
        let spread_down = millionths(ratio.saturating_sub(least), ratio) + SPARE;
        let spread_up = millionths(most.saturating_sub(ratio), ratio) + SPARE;
        let down = quantile(self.samples.iter().map(|sample| sample.down), count / 2);
        let up = quantile(self.samples.iter().map(|sample| sample.up), count / 2);
        // Few samples show too little of the spread: the share of the width that is trusted to them
        // grows with their number.
        let unseen = MILLION * SAMPLES_MIN as u64 / count as u64;
        let needed =
            |spread: u64, width: u64| millionths(spread, width.max(1)).clamp(NEEDED_MIN.max(unseen), MILLION);
        Some(Fit {
            ratio,
            spread_down,
            spread_up,
            needed_down: needed(spread_down, down),
            needed_up: needed(spread_up, up),
        })
    }
}

fn quantile(values: impl Iterator<Item = u64>, index: usize) -> u64 {
    let (mut sorted, mut count) = ([0; SAMPLES_MAX], 0);
    for (place, value) in sorted.iter_mut().zip(values) {
        *place = value;
        count += 1;
    }
    *sorted[..count].select_nth_unstable(index).1
}

fn millionths(part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(part) * u128::from(MILLION) / u128::from(whole)).unwrap_or(u64::MAX)
}

fn scale(value: u64, by_millionths: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(by_millionths) / u128::from(MILLION);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

const MILLION: u64 = 1_000_000;
const RATIO_MIN: u64 = MILLION / 8;
const RATIO_MAX: u64 = MILLION * 8;
/// Shorter inputs are mostly what the engine's chat template adds.
const TOKENS_MIN: u64 = 16;
const SAMPLES_MIN: usize = 8;
/// With fewer samples each report is taken in at once, later every eighth: taking in costs more than
/// the report.
const REFITS_EACH_BELOW: usize = 32;
const REFIT_EVERY: usize = 8;
/// Added to the spread seen, as the next text is not one of those seen.
const SPARE: u64 = 30_000;
const NEEDED_MIN: u64 = MILLION / 8;

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Interval = Interval { low: 800, mean: 1_000, high: 1_400 };

    fn taught(reports: impl IntoIterator<Item = u64>) -> Calibration {
        let mut calibration = Calibration::default();
        for reported in reports {
            calibration.learn(SHAPE, reported);
        }
        calibration
    }

    #[test]
    fn seven_samples_change_nothing_and_eight_move_the_mean() {
        assert_eq!(taught([2_000; 7]).interval(SHAPE), SHAPE);
        assert_eq!(taught([2_000; 8]).interval(SHAPE).mean, 2_000);
    }

    #[test]
    fn the_interval_is_never_narrower_than_the_recent_reports() {
        let calibration = taught((0..64).map(|index| if index % 4 == 0 { 700 } else { 1_000 + index }));
        let interval = calibration.interval(SHAPE);
        assert!(interval.contains(700) && interval.contains(1_063), "{interval:?}");
    }

    #[test]
    fn a_few_lies_move_nothing_and_many_are_clamped() {
        let few = taught((0..64).map(|index| if index % 10 == 0 { u64::MAX } else { 1_000 }));
        assert_eq!(few.ratio_millionths(), MILLION);
        assert_eq!(taught([u64::MAX; 64]).ratio_millionths(), RATIO_MAX);
        assert_eq!(taught([1; 64]).ratio_millionths(), RATIO_MIN);
    }

    #[test]
    fn a_change_of_the_model_is_learnt_within_the_samples_kept() {
        let mut calibration = taught([1_000; 500]);
        for _ in 0..SAMPLES_MAX {
            calibration.learn(SHAPE, 1_500);
        }
        assert_eq!(calibration.interval(SHAPE).mean, 1_500);
        assert_eq!(calibration.samples(), SAMPLES_MAX);
    }

    #[test]
    fn a_text_unlike_those_seen_keeps_a_wide_interval() {
        let odd = Interval { low: 200, mean: 1_000, high: 4_000 };
        let interval = taught([1_000; 64]).interval(odd);
        assert!(interval.high >= 1_300 && interval.low <= 950, "{interval:?}");
    }

    #[test]
    fn short_inputs_and_empty_reports_teach_nothing() {
        let mut calibration = Calibration::default();
        calibration.learn(Interval::exactly(15), 30);
        calibration.learn(SHAPE, 0);
        assert_eq!(calibration.samples(), 0);
    }
}
