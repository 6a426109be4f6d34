//! Outputs are predicted from the last ones of the same tenant, model and size of bound.

use fairlane_core::policy::{ModelId, TenantId};
use fairlane_core::predict::{GROUPS_MAX, Predictor, SAMPLES};
use fairlane_core::units::{Micros, Tokens};
use proptest::prelude::*;

use crate::many;

const SECOND: Micros = Micros::from_secs(1);

proptest! {
    #![proptest_config(many())]

    #[test]
    fn mean_and_quantiles_are_those_of_the_last_64_outputs(
        outputs in prop::collection::vec((0u64..2_000, any::<bool>()), 8..200),
    ) {
        let mut predictor = Predictor::default();
        let (tenant, model, bound) = (TenantId(3), ModelId(1), Tokens(4_095));
        let mut own = Vec::new();
        for (output, mine) in outputs {
            // What others make under the same bound, or the same tenant under another one, says nothing.
            let (of, under) = if mine { (tenant, bound) } else { (TenantId(4), Tokens(100)) };
            predictor.learn(of, model, under, Tokens(output), SECOND);
            if mine {
                own.push(output);
            }
        }
        let mut last: Vec<u64> = own.iter().rev().take(SAMPLES).copied().collect();
        last.sort_unstable();
        if last.len() >= 8 {
            let at = |percent: usize| Tokens(last[(last.len() * percent).div_ceil(100).max(1) - 1]);
            let mean = last.iter().sum::<u64>().div_ceil(last.len() as u64);
            prop_assert_eq!(predictor.mean(tenant, model, bound), Tokens(mean));
            prop_assert_eq!(predictor.p50(tenant, model, bound), at(50));
            prop_assert_eq!(predictor.p90(tenant, model, bound), at(90));
            prop_assert_eq!(predictor.p99(tenant, model, bound), at(99));
            let small = Tokens(2_100);
            prop_assert_eq!(predictor.mean(tenant, model, small), Tokens(mean), "the same size of bound");
        }
    }
}

#[test]
fn before_eight_outputs_the_model_tells_and_before_it_512() {
    let mut predictor = Predictor::default();
    let (tenant, model) = (TenantId(0), ModelId(0));
    assert_eq!(predictor.mean(tenant, model, Tokens(4_096)), Tokens(512));
    assert_eq!(predictor.p99(tenant, model, Tokens(100)), Tokens(100));
    for _ in 0..7 {
        predictor.learn(tenant, model, Tokens(4_096), Tokens(40), SECOND);
    }
    assert_eq!(predictor.mean(TenantId(1), model, Tokens(4_096)), Tokens(40), "others of the model");
    assert_eq!(predictor.mean(tenant, ModelId(1), Tokens(4_096)), Tokens(512), "another model");
}

#[test]
fn a_tenant_that_goes_on_is_remembered_while_thousands_of_others_pass() {
    let mut predictor = Predictor::default();
    let (model, bound) = (ModelId(0), Tokens(1_000));
    let learn = |predictor: &mut Predictor, tenant: u32, output: u64| {
        predictor.learn(TenantId(tenant), model, bound, Tokens(output), SECOND);
    };
    for _ in 0..8 {
        learn(&mut predictor, 5, 700);
    }
    for tenant in 10..10 + 3 * GROUPS_MAX as u32 {
        learn(&mut predictor, tenant, 3);
        if tenant % 1_000 == 0 {
            learn(&mut predictor, 5, 700);
        }
    }
    assert_eq!(predictor.mean(TenantId(5), model, bound), Tokens(700));
}
