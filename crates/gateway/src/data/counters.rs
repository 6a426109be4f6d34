//! What is counted about the data file.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Counters of the data file; copies count together.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    stored: Counter,
    dropped: Counter,
    commits: Counter,
    failed: Counter,
    waited: Counter,
    late: Counter,
    up: Gauge,
}

impl Counters {
    /// Registers them.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("data_records", "Finished requests stored in the data file", self.stored.clone());
        registry.register(
            "data_records_dropped",
            "Finished requests not stored, because the disk was too slow or failed",
            self.dropped.clone(),
        );
        registry.register("data_commits", "Commits to the data file", self.commits.clone());
        registry.register(
            "data_commits_failed",
            "Commits to the data file that failed and are tried again",
            self.failed.clone(),
        );
        registry.register(
            "data_claims_waited",
            "Admissions that waited for a commit, because they spent more than was claimed ahead",
            self.waited.clone(),
        );
        registry.register(
            "data_claims_late",
            "Admissions that went on without their commit, because the disk took too long",
            self.late.clone(),
        );
        registry.register(
            "data_up",
            "Whether the data file can be written; 0 also if none is kept",
            self.up.clone(),
        );
    }

    /// Records that are stored.
    #[must_use]
    pub fn records_stored(&self) -> u64 {
        self.stored.get()
    }

    /// Records that were lost on the way to the writer.
    #[must_use]
    pub fn records_dropped(&self) -> u64 {
        self.dropped.get()
    }

    pub(crate) fn dropped(&self) {
        self.dropped.inc();
    }

    pub(crate) fn committed(&self, records: usize) {
        self.stored.inc_by(records as u64);
        self.commits.inc();
        self.up.set(1);
    }

    pub(crate) fn failed(&self) {
        self.failed.inc();
        self.up.set(0);
    }

    pub(crate) fn waited(&self) {
        self.waited.inc();
    }

    pub(crate) fn late(&self) {
        self.late.inc();
    }

    pub(crate) fn opened(&self) {
        self.up.set(1);
    }

    pub(crate) fn closed(&self) {
        self.up.set(0);
    }
}
