//! Laws L1 to L9 and L11 of buckets and ledger, over generated histories.

use std::collections::BTreeMap;

use fairlane_core::bucket::{Bucket, Rate, Shape};
use fairlane_core::ledger::{
    CellId, Charge, Closing, Ledger, Reservation, ReservationId, Settlement, Verdict,
};
use fairlane_core::policy::{Dimension, TenantId};
use fairlane_core::scope::{Limit, Owner};
use fairlane_core::units::{Amount, Micros, Moment, Tokens};
use proptest::prelude::*;

use crate::many;
use crate::recorder::{Recorder, fraction};

/// What happens to the ledger; numbers pick from what there is.
#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Back(u64),
    /// Thousandths of each cell's capacity.
    Reserve([u16; 3]),
    /// Which open reservation, and what was used in thousandths of what was reserved.
    Settle(u8, u16),
    Draw(u8, u16),
}

/// A ledger with its recorder.
#[derive(Clone, Default)]
struct Bench {
    ledger: Ledger,
    recorder: Recorder,
    now: Moment,
    shapes: Vec<Shape>,
    open: Vec<(ReservationId, Vec<Charge>)>,
    last: u64,
}

impl Bench {
    fn new(shapes: &[Shape]) -> Self {
        Self { now: Moment(10_000_000_000), shapes: shapes.to_vec(), ..Self::default() }
    }

    fn charges(&self, thousandths: [u16; 3]) -> Vec<Charge> {
        let parts = self.shapes.iter().zip(thousandths);
        (0..).zip(parts).map(|(index, (shape, part))| charge(index, shape, share(shape, part))).collect()
    }

    fn step(&mut self, step: &Step) -> Option<Verdict> {
        match *step {
            Step::Pass(micros) => self.now = Moment(self.now.0 + micros),
            Step::Back(micros) => self.now = Moment(self.now.0 - micros.min(self.now.0)),
            Step::Reserve(thousandths) => return Some(self.reserve(thousandths)),
            Step::Settle(which, used) => self.settle(which, used),
            Step::Draw(which, part) => self.draw(which, part),
        }
        self.recorder.check(&self.ledger, self.now);
        None
    }

    fn reserve(&mut self, thousandths: [u16; 3]) -> Verdict {
        self.last += 1;
        let id = ReservationId(self.last);
        let charges = self.charges(thousandths);
        let tokens = Tokens(charges[0].reserved.0.unsigned_abs() / 1_000_000);
        let reservation = Reservation { id, charges, tokens };
        let verdict = self.ledger.reserve(&reservation, self.now);
        self.recorder.reserve(&reservation, &verdict, self.now);
        self.recorder.check(&self.ledger, self.now);
        if matches!(verdict, Verdict::Granted { .. }) {
            self.open.push((id, reservation.charges));
        }
        verdict
    }

    fn settle(&mut self, which: u8, used: u16) {
        if self.open.is_empty() {
            return;
        }
        let (id, charges) = self.open.remove(usize::from(which) % self.open.len());
        let settlement = settlement(id, charges, used);
        assert!(self.ledger.settle(&settlement, self.now));
        self.recorder.settle(&settlement, self.now);
    }

    fn draw(&mut self, which: u8, part: u16) {
        if self.open.is_empty() {
            return;
        }
        let place = usize::from(which) % self.open.len();
        let (id, charges) = &mut self.open[place];
        let drawn: Vec<Charge> =
            charges.iter().map(|charge| Charge { reserved: share(&charge.shape, part), ..*charge }).collect();
        for (charge, drawn) in charges.iter_mut().zip(&drawn) {
            charge.reserved += drawn.reserved;
        }
        self.ledger.draw(*id, &drawn, self.now);
        self.recorder.draw(*id, &drawn, self.now);
    }

    fn run(shapes: &[Shape], steps: &[Step]) -> Self {
        let mut bench = Self::new(shapes);
        for step in steps {
            bench.step(step);
        }
        bench
    }

    fn shapes_by_cell(&self) -> BTreeMap<CellId, Shape> {
        (0..).map(cell).zip(self.shapes.iter().copied()).collect()
    }
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn l1_a_level_stays_between_the_deepest_debt_and_the_brim(
        shapes in three_shapes(), steps in prop::collection::vec(any_step(), 20..50)
    ) {
        // `Recorder::check` after every step compares with the brim and the bound on debt.
        Bench::run(&shapes, &steps);
    }

    #[test]
    fn l2_net_draw_over_any_window_stays_within_capacity_plus_rate_times_window(
        shapes in three_shapes(), steps in prop::collection::vec(step_without_overrun(), 20..50)
    ) {
        let bench = Bench::run(&shapes, &steps);
        bench.recorder.check_windows(&bench.shapes_by_cell(), false);
    }

    #[test]
    fn l2_with_overruns_net_draw_exceeds_that_by_the_debt_at_most(
        shapes in three_shapes(), steps in prop::collection::vec(any_forward_step(), 20..50)
    ) {
        let bench = Bench::run(&shapes, &steps);
        bench.recorder.check_windows(&bench.shapes_by_cell(), true);
    }

    #[test]
    fn l3_usage_of_a_window_stays_within_its_supply_plus_refunds_for_earlier_requests(
        shapes in three_shapes(), steps in prop::collection::vec(step_without_overrun(), 20..50)
    ) {
        check_usage(&shapes, &steps);
    }

    #[test]
    fn l4_outstanding_is_the_sum_of_open_reservations_and_a_second_settlement_changes_nothing(
        shapes in three_shapes(), steps in prop::collection::vec(any_step(), 20..50)
    ) {
        let mut bench = Bench::run(&shapes, &steps);
        while let Some((id, charges)) = bench.open.first().cloned() {
            bench.settle(0, 700);
            bench.recorder.check(&bench.ledger, bench.now);
            let levels = bench.recorder.levels(&bench.ledger, bench.now);
            let totals = *bench.ledger.totals();
            assert!(!bench.ledger.settle(&settlement(id, charges, 0), bench.now));
            assert_eq!(levels, bench.recorder.levels(&bench.ledger, bench.now));
            assert_eq!(totals, *bench.ledger.totals());
        }
        assert_eq!(bench.ledger.totals().outstanding, 0);
        assert_eq!(bench.ledger.outstanding(), 0);
    }

    #[test]
    fn l5_exact_rationals_give_the_same_decision_and_the_same_wait(
        shapes in three_shapes(), steps in prop::collection::vec(any_step(), 20..50)
    ) {
        // `Recorder::reserve` compares verdict, binding cell and wait; `peek` must foretell the same.
        let mut bench = Bench::new(&shapes);
        for step in &steps {
            let foretold = match step {
                Step::Reserve(parts) => Some(bench.ledger.peek(&bench.charges(*parts), bench.now)),
                Step::Pass(_) | Step::Back(_) | Step::Settle(..) | Step::Draw(..) => None,
            };
            let verdict = bench.step(step);
            assert_eq!(foretold, verdict);
        }
    }

    #[test]
    fn l6_a_refused_request_is_admitted_after_exactly_the_wait_and_not_a_microsecond_before(
        shapes in three_shapes(), steps in prop::collection::vec(any_forward_step(), 20..50)
    ) {
        let mut bench = Bench::new(&shapes);
        for step in &steps {
            let verdict = bench.step(step);
            let (Step::Reserve(parts), Some(Verdict::Refused(shortage))) = (step, verdict) else { continue };
            let Some(wait) = shortage.wait else { continue };
            assert!(wait > Micros::ZERO);
            let charges = bench.charges(*parts);
            let at = bench.now.after(wait);
            assert!(matches!(bench.ledger.peek(&charges, at), Verdict::Granted { .. }), "at {wait:?}");
            let before = Moment(at.0 - 1);
            assert!(matches!(bench.ledger.peek(&charges, before), Verdict::Refused(_)), "before {wait:?}");
        }
    }

    #[test]
    fn l7_a_refusal_changes_no_cell_at_any_later_instant(
        shapes in three_shapes(),
        steps in prop::collection::vec(any_step(), 20..50),
        later in prop::collection::vec(0u64..100_000_000, 4),
    ) {
        let mut bench = Bench::new(&shapes);
        for step in &steps {
            let untouched = bench.ledger.clone();
            if let Some(Verdict::Refused(_)) = bench.step(step) {
                for span in later.iter().chain(&[0]) {
                    let moment = bench.now.after(Micros(*span));
                    let with = bench.recorder.levels(&bench.ledger, moment);
                    assert_eq!(with, bench.recorder.levels(&untouched, moment));
                }
                assert_eq!(untouched.totals(), bench.ledger.totals());
            }
        }
    }

    #[test]
    fn l8_more_budget_never_turns_an_admission_into_a_refusal_nor_lengthens_a_wait(
        shape in shape(), more_capacity in 0i64..5_000, more_rate in 0u64..2_000,
        first in 0u16..=1_000, pause in 0u64..100_000_000, second in 0u16..=1_200,
    ) {
        let rate = |rate: Rate| rate.units_over(Micros::from_secs(86_400));
        let larger = Shape {
            rate: Rate::new(rate(shape.rate) + more_rate * 86_400, 86_400).unwrap(),
            capacity: shape.capacity + Amount::whole(more_capacity.unsigned_abs()),
            debt_max: shape.debt_max,
        };
        let start = Moment(10_000_000_000);
        let wait = |shape_held: &Shape| {
            let mut bucket = Bucket::full(shape_held, start);
            bucket.debit(shape_held, share(&shape, first));
            bucket.refill(shape_held, start.after(Micros(pause)));
            bucket.wait_for(shape_held, share(&shape, second))
        };
        let (small, large) = (wait(&shape), wait(&larger));
        if let Some(small) = small {
            assert!(large.is_some_and(|large| large <= small), "{small:?} became {large:?}");
        }
    }

    #[test]
    fn l9_a_clock_that_goes_back_adds_nothing(
        shape in shape(), taken in 0u16..=1_000, moments in prop::collection::vec(0u64..4_000_000_000, 1..40)
    ) {
        let start = Moment(2_000_000_000);
        let mut bucket = Bucket::full(&shape, start);
        bucket.debit(&shape, share(&shape, taken));
        let after_debit = bucket.level();
        let mut latest = start;
        for moment in moments {
            let before = bucket.level();
            bucket.refill(&shape, Moment(moment));
            if Moment(moment) <= latest {
                assert_eq!(bucket.level(), before, "going back or standing still adds nothing");
            }
            latest = latest.max(Moment(moment));
            let (gain, denominator) = fraction(shape.rate);
            let earned = gain * i128::from(latest.0 - start.0) / denominator;
            let most = (i128::from(after_debit.0) + earned).min(i128::from(shape.capacity.0));
            assert_eq!(i128::from(bucket.level().0), most, "what the furthest moment yields, and no more");
        }
    }

    #[test]
    fn l11_a_cost_above_the_capacity_has_no_wait(
        shapes in three_shapes(), steps in prop::collection::vec(any_step(), 5..30), over in 1i64..1_000_000_000
    ) {
        let bench = Bench::run(&shapes, &steps);
        for place in 0..shapes.len() {
            let mut charges = bench.charges([0; 3]);
            charges[place].reserved = shapes[place].capacity + Amount(over);
            let Verdict::Refused(shortage) = bench.ledger.peek(&charges, bench.now) else {
                panic!("granted more than the bucket can hold");
            };
            assert_eq!(shortage.wait, None);
        }
    }
}

/// L3, from admissions and refunds alone: for every window between two events.
fn check_usage(shapes: &[Shape], steps: &[Step]) {
    let mut bench = Bench::new(shapes);
    // Per cell: (admitted at, reserved, refunded at, refunded as far as it fitted under the brim).
    let mut spent: BTreeMap<(ReservationId, usize), (Moment, i128, Moment, i128)> = BTreeMap::new();
    for step in steps {
        let (open, changes) = (bench.open.clone(), bench.recorder.draws.len());
        bench.step(step);
        for (id, charges) in &bench.open {
            for (place, charge) in charges.iter().enumerate() {
                let reserved = i128::from(charge.reserved.0);
                spent.entry((*id, place)).or_insert((bench.now, reserved, Moment(u64::MAX), 0));
            }
        }
        let Some((id, _)) = open.iter().find(|(id, _)| !bench.open.iter().any(|(held, _)| held == id)) else {
            continue;
        };
        for (changed, _, drawn) in &bench.recorder.draws[changes..] {
            let entry = spent.get_mut(&(*id, changed.index as usize)).unwrap();
            (entry.2, entry.3) = (bench.now, -drawn);
        }
    }
    for (place, shape) in shapes.iter().enumerate() {
        let entries: Vec<_> =
            spent.iter().filter(|((_, at), _)| *at == place).map(|(_, entry)| *entry).collect();
        check_usage_of_cell(shape, &entries);
    }
}

fn check_usage_of_cell(shape: &Shape, entries: &[(Moment, i128, Moment, i128)]) {
    let (gain, denominator) = fraction(shape.rate);
    for begin in entries.iter().map(|entry| entry.0) {
        for end in entries.iter().map(|entry| entry.0).filter(|end| *end >= begin) {
            let inside = entries.iter().filter(|entry| entry.0 >= begin && entry.0 <= end);
            let usage: i128 = inside.map(|entry| entry.1 - entry.3).sum();
            let refunds: i128 = entries
                .iter()
                .filter(|entry| entry.0 < begin && entry.2 >= begin && entry.2 <= end)
                .map(|entry| entry.3)
                .sum();
            let window = i128::from(end.0 - begin.0);
            let supply = i128::from(shape.capacity.0) * denominator + gain * window;
            assert!(usage * denominator <= supply + refunds * denominator, "window {begin:?} to {end:?}");
        }
    }
}

fn settlement(id: ReservationId, mut charges: Vec<Charge>, used: u16) -> Settlement {
    for charge in &mut charges {
        charge.used = Amount(charge.reserved.0 / 1_000 * i64::from(used));
    }
    let used = Tokens(charges[0].used.0.unsigned_abs() / 1_000_000);
    Settlement { id, charges, used, closing: Closing::Counted }
}

fn charge(index: u32, shape: &Shape, reserved: Amount) -> Charge {
    let limit = Limit { owner: Owner::Tenant(TenantId(index)), model: None, dimension: Dimension::Tokens };
    Charge { cell: cell(index), limit, shape: *shape, reserved, used: Amount::ZERO, shadow: false }
}

const fn cell(index: u32) -> CellId {
    CellId { index, epoch: 0 }
}

/// Thousandths of the capacity, and a few millionths besides so that amounts are not whole.
fn share(shape: &Shape, thousandths: u16) -> Amount {
    Amount(shape.capacity.0 / 1_000 * i64::from(thousandths) + i64::from(thousandths % 7))
}

fn shape() -> impl Strategy<Value = Shape> {
    let period = prop::sample::select(vec![1u64, 60, 3_600, 86_400]);
    (0u64..3_000, period, 0u64..5_000, 0u64..10_000).prop_map(|(units, period, capacity, debt)| Shape {
        rate: Rate::new(units, period).unwrap(),
        capacity: Amount::whole(capacity),
        debt_max: Amount::whole(debt),
    })
}

fn three_shapes() -> impl Strategy<Value = Vec<Shape>> {
    prop::collection::vec(shape(), 3)
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![8 => any_forward_step(), 1 => (0u64..50_000_000).prop_map(Step::Back)]
}

fn any_forward_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => step_without_overrun(),
        1 => (any::<u8>(), 0u16..3_000).prop_map(|(which, used)| Step::Settle(which, used)),
        1 => (any::<u8>(), 0u16..600).prop_map(|(which, part)| Step::Draw(which, part)),
    ]
}

fn step_without_overrun() -> impl Strategy<Value = Step> {
    let pass = prop_oneof![0u64..5_000_000, 0u64..100, 0u64..90_000_000];
    prop_oneof![
        2 => pass.prop_map(Step::Pass),
        3 => prop::array::uniform3(0u16..=400).prop_map(Step::Reserve),
        1 => prop::array::uniform3(0u16..=1_100).prop_map(Step::Reserve),
        2 => (any::<u8>(), 0u16..=1_000).prop_map(|(which, used)| Step::Settle(which, used)),
    ]
}
