//! What was measured: samples of one load on one peer, and their medians and ratios over the rounds.

use serde_json::{Value, json};

/// One load on one peer in one round.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// Whom.
    pub(super) peer: &'static str,
    /// With which load.
    pub(super) case: String,
    /// In which round.
    pub(super) round: u32,
    /// What the generator told.
    pub(super) load: Value,
    /// CPU time of the peer's processes for each good answer, in microseconds.
    pub(super) cpu_us: f64,
    /// The same of the mock.
    pub(super) backend_cpu_us: f64,
    /// The peer's memory afterwards, in KiB.
    pub(super) memory_kib: f64,
}

/// A figure of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// Good answers in a second.
    PerSecond,
    /// CPU time of the peer per good answer, in microseconds.
    Cpu,
    /// Time to the whole answer, in microseconds, at this percentile.
    Latency(&'static str),
    /// Time to the answer's first byte, in microseconds, at this percentile.
    First(&'static str),
}

impl Sample {
    /// Answers that are no success, and streams that lack their end.
    pub(super) fn faults(&self) -> u64 {
        ["limited", "bad", "broken", "unfinished"].iter().filter_map(|name| self.load[name].as_u64()).sum()
    }

    /// As JSON.
    pub(super) fn told(&self) -> Value {
        json!({
            "peer": self.peer,
            "case": self.case,
            "round": self.round,
            "cpu_us": rounded(self.cpu_us),
            "backend_cpu_us": rounded(self.backend_cpu_us),
            "memory_kib": self.memory_kib,
            "load": self.load,
        })
    }

    fn figure(&self, figure: Figure) -> f64 {
        let value = match figure {
            Figure::PerSecond => &self.load["per_second"],
            Figure::Cpu => return self.cpu_us,
            Figure::Latency(percentile) => &self.load["latency_us"][percentile],
            Figure::First(percentile) => &self.load["first_us"][percentile],
        };
        value.as_f64().unwrap_or(f64::NAN)
    }
}

/// All samples.
#[derive(Debug, Default)]
pub(super) struct Samples(pub(super) Vec<Sample>);

impl Samples {
    /// The median over the rounds.
    pub(super) fn median(&self, case: &str, peer: &str, figure: Figure) -> f64 {
        median(self.of(case, peer).map(|sample| sample.figure(figure)).collect())
    }

    /// The median of the ratios that each round gives.
    pub(super) fn ratio(&self, case: &str, (peer, other): (&str, &str), figure: Figure) -> f64 {
        median(self.pairs(case, peer, other, figure).map(|(own, others)| own / others).collect())
    }

    /// The median of what a peer adds to the direct way in the same round.
    pub(super) fn added(&self, case: &str, peer: &str, figure: Figure) -> f64 {
        median(self.pairs(case, peer, "direct", figure).map(|(own, direct)| own - direct).collect())
    }

    fn of(&self, case: &str, peer: &str) -> impl Iterator<Item = &Sample> {
        self.0.iter().filter(move |sample| sample.case == case && sample.peer == peer)
    }

    fn pairs(&self, case: &str, peer: &str, other: &str, figure: Figure) -> impl Iterator<Item = (f64, f64)> {
        let others: Vec<&Sample> = self.of(case, other).collect();
        self.of(case, peer).filter_map(move |own| {
            let other = others.iter().find(|other| other.round == own.round)?;
            Some((own.figure(figure), other.figure(figure)))
        })
    }
}

/// The median; not a number of nothing.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// To three decimals, for files that people compare.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(peer: &'static str, round: u32, per_second: f64) -> Sample {
        Sample {
            peer,
            case: "a".to_owned(),
            round,
            load: json!({"per_second": per_second, "limited": 2, "broken": 1}),
            cpu_us: 0.0,
            backend_cpu_us: 0.0,
            memory_kib: 0.0,
        }
    }

    #[test]
    fn a_ratio_compares_within_a_round_only() {
        let samples = Samples(vec![
            sample("x", 0, 10.0),
            sample("direct", 0, 20.0),
            sample("x", 1, 30.0),
            sample("direct", 1, 30.0),
            sample("x", 2, 99.0),
        ]);
        assert_eq!(samples.ratio("a", ("x", "direct"), Figure::PerSecond), 0.75);
        assert_eq!(samples.added("a", "x", Figure::PerSecond), -5.0);
        assert_eq!(samples.median("a", "x", Figure::PerSecond), 30.0);
        assert!(samples.median("b", "x", Figure::PerSecond).is_nan());
    }

    #[test]
    fn every_answer_that_is_no_success_is_a_fault() {
        assert_eq!(sample("x", 0, 1.0).faults(), 3);
    }
}
