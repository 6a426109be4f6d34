//! The KV cache of one backend: what each request in flight holds, and the most that they will hold together.
//!
//! The predicted peak is P = max over j of (rem_j · W_j + occ_1 + … + occ_j), the requests sorted by what remains of their
//! output, longest first, W_j being the sequences of the first j: when request j ends, the j longest ones are still there and
//! each of their sequences has grown by rem_j. It is the fit test of S-LoRA and VTC (arXiv 2401.00588) with predicted lengths.

use alloc::vec::Vec;

use super::seats::Seats;
use crate::gate::RequestId;
use crate::units::{Moment, Tokens};

/// What is in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    entries: Seats<Entry>,
    sequences: u64,
    occupied: u64,
    /// By what remains, longest first; empty while nobody asks for a peak.
    keys: Vec<Key>,
    lines: Vec<Line>,
    sums: Vec<Sums>,
    stage: Stage,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) input: u64,
    /// Output of one choice that is expected.
    pub(super) expected: u64,
    /// Output so far, over all choices.
    pub(super) generated: u64,
    pub(super) width: u32,
    /// All the output that is expected is reckoned from the start to the end, as if it were there.
    pub(super) is_reserved: bool,
    /// It shows nothing while it runs: what it has made is reckoned from time.
    pub(super) is_silent: bool,
    pub(super) entered: Moment,
    /// Tokens that the provider may count it for.
    pub(super) cost: u64,
    /// The provider's last word on its allowance came after it had counted this request.
    pub(super) is_counted: bool,
}

/// What remains of a request's output, turned round so that the longest comes first, and the lower half of the request's number:
/// one comparison for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u64);

#[derive(Clone, Copy, Debug)]
struct Line {
    request: RequestId,
    occupied: u64,
    width: u64,
}

/// Over the lines before a place, and over those from it on.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    occupied: u64,
    width: u64,
    /// The greatest peak at the end of one of the lines before.
    peak_before: u64,
    /// The greatest peak at the end of one of the lines from here on, had each one sequence more beside it.
    peak_after: u64,
}

/// How much of the peak's arithmetic is at hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Nobody has asked for a peak.
    #[default]
    Unsorted,
    Sorted,
    Summed,
}

impl Memory {
    pub(super) fn requests(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn sequences(&self) -> u64 {
        self.sequences
    }

    /// Tokens held so far.
    pub(super) fn occupied(&self) -> u64 {
        self.occupied
    }

    pub(super) fn entry_mut(&mut self, request: RequestId) -> Option<&mut Entry> {
        self.entries.get_mut(request)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (RequestId, &Entry)> {
        self.entries.iter()
    }

    pub(super) fn insert(&mut self, request: RequestId, entry: Entry) {
        self.entries.insert(request, entry);
        self.sequences += u64::from(entry.width);
        self.occupied += entry.occupied();
        self.add_line(request, &entry);
    }

    pub(super) fn remove(&mut self, request: RequestId) -> Option<Entry> {
        let entry = self.entries.remove(request)?;
        self.sequences -= u64::from(entry.width);
        self.occupied -= entry.occupied();
        self.drop_line(request, &entry);
        Some(entry)
    }

    /// A request has shown so much output in all.
    pub(super) fn produced(&mut self, request: RequestId, output: Tokens) {
        if let Some(entry) = self.entries.get_mut(request) {
            entry.is_silent = false;
        }
        self.generated(request, output);
    }

    /// A request has made so much output in all; less than before is not believed.
    pub(super) fn generated(&mut self, request: RequestId, output: Tokens) {
        let Some(entry) = self.entries.get_mut(request) else { return };
        let before = *entry;
        entry.generated = output.0.clamp(before.generated, GENERATED_MAX);
        let after = *entry;
        if after.generated == before.generated {
            return;
        }
        self.occupied = self.occupied + after.occupied() - before.occupied();
        self.move_line(request, &before, &after);
    }

    /// The most that will be held at once.
    pub(super) fn peak(&mut self) -> u64 {
        self.sum_up();
        self.sums.last().map_or(0, |sums| sums.peak_before)
    }

    /// The most that will be held at once if this one joins.
    pub(super) fn peak_with(&mut self, candidate: &Entry) -> u64 {
        self.sum_up();
        let (remaining, occupied) = (candidate.remaining(), candidate.claimed());
        let width = u64::from(candidate.width);
        let place = self.keys.partition_point(|key| key.remaining() >= remaining);
        let before = self.sums[place];
        let own = remaining * (before.width + width) + before.occupied + occupied;
        let after = if width == 1 { before.peak_after } else { self.peak_after(place, width) };
        let after = if place < self.lines.len() { after + occupied } else { 0 };
        before.peak_before.max(own).max(after)
    }

    fn peak_after(&self, place: usize, width: u64) -> u64 {
        let ends = self.keys.iter().zip(self.sums.iter().skip(1)).skip(place);
        ends.map(|(key, sums)| key.remaining() * (sums.width + width) + sums.occupied).max().unwrap_or(0)
    }

    fn sum_up(&mut self) {
        if self.stage == Stage::Unsorted {
            self.sort();
        }
        if self.stage == Stage::Summed {
            return;
        }
        self.sums.resize(self.lines.len() + 1, Sums::default());
        let mut sums = Sums::default();
        for ((key, line), place) in self.keys.iter().zip(&self.lines).zip(&mut self.sums) {
            let remaining = key.remaining();
            let end =
                Sums { occupied: sums.occupied + line.occupied, width: sums.width + line.width, ..sums };
            let peak = remaining * end.width + end.occupied;
            *place = Sums { peak_after: peak + remaining, ..sums };
            sums = Sums { peak_before: sums.peak_before.max(peak), ..end };
        }
        self.sums[self.lines.len()] = sums;
        let mut after = 0;
        for place in self.sums.iter_mut().rev() {
            after = after.max(place.peak_after);
            place.peak_after = after;
        }
        self.stage = Stage::Summed;
    }

    fn sort(&mut self) {
        let mut sorted: Vec<(Key, Line)> =
            self.entries.iter().map(|(request, entry)| (entry.key(request), entry.line(request))).collect();
        sorted.sort_unstable_by_key(|(key, line)| (*key, line.request));
        (self.keys, self.lines) = sorted.into_iter().unzip();
        self.stage = Stage::Sorted;
    }

    fn add_line(&mut self, request: RequestId, entry: &Entry) {
        if self.stage == Stage::Unsorted {
            return;
        }
        let key = entry.key(request);
        let place = self.keys.partition_point(|other| *other < key);
        self.keys.insert(place, key);
        self.lines.insert(place, entry.line(request));
        self.stage = Stage::Sorted;
    }

    fn drop_line(&mut self, request: RequestId, entry: &Entry) {
        if self.stage == Stage::Unsorted {
            return;
        }
        let place = self.place(request, entry);
        self.keys.remove(place);
        self.lines.remove(place);
        self.stage = Stage::Sorted;
    }

    fn move_line(&mut self, request: RequestId, before: &Entry, after: &Entry) {
        if self.stage == Stage::Unsorted {
            return;
        }
        let (from, key) = (self.place(request, before), after.key(request));
        // What streams keeps its place nearly always: all of them come nearer to their ends together.
        let first = from.checked_sub(1).is_none_or(|place| self.keys[place] <= key);
        let last = self.keys.get(from + 1).is_none_or(|other| key <= *other);
        if first && last {
            (self.keys[from], self.lines[from]) = (key, after.line(request));
            self.stage = Stage::Sorted;
        } else {
            self.drop_line(request, before);
            self.add_line(request, after);
        }
    }

    fn place(&self, request: RequestId, entry: &Entry) -> usize {
        let key = entry.key(request);
        let first = self.keys.partition_point(|other| *other < key);
        let same = self.lines[first..].iter().position(|line| line.request == request);
        first + same.expect("every request has its line")
    }
}

impl Entry {
    /// Tokens in the cache.
    pub(super) fn occupied(&self) -> u64 {
        self.input + self.generated
    }

    /// Tokens in the cache; where output is reserved, with all that is still expected.
    fn claimed(&self) -> u64 {
        let to_come = if self.is_reserved { self.expected_more() * u64::from(self.width) } else { 0 };
        self.occupied() + to_come
    }

    /// Output that each choice is still expected to make and that is not reserved.
    pub(super) fn remaining(&self) -> u64 {
        if self.is_reserved { 0 } else { self.expected_more() }
    }

    /// Output that each choice is still expected to make. Past what was expected it grows with what was made: outputs have
    /// long tails.
    fn expected_more(&self) -> u64 {
        let generated = self.generated / u64::from(self.width);
        if generated < self.expected { self.expected - generated } else { (generated / TAIL).max(1) }
    }

    fn key(&self, request: RequestId) -> Key {
        Key((u64::from(u32::MAX) - self.remaining()) << 32 | u64::from(request.0 as u32))
    }

    fn line(&self, request: RequestId) -> Line {
        Line { request, occupied: self.claimed(), width: u64::from(self.width) }
    }
}

impl Key {
    fn remaining(self) -> u64 {
        u64::from(u32::MAX) - (self.0 >> 32)
    }
}

/// A quarter of what was made, past what was expected.
const TAIL: u64 = 4;
/// Tokens of one request or one cache, and sequences of one request, so that every sum stays within 64 bits.
pub(super) const TOKENS_MAX: u64 = u32::MAX as u64;
pub(super) const WIDTH_MAX: u32 = 1 << 16;
const GENERATED_MAX: u64 = TOKENS_MAX;
