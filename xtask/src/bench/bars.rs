//! The bars: what is asked of each figure, and whether it is reached.

use serde_json::{Value, json};

use super::figures::{Figure, rounded};
use super::proxies::{BODIES_BYTES, Measured};

/// A figure with its bar.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// What is measured.
    pub(super) measure: String,
    /// The figures of the peers, as text.
    pub(super) peers: Vec<(&'static str, String)>,
    /// What is judged.
    pub(super) value: f64,
    /// Its unit: `× nginx`, `µs`, `MiB`.
    pub(super) unit: &'static str,
    /// The bar.
    pub(super) bar: Bar,
}

/// What is asked of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bar {
    /// Which way is better.
    pub(super) better: Better,
    /// What must be.
    pub(super) must: Option<f64>,
    /// What is wished for.
    pub(super) goal: Option<f64>,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    /// More.
    More,
    /// Less.
    Less,
}

/// How a figure stands to its bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// The goal is reached.
    Goal,
    /// What must be is reached.
    Must,
    /// It is missed.
    Missed,
    /// There is no bar, or no figure.
    Open,
}

impl Row {
    /// How it stands.
    pub(super) fn mark(&self) -> Mark {
        let reaches = |bound: f64| match self.bar.better {
            Better::More => self.value >= bound,
            Better::Less => self.value <= bound,
        };
        match (self.bar.must.map(reaches), self.bar.goal.map(reaches)) {
            _ if self.value.is_nan() => Mark::Open,
            (Some(false), _) => Mark::Missed,
            (_, Some(true)) => Mark::Goal,
            (Some(true), _) => Mark::Must,
            (None, _) => Mark::Open,
        }
    }

    /// As JSON.
    pub(super) fn told(&self) -> Value {
        let peers: serde_json::Map<String, Value> =
            self.peers.iter().map(|(peer, text)| ((*peer).to_owned(), json!(text))).collect();
        json!({
            "measure": self.measure,
            "peers": peers,
            "value": rounded(self.value),
            "unit": self.unit,
            "must": self.bar.must,
            "goal": self.bar.goal,
            "mark": self.mark().word(),
        })
    }
}

impl Bar {
    /// Only shown.
    pub(super) const NONE: Self = Self { better: Better::Less, must: None, goal: None };

    /// At most so much, and as a goal so much.
    pub(super) const fn at_most(must: f64, goal: f64) -> Self {
        Self { better: Better::Less, must: Some(must), goal: Some(goal) }
    }

    /// At least so much, and as a goal so much.
    pub(super) const fn at_least(must: f64, goal: f64) -> Self {
        Self { better: Better::More, must: Some(must), goal: Some(goal) }
    }
}

impl Mark {
    /// The word in tables.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Goal => "goal",
            Self::Must => "must",
            Self::Missed => "MISSED",
            Self::Open => "",
        }
    }
}

/// The rows of the proxies' bench; those that were not measured are left out.
pub(super) fn of_proxies(measured: &Measured) -> Vec<Row> {
    let view = View(measured);
    let mut rows = vec![
        view.ratio(
            "saturation",
            "saturation, answers/s",
            Figure::PerSecond,
            ("nginx", "× nginx"),
            Bar::at_least(0.6, 1.0),
        ),
        view.ratio("saturation", "CPU µs/request", Figure::Cpu, ("nginx", "× nginx"), Bar::at_most(2.0, 1.0)),
        view.added("single", "added p50 µs, 1 connection", Figure::Latency("p50"), Bar::at_most(1.5, 1.0)),
        view.added("fixed", "added p50 µs, 500/s", Figure::Latency("p50"), Bar::at_most(1.5, 1.0)),
        view.tail(),
        view.ratio(
            "streams",
            "streams/s",
            Figure::PerSecond,
            ("direct", "× direct"),
            Bar { goal: None, ..Bar::at_least(0.8, 0.8) },
        ),
        view.ratio(
            "streams",
            "streams/s",
            Figure::PerSecond,
            ("nginx", "× nginx"),
            Bar { must: None, ..Bar::at_least(1.0, 1.0) },
        ),
        view.ratio("streams", "CPU µs/stream", Figure::Cpu, ("nginx", "× nginx"), Bar::at_most(1.5, 1.0)),
        view.added("first-byte", "added p50 µs to first byte", Figure::First("p50"), Bar::at_most(1.5, 1.0)),
        view.joined(),
    ];
    rows.extend(view.memory());
    rows.push(view.tenants());
    rows.extend(view.bodies());
    rows.retain(|row| !row.value.is_nan());
    rows.extend(view.sums());
    rows
}

struct View<'a>(&'a Measured);

impl View<'_> {
    fn ratio(
        &self,
        case: &str,
        measure: &str,
        figure: Figure,
        (other, unit): (&'static str, &'static str),
        bar: Bar,
    ) -> Row {
        let samples = &self.0.samples;
        let peers = PEERS.map(|peer| (peer, number(samples.median(case, peer, figure))));
        let value = samples.ratio(case, (FAIRLANE, other), figure);
        Row { measure: measure.to_owned(), peers: peers.to_vec(), value, unit, bar }
    }

    fn added(&self, case: &str, measure: &str, figure: Figure, bar: Bar) -> Row {
        let samples = &self.0.samples;
        let added = |peer| samples.added(case, peer, figure);
        let peers = PEERS.map(|peer| match peer {
            "direct" => (peer, format!("({})", number(samples.median(case, peer, figure)))),
            _ if added(peer) < 0.0 => (peer, number(added(peer))),
            _ => (peer, format!("+{}", number(added(peer)))),
        });
        // Where nginx adds less than the noise there is nothing to compare with.
        let value = added(FAIRLANE) / added("nginx").max(NOISE_US);
        Row { measure: measure.to_owned(), peers: peers.to_vec(), value, unit: "× nginx", bar }
    }

    /// What is added at the 99th percentile: shown beside the median, as no bar stands on so rare a thing.
    fn tail(&self) -> Row {
        let row = self.added("fixed", "added p99 µs, 500/s", Figure::Latency("p99"), Bar::NONE);
        let value = self.0.samples.added("fixed", FAIRLANE, Figure::Latency("p99"));
        Row { value, unit: "µs", ..row }
    }

    /// Events that came together with the one before, though the backend paused between them.
    fn joined(&self) -> Row {
        let share = |peer: &str| {
            let samples = self.0.samples.0.iter().filter(|s| s.case == "first-byte" && s.peer == peer);
            let (joined, events) = samples.fold((0.0, 0.0), |(joined, events), sample| {
                let of = |name: &str| sample.load[name].as_f64().unwrap_or_default();
                (joined + of("joined"), events + of("events"))
            });
            100.0 * joined / events
        };
        let peers = PEERS.map(|peer| (peer, format!("{} %", number(share(peer)))));
        let value = share(FAIRLANE) - share("direct");
        Row {
            measure: "events that came late, 5 ms apart".to_owned(),
            peers: peers.to_vec(),
            value,
            unit: "% above direct",
            bar: Bar::NONE,
        }
    }

    fn memory(&self) -> Vec<Row> {
        let kib = |name: String| self.0.memory.get(&name).copied().unwrap_or(f64::NAN);
        let row = |measure: &str, of: &str, (divisor, unit): (f64, &'static str), bar: Bar| {
            let figure = |peer: &str| kib(format!("{peer} {of}")) / divisor;
            let peers = PEERS.map(|peer| (peer, number(figure(peer))));
            Row { measure: measure.to_owned(), peers: peers.to_vec(), value: figure(FAIRLANE), unit, bar }
        };
        let alone = |measure: &str, name: &str, bar: Bar| {
            let value = kib(name.to_owned()) / KIB_PER_MIB;
            let peers = vec![(FAIRLANE, number(value))];
            Row { measure: measure.to_owned(), peers, value, unit: "MiB", bar }
        };
        vec![
            row("memory idle MiB", "idle", (KIB_PER_MIB, "MiB"), Bar::at_most(60.0, 30.0)),
            alone("with an exact tokenizer MiB", "fairlane-exact loaded", Bar::at_most(150.0, 100.0)),
            row("after the rounds MiB", "loaded", (KIB_PER_MIB, "MiB"), Bar::NONE),
            row("per open stream KiB (1,000 open)", "per stream", (1.0, "KiB"), Bar::at_most(64.0, 24.0)),
            alone("100,000 tenants of three limits, idle MiB", "fairlane-100000 idle", MANY_TENANTS),
        ]
    }

    /// CPU time per request at ten thousand tenants against one.
    fn tenants(&self) -> Row {
        let cpu = |name: &str, tenants: usize| {
            self.0.samples.median(&format!("tenants {tenants}"), name, Figure::Cpu)
        };
        let (one, many) = (cpu("fairlane-1", 1), cpu("fairlane-10000", 10_000));
        let told = format!("{} → {} → {}", number(one), number(cpu(FAIRLANE, 1_000)), number(many));
        Row {
            measure: "CPU µs/request, 1 → 1,000 → 10,000 tenants".to_owned(),
            peers: vec![(FAIRLANE, told)],
            value: many / one,
            unit: "×",
            bar: Bar::at_most(1.1, 1.03),
        }
    }

    /// The slope of CPU time over the size of bodies, and whether it grows.
    fn bodies(&self) -> [Row; 2] {
        let cpu =
            |peer: &str, bytes: usize| self.0.samples.median(&format!("body {bytes}"), peer, Figure::Cpu);
        let slope = |peer: &str, from: usize, to: usize| {
            (cpu(peer, to) - cpu(peer, from)) / (to - from) as f64 * BYTES_PER_KB
        };
        let [least, _, large, largest] = BODIES_BYTES;
        let whole = |peer: &str| slope(peer, least, largest);
        let told = |peer: &str| BODIES_BYTES.map(|bytes| number(cpu(peer, bytes))).join(" → ");
        let estimating = "fairlane-estimate";
        [
            Row {
                measure: "CPU µs/request, body 1 kB → 10 kB → 100 kB → 1 MB".to_owned(),
                peers: vec![("nginx", told("nginx")), (FAIRLANE, told(estimating))],
                value: whole(estimating) / whole("nginx"),
                unit: "× nginx's slope",
                bar: Bar::at_most(1.5, 1.0),
            },
            Row {
                measure: "slope 100 kB → 1 MB over slope 1 kB → 100 kB".to_owned(),
                peers: ["nginx", estimating]
                    .map(|peer| slope(peer, large, largest) / slope(peer, least, large))
                    .map(number)
                    .into_iter()
                    .zip(["nginx", FAIRLANE])
                    .map(|(told, peer)| (peer, told))
                    .collect(),
                value: slope(estimating, large, largest) / slope(estimating, least, large),
                unit: "×",
                bar: Bar::at_most(1.25, 1.0),
            },
        ]
    }

    fn sums(&self) -> Vec<Row> {
        let row = |(name, sums): &(&'static str, super::stage::Sums)| Row {
            measure: format!("{name}: tokens charged − tokens reported, {} answers", sums.answers),
            peers: vec![(FAIRLANE, format!("{} of {}", sums.charged, sums.reported))],
            value: sums.charged as f64 - sums.reported as f64,
            unit: "tokens",
            bar: Bar::NONE,
        };
        self.0.sums.iter().map(row).collect()
    }
}

/// A number with about three digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "–".to_owned(),
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// 100 MB.
const MANY_TENANTS: Bar = Bar { better: Better::Less, must: Some(95.4), goal: None };
/// The columns, in their order.
pub(super) const PEERS: [&str; 4] = ["direct", "nginx", "haproxy", FAIRLANE];
const FAIRLANE: &str = "fairlane";
const KIB_PER_MIB: f64 = 1_024.0;
const BYTES_PER_KB: f64 = 1_000.0;
/// Differences between medians below this are noise on a shared machine.
const NOISE_US: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(value: f64, bar: Bar) -> Mark {
        Row { measure: String::new(), peers: Vec::new(), value, unit: "", bar }.mark()
    }

    #[test]
    fn a_figure_on_its_bar_has_reached_it() {
        assert_eq!(mark(0.6, Bar::at_least(0.6, 1.0)), Mark::Must);
        assert_eq!(mark(1.0, Bar::at_least(0.6, 1.0)), Mark::Goal);
        assert_eq!(mark(0.59, Bar::at_least(0.6, 1.0)), Mark::Missed);
        assert_eq!(mark(2.0, Bar::at_most(2.0, 1.0)), Mark::Must);
        assert_eq!(mark(2.1, Bar::at_most(2.0, 1.0)), Mark::Missed);
        assert_eq!(mark(f64::NAN, Bar::at_most(2.0, 1.0)), Mark::Open);
        assert_eq!(mark(2.1, Bar::NONE), Mark::Open);
    }

    #[test]
    fn nothing_measured_gives_no_rows() {
        assert!(of_proxies(&Measured::default()).is_empty());
    }
}
