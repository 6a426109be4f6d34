//! The lab's random numbers: SplitMix64 streams that are functions of a seed and an index alone.

use crate::logarithm::natural_logarithm;

/// One stream of random numbers, independent of the other streams of its seed.
///
/// Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014).
/// ```
/// use fairlane_lab::Stream;
/// let mut stream = Stream::seeded(1, 0);
/// assert!((stream.unit() - 0.699_074_019_008).abs() < 1e-12);
/// ```
#[derive(Clone, Debug)]
pub struct Stream {
    state: u64,
}

impl Stream {
    /// The stream with this index of this seed; its first output is already dropped, because close seeds give close first states.
    #[must_use]
    pub fn seeded(seed: u64, index: u64) -> Self {
        let state = seed.wrapping_mul(INCREMENT) ^ index.wrapping_add(1).wrapping_mul(STREAM_SPREAD);
        let mut stream = Self { state };
        stream.integer();
        stream
    }

    /// The next 64 random bits.
    pub fn integer(&mut self) -> u64 {
        self.state = self.state.wrapping_add(INCREMENT);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number strictly between 0 and 1, evenly distributed.
    pub fn unit(&mut self) -> f64 {
        const TWO_POW_53: f64 = 9_007_199_254_740_992.0;
        ((self.integer() >> 11) as f64 + 0.5) / TWO_POW_53
    }

    /// An exponentially distributed number of mean 1.
    pub fn exponential(&mut self) -> f64 {
        -natural_logarithm(self.unit())
    }

    /// A number evenly distributed between `low` and `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }
}

/// The golden-ratio increment of SplitMix64.
const INCREMENT: u64 = 0x9E37_79B9_7F4A_7C15;
/// Spreads stream indices apart; any odd constant unrelated to the increment would do.
const STREAM_SPREAD: u64 = 0xD1B5_4A32_D192_ED03;

#[cfg(test)]
mod tests {
    use super::Stream;

    #[test]
    fn the_first_numbers_are_those_of_the_lab_model() {
        let mut stream = Stream::seeded(1, 0);
        assert_eq!(format!("{:.12}", stream.unit()), "0.699074019008");
        assert_eq!(format!("{:.12}", stream.unit()), "0.470130072771");
    }

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let first: Vec<u64> = (0..64).map(|index| Stream::seeded(7, index).integer()).collect();
        let again: Vec<u64> = (0..64).map(|index| Stream::seeded(7, index).integer()).collect();
        let mut distinct = first.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(first, again);
        assert_eq!(distinct.len(), 64);
    }

    #[test]
    fn unit_and_exponential_have_their_means() {
        let mut stream = Stream::seeded(3, 1);
        let units: f64 = (0..100_000).map(|_| stream.unit()).sum::<f64>() / 100_000.0;
        let exponentials: f64 = (0..100_000).map(|_| stream.exponential()).sum::<f64>() / 100_000.0;
        assert!((units - 0.5).abs() < 0.005, "{units}");
        assert!((exponentials - 1.0).abs() < 0.015, "{exponentials}");
    }
}
