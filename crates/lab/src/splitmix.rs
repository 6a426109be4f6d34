//! The lab's random numbers: SplitMix64 streams that are functions of a seed and an index alone.

use crate::logarithm::{exponential_function, natural_logarithm};

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

    /// A number of the standard normal distribution, by the polar method (Marsaglia and Bray, 1964).
    pub fn normal(&mut self) -> f64 {
        loop {
            let (u, v) = (self.between(-1.0, 1.0), self.between(-1.0, 1.0));
            let square = u * u + v * v;
            if square > 0.0 && square < 1.0 {
                // The square root is correctly rounded everywhere, as IEEE 754 asks.
                return u * (-2.0 * natural_logarithm(square) / square).sqrt();
            }
        }
    }

    /// A gamma distributed number of mean 1 whose variance is 1 / `shape`, by the method of Marsaglia and Tsang, "A simple method
    /// for generating gamma variables" (2000).
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            // A larger shape's number times a power of an even one has this shape.
            let larger = self.gamma(shape + 1.0) * (shape + 1.0);
            return larger * exponential_function(natural_logarithm(self.unit()) / shape) / shape;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let root = 1.0 + c * x;
            let v = root * root * root;
            if root > 0.0
                && natural_logarithm(self.unit()) < 0.5 * x * x + d * (1.0 - v + natural_logarithm(v))
            {
                return d * v / shape;
            }
        }
    }

    /// A whole number from 0 to below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of a product with 64 random bits: even to one part in 2^64 / bound.
        ((u128::from(self.integer()) * u128::from(bound)) >> 64) as u64
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

    #[test]
    fn gamma_numbers_have_mean_1_and_the_variance_asked_for() {
        for shape in [0.25, 1.0, 4.0] {
            let mut stream = Stream::seeded(3, 1);
            let numbers: Vec<f64> = (0..200_000).map(|_| stream.gamma(shape)).collect();
            let mean = numbers.iter().sum::<f64>() / 200_000.0;
            let variance = numbers.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 200_000.0;
            assert!((mean - 1.0).abs() < 0.02, "{shape}: mean {mean}");
            assert!((variance * shape - 1.0).abs() < 0.05, "{shape}: variance {variance}");
        }
    }

    #[test]
    fn whole_numbers_below_a_bound_are_even() {
        let mut stream = Stream::seeded(5, 0);
        let mut counts = [0_u32; 7];
        (0..70_000).for_each(|_| counts[stream.below(7) as usize] += 1);
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 500), "{counts:?}");
    }
}
