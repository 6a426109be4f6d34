//! Laws of what outlives the process: no crash and no clock makes a balance larger, and an orderly end loses nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairlane_core::Place;
use fairlane_core::gate::{Answer, Arrival, Effect, Event, Gate, Outcome, Report, Reported, RequestId};
use fairlane_core::ledger::{Charge, Ledger, Verdict};
use fairlane_core::policy::{Dimension, KeyId, Policy, Runs, Tenant, TenantId};
use fairlane_core::scope::Owner;
use fairlane_core::snapshot::{CellName, Claims, Leftover, Saved, claim_of};
use fairlane_core::units::{Amount, Micros, Moment, Tokens};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::policies::{
    in_team, key, per_period, per_sec, policy, rates, run_budget, scope, slow, team, tenant, tokens,
};
use crate::world::{ask, reported};

/// A process: gate, ledger and claims. The file outlives it.
struct Life {
    gate: Gate,
    ledger: Ledger,
    claims: Claims,
    now: Moment,
    next: u64,
    running: Vec<RequestId>,
    refused: usize,
    /// A batch that somebody must wait for.
    needed: bool,
}

type File = BTreeMap<CellName, Saved>;

impl Life {
    fn begin(policy: Policy, file: &File, wall: Moment) -> (Self, Leftover) {
        let now = Moment(5);
        let mut gate = Gate::new(Arc::new(policy));
        let mut ledger = Ledger::new();
        let mut claims = Claims::new(&mut gate, wall, now);
        let leftover = claims.restore(&mut gate, &mut ledger, file.clone(), now);
        let life =
            Self { gate, ledger, claims, now, next: 0, running: Vec::new(), refused: 0, needed: false };
        (life, leftover)
    }

    fn wall(&self) -> Moment {
        self.claims.wall(self.now)
    }

    fn arrive(&mut self, arrival: Arrival) -> RequestId {
        self.next += 1;
        let request = RequestId(self.next);
        self.handle(Event::Arrive(Arrival { request, ..arrival }));
        request
    }

    fn complete(&mut self, request: RequestId, input: u64, output: u64) {
        self.running.retain(|running| *running != request);
        self.handle(Event::Ended { request, report: reported(input, output) });
    }

    fn handle(&mut self, event: Event) {
        self.gate.handle(event, self.now);
        while let Some(effect) = self.gate.poll() {
            match effect {
                Effect::Reserve(reservation) => {
                    let verdict = self.ledger.reserve(&reservation, self.now);
                    if matches!(verdict, Verdict::Granted { .. }) {
                        self.moved(&reservation.charges);
                    }
                    self.gate.handle(Event::Ruled { reservation: reservation.id, verdict }, self.now);
                }
                Effect::Draw { reservation, charges } => {
                    self.ledger.draw(reservation, &charges, self.now);
                    self.moved(&charges);
                }
                Effect::Settle(settlement) => {
                    self.ledger.settle(&settlement, self.now);
                    self.moved(&settlement.charges);
                }
                Effect::Reshape(cell, shape) => {
                    self.ledger.reshape(cell, shape, self.now);
                    self.claims.reshaped(cell);
                }
                Effect::Grant(cell, shape, amount) => {
                    self.ledger.grant(cell, shape, amount, self.now);
                    self.claims.reshaped(cell);
                }
                Effect::Start { request, .. } => self.running.push(request),
                Effect::Refuse { .. } => self.refused += 1,
                Effect::Stop { .. }
                | Effect::Evict { .. }
                | Effect::Abandon { .. }
                | Effect::Count { .. }
                | Effect::Finished(_) => {}
            }
        }
    }

    fn moved(&mut self, charges: &[Charge]) {
        self.needed |= self.claims.moved(&self.gate, &self.ledger, charges, self.now).is_some();
    }

    /// Stores what is to be stored.
    fn commit(&mut self, file: &mut File) {
        let wall = self.wall();
        while let Some(gathered) = self.claims.gather(&mut self.gate, &self.ledger, wall, self.now) {
            store(file, gathered.rows());
            self.claims.committed(gathered.batch);
        }
        self.needed = false;
    }

    /// The orderly end.
    fn close(mut self, file: &mut File) {
        let wall = self.wall();
        let gathered = self.claims.close(&mut self.gate, &self.ledger, wall, self.now);
        store(file, gathered.rows());
    }

    /// What every limit that the test's requests can meet holds at `at`.
    fn levels(&self, at: Moment) -> BTreeMap<CellName, Amount> {
        let mut levels = BTreeMap::new();
        let policy = self.gate.policy();
        for view in self.gate.all_limits() {
            let name = CellName::of(policy, &view.limit, None).unwrap();
            levels.insert(name, self.ledger.level(view.cell, &view.shape, at));
        }
        for (index, tenant) in (0..).zip(&policy.tenants) {
            for who in 0..SUBJECTS {
                let arrival = Arrival { tenant: TenantId(index), ..request(who, 1, 1) };
                for charge in self.gate.preview(&arrival, self.now).unwrap() {
                    let place = match charge.limit.owner {
                        Owner::Run(id) => Place::Run(id, run_of(tenant, who)),
                        Owner::EndUser(id) => Place::EndUser(id, hash(who)),
                        Owner::Key(..)
                        | Owner::Tenant(_)
                        | Owner::Team(_)
                        | Owner::Pool(_)
                        | Owner::Backend(_)
                        | Owner::Service => continue,
                    };
                    let name = CellName::of(policy, &charge.limit, Some(&place)).unwrap();
                    levels.insert(name, self.ledger.level(charge.cell, &charge.shape, at));
                }
            }
        }
        levels
    }

    fn level(&self, dimension: Dimension) -> i64 {
        let named = |(name, _): &(CellName, Amount)| name.dimension == dimension;
        self.levels(self.now).into_iter().find(named).unwrap().1.floor_units()
    }
}

fn store(file: &mut File, rows: impl Iterator<Item = (CellName, Option<Saved>)>) {
    for (name, saved) in rows {
        match saved {
            Some(saved) => drop(file.insert(name, saved)),
            None => drop(file.remove(&name)),
        }
    }
}

/// Two tenants with limits of every kind and speed.
fn rich() -> Policy {
    let runs = Runs {
        token_budget: Some(Tokens(5_000)),
        max_steps: Some(60),
        limits: scope(rates(&[per_period(Dimension::OutputTokens, 3_000, 600)])),
        ..Runs::default()
    };
    let own = [
        per_period(Dimension::Tokens, 20_000, 3_600),
        per_sec(Dimension::InputTokens, 100, 20),
        slow(Dimension::Requests, 90),
    ];
    let first = Tenant {
        runs: Some(runs.clone()),
        keys: vec![key("web", rates(&[per_period(Dimension::Tokens, 9_000, 86_400)]))],
        end_users: Some(scope(rates(&[per_period(Dimension::Tokens, 4_000, 600)]))),
        ..in_team(tenant("a", rates(&own)))
    };
    let second = Tenant { runs: Some(runs), ..in_team(tenant("b", tokens(1_000, 100))) };
    let mut policy = policy(vec![first, second]);
    policy.teams = vec![team("shop", rates(&[per_period(Dimension::Tokens, 50_000, 7_200)]))];
    policy.pools[0].limits = rates(&[per_period(Dimension::Work, 1_000_000, 600)]);
    policy.pools[0].backends[0].limits = rates(&[per_period(Dimension::Tokens, 100_000, 600)]);
    policy
}

/// The same, written in another order.
fn rich_reordered() -> Policy {
    let mut policy = rich();
    policy.tenants.reverse();
    policy.models.reverse();
    policy
}

fn request(who: u8, input: u64, output_bound: u64) -> Arrival {
    let run = (who > 0).then(|| hash(who));
    Arrival { run, end_user: Some(hash(who)), ..ask(input, output_bound) }
}

fn run_of(_: &Tenant, who: u8) -> u128 {
    if who > 0 { hash(who) } else { 0 }
}

fn hash(who: u8) -> u128 {
    u128::from(who) | 1 << 127
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive { tenant: bool, who: u8, input: u16, output: u16 },
    End { which: u8, used_of_256: u16 },
    Pass(u32),
    Commit,
    Gather,
    Restart(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<bool>(), 0..SUBJECTS, 1u16..300, 1u16..600)
            .prop_map(|(tenant, who, input, output)| Step::Arrive { tenant, who, input, output }),
        5 => (any::<u8>(), 0u16..400).prop_map(|(which, used_of_256)| Step::End { which, used_of_256 }),
        2 => (0u32..400_000_000).prop_map(Step::Pass),
        1 => Just(Step::Commit),
        1 => Just(Step::Gather),
        1 => (0u32..100_000_000).prop_map(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(Config { cases: 1_500, ..crate::many() })]

    #[test]
    fn no_crash_at_any_point_makes_a_balance_larger(
        steps in prop::collection::vec(step(), 5..40), away in 0u64..300_000_000
    ) {
        let mut file = File::new();
        let (mut life, _) = Life::begin(rich(), &file, Moment(1_700_000_000_000_000));
        for step in steps {
            act(&mut life, &mut file, step);
            if life.needed {
                // The driver lets nobody go before that.
                life.commit(&mut file);
            }
            let wall = life.wall().after(Micros(away));
            let (after, leftover) = Life::begin(rich_reordered(), &file, wall);
            assert_eq!(leftover.unknown, BTreeMap::new());
            let before = life.levels(life.now.after(Micros(away)));
            for (name, level) in after.levels(after.now) {
                let is_kept = name.dimension != Dimension::InputTokens;
                assert!(!is_kept || level <= before[&name], "{name:?}: {level:?} over {:?}", before[&name]);
            }
        }
    }

    #[test]
    fn an_orderly_end_loses_nothing(steps in prop::collection::vec(step(), 5..30), away in 0u64..300_000_000) {
        let mut file = File::new();
        let (mut life, _) = Life::begin(rich(), &file, Moment(1_700_000_000_000_000));
        for step in steps {
            act(&mut life, &mut file, step);
        }
        for request in life.running.clone() {
            life.complete(request, 1, 1);
        }
        let before = life.levels(life.now.after(Micros(away)));
        let wall = life.wall().after(Micros(away));
        life.close(&mut file);
        assert!(file.values().all(|row| row.claim == Amount::ZERO));
        let (after, _) = Life::begin(rich_reordered(), &file, wall);
        for (name, level) in after.levels(after.now) {
            // What was earned of the next micro-unit is not written down.
            let lost = before[&name] - level;
            let is_quick = name.dimension == Dimension::InputTokens;
            assert!(is_quick || (0..=1).contains(&lost.0), "{name:?}: {level:?} of {:?}", before[&name]);
        }
    }

    #[test]
    fn a_crash_loses_at_most_the_claim_of_what_was_stored(
        steps in prop::collection::vec(step(), 5..30)
    ) {
        let mut file = File::new();
        let (mut life, _) = Life::begin(rich(), &file, Moment(1_700_000_000_000_000));
        for step in steps {
            act(&mut life, &mut file, step);
        }
        // Every cell is looked at once more, so that rows that say too little are renewed.
        let views = life.gate.all_limits();
        views.iter().for_each(|view| life.claims.reshaped(view.cell));
        life.commit(&mut file);
        let (after, _) = Life::begin(rich(), &file, life.wall());
        let levels = after.levels(after.now);
        for view in views {
            let name = CellName::of(life.gate.policy(), &view.limit, None).unwrap();
            let before = life.ledger.level(view.cell, &view.shape, life.now);
            if let Some(claim) = claim_of(view.limit.dimension, &view.shape) {
                assert!(levels[&name] + claim + Amount(1) >= before, "{name:?}");
            }
        }
    }
}

fn act(life: &mut Life, file: &mut File, step: Step) {
    match step {
        Step::Arrive { tenant, who, input, output } => {
            let tenant = TenantId(u32::from(tenant));
            let _ = life.arrive(Arrival { tenant, ..request(who, input.into(), output.into()) });
        }
        Step::End { which, used_of_256 } => {
            if life.running.is_empty() {
                return;
            }
            let request = life.running[usize::from(which) % life.running.len()];
            life.complete(request, u64::from(used_of_256) / 2, u64::from(used_of_256));
        }
        Step::Pass(micros) => {
            life.now = life.now.after(Micros(micros.into()));
            life.handle(Event::Tick);
        }
        Step::Commit => life.commit(file),
        Step::Gather => {
            // On its way, and not there before the crash; then it is.
            let wall = life.wall();
            if let Some(gathered) = life.claims.gather(&mut life.gate, &life.ledger, wall, life.now) {
                let pass = Micros(1_000);
                life.now = life.now.after(pass);
                store(file, gathered.rows());
                life.claims.committed(gathered.batch);
            }
        }
        Step::Restart(away) => {
            life.commit(file);
            let wall = life.wall().after(Micros(away.into()));
            let (next, leftover) = Life::begin(rich(), file, wall);
            for name in leftover.over {
                file.remove(&name);
            }
            *life = next;
        }
    }
}

#[test]
fn b11_a_restart_is_no_refill() {
    let mut file = File::new();
    let budget = Tenant { runs: Some(run_budget(1_000)), ..tenant("a", tokens(10, 100)) };
    let before = policy(vec![budget]);
    let mut wall = Moment(1_700_000_000_000_000);
    let mut levels = Vec::new();
    for _ in 0..10 {
        let (mut life, _) = Life::begin(before.clone(), &file, wall);
        let first = life.arrive(request(1, 100, 100));
        life.commit(&mut file);
        if life.running.contains(&first) {
            life.complete(first, 100, 100);
        }
        wall = life.wall();
        levels.push((life.level(Dimension::Tokens), life.level(Dimension::RunBudget)));
        life.close(&mut file);
    }
    assert_eq!(levels[..5], [(800, 800), (600, 600), (400, 400), (200, 200), (0, 0)]);
    assert_eq!(levels[9], (0, 0));
}

#[test]
fn b09_a_wall_clock_that_was_set_back_refills_nothing() {
    let mut file = File::new();
    let wall = Moment(1_700_000_000_000_000);
    let before = policy(vec![tenant("a", tokens(10, 100))]);
    let (mut life, _) = Life::begin(before.clone(), &file, wall);
    life.arrive(request(0, 500, 500));
    life.close(&mut file);
    let earlier = Moment(wall.0 - 3_600_000_000);
    let (life, _) = Life::begin(before.clone(), &file, earlier);
    assert_eq!(life.level(Dimension::Tokens), 0);
    // And set right again it refills for the time away alone.
    let (life, _) = Life::begin(before, &file, wall.after(Micros::from_secs(7)));
    assert_eq!(life.level(Dimension::Tokens), 70);
}

#[test]
fn a_clock_that_is_set_back_while_the_process_runs_stamps_no_row_earlier() {
    let mut file = File::new();
    let wall = Moment(1_700_000_000_000_000);
    let before = policy(vec![tenant("a", tokens(10, 100))]);
    let (mut life, _) = Life::begin(before.clone(), &file, wall);
    life.now = life.now.after(Micros::from_secs(600));
    life.arrive(request(0, 500, 500));
    let set_back = Moment(wall.0 - 3_600_000_000);
    let gathered = life.claims.gather(&mut life.gate, &life.ledger, set_back, life.now).unwrap();
    store(&mut file, gathered.rows());
    let right_again = wall.after(Micros::from_secs(600));
    let (life, _) = Life::begin(before, &file, right_again);
    assert!(life.level(Dimension::Tokens) <= 0);
}

#[test]
fn debts_of_buckets_that_fill_soon_are_kept_and_nothing_else_of_them() {
    let mut file = File::new();
    let wall = Moment(1_700_000_000_000_000);
    let quick = policy(vec![tenant("a", tokens(100, 20))]);
    let (mut life, _) = Life::begin(quick.clone(), &file, wall);
    let request_id = life.arrive(request(0, 100, 100));
    life.commit(&mut file);
    assert!(file.is_empty() && !life.needed);
    life.complete(request_id, 100, 4_900);
    assert_eq!(life.level(Dimension::Tokens), -3_000);
    life.commit(&mut file);
    let (after, _) = Life::begin(quick, &file, life.wall().after(Micros::from_secs(10)));
    assert_eq!(after.level(Dimension::Tokens), -2_000);
    life.now = life.now.after(Micros::from_secs(40));
    life.arrive(request(0, 10, 10));
    life.commit(&mut file);
    assert!(file.is_empty(), "repaid: {file:?}");
}

#[test]
fn a_run_that_was_raised_and_begun_is_found_again_and_one_that_was_idle_for_long_is_not() {
    let mut file = File::new();
    let wall = Moment(1_700_000_000_000_000);
    let new_runs = per_sec(Dimension::Requests, 1, 10).shape;
    let runs = Runs { new_runs: Some(new_runs), ..run_budget(1_000) };
    let before = policy(vec![Tenant { runs: Some(runs), ..tenant("a", Default::default()) }]);
    let (mut life, _) = Life::begin(before.clone(), &file, wall);
    let first = life.arrive(request(1, 400, 400));
    life.complete(first, 400, 400);
    let run = hash(1);
    life.handle(Event::Raise { tenant: TenantId(0), run, tokens: Tokens(500) });
    let wall = life.wall();
    life.close(&mut file);
    let (mut after, _) = Life::begin(before.clone(), &file, wall);
    assert_eq!(after.level(Dimension::RunBudget), 700);
    after.arrive(request(1, 300, 400));
    assert_eq!((after.level(Dimension::RunBudget), after.refused), (0, 0));
    let view = after.gate.all_limits()[0];
    assert_eq!(after.ledger.level(view.cell, &view.shape, after.now), view.shape.capacity, "begun before");
    let (_, leftover) = Life::begin(before, &file, wall.after(Micros::from_secs(2_100)));
    assert_eq!(leftover.over.len(), 1);
}

#[test]
fn the_run_of_a_key_goes_with_its_key_when_keys_are_written_in_another_order() {
    let mut file = File::new();
    let wall = Moment(1_700_000_000_000_000);
    let with_keys = |names: [&str; 2]| {
        let keys = names.map(|name| key(name, Default::default())).to_vec();
        policy(vec![Tenant { keys, runs: Some(run_budget(1_000)), ..tenant("a", Default::default()) }])
    };
    let (mut life, _) = Life::begin(with_keys(["web", "jobs"]), &file, wall);
    life.arrive(Arrival { key: Some(KeyId(1)), ..request(0, 400, 400) });
    life.close(&mut file);
    let (after, _) = Life::begin(with_keys(["jobs", "web"]), &file, wall);
    let runs = after.gate.runs(TenantId(0), 10);
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].run, 0, "the key that was the second one is the first");
}

#[test]
fn what_is_on_its_way_covers_what_is_taken_after_it_was_gathered() {
    let before = policy(vec![tenant("a", tokens(100, 100))]);
    let (mut life, _) = Life::begin(before, &File::new(), Moment(1_700_000_000_000_000));
    let wall = life.wall();
    life.arrive(request(0, 500, 500));
    assert!(life.needed, "the first one waits: nothing is claimed");
    let on_its_way = life.claims.gather(&mut life.gate, &life.ledger, wall, life.now).unwrap();
    let charges = {
        life.needed = false;
        life.arrive(request(0, 100, 100));
        assert!(life.needed);
        life.gate.preview(&request(0, 1, 1), life.now).unwrap()
    };
    let needed = life.claims.moved(&life.gate, &life.ledger, &charges, life.now);
    assert_eq!(needed, Some(on_its_way.batch), "the batch on its way is enough");
    life.claims.committed(on_its_way.batch);
    assert_eq!(life.claims.moved(&life.gate, &life.ledger, &charges, life.now), None);
    // More than the claim, 312 tokens, has to wait again.
    life.needed = false;
    life.arrive(request(0, 200, 200));
    assert!(life.needed);
}

#[test]
fn a_lost_answer_is_charged_by_its_whole_reservation() {
    let mut file = File::new();
    let before = policy(vec![Tenant { runs: Some(run_budget(10_000)), ..tenant("a", Default::default()) }]);
    let (mut life, _) = Life::begin(before.clone(), &file, Moment(1_700_000_000_000_000));
    life.arrive(request(1, 100, 900));
    life.commit(&mut file);
    let (after, _) = Life::begin(before, &file, life.wall());
    let claim = 10_000 / 32;
    assert_eq!(after.level(Dimension::RunBudget), 10_000 - 1_000 - claim - 1);
    assert_eq!(after.gate.live(), 0);
}

#[test]
fn rows_of_limits_that_are_gone_are_kept_until_they_are_full() {
    let mut file = File::new();
    let wall = Moment(1_700_000_000_000_000);
    let with = policy(vec![tenant("a", tokens(10, 100))]);
    let without = policy(vec![tenant("a", Default::default())]);
    let (mut life, _) = Life::begin(with.clone(), &file, wall);
    life.arrive(request(0, 500, 500));
    life.close(&mut file);
    let soon = wall.after(Micros::from_secs(20));
    let (_, leftover) = Life::begin(without.clone(), &file, soon);
    assert_eq!(leftover.unknown.len(), 1);
    // The limit comes back.
    let (mut life, _) = Life::begin(without.clone(), &file, soon);
    let (aligned, _) = with.aligned_to(life.gate.policy());
    life.handle(Event::Reload(Arc::new(aligned)));
    let _ = life.claims.restore(&mut life.gate, &mut life.ledger, leftover.unknown, life.now);
    assert_eq!(life.level(Dimension::Tokens), 200);
    let (_, leftover) = Life::begin(without, &file, wall.after(Micros::from_secs(200)));
    assert_eq!((leftover.unknown.len(), leftover.over.len()), (0, 1));
}

#[test]
fn what_ends_without_an_answer_stays_within_the_law_after_a_restart() {
    let before = policy(vec![tenant("a", tokens(100, 100))]);
    let (mut life, _) = Life::begin(before, &File::new(), Moment(1_700_000_000_000_000));
    let id = life.arrive(request(0, 100, 100));
    let report = Report {
        outcome: Outcome::ClientGone,
        answer: Answer::Nothing,
        reported: Reported::default(),
        counted_output: Tokens(0),
    };
    life.handle(Event::Ended { request: id, report });
    assert!(life.ledger.totals().law_holds());
    assert_eq!(life.level(Dimension::Tokens), 10_000);
}

/// Runs and end users of the histories.
const SUBJECTS: u8 = 4;
