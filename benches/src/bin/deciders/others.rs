//! Deciders of others, each with one limit per key: governor (no refund) and limitador (check and update; reserve and commit).

use std::collections::HashMap;
use std::hint::black_box;
use std::num::NonZeroU32;

use fairlane_benches::clock;
use governor::{Quota, RateLimiter as Governor};
use limitador::RateLimiter as Limitador;
use limitador::limit::{Context, Limit, Namespace};

use crate::Measured;
use crate::timing::{nanos_each, scattered};

/// Every row, and what reading the clock costs, which governor and limitador do themselves.
pub(crate) fn rows(scale: f64) -> Vec<Measured> {
    let mut rows = vec![row(
        "reading the clock",
        nanos_each(scale, |_| {
            black_box(clock::moment());
        }),
    )];
    for (count, told) in [(1, "1 key"), (100_000, "100,000 keys")] {
        let keys: Vec<String> = (0..count).map(|number| format!("tenant-{number:06}")).collect();
        rows.push(row(&format!("governor 0.10.4, check, {told}"), governor(&keys, scale)));
        rows.push(row(&format!("limitador 0.14.0, check + update, {told}"), limitador_check(&keys, scale)));
        rows.push(row(
            &format!("limitador 0.14.0, reserve + commit, {told}"),
            limitador_reserve(&keys, scale),
        ));
    }
    rows
}

fn row(name: &str, value: f64) -> Measured {
    Measured { name: name.to_owned(), value, unit: "ns", bar: None }
}

fn governor(keys: &[String], scale: f64) -> f64 {
    let limiter = Governor::keyed(Quota::per_second(NonZeroU32::MAX));
    let cost = NonZeroU32::MIN.saturating_add(283);
    nanos_each(scale, |number| {
        black_box(limiter.check_key_n(&keys[scattered(number, keys.len())], cost).is_ok());
    })
}

fn limitador_check(keys: &[String], scale: f64) -> f64 {
    let (limiter, namespace) = limitador();
    nanos_each(scale, |number| {
        let context = context(&keys[scattered(number, keys.len())]);
        black_box(
            limiter.check_rate_limited_and_update(&namespace, &context, 284).is_ok_and(|told| !told.limited),
        );
    })
}

fn limitador_reserve(keys: &[String], scale: f64) -> f64 {
    let (limiter, namespace) = limitador();
    nanos_each(scale, |number| {
        let context = context(&keys[scattered(number, keys.len())]);
        let reserved = limiter.reserve(&namespace, &context, 284, None).expect("a store in memory answers");
        let id = reserved.reservation_id.as_ref();
        black_box(limiter.commit_reservation(&namespace, &context, id, 240).is_ok());
    })
}

fn limitador() -> (Limitador, Namespace) {
    let limiter = Limitador::new(1_000_000);
    let variables = vec!["tenant".try_into().expect("a name is a variable")];
    limiter.add_limit(Limit::new(
        "llm",
        4_000_000_000_000,
        60,
        Vec::<limitador::limit::Predicate>::new(),
        variables,
    ));
    (limiter, "llm".into())
}

fn context(key: &str) -> Context<'static> {
    HashMap::from([("tenant".to_owned(), key.to_owned())]).into()
}
