//! What a byte costs after another byte: the weights of the estimate, and how they came about.
//!
//! The weights are a linear envelope. Some 22,500 pieces of text (code in six languages, prose in 90
//! natural ones, data, base64, digits, runs, common words again and again, random characters of fifty
//! scripts; 1 to 6,000 bytes) were counted exactly with o200k and cl100k. `low` is the largest linear
//! function of the features below that stays under both counts of every piece, `high` the smallest that
//! stays above, each with five percent to spare (two linear programmes with a small penalty on the sum
//! of the weights), and `mean` is the least squares fit to the average of both. Periodic patterns of
//! random characters had to stay within half of `high` only: nothing but counting tells them from code.
//! Beside that, `high` may nowhere sink so low that going round in a circle of bytes costs nothing.
//! Fitted to one half without the five percent, the interval missed 56 of the 8,139 others, by a
//! quarter at worst.

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
        (Lower, Lower) => [16, 149, 109],
        (Lower, Upper) => [549, 811, 434],
        (Upper, Lower) => [24, 214, 257],
        (Upper, Upper) => [34, 222, 211],
        (Lower | Upper, Digit) => [1_200, 798, 200],
        (Lower | Upper, Space) => [602, 353, 200],
        (Lower | Upper, Newline) => [788, 1_183, 1_094],
        (Lower | Upper, Punctuation) => [1_047, 902, 476],
        (Digit, Lower | Upper) => [624, 1_215, 2_372],
        (Digit, Digit) => [312, 302, 339],
        (Digit, Space) => [919, 390, 200],
        (Digit, Newline) => [1_200, 639, 315],
        (Digit, Punctuation) => [389, 934, 978],
        (Space, Lower | Upper) => [324, 552, 813],
        (Space | Tab, Digit) => [813, 1_481, 1_548],
        (Space, Space) => [-4, 8, 47],
        (Space | Tab, Newline) => [0, 505, 200],
        (Space | Tab, Punctuation) => [683, 849, 200],
        (Tab, Lower | Upper) => [0, 352, 932],
        (Tab, Space) => [0, 123, 200],
        (Tab, Tab) => [73, 61, 52],
        (Newline, Lower | Upper) => [1_200, 1_103, 200],
        (Newline, Digit) => [0, 256, 200],
        (Newline, Space) => [1_200, 824, 1_076],
        (Newline, Newline) => [46, 88, 516],
        (Newline, Punctuation) => [394, 619, 996],
        (Punctuation, Lower | Upper) => [-64, 323, 658],
        (Punctuation, Digit) => [1_124, 976, 1_939],
        (Punctuation, Space) => [339, 209, 251],
        (Punctuation, Newline) => [587, 83, 200],
        (Punctuation, Punctuation) => [468, 474, 709],
        (Control, Control) => [0, 868, 1_032],
        (Control, Lower | Upper | Digit | Space | Tab | Newline | Punctuation) => [0, 972, 1_826],
        (Lower | Upper | Digit | Space | Newline | Punctuation, Tab) => [701, 1_012, 998],
        (Lower | Upper | Digit | Space | Tab | Newline | Punctuation, Control) => [0, 978, 200],
        (Continuation, Lower | Upper) => [-274, 776, 1_238],
        (Continuation, Digit) => [0, 816, 0],
        (Continuation, Space | Tab | Newline) => [112, -450, -450],
        (Continuation, Punctuation) => [1_013, 984, 823],
        (Continuation, Control) => [0, 81, 0],
        (_, Continuation | First(_)) | (First(_), _) => [0, 0, 0],
    }
}

/// The cost of a character beyond ASCII, charged at its first byte.
const fn first_byte(kind: Kind) -> Cost {
    let Kind::First(script) = kind else { return [0, 0, 0] };
    match script {
        Script::Latin => [975, 1_412, 1_949],
        Script::TwoBytes => [272, 650, 2_296],
        Script::Indic => [379, 1_009, 2_599],
        Script::Middle => [367, 1_357, 3_110],
        Script::Symbols => [1_079, 1_435, 2_817],
        Script::Kana => [509, 933, 3_794],
        Script::Han => [842, 1_195, 2_524],
        Script::Hangul => [624, 1_231, 3_098],
        Script::Forms => [0, 1_611, 3_077],
        Script::FourBytes => [999, 2_326, 4_148],
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
const SAME_LETTER: Cost = [33, 144, 282];

/// The cost of a letter pair by its rarity.
const RARITY: [Cost; 9] = [
    [0, 0, 0],
    [-4, -225, -48],
    [0, -113, -48],
    [1, -39, 0],
    [4, 155, 5],
    [-17, -47, 867],
    [8, 199, 161],
    [20, 366, 281],
    [113, 1_099, 3_798],
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
