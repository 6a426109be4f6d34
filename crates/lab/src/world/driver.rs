//! The gate, its ledger and their watcher, driven as the gateway drives them: every effect is carried out here.

use std::collections::VecDeque;
use std::sync::Arc;

use fairlane_core::gate::{Account, Effect, Event, Gate, RequestId};
use fairlane_core::ledger::{Ledger, Reservation, ReservationId, Verdict};
use fairlane_core::policy::{BackendId, Dimension, Policy, TenantId};
use fairlane_core::refusal::Refusal;
use fairlane_core::scope::Owner;
use fairlane_core::units::{Micros, Moment, Tokens};

use crate::recorder::Recorder;

/// What the gate decided for a request.
#[derive(Clone, Debug)]
pub(super) enum Decision {
    Start { request: RequestId, backend: BackendId, output_step: Option<Tokens> },
    Evict { request: RequestId },
    Refused { request: RequestId, refusal: Refusal },
    Abandoned { request: RequestId },
    Count { request: RequestId },
    Stop { request: RequestId },
    Finished(Account),
}

/// When the limit store answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Store {
    /// At once, as the one in memory does.
    #[default]
    AtOnce,
    /// It decides at once, and its answer comes later: the delay is drawn between nothing and this span.
    Late(Micros),
}

/// A law of the house that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(pub String);

pub(super) struct Driver {
    pub(super) gate: Gate,
    pub(super) ledger: Ledger,
    recorder: Option<Recorder>,
    /// Decisions that the world has not acted upon.
    pub(super) decisions: VecDeque<Decision>,
    /// Verdicts that the store has not told.
    pub(super) untold: VecDeque<(ReservationId, Verdict)>,
    store: Store,
    /// What token limits of tenants lacked of being full, each time that something was taken.
    pub(super) drawn: Vec<(TenantId, u64)>,
}

impl Driver {
    pub(super) fn new(policy: Arc<Policy>, store: Store, recorder: Option<Recorder>) -> Self {
        Self {
            gate: Gate::new(policy),
            ledger: Ledger::new(),
            recorder,
            decisions: VecDeque::new(),
            untold: VecDeque::new(),
            store,
            drawn: Vec::new(),
        }
    }

    /// Tells the gate what happened and carries out what it asks for.
    pub(super) fn handle(&mut self, event: Event, now: Moment) -> Result<(), Broken> {
        self.handle_all([event], now)
    }

    /// Tells the gate what happened at one moment and carries out what it asks for.
    pub(super) fn handle_all(
        &mut self,
        events: impl IntoIterator<Item = Event>,
        now: Moment,
    ) -> Result<(), Broken> {
        self.gate.handle_all(events, now);
        while let Some(effect) = self.gate.poll() {
            self.act(effect, now)?;
        }
        Ok(())
    }

    /// Both ledger laws, the second against the recorder.
    pub(super) fn check(&mut self, now: Moment) -> Result<(), Broken> {
        self.recorder.as_mut().map_or(Ok(()), |recorder| recorder.check(&self.ledger, now)).map_err(Broken)
    }

    /// Demands that nothing is left of all that came: no reservation, no slot, no place in a queue.
    pub(super) fn check_idle(&mut self, now: Moment) -> Result<(), Broken> {
        if let Some(recorder) = &mut self.recorder {
            recorder.check_all(&self.ledger, now).map_err(Broken)?;
        }
        let totals = self.ledger.totals();
        demand(self.gate.live() == 0, || format!("{} requests live for ever", self.gate.live()))?;
        demand(totals.outstanding == 0, || {
            format!("{} tokens are outstanding for ever", totals.outstanding)
        })?;
        demand(self.ledger.outstanding() == 0, || "a reservation is open for ever".to_owned())?;
        for pool in self.gate.pools() {
            for (class, queued, running, tokens) in &pool.classes {
                demand((*queued, *running, *tokens) == (0, 0, Tokens::ZERO), || {
                    format!("{class:?} has {queued} queued, {running} running, {tokens} tokens for ever")
                })?;
            }
            for backend in &pool.backends {
                demand(backend.in_flight == 0, || format!("{backend:?} is occupied for ever"))?;
            }
        }
        for view in self.gate.all_limits() {
            let is_free = match view.slots_used {
                Some(used) => used == 0,
                None if view.limit.dimension == Dimension::ConcurrentRequests => {
                    self.ledger.level(view.cell, &view.shape, now) == view.shape.capacity
                }
                None => true,
            };
            demand(is_free, || format!("slots of {:?} are taken for ever", view.limit))?;
        }
        Ok(())
    }

    fn act(&mut self, effect: Effect, now: Moment) -> Result<(), Broken> {
        match effect {
            Effect::Reserve(reservation) => return self.reserve(&reservation, now),
            Effect::Draw { reservation, charges } => {
                if let Some(recorder) = &mut self.recorder {
                    recorder.draw(reservation, &charges, now);
                }
                if let Some(shortage) = self.ledger.draw(reservation, &charges, now) {
                    self.gate.handle(Event::Overdrawn { reservation, shortage }, now);
                }
            }
            Effect::Settle(settlement) => {
                if let Some(recorder) = &mut self.recorder {
                    recorder.settle(&settlement, now).map_err(Broken)?;
                }
                let was_open = self.ledger.settle(&settlement, now);
                demand(was_open, || format!("{:?} is settled twice", settlement.id))?;
            }
            Effect::Reshape(cell, shape) => {
                if let Some(recorder) = &mut self.recorder {
                    recorder.reshape(cell, &shape, now);
                }
                self.ledger.reshape(cell, shape, now);
            }
            Effect::Grant(cell, shape, amount) => {
                if let Some(recorder) = &mut self.recorder {
                    recorder.grant(cell, &shape, amount, now);
                }
                self.ledger.grant(cell, shape, amount, now);
            }
            Effect::Start { request, backend, output_step } => {
                self.decisions.push_back(Decision::Start { request, backend, output_step });
            }
            Effect::Refuse { request, refusal } => {
                self.decisions.push_back(Decision::Refused { request, refusal });
            }
            Effect::Abandon { request } => self.decisions.push_back(Decision::Abandoned { request }),
            Effect::Count { request } => self.decisions.push_back(Decision::Count { request }),
            Effect::Evict { request } => self.decisions.push_back(Decision::Evict { request }),
            Effect::Stop { request, .. } => self.decisions.push_back(Decision::Stop { request }),
            Effect::Finished(account) => self.decisions.push_back(Decision::Finished(account)),
        }
        Ok(())
    }

    fn reserve(&mut self, reservation: &Reservation, now: Moment) -> Result<(), Broken> {
        let verdict = self.ledger.reserve(reservation, now);
        if let Some(recorder) = &mut self.recorder {
            recorder.reserve(reservation, &verdict, now).map_err(Broken)?;
        }
        for charge in reservation.charges.iter().filter(|charge| charge.limit.dimension == Dimension::Tokens)
        {
            if let Owner::Tenant(tenant) = charge.limit.owner {
                let missing = charge.shape.capacity - self.ledger.level(charge.cell, &charge.shape, now);
                self.drawn.push((tenant, missing.ceil_units().unsigned_abs()));
            }
        }
        match self.store {
            Store::AtOnce => self.gate.handle(Event::Ruled { reservation: reservation.id, verdict }, now),
            Store::Late(_) => self.untold.push_back((reservation.id, verdict)),
        }
        Ok(())
    }
}

/// A law that the message says was broken, if it does not hold.
pub(super) fn demand(holds: bool, message: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken(message())) }
}
