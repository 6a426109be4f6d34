//! Laws over whole histories of the gate: arrivals, endings of every kind, reloads, failing backends, a store that answers late.

use std::collections::BTreeMap;

use fairlane_core::bucket::Shape;
use fairlane_core::gate::{Arrival, Event, Failure, RequestId};
use fairlane_core::ledger::CellId;
use fairlane_core::policy::{
    Charging, Class, Dimension, KeyId, Limits, ModelId, OnExcess, Policy, RateLimit, Runs, TenantId,
};
use fairlane_core::refusal::{Reason, Retry};
use fairlane_core::units::{Amount, Micros, Tokens};
use proptest::prelude::*;

use crate::many;
use crate::policies::{
    at_once, backend, class, in_team, key, per_sec, policy, rates, scope, team, tenant, tokens,
    with_concurrency,
};
use crate::world::{ONE, State, Store, TWO, World, ask, nothing, reported};

/// Something happens; the numbers pick from what there is.
#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive(u16, u16),
    Pass(u32),
    Answer,
    Complete(u8, u8),
    Produce(u8, u8),
    Leave(u8),
    Fail(u8),
    Bounce(u8, u8),
    Nothing(u8),
    Backend(bool, bool),
    Reload(u32),
    Raise(u8),
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn l4_whatever_the_endings_all_is_settled_once_and_nothing_is_left(
        bits in any::<u32>(), store in store(), steps in prop::collection::vec(any_step(), 15..35)
    ) {
        let mut world = World::with_store(rich(bits), store);
        for step in steps {
            act(&mut world, step);
        }
        world.wind_up();
    }

    #[test]
    fn l7_a_request_refused_by_the_gate_changes_no_cell(
        bits in any::<u32>(), steps in prop::collection::vec(any_step(), 15..35), later in 0u64..60_000_000
    ) {
        let mut world = World::new(rich(bits));
        for step in steps {
            let untouched = world.ledger.clone();
            let refused = world.refusals.len();
            act(&mut world, step);
            let newcomer_refused = matches!(step, Step::Arrive(..))
                && world.refusals.len() == refused + 1
                && world.refusals[refused].1 == *world.arrivals.keys().last().unwrap();
            if newcomer_refused {
                for moment in [world.now, world.now.after(Micros(later))] {
                    let before = world.recorder.levels(&untouched, moment);
                    let after = world.recorder.levels(&world.ledger, moment);
                    // A refusal by a full queue comes after the reservation; it gives back to the last micro-token.
                    assert_eq!(before, after);
                }
            }
        }
    }

    #[test]
    fn l2_net_draw_of_every_limit_stays_within_its_supply_and_its_debt(
        bits in any::<u32>(), steps in prop::collection::vec(step_without_change(), 20..40)
    ) {
        let mut world = World::new(rich(bits));
        for step in steps {
            act(&mut world, step);
        }
        let shapes: BTreeMap<CellId, Shape> = world
            .gate
            .all_limits()
            .iter()
            .filter(|view| view.slots_used.is_none())
            .map(|view| (view.cell, view.shape))
            .collect();
        world.recorder.check_windows(&shapes, true);
    }

    #[test]
    fn l11_what_can_never_fit_is_never_told_to_come_back(
        bits in any::<u32>(), steps in prop::collection::vec(step_without_change(), 15..35)
    ) {
        let mut world = World::new(rich(bits));
        for step in steps {
            act(&mut world, step);
            for state in world.states.values() {
                let State::Refused(refusal) = state else { continue };
                let Some(limit) = refusal.limit else { continue };
                let found = world.gate.all_limits().into_iter().find(|view| view.limit == limit);
                if let Some(view) = found
                    && limit.dimension != Dimension::ConcurrentRequests
                {
                    let never = Amount::whole(refusal.asked) > view.shape.capacity;
                    assert_eq!(never, refusal.reason == Reason::NeverFits, "{refusal:?}");
                    assert_eq!(never, refusal.retry == Retry::Never, "{refusal:?}");
                }
            }
        }
    }
}

fn act(world: &mut World, step: Step) {
    match step {
        Step::Arrive(who, size) => {
            world.arrive(arrival(who, size));
        }
        Step::Pass(micros) => world.advance(Micros(u64::from(micros))),
        Step::Answer => world.answer(),
        Step::Complete(which, size) => {
            if let Some(request) = pick(&world.running(), which) {
                let input = world.arrivals[&request].input.0;
                let mut report = reported(input + u64::from(size / 64), u64::from(size) * 4);
                report.reported.cached = Tokens(input / 2);
                world.end(request, report);
            }
        }
        Step::Produce(which, size) => {
            if let Some(request) = pick(&world.running(), which) {
                world.handle(Event::Produced { request, output: Tokens(u64::from(size) * 2) });
            }
        }
        Step::Leave(which) => {
            let live: Vec<RequestId> = world.waiting().into_iter().chain(world.running()).collect();
            if let Some(request) = pick(&live, which) {
                world.leave(request, u64::from(which));
            }
        }
        Step::Fail(which) => {
            if let Some(request) = pick(&world.running(), which) {
                world.hand_back(Event::Failed { request, failure: Failure::Error });
            }
        }
        Step::Bounce(which, wait) => {
            if let Some(request) = pick(&world.running(), which) {
                let retry_after = (wait > 100).then(|| Micros::from_millis(u64::from(wait) * 10));
                world.hand_back(Event::Bounced { request, retry_after });
            }
        }
        Step::Nothing(which) => {
            if let Some(request) = pick(&world.running(), which) {
                world.end(request, nothing());
            }
        }
        Step::Backend(first, up) => {
            let backend = if first { ONE } else { TWO };
            world.handle(if up { Event::BackendUp(backend) } else { Event::BackendDown(backend) });
        }
        Step::Reload(bits) => world.reload(rich(bits)),
        Step::Raise(run) => world.handle(Event::Raise {
            tenant: TenantId(0),
            run: u128::from(run % 3) + 1,
            tokens: Tokens(500),
        }),
    }
}

fn arrival(who: u16, size: u16) -> Arrival {
    let choice = |shift: u32, many: u16| u32::from((who >> shift) % many);
    Arrival {
        tenant: TenantId(choice(0, 2)),
        key: Some(KeyId(choice(1, 2))),
        model: ModelId(choice(2, 2)),
        run: Some(choice(3, 4)).filter(|run| *run > 0).map(u128::from),
        end_user: Some(choice(5, 4)).filter(|user| *user > 0).map(u128::from),
        choices: 1 + choice(7, 2),
        // Now and then a request that can never fit.
        output_bound: Tokens(u64::from(size % 16) * if size.is_multiple_of(97) { 4_000 } else { 40 }),
        ..ask(u64::from(size / 16) / 8, 0)
    }
}

fn pick(requests: &[RequestId], which: u8) -> Option<RequestId> {
    (!requests.is_empty()).then(|| requests[usize::from(which) % requests.len()])
}

/// A policy with the limits that the bits name; without any bit there is none.
fn rich(bits: u32) -> Policy {
    let on = |bit: u32| bits & (1 << bit) != 0;
    let only = |bit: u32, limits: Limits| if on(bit) { limits } else { Limits::default() };
    let mut rated: Vec<RateLimit> = Vec::new();
    if on(0) {
        rated.push(per_sec(Dimension::Tokens, 100, 20));
    }
    if on(1) {
        rated.push(per_sec(Dimension::Requests, 1, 6));
    }
    if on(2) {
        rated.push(RateLimit { shadow: true, ..per_sec(Dimension::OutputTokens, 10, 20) });
    }
    let mut limits = rates(&rated);
    limits.cached_input_weight_millis = on(3).then_some(100);
    if on(4) {
        let on_excess = if on(5) { OnExcess::Queue } else { OnExcess::Reject };
        limits = with_concurrency(limits, 2, on_excess);
    }
    let mut first = in_team(tenant("first", limits));
    if on(6) {
        first.limits.models.insert(ModelId(1), tokens(50, 20));
    }
    let web = only(7, with_concurrency(tokens(60, 20), 1, OnExcess::Queue));
    first.keys = vec![key("web", web), key("app", Limits::default())];
    first.charging = [Charging::Reserve, Charging::Quantile, Charging::Postpay, Charging::Reserve]
        [(bits >> 8 & 3) as usize];
    let mut users = with_concurrency(tokens(40, 20), 1, OnExcess::Reject);
    users.rates.push(per_sec(Dimension::InputTokens, 20, 10));
    first.end_users = on(10).then(|| scope(users));
    first.runs = on(11).then(|| Runs {
        token_budget: Some(Tokens(3_000)),
        max_steps: Some(6),
        limits: scope(only(12, at_once(1))),
        idle_expiry: Micros::from_secs(5),
        max_live: 3,
        new_runs: Some(per_sec(Dimension::NewRuns, 1, 2).shape),
        ..Runs::default()
    });
    let second = in_team(tenant("second", only(13, tokens(100, 10))));
    let mut policy = policy(vec![first, second]);
    policy.teams = vec![team("shop", only(14, with_concurrency(tokens(150, 10), 3, OnExcess::Queue)))];
    policy.service = only(15, rates(&[per_sec(Dimension::Work, 300, 10)]));
    let slots = if on(16) { 2 } else { 100 };
    policy.pools[0].backends = vec![backend("one", slots), backend("two", slots)];
    policy.pools[0].limits = only(17, tokens(150, 10));
    policy.pools[0].backends[0].limits = only(18, tokens(50, 10));
    let short = Class {
        wait_max: Micros::from_secs(2),
        queue_requests_max: 3,
        queue_tokens_max: Tokens(2_000),
        ..class("interactive")
    };
    if on(19) {
        policy.classes[0] = short;
    }
    policy
}

fn store() -> impl Strategy<Value = Store> {
    prop::sample::select(vec![Store::AtOnce, Store::TellsLate, Store::DecidesLate])
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => step_without_change(),
        1 => any::<u32>().prop_map(Step::Reload),
        1 => any::<u8>().prop_map(Step::Raise),
    ]
}

fn step_without_change() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (any::<u16>(), any::<u16>()).prop_map(|(who, size)| Step::Arrive(who, size)),
        3 => (0u32..3_000_000).prop_map(Step::Pass),
        5 => Just(Step::Answer),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(which, size)| Step::Complete(which, size)),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(which, size)| Step::Produce(which, size)),
        2 => any::<u8>().prop_map(Step::Leave),
        1 => any::<u8>().prop_map(Step::Fail),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(which, wait)| Step::Bounce(which, wait)),
        1 => any::<u8>().prop_map(Step::Nothing),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(first, up)| Step::Backend(first, up)),
    ]
}
