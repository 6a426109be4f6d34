//! Figures over several seeds: means and ranges.

use fairlane_core::units::Micros;

use crate::traffic::Class;
use crate::world::{Figures, Percentiles};

/// One figure over the seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

/// All figures of one policy over the seeds. Ratios are from 0 to 1, spans in milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Interactive requests that were dispatched within 2 s.
    pub interactive_started_2s: Spread,
    /// Waits of interactive requests: p50, p95, p99.
    pub wait_ms: [Spread; 3],
    /// Time to the first token of interactive requests: p50, p95, p99.
    pub ttft_ms: [Spread; 3],
    /// Time between tokens of interactive requests: p50, p95, p99.
    pub tpot_ms: [Spread; 3],
    /// By tenant, in the order of the traffic.
    pub tenants: Vec<TenantSummary>,
    /// By class.
    pub classes: Vec<ClassSummary>,
    /// Work done over what the backends can do.
    pub utilisation: Spread,
    /// Tokens held of the KV caches.
    pub kv_mean: Spread,
    /// The most that one KV cache held.
    pub kv_peak: Spread,
    /// The widest drift of service between two tenants that both waited, in tokens of the pool's work.
    pub fairness_gap: Spread,
    /// Tries over first tries.
    pub amplification: Spread,
}

/// One tenant over the seeds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantSummary {
    /// Its name.
    pub name: String,
    /// Refused at the end.
    pub refused: Spread,
    /// Output tokens a second.
    pub output_tokens_per_s: Spread,
    /// Share of all work.
    pub work_share: Spread,
    /// 95th percentile of its waits, in milliseconds.
    pub wait_p95_ms: Spread,
}

/// One class over the seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassSummary {
    /// Its name.
    pub name: &'static str,
    /// Refused at the end.
    pub refused: Spread,
    /// 95th percentile of its waits, in milliseconds.
    pub wait_p95_ms: Spread,
}

impl Spread {
    /// Of some numbers; zero where there is none.
    #[must_use]
    pub fn of(numbers: impl Iterator<Item = f64>) -> Self {
        let (mut count, mut sum) = (0.0, 0.0);
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        for number in numbers {
            count += 1.0;
            sum += number;
            min = f64::min(min, number);
            max = f64::max(max, number);
        }
        if count == 0.0 { Self::default() } else { Self { mean: sum / count, min, max } }
    }
}

impl Summary {
    /// Of the runs of one policy, which had the same tenants.
    #[must_use]
    pub fn of(runs: &[Figures]) -> Self {
        let over = |pick: &dyn Fn(&Figures) -> f64| Spread::of(runs.iter().map(pick));
        let percentiles = |pick: fn(&Figures) -> Percentiles| {
            let part = |part: fn(&Percentiles) -> Micros| over(&|figures| millis(part(&pick(figures))));
            [part(|all| all.p50), part(|all| all.p95), part(|all| all.p99)]
        };
        let tenants = runs.first().map_or(&[][..], |first| &first.tenants);
        let tenants = tenants.iter().enumerate().map(|(index, tenant)| TenantSummary {
            name: tenant.name.clone(),
            refused: over(&|figures| figures.tenants[index].refused),
            output_tokens_per_s: over(&|figures| figures.tenants[index].output_tokens_per_s),
            work_share: over(&|figures| figures.tenants[index].work_share),
            wait_p95_ms: over(&|figures| millis(figures.tenants[index].wait.p95)),
        });
        let classes = [Class::Interactive, Class::Batch, Class::Background].into_iter();
        let present = classes.filter(|class| runs.iter().any(|run| run.classes[class.rank()].offered > 0));
        let classes = present.map(|class| ClassSummary {
            name: class.name(),
            refused: over(&|figures| figures.classes[class.rank()].refused),
            wait_p95_ms: over(&|figures| millis(figures.classes[class.rank()].wait.p95)),
        });
        Self {
            interactive_started_2s: over(&|figures| figures.interactive_started_2s),
            wait_ms: percentiles(|figures| figures.wait),
            ttft_ms: percentiles(|figures| figures.time_to_first_token),
            tpot_ms: percentiles(|figures| figures.time_per_output_token),
            tenants: tenants.collect(),
            classes: classes.collect(),
            utilisation: over(&|figures| figures.utilisation),
            kv_mean: over(&|figures| figures.kv_mean),
            kv_peak: over(&|figures| figures.kv_peak),
            fairness_gap: over(&|figures| figures.fairness_gap),
            amplification: over(&|figures| figures.amplification),
        }
    }
}

fn millis(span: Micros) -> f64 {
    span.0 as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::{Spread, Summary};

    #[test]
    fn a_spread_is_mean_and_range_and_zero_of_nothing() {
        let spread = Spread::of([1.0, 4.0, 1.0].into_iter());
        assert_eq!((spread.mean, spread.min, spread.max), (2.0, 1.0, 4.0));
        assert_eq!(Spread::of([].into_iter()), Spread::default());
        assert_eq!(Summary::of(&[]), Summary::default());
    }
}
