//! Input counted by need: an estimate decides only where an exact count would decide the same.

use fairlane_core::policy::{Dimension, Policy};
use fairlane_core::units::{Micros, Tokens};
use proptest::prelude::*;

use crate::many;
use crate::policies::{per_sec, policy, rates, run_budget, tenant};
use crate::world::{State, T, World, ask};

proptest! {
    #![proptest_config(many())]

    #[test]
    fn an_estimate_never_decides_what_an_exact_count_would_not(
        per_second in 1_u64..200,
        burst in 1_u64..40,
        steps in prop::collection::vec((0_u64..400, 0_u64..60, 0_u64..60, 0_u64..50, 0_u64..3_000_000), 1..25),
    ) {
        let mut exact = World::new(limited(per_second, burst));
        let mut estimated = World::new(limited(per_second, burst));
        for (input, below, above, output, pause) in steps {
            let most = ask(input + above, output);
            let by_count = exact.arrive(ask(input, output));
            let least = Tokens(input.saturating_sub(below));
            let by_estimate = estimated.arrive_estimated(most, least, Tokens(input));
            let admitted = [&exact, &estimated].map(|world| world.running().len());
            prop_assert_eq!(admitted[0], admitted[1], "input {} in {}..={}", input, least.0, input + above);
            if admitted[0] > 0 {
                exact.complete(by_count, input, output);
                estimated.complete(by_estimate, input, output);
            }
            prop_assert_eq!(exact.tokens(), estimated.tokens(), "settled by the engine's count");
            exact.advance(Micros(pause));
            estimated.advance(Micros(pause));
        }
        estimated.wind_up();
    }
}

#[test]
fn a_large_bucket_is_asked_once_and_a_small_one_is_asked_exactly() {
    let mut world = World::new(limited(100, 40));
    world.arrive_estimated(ask(120, 10), Tokens(80), Tokens(100));
    assert_eq!(
        (world.uncounted.len(), world.tokens()),
        (0, 4_000 - 130),
        "the most is held until it is settled"
    );
    world.arrive_estimated(ask(600, 10), Tokens(400), Tokens(500));
    assert_eq!(world.uncounted.len(), 1, "a twentieth of the bucket");
    assert_eq!(world.tokens(), 4_000 - 130 - 510, "what was held for the estimate came back");
}

#[test]
fn a_count_that_is_asked_for_leaves_no_trace() {
    let mut first =
        tenant("T", rates(&[per_sec(Dimension::Requests, 1, 5), per_sec(Dimension::Tokens, 10, 10)]));
    first.runs = Some(run_budget(100));
    let mut world = World::new(policy(vec![first]));
    let request = world.arrive_estimated(ask(60, 0), Tokens(20), Tokens(30));
    assert_eq!(world.uncounted.len(), 1);
    assert_eq!(world.level(T, Dimension::Requests), 4, "one request, not two");
    world.complete(request, 30, 0);
    assert_eq!(world.tokens(), 70);
    assert!(matches!(world.states[&request], State::Finished(_)));
    world.wind_up();
}

fn limited(per_second: u64, burst: u64) -> Policy {
    policy(vec![tenant("T", rates(&[per_sec(Dimension::Tokens, per_second, burst)]))])
}
