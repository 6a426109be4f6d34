//! End users come by the million: memory stays bounded, and nobody active is forgotten.

use std::sync::Arc;

use fairlane_core::gate::{Arrival, Effect, Event, Gate, RequestId};
use fairlane_core::ledger::Ledger;
use fairlane_core::policy::{Limits, Policy};
use fairlane_core::units::{Micros, Moment};

use crate::policies::{policy, rates, scope, slow, tenant, tokens};
use crate::world::{World, ask, reported};

#[test]
fn b15_a_million_end_users_stay_bounded_and_an_active_bucket_is_never_forgotten() {
    let limits = rates(&[slow(fairlane_core::policy::Dimension::Tokens, 10)]);
    let mut bare = Bare::new(with_end_users(limits, 10_000));
    // Two users who have used up their buckets: one early, one in the middle of the flood's first part.
    assert!(bare.ask(1, 10));
    let mut most = 0;
    for user in 2..1_000_002u128 {
        bare.ask(user, 1);
        most = most.max(bare.gate.subjects());
        if user % 50_000 == 0 {
            assert!(!bare.ask(1, 1), "an active user's bucket was forgotten");
        }
    }
    assert_eq!(most, 10_001, "the bound, and the place that newcomers share");
    assert!(!bare.ask(1, 1));
    assert!(!bare.ask(5_000_000, 1), "newcomers share one bucket, which is empty");
    assert!(bare.ask(9_999, 9), "those who were known have their own");
}

#[test]
fn b15_end_users_whose_buckets_are_full_again_make_room() {
    let mut bare = Bare::new(with_end_users(tokens(10, 1), 1_000));
    for user in 1..100_001u128 {
        assert!(bare.ask(user, 10), "user {user} has a bucket of their own");
        bare.now = bare.now.after(Micros(1_200_000));
    }
    assert!(bare.gate.subjects() <= 1_000);
}

#[test]
fn an_end_user_is_remembered_until_the_bucket_is_full_again() {
    let mut world = World::new(with_end_users(tokens(10, 10), 10));
    let of = |cost: u64| Arrival { end_user: Some(1), ..ask(cost, 0) };
    let large = world.arrive(of(100));
    world.complete(large, 1_000, 0);
    assert_eq!(world.gate.subjects(), 1);
    // In debt by 900: full after 100 seconds.
    world.advance_secs(99);
    let early = world.arrive(of(100));
    assert!(world.is_refused(early));
    world.advance_secs(1);
    let full = world.arrive(of(100));
    assert!(world.is_running(full));
}

#[test]
fn requests_that_name_nobody_share_one_set_of_limits() {
    let mut world = World::new(with_end_users(tokens(10, 10), 10));
    let first = world.arrive(ask(60, 0));
    let second = world.arrive(ask(60, 0));
    assert!(world.is_running(first) && world.is_refused(second));
    let named = world.arrive(Arrival { end_user: Some(3), ..ask(60, 0) });
    assert!(world.is_running(named));
}

#[test]
fn a_refused_newcomer_takes_no_place() {
    let mut world = World::new(with_end_users(tokens(10, 10), 10));
    for user in 1..50 {
        let never = world.arrive(Arrival { end_user: Some(user), ..ask(101, 0) });
        assert!(world.is_refused(never));
    }
    assert_eq!(world.gate.subjects(), 0);
}

/// A gate and a ledger without the recorder, which would look at every cell at every event.
struct Bare {
    gate: Gate,
    ledger: Ledger,
    now: Moment,
    next: u64,
}

impl Bare {
    fn new(policy: Policy) -> Self {
        Self { gate: Gate::new(Arc::new(policy)), ledger: Ledger::new(), now: Moment(1), next: 0 }
    }

    /// One request from arrival to end; whether it was admitted.
    fn ask(&mut self, user: u128, cost: u64) -> bool {
        self.next += 1;
        let request = RequestId(self.next);
        self.gate.handle(Event::Arrive(Arrival { request, end_user: Some(user), ..ask(cost, 0) }), self.now);
        let mut admitted = false;
        while let Some(effect) = self.gate.poll() {
            match effect {
                Effect::Reserve(reservation) => {
                    let verdict = self.ledger.reserve(&reservation, self.now);
                    self.gate.handle(Event::Ruled { reservation: reservation.id, verdict }, self.now);
                }
                Effect::Start { .. } => {
                    admitted = true;
                    self.gate.handle(Event::Ended { request, report: reported(cost, 0) }, self.now);
                }
                Effect::Settle(settlement) => assert!(self.ledger.settle(&settlement, self.now)),
                Effect::Refuse { .. } | Effect::Finished(_) => {}
                Effect::Draw { .. }
                | Effect::Reshape(..)
                | Effect::Grant(..)
                | Effect::Count { .. }
                | Effect::Stop { .. }
                | Effect::Evict { .. }
                | Effect::Abandon { .. } => panic!("{effect:?}"),
            }
        }
        admitted
    }
}

fn with_end_users(limits: Limits, most: u32) -> Policy {
    let mut first = tenant("T", Limits::default());
    first.end_users = Some(scope(limits));
    let mut policy = policy(vec![first]);
    policy.end_users_max = most;
    policy
}
