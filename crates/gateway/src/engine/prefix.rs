//! A prefix cache: which leading blocks of words the engine has read before.

use std::collections::{BTreeSet, VecDeque};

use super::words::{hash_of, mix};

/// Words in a block; only whole blocks are found again, as in vLLM.
pub(super) const BLOCK_WORDS: u64 = 16;

/// Fingerprints of the blocks read, each covering all words before it too. Oldest blocks are forgotten first.
#[derive(Debug, Default)]
pub(super) struct PrefixCache {
    known: BTreeSet<u64>,
    oldest: VecDeque<u64>,
}

impl PrefixCache {
    /// How many leading tokens of this prompt were read before; remembers its blocks.
    pub(super) fn read(&mut self, texts: &[&str], seed: u64) -> u64 {
        let mut words = texts.iter().flat_map(|text| text.split_whitespace());
        let (mut hash, mut cached, mut all_known) = (seed, 0, true);
        loop {
            for _ in 0..BLOCK_WORDS {
                let Some(word) = words.next() else {
                    return cached;
                };
                hash = mix(hash, hash_of(word.as_bytes()));
            }
            all_known &= !self.remember(hash);
            cached += if all_known { BLOCK_WORDS } else { 0 };
        }
    }

    /// True if the block was not known.
    fn remember(&mut self, block: u64) -> bool {
        let fresh = self.known.insert(block);
        if fresh {
            self.oldest.push_back(block);
        }
        if self.oldest.len() > BLOCKS_MAX
            && let Some(forgotten) = self.oldest.pop_front()
        {
            self.known.remove(&forgotten);
        }
        fresh
    }
}

/// A million words.
const BLOCKS_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::PrefixCache;

    #[test]
    fn whole_leading_blocks_are_found_again_and_nothing_after_the_first_difference() {
        let words = |from: u32, to: u32| (from..to).map(|n| format!("w{n} ")).collect::<String>();
        let mut cache = PrefixCache::default();
        assert_eq!(cache.read(&[&words(0, 40)], 1), 0);
        assert_eq!(cache.read(&[&words(0, 40)], 1), 32);
        assert_eq!(cache.read(&[&words(0, 20), &words(20, 100)], 1), 32);
        assert_eq!(cache.read(&[&words(0, 16), &words(50, 90)], 1), 16);
        assert_eq!(cache.read(&[&words(1, 40)], 1), 0);
    }
}
