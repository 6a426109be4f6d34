//! Sums per tenant since the start, by the tenant's name: a reload keeps them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Sums of one tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that ended, refused ones included.
    pub requests: u64,
    /// Requests that the gate refused.
    pub refused: u64,
    /// Input tokens, cached ones included.
    pub input: u64,
    /// Cached input tokens.
    pub cached: u64,
    /// Output tokens.
    pub output: u64,
    /// Work in the pools' weights, in thousandths of a token.
    pub work_millis: u64,
}

/// Where one tenant's sums are kept.
#[derive(Debug, Default)]
pub struct Sums {
    requests: AtomicU64,
    refused: AtomicU64,
    input: AtomicU64,
    cached: AtomicU64,
    output: AtomicU64,
    work_millis: AtomicU64,
}

/// Sums of all tenants. Bounded by the configuration's tenants.
#[derive(Debug, Default)]
pub struct Tallies {
    tenants: Mutex<HashMap<String, Arc<Sums>>>,
}

impl Tallies {
    /// A tenant's sums.
    #[must_use]
    pub fn of(&self, tenant: &str) -> Tally {
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.get(tenant).map(|sums| sums.read()).unwrap_or_default()
    }

    /// Where a tenant's sums are kept, to add to them without looking for them again.
    #[must_use]
    pub fn sums(&self, tenant: &str) -> Arc<Sums> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        match tenants.get(tenant) {
            Some(sums) => Arc::clone(sums),
            None => Arc::clone(tenants.entry(tenant.to_owned()).or_default()),
        }
    }
}

impl Sums {
    /// Adds to them.
    pub fn add(&self, more: &Tally) {
        for (sum, more) in [
            (&self.requests, more.requests),
            (&self.refused, more.refused),
            (&self.input, more.input),
            (&self.cached, more.cached),
            (&self.output, more.output),
            (&self.work_millis, more.work_millis),
        ] {
            sum.fetch_add(more, Ordering::Relaxed);
        }
    }

    fn read(&self) -> Tally {
        let read = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        Tally {
            requests: read(&self.requests),
            refused: read(&self.refused),
            input: read(&self.input),
            cached: read(&self.cached),
            output: read(&self.output),
            work_millis: read(&self.work_millis),
        }
    }
}
