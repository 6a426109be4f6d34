//! The natural logarithm and its inverse, computed with the same rounding on every machine.
//!
//! The standard library takes `ln` from the platform's mathematics library, whose last bit differs between
//! systems; one such bit moves an arrival and with it a whole simulated run. Only the four basic
//! operations are used here: IEEE 754 fixes their results.

/// The natural logarithm of `x`, within one unit in the last place.
///
/// Writes x = 2^e * m with m between sqrt(1/2) and sqrt(2), and sums the series of the inverse hyperbolic
/// tangent, ln m = 2 (s + s^3/3 + s^5/5 + ...) with s = (m - 1) / (m + 1) (Abramowitz and Stegun, 4.1.27).
/// Zero gives minus infinity, a negative number gives NaN, infinity and NaN give themselves.
#[must_use]
pub fn natural_logarithm(x: f64) -> f64 {
    if x.is_nan() || x == f64::INFINITY {
        return x;
    }
    if x <= 0.0 {
        return if x == 0.0 { f64::NEG_INFINITY } else { f64::NAN };
    }
    let (mantissa, exponent) = split(x);
    let f = mantissa - 1.0;
    let s = f / (2.0 + f);
    // 2 s = f - s f, so ln m = f - s (f - tail): the exact f carries the leading bits, not the rounded s.
    let logarithm_low = s * (f - tail(s * s));
    exponent * LN_2_HIGH + (f - (logarithm_low - exponent * LN_2_LOW))
}

/// e to the power of `x`, to about 15 digits; zero below e^-700 and infinite above e^700.
///
/// Writes x = n ln 2 + r with |r| at most half of ln 2 and sums the exponential series of r (Abramowitz and Stegun, 4.2.1).
#[must_use]
pub fn exponential_function(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.abs() > 700.0 {
        return if x > 0.0 { f64::INFINITY } else { 0.0 };
    }
    let n = (x / core::f64::consts::LN_2).round();
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    let series = (1..=16).rev().fold(1.0, |sum, divisor| 1.0 + r * sum / f64::from(divisor));
    series * f64::from_bits(((n as i64 + EXPONENT_BIAS) as u64) << MANTISSA_BITS)
}

/// x = mantissa * 2^exponent, the mantissa between sqrt(1/2) and sqrt(2).
fn split(x: f64) -> (f64, f64) {
    let (normal, shift) = if x < f64::MIN_POSITIVE { (x * TWO_POW_54, -54) } else { (x, 0) };
    let bits = normal.to_bits();
    let exponent = (bits >> MANTISSA_BITS) as i64 - EXPONENT_BIAS + shift;
    let mantissa = f64::from_bits((bits & MANTISSA_MASK) | ((EXPONENT_BIAS as u64) << MANTISSA_BITS));
    if mantissa > core::f64::consts::SQRT_2 {
        (mantissa / 2.0, (exponent + 1) as f64)
    } else {
        (mantissa, exponent as f64)
    }
}

/// 2 (z/3 + z^2/5 + z^3/7 + ...) for z = s^2 of at most 0.0295: the twelfth term is below 2^-60.
fn tail(z: f64) -> f64 {
    let mut sum = 0.0;
    for divisor in [25.0, 23.0, 21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0] {
        sum = z * (1.0 / divisor + sum);
    }
    2.0 * sum
}

/// ln 2 in two parts: the first has so few bits that a multiple of it by an exponent is exact.
const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
/// 2^54 makes every subnormal number normal.
const TWO_POW_54: f64 = 18_014_398_509_481_984.0;
const EXPONENT_BIAS: i64 = 1_023;
const MANTISSA_BITS: u32 = 52;
const MANTISSA_MASK: u64 = (1 << MANTISSA_BITS) - 1;

#[cfg(test)]
mod tests {
    use super::{exponential_function, natural_logarithm};

    /// Distance in units in the last place of `expected`.
    fn ulps(got: f64, expected: f64) -> u64 {
        got.to_bits().abs_diff(expected.to_bits())
    }

    #[test]
    fn known_values_are_met_within_one_unit_in_the_last_place() {
        // Digits from a 40-digit decimal computation, rounded to the nearest double by the compiler.
        for (x, expected) in KNOWN {
            assert!(
                ulps(natural_logarithm(x), expected) <= 1,
                "ln {x}: {} for {expected}",
                natural_logarithm(x)
            );
        }
    }

    #[test]
    fn one_is_exactly_zero_and_the_edges_are_those_of_ieee() {
        assert_eq!(natural_logarithm(1.0), 0.0);
        assert_eq!(natural_logarithm(0.0), f64::NEG_INFINITY);
        assert_eq!(natural_logarithm(f64::INFINITY), f64::INFINITY);
        assert!(natural_logarithm(-1.0).is_nan());
        assert!(natural_logarithm(f64::NAN).is_nan());
    }

    #[test]
    fn powers_of_two_are_multiples_of_ln_2_down_to_the_smallest_subnormal() {
        for exponent in [-1_074, -1_022, -54, -1, 1, 52, 1_023] {
            let power = if exponent < -1_022 {
                f64::from_bits(1)
            } else {
                f64::from_bits(((exponent + 1_023) as u64) << 52)
            };
            let expected = f64::from(exponent) * core::f64::consts::LN_2;
            assert!((natural_logarithm(power) / expected - 1.0).abs() < 1e-15, "2^{exponent}");
        }
    }

    #[test]
    fn the_exponential_function_undoes_the_logarithm() {
        for x in [1e-300, 0.001, 0.5, 1.0, 2.5, 1_000.0, 1e300] {
            let again = exponential_function(natural_logarithm(x));
            assert!((again / x - 1.0).abs() < 1e-12, "{x}: {again}");
        }
        assert_eq!(exponential_function(0.0), 1.0);
        assert_eq!(exponential_function(-800.0), 0.0);
        assert_eq!(exponential_function(800.0), f64::INFINITY);
    }

    #[test]
    fn it_never_falls_as_its_argument_rises() {
        let mut previous = f64::NEG_INFINITY;
        for step in 1..200_000_u32 {
            let value = natural_logarithm(f64::from(step) / 100_000.0);
            assert!(value >= previous, "at {step}");
            previous = value;
        }
    }

    #[expect(clippy::approx_constant, clippy::excessive_precision, reason = "the digits are the test")]
    const KNOWN: [(f64, f64); 10] = [
        (0.5, -0.6931471805599453094172321),
        (2.0, 0.6931471805599453094172321),
        (3.0, 1.098612288668109691395245),
        (10.0, 2.302585092994045684017991),
        (0.1, -2.302585092994045628506840),
        (0.75, -0.2876820724517809274392190),
        (1.25, 0.2231435513142097557662951),
        (0.999999, -0.000001000000500029089026855238),
        (1.414213562373095, 0.3465735902799725660574568),
        (123456.789, 11.72364648718588101602963),
    ];
}
