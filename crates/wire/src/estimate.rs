//! How many tokens a text has, as an interval, in one pass over its bytes and without a vocabulary.
//!
//! The cost of a byte is read from a table by the kinds of the byte before it and of itself: a letter
//! after a letter is cheap, a digit after a blank is dear, and letter pairs that seldom stand together
//! cost more, which tells base64 from prose. `costs.rs` holds the weights and says how they were fitted.

mod calibration;
mod costs;
mod escapes;

use std::sync::LazyLock;

pub use calibration::{Calibration, SAMPLES_MAX};
use costs::Cost;

/// How many tokens a text has: surely at least `low`, at most `high`, and probably about `mean`.
///
/// The interval covers both OpenAI vocabularies; for another one it holds after [`Calibration`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Tokens, the lower end.
    pub low: u64,
    /// Tokens, the best guess.
    pub mean: u64,
    /// Tokens, the upper end.
    pub high: u64,
}

impl Interval {
    /// The interval of a number that is known.
    #[must_use]
    pub const fn exactly(tokens: u64) -> Self {
        Self { low: tokens, mean: tokens, high: tokens }
    }

    /// Whether `tokens` lies within, the ends included.
    #[must_use]
    pub const fn contains(self, tokens: u64) -> bool {
        self.low <= tokens && tokens <= self.high
    }

    /// The interval of the sum of two independent numbers, end by end.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            low: self.low.saturating_add(other.low),
            mean: self.mean.saturating_add(other.mean),
            high: self.high.saturating_add(other.high),
        }
    }
}

/// What is known of a text after reading it: add up the pieces of a request, then ask once for the
/// interval, as the allowance for chance grows more slowly than the text.
///
/// # Examples
///
/// ```
/// use fairlane_wire::estimate::Shape;
///
/// let mut shape = Shape::default();
/// shape.add("The quick brown fox jumps over the lazy dog.");
/// assert!(shape.interval().contains(10));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    bytes: u64,
    low_millitokens: i64,
    mean_millitokens: i64,
    high_millitokens: i64,
}

impl Shape {
    /// Reads one more text, which begins a word of its own.
    pub fn add(&mut self, text: &str) {
        self.read(text.as_bytes(), START);
    }

    /// Reads what stands between the quotes of a JSON string, as the text that it means.
    pub fn add_escaped(&mut self, raw: &str) {
        let mut before = START;
        escapes::pieces(raw.as_bytes(), |piece| before = self.read(piece, before));
    }

    /// How many bytes of text were read, escapes resolved.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The interval of the whole. A token has at least one byte and, in the vocabularies in use,
    /// at most 128; chance is allowed two tokens and 1.5 standard deviations of a Poisson count.
    #[must_use]
    pub fn interval(&self) -> Interval {
        let mean_millitokens = self.mean_millitokens.max(0).unsigned_abs();
        let allowance = ALLOWANCE_MILLITOKENS + mean_millitokens.saturating_mul(2_250).isqrt();
        let low_millitokens = self.low_millitokens.max(0).unsigned_abs().saturating_sub(allowance);
        let high_millitokens = self.high_millitokens.max(0).unsigned_abs().saturating_add(allowance);
        let low = (low_millitokens / 1_000).max(self.bytes.div_ceil(TOKEN_BYTES_MAX)).min(self.bytes);
        let high = high_millitokens.div_ceil(1_000).clamp(low, self.bytes);
        let mean = (mean_millitokens / 1_000).clamp(low, high);
        Interval { low, mean, high }
    }

    /// Reads `bytes` as they continue after `before`, and gives the last of them.
    fn read(&mut self, bytes: &[u8], before: u8) -> u8 {
        let (classes, table) = (&COSTS.classes, &COSTS.table);
        let mut row = usize::from(classes[usize::from(before)]) * CLASSES;
        for block in bytes.chunks(BLOCK_BYTES) {
            let mut sums = 0_i64;
            for &byte in block {
                let class = usize::from(classes[usize::from(byte)]);
                sums += table[(row + class) % TABLE_ENTRIES];
                row = class * CLASSES;
            }
            let cost = unpack(sums);
            self.low_millitokens += cost[0];
            self.mean_millitokens += cost[1];
            self.high_millitokens += cost[2];
        }
        self.bytes += bytes.len() as u64;
        bytes.last().copied().unwrap_or(before)
    }
}

/// The table that `read` looks costs up in.
struct Costs {
    /// Bytes that cost the same share a class: ASCII but the controls each have their own.
    classes: [u8; 256],
    /// By class of the byte before and class of the byte: low, mean and high in three lanes of one
    /// word, so that one addition sums all three.
    table: Box<[i64; TABLE_ENTRIES]>,
}

static COSTS: LazyLock<Costs> = LazyLock::new(|| {
    let mut classes = [0; 256];
    let mut table = Box::new([0; TABLE_ENTRIES]);
    for byte in 0..=u8::MAX {
        classes[usize::from(byte)] = costs::class(byte);
    }
    for before in 0..=u8::MAX {
        for byte in 0..=u8::MAX {
            let row = usize::from(classes[usize::from(before)]) * CLASSES;
            table[row + usize::from(classes[usize::from(byte)])] = pack(costs::cost(before, byte));
        }
    }
    Costs { classes, table }
});

const fn pack(cost: Cost) -> i64 {
    let [low, mean, high] = cost;
    low as i64 + ((mean as i64) << LANE_BITS) + ((high as i64) << (2 * LANE_BITS))
}

const fn unpack(sums: i64) -> [i64; 3] {
    let low = lowest_lane(sums);
    let rest = (sums - low) >> LANE_BITS;
    let mean = lowest_lane(rest);
    [low, mean, (rest - mean) >> LANE_BITS]
}

const fn lowest_lane(sums: i64) -> i64 {
    (sums << (64 - LANE_BITS)) >> (64 - LANE_BITS)
}

/// What stands before a text: a new line, which ends every word.
const START: u8 = b'\n';
/// Classes of bytes, a power of two so that the place in the table is a shift away.
const CLASSES: usize = 128;
const TABLE_ENTRIES: usize = CLASSES * CLASSES;
const LANE_BITS: u32 = 21;
/// So many bytes at most [`costs::DEAREST_MILLITOKENS`] each stay inside a signed lane of 21 bits.
const BLOCK_BYTES: usize = 192;
const TOKEN_BYTES_MAX: u64 = 128;
const ALLOWANCE_MILLITOKENS: u64 = 2_000;

const _: () = assert!(BLOCK_BYTES as i64 * (costs::DEAREST_MILLITOKENS as i64) < 1 << (LANE_BITS - 1));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_keep_their_sums_apart_even_when_negative() {
        let costs = [[-450, 0, 4_200], [0, -450, -450], [77, 3, -1]];
        let sums = costs.iter().map(|&cost| pack(cost)).sum();
        assert_eq!(unpack(sums), [-373, -447, 3_749]);
    }

    #[test]
    fn no_pair_of_bytes_costs_more_than_the_lanes_hold() {
        for before in 0..=u8::MAX {
            for byte in 0..=u8::MAX {
                let cost = costs::cost(before, byte);
                assert!(cost.iter().all(|part| part.abs() <= costs::DEAREST_MILLITOKENS), "{before} {byte}");
            }
        }
    }

    #[test]
    fn an_escaped_text_has_the_interval_of_what_it_means() {
        let text = "fn main() {\n\tprintln!(\"é 😀 \\\\\");\n}\u{1}";
        let raw = r#"fn main() {\n\tprintln!(\"\u00e9 \ud83d\uDE00 \\\\\");\n}\u0001"#;
        let (mut plain, mut escaped) = (Shape::default(), Shape::default());
        plain.add(text);
        escaped.add_escaped(raw);
        assert_eq!(plain, escaped);
    }

    #[test]
    fn nothing_has_no_tokens() {
        assert_eq!(Shape::default().interval(), Interval::exactly(0));
    }
}
