//! Counts the tokens of generated text by the class of each byte: about a nanosecond a byte, no table of words.
//!
//! The weights are fitted to what byte-pair vocabularies of 100,000 and more entries do: a short word is one token, three digits are
//! one, punctuation pairs up, scripts outside ASCII cost a share per character. It is for text whose usage never comes.

// Weights in hundredths of a token.
const WORD: u8 = 100;
const LETTER_OF_LONG_WORD: u8 = 13;
const SHORT_WORD_LETTERS: u8 = 7;
const DIGITS: u8 = 100;
const PUNCTUATION_MARK: u8 = 90;
const MORE_PUNCTUATION: u8 = 30;
const LINE_END: u8 = 40;
const MORE_LINE_ENDS: u8 = 4;
const INDENT: u8 = 40;
const TWO_BYTES: u8 = 33;
const THREE_BYTES: u8 = 68;
const FOUR_BYTES: u8 = 200;

// Classes of bytes. What is seen so far is a class and the length of its run, packed as `class * RUNS + run`; 0 is the start.
const LOWER: u8 = 1;
const UPPER: u8 = 2;
const DIGIT: u8 = 3;
const BLANK: u8 = 4;
const LINE: u8 = 5;
const PUNCTUATION: u8 = 6;
const OTHER: u8 = 7;
// First bytes of characters outside ASCII: classes of a byte only, seen as OTHER.
const LEAD_OF_TWO: u8 = 8;
const LEAD_OF_THREE: u8 = 9;
const LEAD_OF_FOUR: u8 = 10;
/// A power of two, so that a row is found by its bits.
const CLASSES: usize = 16;
const RUNS: u8 = 16;
const STATES: usize = OTHER as usize * RUNS as usize + RUNS as usize;

/// The class of each byte.
static CLASS: [u16; 256] = classes();
/// For each state and class: the place of the next state's row, and the weight of the byte.
static STEP: [(u16, u16); STATES * CLASSES] = steps();

/// The estimate for one piece of text, fed in parts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Where the row of the state starts in [`STEP`].
    row: u16,
    hundredths: u64,
    bytes: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, text: &[u8]) {
        self.bytes = self.bytes.saturating_add(text.len() as u64);
        let mut row = self.row;
        let mut hundredths = 0_u64;
        for &byte in text {
            let (next, weight) = STEP[usize::from(row | CLASS[usize::from(byte)]) % STEP.len()];
            row = next;
            hundredths += u64::from(weight);
        }
        self.row = row;
        self.hundredths = self.hundredths.saturating_add(hundredths);
    }

    /// Whole tokens: at least one if there was any text.
    pub(crate) fn tokens(&self) -> u64 {
        (self.hundredths.saturating_add(50) / 100).max(u64::from(self.bytes > 0))
    }
}

const fn classes() -> [u16; 256] {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let class = match byte as u8 {
            b'a'..=b'z' => LOWER,
            b'A'..=b'Z' => UPPER,
            b'0'..=b'9' => DIGIT,
            b' ' | b'\t' => BLANK,
            b'\n' | b'\r' => LINE,
            0xf0.. => LEAD_OF_FOUR,
            0xe0.. => LEAD_OF_THREE,
            0xc0.. => LEAD_OF_TWO,
            0x80.. => OTHER,
            _ => PUNCTUATION,
        };
        classes[byte] = class as u16;
        byte += 1;
    }
    classes
}

const fn steps() -> [(u16, u16); STATES * CLASSES] {
    let mut steps = [(0, 0); STATES * CLASSES];
    let mut place = 0;
    while place < steps.len() {
        let (state, class) = (place / CLASSES, place % CLASSES);
        let (next, weight) = step(state as u8, class as u8);
        steps[place] = (next as u16 * CLASSES as u16, weight as u16);
        place += 1;
    }
    steps
}

const fn step(state: u8, class: u8) -> (u8, u8) {
    let (before, length) = (state / RUNS, state % RUNS);
    let seen = if class > OTHER { OTHER } else { class };
    let continues = before == seen || (before == UPPER && seen == LOWER);
    let run = match (continues, seen) {
        (false, _) => 1,
        // Digits are cut in threes, all else in short and long.
        (true, DIGIT) => length % 3 + 1,
        (true, _) if length > SHORT_WORD_LETTERS => length,
        (true, _) => length + 1,
    };
    let weight = match (class, run) {
        (LOWER | UPPER, 1) => WORD,
        (LOWER | UPPER, _) if run > SHORT_WORD_LETTERS => LETTER_OF_LONG_WORD,
        (DIGIT, 1) => DIGITS,
        (PUNCTUATION, 1) => PUNCTUATION_MARK,
        (PUNCTUATION, _) => MORE_PUNCTUATION,
        (LINE, 1) => LINE_END,
        (LINE, _) => MORE_LINE_ENDS,
        (BLANK, 2) => INDENT,
        (LEAD_OF_TWO, _) => TWO_BYTES,
        (LEAD_OF_THREE, _) => THREE_BYTES,
        (LEAD_OF_FOUR, _) => FOUR_BYTES,
        _ => 0,
    };
    (seen * RUNS + run, weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> u64 {
        let mut tally = Tally::default();
        tally.add(text.as_bytes());
        tally.tokens()
    }

    #[test]
    fn any_text_is_at_least_one_token_and_no_text_is_none() {
        assert_eq!(tokens(""), 0);
        for text in [" ", "a", "\n", "\u{1}", "é"] {
            assert_eq!(tokens(text), 1, "{text:?}");
        }
    }

    #[test]
    fn parts_count_as_much_as_the_whole() {
        let text = "fn main() { let größe = 12345; } // 今天天气很好 🎉\n\n";
        let mut tally = Tally::default();
        for byte in text.as_bytes() {
            tally.add(&[*byte]);
        }
        assert_eq!(tally.tokens(), tokens(text));
    }

    #[test]
    fn the_estimate_is_within_a_third_of_o200k_for_ordinary_text() {
        // (text, times, tokens in o200k_base) from the golden table of the tokenizers.
        let table = [
            (
                "The quick brown fox jumps over the lazy dog. Pack my box with five dozen liquor jugs. ",
                10,
                201,
            ),
            (
                "fn main() {\n    let xs: Vec<u64> = (0..10).map(|i| i * i).collect();\n    println!(\"{:?}\", xs);\n}\n",
                8,
                288,
            ),
            ("1234567890", 20, 67),
            ("deadbeef0123456789abcdef", 10, 80),
        ];
        for (text, times, exact) in table {
            let estimate = tokens(&text.repeat(times));
            assert!(
                estimate * 3 >= exact * 2 && estimate * 3 <= exact * 4,
                "{text:?}: {estimate} for {exact}"
            );
        }
    }
}
