//! What a byte costs after another byte: the weights of the estimate, and how they came about.
//!
//! The weights are a linear envelope. Some 26,000 pieces of text (code in six languages, prose in 90
//! natural ones, data, base64, digits, runs, common words again and again, random characters of fifty
//! scripts; 1 to 6,000 bytes) were counted exactly with o200k and cl100k. `low` is the largest linear
//! function of the features below that stays under both counts of every piece, `high` the smallest that
//! stays above, each with two percent to spare and, from 1,500 bytes on, without help from the allowance
//! for chance (two linear programmes with a small penalty on the sum of the weights). `mean` is the
//! least squares fit to the average of both counts. Periodic patterns of random characters had to stay
//! within half of `high` only: nothing but counting tells them from code. Besides, `high` may nowhere
//! be so low that going round in a circle of bytes costs nothing.
//!
//! Over English prose and code of 300 bytes and more the ends lie at 0.77 and 1.48 of the count on
//! average, as they must leave room for Basque and for numbers; `mean` is off by 5 %. Fitted to one half
//! without the two percent, the interval missed 12 of the 8,852 other pieces, by a tenth at worst.

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
        (Lower, Lower) => [2, 155, 243],
        (Lower, Upper) => [510, 851, 506],
        (Upper, Lower) => [6, 269, 237],
        (Upper, Upper) => [3, 233, 318],
        (Lower | Upper, Digit) => [665, 731, 618],
        (Lower | Upper, Space) => [484, 227, 811],
        (Lower | Upper, Newline) => [731, 798, 754],
        (Lower | Upper, Punctuation) => [409, 907, 962],
        (Digit, Lower | Upper) => [945, 1_255, 2_146],
        (Digit, Digit) => [306, 266, 340],
        (Digit, Space) => [12, 525, 200],
        (Digit, Newline) => [1_200, 582, 1_165],
        (Digit, Punctuation) => [374, 1_060, 1_154],
        (Space, Lower | Upper) => [481, 695, 200],
        (Space | Tab, Digit) => [1_200, 1_436, 2_035],
        (Space, Space) => [8, 8, 8],
        (Space | Tab, Newline) => [-118, -198, 814],
        (Space | Tab, Punctuation) => [411, 1_048, 661],
        (Tab, Lower | Upper) => [979, 727, 200],
        (Tab, Space) => [0, 429, 200],
        (Tab, Tab) => [61, 63, 64],
        (Newline, Lower | Upper) => [1_200, 1_323, 822],
        (Newline, Digit) => [0, 1_105, 1_025],
        (Newline, Space) => [819, 803, 200],
        (Newline, Newline) => [31, 64, 509],
        (Newline, Punctuation) => [1_200, 1_025, 575],
        (Punctuation, Lower | Upper) => [570, 311, 200],
        (Punctuation, Digit) => [1_122, 753, 573],
        (Punctuation, Space) => [1_021, 136, 350],
        (Punctuation, Newline) => [233, -197, 256],
        (Punctuation, Punctuation) => [465, 467, 705],
        (Control, Control) => [490, 773, 1_019],
        (Control, Lower | Upper | Digit | Space | Tab | Newline | Punctuation) => [0, 1_046, 200],
        (Lower | Upper | Digit | Space | Newline | Punctuation, Tab) => [485, 647, 804],
        (Lower | Upper | Digit | Space | Tab | Newline | Punctuation, Control) => [0, 1_050, 3_794],
        (Continuation, Lower | Upper) => [-415, 796, 833],
        (Continuation, Digit) => [0, 1_006, 84],
        (Continuation, Space | Tab | Newline) => [138, -450, -450],
        (Continuation, Punctuation) => [1_009, 1_058, 117],
        (Continuation, Control) => [0, 127, 0],
        (_, Continuation | First(_)) | (First(_), _) => [0, 0, 0],
    }
}

/// The cost of a character beyond ASCII, charged at its first byte.
const fn first_byte(kind: Kind) -> Cost {
    let Kind::First(script) = kind else { return [0, 0, 0] };
    match script {
        Script::Latin => [980, 1_397, 1_947],
        Script::TwoBytes => [232, 648, 2_247],
        Script::Indic => [334, 1_017, 2_565],
        Script::Middle => [323, 1_355, 3_059],
        Script::Symbols => [656, 1_080, 2_785],
        Script::Kana => [490, 943, 3_600],
        Script::Han => [798, 1_104, 2_620],
        Script::Hangul => [527, 1_262, 3_048],
        Script::Forms => [0, 1_551, 3_037],
        Script::FourBytes => [980, 2_080, 4_200],
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
const SAME_LETTER: Cost = [7, 71, 193];

/// The cost of a letter pair by its rarity.
const RARITY: [Cost; 9] = [
    [0, 0, 0],
    [0, -238, -116],
    [-3, -135, -116],
    [0, -7, 0],
    [1, 115, 192],
    [1, -49, 164],
    [0, 200, 443],
    [8, 276, 139],
    [458, 1_347, 1_986],
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
