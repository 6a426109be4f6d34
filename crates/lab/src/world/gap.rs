//! The fairness gap: how far the service of two tenants drifts apart while both have requests waiting.

/// Follows what tenants were served. Source: the service bound of Sheng et al., "Fairness in serving large language models"
/// (OSDI 2024), which holds between tenants that are backlogged all the while.
#[derive(Clone, Debug)]
pub(super) struct Gap {
    /// Work served, in thousandths of a token.
    served: Vec<u64>,
    waiting: Vec<u32>,
    /// Per pair of backlogged tenants: the least and the largest difference since both are.
    pairs: Vec<Option<(i64, i64)>>,
    widest: u64,
    /// A tenant that waits was served since the pairs were looked at.
    is_stale: bool,
}

impl Gap {
    pub(super) fn new(tenants: usize) -> Self {
        let followed = tenants.min(FOLLOWED_MAX);
        Self {
            served: vec![0; tenants],
            waiting: vec![0; tenants],
            pairs: vec![None; followed * followed],
            widest: 0,
            is_stale: false,
        }
    }

    pub(super) fn waits(&mut self, tenant: usize) {
        self.waiting[tenant] += 1;
        if self.waiting[tenant] > 1 || tenant >= self.followed() {
            return;
        }
        let followed = self.followed();
        for other in 0..followed {
            if other != tenant && self.waiting[other] > 0 {
                let pair = ordered(tenant, other);
                let difference = self.difference(pair);
                self.pairs[pair.0 * followed + pair.1] = Some((difference, difference));
            }
        }
    }

    pub(super) fn waits_no_more(&mut self, tenant: usize) {
        self.look();
        self.waiting[tenant] = self.waiting[tenant].saturating_sub(1);
        if self.waiting[tenant] > 0 || tenant >= self.followed() {
            return;
        }
        let followed = self.followed();
        for other in 0..followed {
            let (first, second) = ordered(tenant, other);
            self.pairs[first * followed + second] = None;
        }
    }

    pub(super) fn serves(&mut self, tenant: usize, work_millis: u64) {
        self.served[tenant] += work_millis;
        self.is_stale |= self.waiting[tenant] > 0;
    }

    /// Compares what was served since the last look; called once after each step of an engine.
    pub(super) fn look(&mut self) {
        if !std::mem::take(&mut self.is_stale) {
            return;
        }
        let followed = self.followed();
        for first in 0..followed {
            for second in first + 1..followed {
                let difference = self.difference((first, second));
                if let Some((least, largest)) = &mut self.pairs[first * followed + second] {
                    *least = difference.min(*least);
                    *largest = difference.max(*largest);
                    self.widest = self.widest.max(largest.abs_diff(*least));
                }
            }
        }
    }

    /// The widest drift of any pair, in tokens of the pool's work.
    pub(super) fn widest(&self) -> f64 {
        self.widest as f64 / 1_000.0
    }

    /// Work served to a tenant, in thousandths of a token.
    pub(super) fn served(&self, tenant: usize) -> u64 {
        self.served[tenant]
    }

    fn followed(&self) -> usize {
        self.served.len().min(FOLLOWED_MAX)
    }

    fn difference(&self, (first, second): (usize, usize)) -> i64 {
        self.served[first] as i64 - self.served[second] as i64
    }
}

const fn ordered(one: usize, other: usize) -> (usize, usize) {
    if one < other { (one, other) } else { (other, one) }
}

/// Tenants whose pairs are followed: beyond these the first ones stand for all.
const FOLLOWED_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::Gap;

    #[test]
    fn only_what_is_served_while_both_wait_counts() {
        let mut gap = Gap::new(3);
        gap.waits(0);
        gap.serves(0, 5_000);
        gap.look();
        assert_eq!(gap.widest(), 0.0);
        gap.waits(1);
        gap.serves(0, 3_000);
        gap.look();
        gap.serves(1, 7_000);
        gap.look();
        assert_eq!(gap.widest(), 7.0);
        gap.waits_no_more(1);
        gap.serves(0, 90_000);
        gap.look();
        gap.waits(1);
        gap.serves(1, 2_000);
        gap.look();
        assert_eq!(gap.widest(), 7.0);
    }
}
