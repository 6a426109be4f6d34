//! What a byte costs after another byte: the weights of the estimate, and how they came about.
//!
//! The weights are a linear envelope. Some 25,000 pieces of text (code in six languages, prose in 90
//! natural ones, data, base64, digits, runs, common words again and again, random characters of fifty
//! scripts; 1 to 6,000 bytes) were counted exactly with o200k and cl100k. `low` is the largest linear
//! function of the features below that stays under both counts of every piece, `high` the smallest that
//! stays above, each with two percent to spare and, from 1,500 bytes on, without help from the allowance
//! for chance (two linear programmes with a small penalty on the sum of the weights). `mean` is the
//! least squares fit to the average of both counts. Periodic patterns of random characters had to stay
//! within half of `high` only: nothing but counting tells them from code. Besides, `high` may nowhere
//! be so low that going round in a circle of bytes costs nothing.
//!
//! Over English prose and code of 300 bytes and more the ends lie at 0.77 and 1.46 of the count on
//! average, as they must leave room for Basque and for numbers; `mean` is off by 5 %. Fitted to one half
//! without the two percent, the interval missed 11 of the other 8,704, by a
//! sixth at worst.

/// Low, mean and high, in thousandths of a token.
pub(super) type Cost = [i32; 3];

/// No pair of bytes costs more than this, either way.
pub(super) const DEAREST_MILLITOKENS: i32 = 5_000;

/// The cost of `byte` when it stands after `before`.
pub(super) fn cost(before: u8, byte: u8) -> Cost {
    let (left, right) = (Kind::of(before), Kind::of(byte));
    let mut sum = neighbours(left, right);
    add(&mut sum, first_byte(right));
    if left == right && before == byte && right == Kind::Punctuation {
        add(&mut sum, SAME_PUNCTUATION);
    }
    if let (Some(first), Some(second)) = (letter(before), letter(byte)) {
        add(&mut sum, RARITY[rarity(first, second)]);
        if before == byte {
            add(&mut sum, SAME_LETTER);
        }
    }
    sum
}

/// Bytes that cost the same next to anything share a class below 128: ASCII but the controls keep their
/// own numbers, and the others take those of controls.
pub(super) const fn class(byte: u8) -> u8 {
    match Kind::of(byte) {
        Kind::Control => 0,
        Kind::Continuation => 1,
        Kind::Newline => 2,
        Kind::First(script) => 14 + script as u8,
        Kind::Lower | Kind::Upper | Kind::Digit | Kind::Space | Kind::Tab | Kind::Punctuation => byte,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lower,
    Upper,
    Digit,
    Space,
    Tab,
    Newline,
    Punctuation,
    Control,
    /// Any but the first byte of a character beyond ASCII.
    Continuation,
    /// The first byte of a character beyond ASCII.
    First(Script),
}

/// What the first byte tells of a character beyond ASCII.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Script {
    /// U+0080 to U+02FF: Latin with marks.
    Latin,
    /// U+0300 to U+07FF: Greek, Cyrillic, Hebrew, Arabic.
    TwoBytes,
    /// U+0800 to U+0FFF: the scripts of India, Thai, Tibetan.
    Indic,
    /// U+1000 to U+1FFF: Burmese, Georgian, Ethiopic, Khmer, Vietnamese vowels.
    Middle,
    /// U+2000 to U+2FFF: typographic marks, arrows, boxes.
    Symbols,
    /// U+3000 to U+3FFF: Kana and East Asian punctuation.
    Kana,
    /// U+4000 to U+9FFF: Chinese characters.
    Han,
    /// U+A000 to U+DFFF: Korean, Yi.
    Hangul,
    /// U+E000 to U+FFFF: private use, full width forms.
    Forms,
    /// U+10000 and above: emoji, rare scripts.
    FourBytes,
}

impl Kind {
    const fn of(byte: u8) -> Self {
        match byte {
            b'a'..=b'z' => Self::Lower,
            b'A'..=b'Z' => Self::Upper,
            b'0'..=b'9' => Self::Digit,
            b' ' => Self::Space,
            b'\t' => Self::Tab,
            b'\n' | b'\r' => Self::Newline,
            0x21..=0x7E => Self::Punctuation,
            0x00..=0x1F | 0x7F => Self::Control,
            0x80..=0xBF => Self::Continuation,
            0xC0..=0xCB => Self::First(Script::Latin),
            0xCC..=0xDF => Self::First(Script::TwoBytes),
            0xE0 => Self::First(Script::Indic),
            0xE1 => Self::First(Script::Middle),
            0xE2 => Self::First(Script::Symbols),
            0xE3 => Self::First(Script::Kana),
            0xE4..=0xE9 => Self::First(Script::Han),
            0xEA..=0xED => Self::First(Script::Hangul),
            0xEE..=0xEF => Self::First(Script::Forms),
            0xF0..=0xFF => Self::First(Script::FourBytes),
        }
    }
}

/// The cost of standing next to each other, by kind alone.
const fn neighbours(left: Kind, right: Kind) -> Cost {
    use Kind::{Continuation, Control, Digit, First, Lower, Newline, Punctuation, Space, Tab, Upper};
    match (left, right) {
        (Lower, Lower) => [0, 166, 187],
        (Lower, Upper) => [628, 721, 200],
        (Upper, Lower) => [3, 287, 445],
        (Upper, Upper) => [2, 238, 301],
        (Lower | Upper, Digit) => [593, 669, 313],
        (Lower | Upper, Space) => [456, 305, 355],
        (Lower | Upper, Newline) => [731, 1_218, 1_001],
        (Lower | Upper, Punctuation) => [505, 950, 427],
        (Digit, Lower | Upper) => [1_200, 1_316, 1_957],
        (Digit, Digit) => [327, 305, 422],
        (Digit, Space) => [401, 427, 200],
        (Digit, Newline) => [0, 346, 689],
        (Digit, Punctuation) => [928, 1_111, 1_029],
        (Space, Lower | Upper) => [511, 583, 574],
        (Space | Tab, Digit) => [1_200, 1_358, 1_653],
        (Space, Space) => [6, 8, 21],
        (Space | Tab, Newline) => [0, 561, 200],
        (Space | Tab, Punctuation) => [455, 968, 444],
        (Tab, Lower | Upper) => [0, 367, 342],
        (Tab, Space) => [0, 164, 200],
        (Tab, Tab) => [61, 60, 64],
        (Newline, Lower | Upper) => [1_200, 1_097, 200],
        (Newline, Digit) => [604, 636, 200],
        (Newline, Space) => [1_200, 788, 393],
        (Newline, Newline) => [31, 58, 510],
        (Newline, Punctuation) => [1_200, 726, 549],
        (Punctuation, Lower | Upper) => [475, 270, 1_075],
        (Punctuation, Digit) => [569, 757, 734],
        (Punctuation, Space) => [631, 204, 200],
        (Punctuation, Newline) => [420, -46, 613],
        (Punctuation, Punctuation) => [465, 468, 705],
        (Control, Control) => [490, 788, 1_020],
        (Control, Lower | Upper | Digit | Space | Tab | Newline | Punctuation) => [0, 1_049, 3_076],
        (Lower | Upper | Digit | Space | Newline | Punctuation, Tab) => [1_196, 967, 1_395],
        (Lower | Upper | Digit | Space | Tab | Newline | Punctuation, Control) => [0, 1_032, 200],
        (Continuation, Lower | Upper) => [-418, 782, 0],
        (Continuation, Digit) => [0, 974, 0],
        (Continuation, Space | Tab | Newline) => [173, -450, -450],
        (Continuation, Punctuation) => [1_016, 1_222, 1_436],
        (Continuation, Control) => [0, 158, 0],
        (_, Continuation | First(_)) | (First(_), _) => [0, 0, 0],
    }
}

/// The cost of a character beyond ASCII, charged at its first byte.
const fn first_byte(kind: Kind) -> Cost {
    let Kind::First(script) = kind else { return [0, 0, 0] };
    match script {
        Script::Latin => [980, 1_397, 1_937],
        Script::TwoBytes => [240, 646, 2_248],
        Script::Indic => [337, 1_014, 2_562],
        Script::Middle => [329, 1_337, 3_059],
        Script::Symbols => [904, 1_173, 2_793],
        Script::Kana => [490, 962, 3_424],
        Script::Han => [786, 1_151, 2_734],
        Script::Hangul => [564, 1_288, 3_050],
        Script::Forms => [0, 1_670, 3_038],
        Script::FourBytes => [980, 2_114, 4_200],
    }
}

/// Which letter of the alphabet `byte` is, from 0; case does not matter.
const fn letter(byte: u8) -> Option<usize> {
    match byte {
        b'a'..=b'z' => Some((byte - b'a') as usize),
        b'A'..=b'Z' => Some((byte - b'A') as usize),
        _ => None,
    }
}

const fn rarity(first: usize, second: usize) -> usize {
    (RARITIES[first].as_bytes()[second] - b'0') as usize
}

fn add(sum: &mut Cost, more: Cost) {
    for (part, addend) in sum.iter_mut().zip(more) {
        *part += addend;
    }
}

/// `--`, `==`: runs of one mark merge.
const SAME_PUNCTUATION: Cost = [-450, -450, -450];
const SAME_LETTER: Cost = [5, 80, 209];

/// The cost of a letter pair by its rarity.
const RARITY: [Cost; 9] = [
    [0, 0, 0],
    [-1, -242, -126],
    [0, -139, -68],
    [2, -1, 0],
    [6, 112, 141],
    [2, -69, 422],
    [7, 202, 348],
    [-82, 265, 187],
    [431, 1_284, 1_863],
];

/// How seldom a letter (row, from a) is followed by another (column): the rank r at which the pair
/// entered the OpenAI vocabularies, the later of both, in steps of log2 r at 8, 9, 10, 11, 12, 13.5,
/// 15.5 and 17 (8: in one of them not at all).
const RARITIES: [&str; 26] = [
    "51215413432111416111413313",
    "55653667577476368356677648",
    "46251671582256358551667756",
    "44632576576666468556376656",
    "64214335663111636111652135",
    "56664256587366367352676668",
    "55762662588565468255567757",
    "57761776587666568551676767",
    "22112115443111226111616361",
    "57764887567677577757588888",
    "56763856576566578545666858",
    "56621667376274268655567718",
    "34644767586356547634677648",
    "46612726577666468652567647",
    "62215324562111418111121545",
    "56561652476256527232577458",
    "67777887688477876666187888",
    "26451667287467177255467637",
    "56461643575556247631656766",
    "46642671586664268145666536",
    "51321326354111628111666455",
    "57662766587666468666767768",
    "56752774677663368656783668",
    "66666688688677678764888558",
    "57665877687433638536687756",
    "57674886586776688876686855",
];
