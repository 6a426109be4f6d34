//! Sums per tenant since the start, by the tenant's name: a reload keeps them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

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

/// Sums of all tenants. Bounded by the configuration's tenants.
#[derive(Debug, Default)]
pub struct Tallies {
    tenants: Mutex<HashMap<String, Tally>>,
}

impl Tallies {
    /// A tenant's sums.
    #[must_use]
    pub fn of(&self, tenant: &str) -> Tally {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner).get(tenant).copied().unwrap_or_default()
    }

    /// Adds to a tenant's sums.
    pub fn add(&self, tenant: &str, more: &Tally) {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = match tenants.get_mut(tenant) {
            Some(sum) => sum,
            None => tenants.entry(tenant.to_owned()).or_default(),
        };
        sum.requests += more.requests;
        sum.refused += more.refused;
        sum.input += more.input;
        sum.cached += more.cached;
        sum.output += more.output;
        sum.work_millis += more.work_millis;
    }
}
