//! Counts of texts that come again: an agent resends its whole history with every step, and pays for
//! counting only what it added.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use super::Vocabulary;
use crate::request::Text;

/// The secret behind the hashes of a [`Memo`], so that nobody can make two texts collide. Pick it at
/// random once per process.
#[derive(Clone, Copy)]
pub struct MemoKey(pub [u64; 2]);

/// A vocabulary that remembers what it counted.
///
/// Bounded: it keeps the counts of at least the last `entries_max` ÷ 2 texts and of at most
/// `entries_max`, some 32 bytes each, and no text. Texts below 64 bytes are counted each time.
pub struct Memo {
    vocabulary: Arc<Vocabulary>,
    key: MemoKey,
    generation_max: usize,
    generations: Mutex<Generations>,
}

/// Two generations: what is asked for moves to the young one; when that is full the old one goes.
#[derive(Default)]
struct Generations {
    young: Counts,
    old: Counts,
}

type Counts = HashMap<u64, u64, BuildHasherDefault<AlreadyHashed>>;

impl Memo {
    /// An empty memory of at most `entries_max` counts, in front of `vocabulary`.
    #[must_use]
    pub fn new(vocabulary: Arc<Vocabulary>, key: MemoKey, entries_max: usize) -> Self {
        let generations = Mutex::default();
        Self { vocabulary, key, generation_max: (entries_max / 2).max(1), generations }
    }

    /// The vocabulary behind it.
    #[must_use]
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// How many tokens `text` has.
    #[must_use]
    pub fn count(&self, text: Text<'_>) -> u64 {
        if text.raw().len() < BYTES_MIN {
            return self.vocabulary.count(&text.decode());
        }
        let hash = self.hash(text);
        if let Some(tokens) = self.recall(hash) {
            return tokens;
        }
        let tokens = self.vocabulary.count(&text.decode());
        self.keep(hash, tokens);
        tokens
    }

    /// As [`Memo::count`], but `None` if `text` has more than `limit` tokens, which is not remembered.
    #[must_use]
    pub fn count_up_to(&self, text: Text<'_>, limit: u64) -> Option<u64> {
        let hash = self.hash(text);
        if let Some(tokens) = self.recall(hash) {
            return (tokens <= limit).then_some(tokens);
        }
        let tokens = self.vocabulary.count_up_to(&text.decode(), limit)?;
        if text.raw().len() >= BYTES_MIN {
            self.keep(hash, tokens);
        }
        Some(tokens)
    }

    /// Whether the count of `text` costs next to nothing: it is remembered, or the text is short.
    #[must_use]
    pub fn knows(&self, text: Text<'_>) -> bool {
        text.raw().len() < BYTES_MIN || self.recall(self.hash(text)).is_some()
    }

    /// How many counts are kept.
    #[must_use]
    pub fn entries(&self) -> usize {
        let generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        generations.young.len() + generations.old.len()
    }

    fn hash(&self, text: Text<'_>) -> u64 {
        let MemoKey([first, second]) = self.key;
        siphash([first ^ u64::from(text.is_escaped()), second], text.raw().as_bytes())
    }

    fn recall(&self, hash: u64) -> Option<u64> {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&tokens) = generations.young.get(&hash) {
            return Some(tokens);
        }
        let tokens = generations.old.remove(&hash)?;
        generations.keep(hash, tokens, self.generation_max);
        Some(tokens)
    }

    fn keep(&self, hash: u64, tokens: u64) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        generations.keep(hash, tokens, self.generation_max);
    }
}

impl Generations {
    fn keep(&mut self, hash: u64, tokens: u64, generation_max: usize) {
        if self.young.len() >= generation_max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(hash, tokens);
    }
}

/// The keys are hashes already.
#[derive(Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = siphash([self.0, 0], bytes);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// SipHash-1-3 (Aumasson and Bernstein, 2012) of `bytes` under `key`.
fn siphash(key: [u64; 2], bytes: &[u8]) -> u64 {
    let mut state = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        absorb(&mut state, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    absorb(&mut state, u64::from_le_bytes(last) | ((bytes.len() as u64) << 56));
    state[2] ^= 0xFF;
    for _ in 0..3 {
        round(&mut state);
    }
    state.iter().fold(0, |hash, word| hash ^ word)
}

fn absorb(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    state[0] ^= word;
}

fn round(state: &mut [u64; 4]) {
    let [mut a, mut b, mut c, mut d] = *state;
    a = a.wrapping_add(b);
    c = c.wrapping_add(d);
    b = b.rotate_left(13) ^ a;
    d = d.rotate_left(16) ^ c;
    a = a.rotate_left(32);
    c = c.wrapping_add(b);
    a = a.wrapping_add(d);
    b = b.rotate_left(17) ^ c;
    d = d.rotate_left(21) ^ a;
    c = c.rotate_left(32);
    *state = [a, b, c, d];
}

/// Shorter texts are counted faster than they are remembered.
const BYTES_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn memo(entries_max: usize) -> Memo {
        Memo::new(Arc::new(Vocabulary::words()), MemoKey([1, 2]), entries_max)
    }

    #[test]
    fn the_hash_is_siphash_1_3() {
        // The standard library's own, whose key is zero.
        for length in [0, 1, 7, 8, 9, 63, 64, 300] {
            let bytes: Vec<u8> = (0..length).map(|index| (index * 7) as u8).collect();
            let mut theirs = std::hash::DefaultHasher::new();
            theirs.write(&bytes);
            assert_eq!(siphash([0, 0], &bytes), theirs.finish(), "{length}");
        }
    }

    #[test]
    fn a_text_seen_again_has_the_same_count_and_is_known() {
        let memo = memo(10);
        let text = "word ".repeat(100);
        let text = Text::plain(&text);
        assert!(!memo.knows(text));
        assert_eq!([memo.count(text), memo.count(text)], [100, 100]);
        assert!(memo.knows(text));
        assert_eq!(memo.count_up_to(text, 99), None);
        assert_eq!(memo.count_up_to(text, 100), Some(100));
    }

    #[test]
    fn it_keeps_no_more_than_it_may_and_forgets_the_oldest() {
        let memo = memo(10);
        let texts: Vec<_> = (0..100).map(|index| format!("{index} ").repeat(50)).collect();
        for text in &texts {
            assert_eq!(memo.count(Text::plain(text)), 50);
            assert!(memo.entries() <= 10);
        }
        assert!(memo.knows(Text::plain(&texts[99])) && memo.knows(Text::plain(&texts[95])));
        assert!(!memo.knows(Text::plain(&texts[0])));
    }

    #[test]
    fn what_is_asked_for_often_is_kept() {
        let memo = memo(10);
        let favourite = "favourite ".repeat(10);
        for index in 0..100 {
            assert_eq!(memo.count(Text::plain(&favourite)), 10);
            let other = format!("{index} ").repeat(50);
            assert_eq!(memo.count(Text::plain(&other)), 50);
        }
        assert!(memo.knows(Text::plain(&favourite)));
    }
}
