//! The requests of one backend by their number: a table with open addressing, as two look-ups in a tree for each request would
//! cost more than all the rest of a decision by slots.

use alloc::vec::Vec;

use crate::gate::RequestId;

/// What is known of each request. It is at most half full, and never grows beyond what is in flight at once.
#[derive(Clone, Debug)]
pub(super) struct Seats<T> {
    /// A power of two.
    table: Vec<Option<(RequestId, T)>>,
    taken: usize,
}

impl<T> Default for Seats<T> {
    fn default() -> Self {
        Self { table: Vec::new(), taken: 0 }
    }
}

impl<T> Seats<T> {
    pub(super) fn len(&self) -> usize {
        self.taken
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (RequestId, &T)> {
        self.table.iter().flatten().map(|(request, value)| (*request, value))
    }

    pub(super) fn get_mut(&mut self, request: RequestId) -> Option<&mut T> {
        let place = self.find(request)?;
        self.table[place].as_mut().map(|(_, value)| value)
    }

    /// Takes in a request that is not there.
    pub(super) fn insert(&mut self, request: RequestId, value: T) {
        assert!(self.find(request).is_none(), "a request runs on a backend once at a time");
        if (self.taken + 1) * 2 > self.table.len() {
            self.grow();
        }
        self.put(request, value);
        self.taken += 1;
    }

    pub(super) fn remove(&mut self, request: RequestId) -> Option<T> {
        let mut hole = self.find(request)?;
        let (_, value) = self.table[hole].take()?;
        self.taken -= 1;
        // What stands behind moves up, unless it would come before its own place.
        let mut next = self.after(hole);
        while let Some((other, _)) = &self.table[next] {
            let home = self.home(*other);
            if self.distance(home, next) >= self.distance(hole, next) {
                self.table.swap(hole, next);
                hole = next;
            }
            next = self.after(next);
        }
        Some(value)
    }

    fn find(&self, request: RequestId) -> Option<usize> {
        if self.table.is_empty() {
            return None;
        }
        let mut place = self.home(request);
        while let Some((other, _)) = &self.table[place] {
            if *other == request {
                return Some(place);
            }
            place = self.after(place);
        }
        None
    }

    fn put(&mut self, request: RequestId, value: T) {
        let mut place = self.home(request);
        while self.table[place].is_some() {
            place = self.after(place);
        }
        self.table[place] = Some((request, value));
    }

    fn grow(&mut self) {
        let size = (self.table.len() * 2).max(SIZE_MIN);
        let mut table = Vec::new();
        table.resize_with(size, || None);
        for (request, value) in core::mem::replace(&mut self.table, table).into_iter().flatten() {
            self.put(request, value);
        }
    }

    /// Numbers are given in turn, so that the lowest bits spread them as well as anything.
    fn home(&self, request: RequestId) -> usize {
        request.0 as usize & (self.table.len() - 1)
    }

    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.table.len() - 1)
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.table.len() - 1)
    }
}

const SIZE_MIN: usize = 16;
