//! A map by numbers that are handed out in order and never twice: one place to look, however many there are.

use alloc::vec::Vec;
use core::marker::PhantomData;

/// A number that names something.
pub(crate) trait Numbered: Copy {
    fn number(self) -> u64;
    fn of(number: u64) -> Self;
}

/// Values by their numbers. It has no order of its own; nothing may depend on the one in which it lists them.
#[derive(Debug)]
pub(crate) struct Table<K, V> {
    /// Number and value's place, at most half of them in use; who finds their place taken goes to the next free one.
    index: Vec<(u64, u32)>,
    values: Vec<Option<V>>,
    free: Vec<u32>,
    keys: PhantomData<K>,
}

impl<K: Numbered, V> Table<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.values.len() - self.free.len()
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let (_, place) = self.index[self.find(*key)?];
        self.values[place as usize].as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (_, place) = self.index[self.find(*key)?];
        self.values[place as usize].as_mut()
    }

    /// Puts a value in. Returns the one that was there.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(found) = self.get_mut(&key) {
            return Some(core::mem::replace(found, value));
        }
        if (self.len() + 1) * 2 > self.index.len() {
            self.grow();
        }
        let place = match self.free.pop() {
            Some(place) => {
                self.values[place as usize] = Some(value);
                place
            }
            None => {
                self.values.push(Some(value));
                self.values.len() as u32 - 1
            }
        };
        self.settle(key.number(), place);
        None
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let mut hole = self.find(*key)?;
        let place = self.index[hole].1;
        let mask = self.index.len() - 1;
        let mut next = (hole + 1) & mask;
        // Whoever could stand nearer to where they belong moves up, so that looking may stop at the first free place.
        while self.index[next].1 != NOWHERE {
            let home = self.home(self.index[next].0);
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(hole) & mask) {
                self.index[hole] = self.index[next];
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.index[hole].1 = NOWHERE;
        self.free.push(place);
        self.values[place as usize].take()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.values.iter().flatten()
    }

    /// All keys, the least first.
    pub(crate) fn keys(&self) -> Vec<K> {
        let taken = self.index.iter().filter(|entry| entry.1 != NOWHERE);
        let mut numbers: Vec<u64> = taken.map(|entry| entry.0).collect();
        numbers.sort_unstable();
        numbers.into_iter().map(K::of).collect()
    }

    fn find(&self, key: K) -> Option<usize> {
        let number = key.number();
        let mask = self.index.len().checked_sub(1)?;
        let mut place = self.home(number);
        while self.index[place].1 != NOWHERE {
            if self.index[place].0 == number {
                return Some(place);
            }
            place = (place + 1) & mask;
        }
        None
    }

    fn settle(&mut self, number: u64, value: u32) {
        let mask = self.index.len() - 1;
        let mut place = self.home(number);
        while self.index[place].1 != NOWHERE {
            place = (place + 1) & mask;
        }
        self.index[place] = (number, value);
    }

    fn grow(&mut self) {
        let size = (self.index.len() * 2).max(SIZE_MIN);
        let before = core::mem::replace(&mut self.index, alloc::vec![(0, NOWHERE); size]);
        for (number, value) in before.into_iter().filter(|entry| entry.1 != NOWHERE) {
            self.settle(number, value);
        }
    }

    /// Numbers in a row are spread over the whole table.
    fn home(&self, number: u64) -> usize {
        let spread = number.wrapping_mul(SPREAD);
        (spread >> (64 - self.index.len().trailing_zeros())) as usize
    }
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { index: Vec::new(), values: Vec::new(), free: Vec::new(), keys: PhantomData }
    }
}

const NOWHERE: u32 = u32::MAX;
const SIZE_MIN: usize = 16;
/// 2^64 ÷ the golden ratio: Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, 6.4).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::RequestId;
    use alloc::collections::BTreeMap;

    #[test]
    fn it_holds_what_an_ordered_map_holds_through_any_history() {
        let mut table: Table<RequestId, u64> = Table::default();
        let mut model = BTreeMap::new();
        let mut seed = 7u64;
        for step in 0..40_000u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = (seed >> 33) % (1 + step / 20);
            let id = RequestId(number << (seed % 3 * 20));
            if seed >> 63 == 0 {
                assert_eq!(table.insert(id, step), model.insert(id, step));
            } else {
                assert_eq!(table.remove(&id), model.remove(&id));
            }
            assert_eq!((table.len(), table.get(&id)), (model.len(), model.get(&id)));
        }
        assert_eq!(table.keys(), model.keys().copied().collect::<Vec<_>>());
        assert!(model.iter().all(|(id, value)| table.get(id) == Some(value)));
    }
}
