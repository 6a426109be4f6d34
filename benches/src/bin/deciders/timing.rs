//! How long an operation takes: CPU time of this thread, so that other work on the machine counts less.

use std::fs;

use fairlane_benches::clock;

/// Nanoseconds of one operation: the median of several slices, after a warm-up.
pub(crate) fn nanos_each(seconds: f64, mut operation: impl FnMut(u64)) -> f64 {
    let mut number = 0;
    let mut batch = |operation: &mut dyn FnMut(u64)| {
        for _ in 0..BATCH {
            operation(number);
            number += 1;
        }
    };
    for _ in 0..WARM_BATCHES {
        batch(&mut operation);
    }
    let mut slices: Vec<f64> = (0..SLICES)
        .map(|_| {
            let (begin, cpu_begin) = (clock::moment(), cpu_nanos());
            let mut operations = 0;
            while begin.elapsed().as_secs_f64() < seconds / f64::from(SLICES) {
                batch(&mut operation);
                operations += BATCH;
            }
            let wall = begin.elapsed().as_nanos() as f64;
            let spent = cpu_begin.zip(cpu_nanos()).map_or(wall, |(from, to)| (to - from) as f64);
            spent / operations as f64
        })
        .collect();
    slices.sort_by(f64::total_cmp);
    slices[slices.len() / 2]
}

/// The time that this thread has been on a core, as the kernel's scheduler counts it.
fn cpu_nanos() -> Option<u64> {
    fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

/// A key that jumps about, so that no cache is flattered.
pub(crate) fn scattered(number: u64, among: usize) -> usize {
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed ^ (mixed >> 29)) % among as u64) as usize
}

const BATCH: u64 = 1_000;
const WARM_BATCHES: u64 = 200;
const SLICES: u32 = 7;
