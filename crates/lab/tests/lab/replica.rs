//! The engine's model: step times by hand, and laws over generated histories.

use std::collections::BTreeMap;

use fairlane_core::units::{Micros, Moment, Tokens};
use fairlane_lab::{Emission, Job, Replica, SequenceId, Shape, Stream};

const HISTORIES: u64 = 2_000;

fn job(prompt: u64, output: u64) -> Job {
    Job { prompt: Tokens(prompt), cached: Tokens(0), output: Tokens(output), priority: 0 }
}

fn replica(shape: Shape, jobs: &[Job]) -> Replica {
    let mut replica = Replica::of(shape);
    for (id, job) in jobs.iter().enumerate() {
        replica.submit(SequenceId(id as u64), *job).unwrap();
    }
    replica.begin_step(Moment(0));
    replica
}

/// Every emission as (end of its step, sequence), until the replica is idle.
fn drain(replica: &mut Replica) -> Vec<(u64, u64)> {
    let mut emissions = Vec::new();
    while let Some(ends) = replica.deadline() {
        emissions.extend(replica.advance(ends).iter().map(|emission| (emission.at.0, emission.id.0)));
    }
    emissions
}

#[test]
fn the_step_that_ends_a_prompt_makes_the_first_token() {
    let mut one = replica(Shape::REFERENCE, &[job(1_000, 3)]);
    let prefill = 8_000 + 54 * 1_000;
    assert_eq!(drain(&mut one), [(prefill, 0), (prefill + 8_080, 0), (prefill + 16_160, 0)]);
}

#[test]
fn a_chunk_of_prompt_tokens_spans_sequences_in_the_order_of_dispatch() {
    let mut two = replica(Shape::REFERENCE, &[job(1_500, 1), job(600, 1)]);
    // Step 1: 1,024 of the first prompt. Step 2: its other 476 and 548 of the second. Step 3: the last 52.
    let step = 8_000 + 54 * 1_024;
    assert_eq!(drain(&mut two), [(2 * step, 0), (2 * step + 8_000 + 54 * 52, 1)]);
}

#[test]
fn decoding_goes_on_while_a_long_prompt_is_read() {
    let mut two = replica(Shape::REFERENCE, &[job(100, 3), job(2_000, 1)]);
    let first = 8_000 + 54 * 1_024;
    let second = first + 8_000 + 80 + 54 * 1_024;
    // 2,000 - 924 - 1,024 = 52 prompt tokens are left for the third step, which ends both sequences.
    let third = second + 8_000 + 80 + 54 * 52;
    assert_eq!(drain(&mut two), [(first, 0), (second, 0), (third, 0), (third, 1)]);
}

#[test]
fn cached_prompt_tokens_are_not_read_but_the_last_one_is() {
    let mut warm = replica(Shape::REFERENCE, &[Job { cached: Tokens(1_000), ..job(1_000, 1) }]);
    assert_eq!(drain(&mut warm), [(8_000 + 54, 0)]);
    assert_eq!(warm.counters().prompt_tokens, Tokens(1_000));
}

#[test]
fn a_sequence_that_writes_nothing_ends_with_its_prompt_and_no_token() {
    let mut silent = replica(Shape::REFERENCE, &[job(10, 0)]);
    let emissions = silent.advance(Moment(1_000_000));
    let expected = Emission {
        id: SequenceId(0),
        at: Moment(8_540),
        tokens: Tokens(0),
        produced: Tokens(0),
        finished: true,
    };
    assert_eq!(emissions, [expected]);
    assert_eq!(silent.counters().output_tokens, Tokens(0));
}

#[test]
fn an_empty_prompt_takes_one_step_to_its_first_token() {
    let mut empty = replica(Shape::REFERENCE, &[job(0, 1)]);
    assert_eq!(drain(&mut empty), [(8_000, 0)]);
}

#[test]
fn a_late_call_does_not_stretch_later_steps() {
    let jobs = [job(1_500, 40), job(70, 9)];
    let mut punctual = replica(Shape::REFERENCE, &jobs);
    let mut late = replica(Shape::REFERENCE, &jobs);
    let expected = drain(&mut punctual);
    let got: Vec<_> = late.advance(Moment(60_000_000)).iter().map(|e| (e.at.0, e.id.0)).collect();
    assert_eq!(got, expected);
}

#[test]
fn a_lower_priority_number_is_admitted_first_and_equals_keep_their_order() {
    let one_slot = Shape { slots: 1, ..Shape::REFERENCE };
    let priorities = [0, 5, -1, 0, -1];
    let jobs = priorities.map(|priority| Job { priority, ..job(1, 1) });
    let order: Vec<u64> = drain(&mut replica(one_slot, &jobs)).iter().map(|(_, id)| *id).collect();
    assert_eq!(order, [2, 4, 0, 3, 1]);
}

#[test]
fn a_head_that_does_not_fit_is_not_passed_by() {
    let small = Shape { kv: Tokens(1_000), ..Shape::REFERENCE };
    let mut replica = replica(small, &[job(600, 10), job(900, 10), job(10, 1)]);
    assert_eq!((replica.counters().running, replica.counters().waiting), (1, 2));
    let order: Vec<u64> = drain(&mut replica).iter().map(|(_, id)| *id).collect();
    // 600 + 10 leaves room for the third, but the second (910) is before it in the queue; then both start together.
    assert_eq!(order[..10], [0; 10]);
    assert_eq!(order[10..12], [1, 2]);
}

#[test]
fn a_sequence_above_the_whole_cache_is_refused_with_both_numbers() {
    let mut replica = Replica::of(Shape { kv: Tokens(1_000), ..Shape::REFERENCE });
    let refused = replica.submit(SequenceId(1), job(900, 101)).unwrap_err();
    assert_eq!((refused.needed, refused.kv), (Tokens(1_001), Tokens(1_000)));
    assert_eq!(replica.submit(SequenceId(1), job(900, 100)), Ok(()));
}

#[test]
fn a_cancelled_sequence_frees_its_slot_at_once_and_tells_what_it_made() {
    let one_slot = Shape { slots: 1, ..Shape::REFERENCE };
    let mut replica = replica(one_slot, &[job(100, 1_000), job(100, 5)]);
    let first = replica.deadline().unwrap();
    replica.advance(first.after(Micros(3 * 8_080)));
    let left = replica.cancel(SequenceId(0)).unwrap();
    assert_eq!((left.prefilled, left.produced), (Tokens(100), Tokens(4)));
    assert_eq!(replica.counters().kv_held, Tokens(0));
    assert_eq!(replica.cancel(SequenceId(0)), None);
    assert_eq!(drain(&mut replica).len(), 5);
}

/// A random history of submits, cancels and steps on a small engine; panics when a law breaks.
fn play(seed: u64) {
    let mut dice = Stream::seeded(seed, 0);
    let mut pick = |below: u64| dice.integer() % below;
    let shape = Shape {
        slots: 1 + pick(6) as usize,
        kv: Tokens(50 + pick(400)),
        prefill_chunk: Tokens(1 + pick(64)),
        ..Shape::REFERENCE
    };
    let mut replica = Replica::of(shape);
    let mut now = Moment(0);
    let mut live: BTreeMap<SequenceId, (Job, u64)> = BTreeMap::new();
    let (mut submitted, mut finished, mut cancelled, mut made) = (0, 0, 0, 0);
    for id in 0..60 {
        let id = SequenceId(id);
        let job = Job { cached: Tokens(pick(40)), priority: pick(3) as i64, ..job(pick(120), pick(30)) };
        if replica.submit(id, job).is_ok() {
            submitted += 1;
            live.insert(id, (job, 0));
        } else {
            assert!(job.peak() > shape.kv);
        }
        if pick(4) == 0 {
            let victim = SequenceId(pick(id.0 + 1));
            let known = live.remove(&victim);
            let left = replica.cancel(victim);
            assert_eq!(left.map(|left| left.produced), known.map(|(_, made)| Tokens(made)));
            cancelled += u64::from(known.is_some());
        }
        replica.begin_step(now);
        check_room(&replica);
        // Sometimes on time, sometimes after many steps, sometimes in the middle of one, and at last until all is over.
        now = if id.0 == 59 { Moment(u64::MAX / 2) } else { now.after(Micros(pick(40_000))) };
        for emission in replica.advance(now) {
            let (job, so_far) = live.get_mut(&emission.id).unwrap();
            *so_far += emission.tokens.0;
            made += emission.tokens.0;
            assert_eq!(emission.produced, Tokens(*so_far));
            assert_eq!(emission.finished, *so_far == job.output.0);
            if emission.finished {
                live.remove(&emission.id);
                finished += 1;
            }
        }
        check_room(&replica);
    }
    let counters = replica.counters();
    assert!(live.is_empty(), "never ended: {live:?}");
    assert_eq!(submitted, finished + cancelled);
    assert_eq!((counters.finished, counters.cancelled), (finished, cancelled));
    assert_eq!(counters.output_tokens, Tokens(made));
    assert_eq!((counters.running, counters.waiting), (0, 0));
    assert_eq!((counters.kv_held, counters.kv_reserved), (Tokens(0), Tokens(0)));
}

fn check_room(replica: &Replica) {
    let (shape, counters) = (replica.shape(), replica.counters());
    assert!(counters.running <= shape.slots);
    assert!(counters.kv_held <= counters.kv_reserved && counters.kv_reserved <= shape.kv);
    // A step may outlive its last sequence by a cancellation, but no sequence runs without a step.
    assert!(counters.running == 0 || replica.deadline().is_some());
}

#[test]
fn every_sequence_ends_once_and_slots_and_cache_are_never_exceeded() {
    for seed in 0..HISTORIES {
        play(seed);
    }
}
