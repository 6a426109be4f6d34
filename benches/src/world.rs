//! Gate and ledger driven as the gateway drives them, in a time that the bench gives.

use std::collections::VecDeque;
use std::sync::Arc;

use fairlane_core::gate::{Answer, Arrival, Effect, Event, Gate, Outcome, Report, Reported, RequestId};
use fairlane_core::ledger::Ledger;
use fairlane_core::policy::Policy;
use fairlane_core::units::{Moment, Tokens};

/// A gate with its store.
#[derive(Debug)]
pub struct World {
    gate: Gate,
    ledger: Ledger,
    /// The moment of the next event, in microseconds.
    pub now: Moment,
    next: u64,
    running: VecDeque<RequestId>,
    finished: u64,
}

impl World {
    /// Nothing has arrived.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            gate: Gate::new(Arc::new(policy)),
            ledger: Ledger::new(),
            now: Moment(1_000_000_000),
            next: 0,
            running: VecDeque::new(),
            finished: 0,
        }
    }

    /// A request arrives.
    pub fn arrive(&mut self, arrival: Arrival) {
        self.next += 1;
        self.handle(Event::Arrive(Arrival { request: RequestId(self.next), ..arrival }));
    }

    /// The request that has run longest ends well.
    ///
    /// # Panics
    /// If nothing runs: then the bench would measure nothing.
    pub fn end_oldest(&mut self) {
        let request = self.running.pop_front().expect("something runs");
        let reported = Reported { input: Some(Tokens(220)), output: Some(Tokens(20)), ..Reported::default() };
        let report = Report {
            outcome: Outcome::Completed,
            answer: Answer::Content,
            reported,
            counted_output: Tokens(20),
        };
        self.handle(Event::Ended { request, report });
    }

    /// Requests that run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.gate.live() - self.running.len()
    }

    /// Requests that ended and were charged.
    #[must_use]
    pub const fn finished(&self) -> u64 {
        self.finished
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "a world without faults meets no other effect")]
    fn handle(&mut self, event: Event) {
        self.gate.handle(event, self.now);
        while let Some(effect) = self.gate.poll() {
            match effect {
                Effect::Reserve(reservation) => {
                    let verdict = self.ledger.reserve(&reservation, self.now);
                    self.gate.handle(Event::Ruled { reservation: reservation.id, verdict }, self.now);
                }
                Effect::Settle(settlement) => {
                    self.ledger.settle(&settlement, self.now);
                }
                Effect::Start { request, .. } => self.running.push_back(request),
                Effect::Finished(_) => self.finished += 1,
                other => panic!("no bench asks for {other:?}"),
            }
        }
        // The gateway asks after each event when to wake.
        std::hint::black_box(self.gate.deadline());
    }
}
