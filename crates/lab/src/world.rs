//! The simulated world: clients, the very gate and ledger that decide live, and backends, in virtual time.
//!
//! Events sort by time, then by the order in which they were planned; a request that clients send by themselves comes before
//! everything else of its moment. After each event the gate's decisions are carried out, then every idle backend that has work
//! begins a step.

mod backends;
mod clients;
mod driver;
mod fault;
mod faults;
mod figures;
mod fleet;
mod gap;
mod setup;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use fairlane_core::gate::{Account, Event, Outcome, RequestId};
use fairlane_core::ledger::{ReservationId, Totals, Verdict};
use fairlane_core::policy::BackendId;
use fairlane_core::units::{Micros, Moment, Tokens};

use crate::recorder::Recorder;
use crate::splitmix::Stream;
use driver::{Decision, Driver, demand};
use figures::Tally;
use fleet::Backend;

pub use driver::{Broken, Store};
pub use fault::{Fault, Honesty, Manner};
pub use figures::{ClassFigures, Figures, Percentiles, TenantFigures, Timeline};
pub use setup::{Comeback, Edge, Offer, Sender, Setup, Watch};

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Run {
    /// What it shows.
    pub figures: Figures,
    /// The sums of the first ledger law at its end.
    pub totals: Totals,
    /// Tries by how they ended; those that were refused without an account are under `Refused`.
    pub endings: BTreeMap<Outcome, u64>,
    /// Tokens charged over all accounts, and tokens that the backends worked off: input and output.
    pub charged: (Tokens, Tokens),
    /// What the backends worked off, input and output.
    pub worked: (Tokens, Tokens),
}

/// Runs a world to its end.
///
/// # Errors
/// A law did not hold, where they are watched; or the world would never end.
pub fn run(setup: Setup) -> Result<Run, Broken> {
    World::new(setup).run()
}

struct World {
    setup: Arc<Setup>,
    now: Moment,
    /// What the gate's clock is ahead of the world's, in microseconds.
    ahead: i64,
    driver: Driver,
    fleet: Vec<Backend>,
    places: BTreeMap<BackendId, usize>,
    calls: Vec<Call>,
    /// By the number of the request at the gate.
    tries: Vec<Try>,
    planned: BinaryHeap<Reverse<Planned>>,
    plans: u64,
    next_offer: usize,
    chance: Stream,
    tally: Tally,
    endings: BTreeMap<Outcome, u64>,
    charged: (Tokens, Tokens),
    done_in_time: Option<Micros>,
    events: u64,
    /// Ticks in a row at one moment.
    ticks: u32,
    /// Room for what happens in one step.
    told_together: Vec<Event>,
}

/// Something that will happen.
#[derive(Debug)]
struct Planned {
    at: Moment,
    order: u64,
    what: Occurrence,
}

#[derive(Debug)]
enum Occurrence {
    StepEnds {
        backend: usize,
        plan: u64,
    },
    /// A client tries again.
    ComesBack {
        call: usize,
    },
    /// A client has waited long enough.
    RunsOutOfPatience {
        call: usize,
    },
    /// The store tells its verdict.
    Told(ReservationId, Verdict),
    Fault(usize),
    /// The health check sees how a backend is.
    Noticed {
        backend: usize,
    },
    /// The edge looks whether a backend is still there for a try.
    LookedAfter {
        attempt: RequestId,
        sent: u32,
    },
}

enum Next {
    Offer,
    Tick,
    Planned,
}

/// A request of a client, whatever tries it takes.
#[derive(Clone, Copy, Debug)]
struct Call {
    offer: usize,
    tries: u32,
    latest: RequestId,
    has_started: bool,
    is_over: bool,
}

/// One request at the gate.
#[derive(Clone, Copy, Debug)]
struct Try {
    call: usize,
    sender: usize,
    stage: Stage,
    /// Times that it was sent to a backend.
    sent: u32,
    sent_at: Moment,
    /// The gate hears of output each time that so many more tokens have come.
    output_step: Option<Tokens>,
    output_bound: Tokens,
    produced: u64,
    first_token: Moment,
    last_token: Moment,
    /// What must be charged, where that is known exactly: input and output.
    due: Option<(Tokens, Tokens)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// At the gate: before its store, or in the queue.
    Waiting,
    Running(usize),
    Over,
}

impl World {
    fn new(setup: Setup) -> Self {
        let names: Vec<_> = setup.senders.iter().map(|sender| (sender.name.clone(), sender.class)).collect();
        let work = setup.policy.pools.first().map(|pool| pool.work).unwrap_or_default();
        let recorder = (setup.watch == Watch::Laws).then(Recorder::default);
        let mut world = Self {
            now: Moment(0),
            ahead: 0,
            driver: Driver::new(Arc::clone(&setup.policy), setup.store, recorder),
            fleet: setup.backends.iter().map(|(id, shape)| Backend::new(*id, *shape)).collect(),
            places: (0..).zip(&setup.backends).map(|(place, (id, _))| (*id, place)).collect(),
            calls: Vec::with_capacity(setup.offers.len()),
            tries: Vec::with_capacity(setup.offers.len()),
            planned: BinaryHeap::new(),
            plans: 0,
            next_offer: 0,
            chance: Stream::seeded(setup.seed, CHANCE),
            tally: Tally::new(&names, setup.length, work),
            endings: BTreeMap::new(),
            charged: (Tokens::ZERO, Tokens::ZERO),
            done_in_time: None,
            events: 0,
            ticks: 0,
            told_together: Vec::new(),
            setup: Arc::new(setup),
        };
        for (place, (at, _)) in Arc::clone(&world.setup).faults.iter().enumerate() {
            world.plan(*at, Occurrence::Fault(place));
        }
        world
    }

    fn run(mut self) -> Result<Run, Broken> {
        let ends = self.setup.ends.map(|span| Moment(span.0));
        while let Some((at, next)) = self.next()
            && ends.is_none_or(|ends| at < ends)
        {
            self.tally.passes(self.now, at);
            if at.0 >= self.setup.length.0 {
                self.done_in_time.get_or_insert_with(|| done(&self.fleet));
            }
            self.count_tick(at, &next)?;
            self.now = at;
            match next {
                Next::Offer => self.take_offer()?,
                Next::Tick => self.tell(Event::Tick)?,
                Next::Planned => self.take_planned()?,
            }
            self.carry_out()?;
            self.begin_steps();
            let gate_now = self.gate_now();
            self.driver.check(gate_now)?;
        }
        self.finish()
    }

    /// The earliest of what clients send, what is planned, and what the gate waits for.
    fn next(&self) -> Option<(Moment, Next)> {
        let offer = self.setup.offers.get(self.next_offer).map(|offer| (offer.arrival.at, 0, Next::Offer));
        let planned = self.planned.peek().map(|Reverse(planned)| (planned.at, 1, Next::Planned));
        let tick = self
            .driver
            .gate
            .deadline()
            .map(|deadline| (self.world_moment(deadline).max(self.now), 2, Next::Tick));
        let all = [offer, planned, tick].into_iter().flatten();
        all.min_by_key(|(at, rank, _)| (*at, *rank)).map(|(at, _, next)| (at, next))
    }

    fn take_planned(&mut self) -> Result<(), Broken> {
        let Some(Reverse(planned)) = self.planned.pop() else { return Ok(()) };
        match planned.what {
            Occurrence::StepEnds { backend, plan } => self.step_ends(backend, plan),
            Occurrence::ComesBack { call } => self.come_back(call),
            Occurrence::RunsOutOfPatience { call } => self.run_out_of_patience(call),
            Occurrence::Told(reservation, verdict) => self.tell(Event::Ruled { reservation, verdict }),
            Occurrence::Fault(place) => self.happen(place),
            Occurrence::Noticed { backend } => self.notice(backend),
            Occurrence::LookedAfter { attempt, sent } => self.look_after(attempt, sent),
        }
    }

    /// Acts on what the gate decided, and on what it decides because of that.
    fn carry_out(&mut self) -> Result<(), Broken> {
        loop {
            while let Some((reservation, verdict)) = self.driver.untold.pop_front() {
                let Store::Late(longest) = self.setup.store else { continue };
                let delay = Micros(self.chance.below(longest.0 + 1));
                self.plan(self.now.after(delay), Occurrence::Told(reservation, verdict));
            }
            for (tenant, missing) in self.driver.drawn.drain(..) {
                let sender = self.setup.senders.iter().position(|sender| sender.tenant == tenant);
                if let Some(sender) = sender {
                    self.tally.drew(sender, missing);
                }
            }
            let Some(decision) = self.driver.decisions.pop_front() else { return Ok(()) };
            match decision {
                Decision::Start { request, backend, output_step } => {
                    self.start(request, backend, output_step)?;
                }
                Decision::Evict { request } => self.evict(request)?,
                Decision::Refused { request, refusal } => self.turned_away(request, Some(refusal.retry))?,
                Decision::Abandoned { request } => self.turned_away(request, None)?,
                Decision::Count { request } => self.count(request)?,
                Decision::Stop { request } => self.stop(request)?,
                Decision::Finished(account) => self.finished(&account)?,
            }
        }
    }

    fn begin_steps(&mut self) {
        for place in 0..self.fleet.len() {
            if let Some((ends, plan)) = self.fleet[place].begin_step(self.now) {
                self.plan(ends, Occurrence::StepEnds { backend: place, plan });
            }
        }
    }

    /// An admitted request is settled: what is charged must be what is due, where that is known.
    fn finished(&mut self, account: &Account) -> Result<(), Broken> {
        *self.endings.entry(account.outcome).or_default() += 1;
        self.charged.0 = self.charged.0.plus(account.used.input);
        self.charged.1 = self.charged.1.plus(account.used.output);
        if self.setup.watch == Watch::Nothing {
            return Ok(());
        }
        let due = self.tries[account.request.0 as usize].due;
        let charged = (account.used.input, account.used.output);
        demand(due.is_none_or(|due| due == charged), || {
            format!("{account:?} charges {charged:?}, due is {due:?}")
        })
    }

    fn finish(mut self) -> Result<Run, Broken> {
        if self.setup.watch == Watch::Laws && self.setup.ends.is_none() {
            let gate_now = self.gate_now();
            self.driver.check_idle(gate_now)?;
            let open = self.tries.iter().position(|attempt| attempt.stage != Stage::Over);
            demand(open.is_none(), || format!("try {open:?} never ends"))?;
        }
        self.tally.passes(self.now, Moment(u64::MAX));
        let done_in_time = self.done_in_time.unwrap_or_else(|| done(&self.fleet));
        let time = self.setup.length.0.saturating_mul(self.fleet.len() as u64);
        let kv = self.fleet.iter().map(|backend| backend.replica.shape().kv.0).sum();
        let worked = self
            .fleet
            .iter()
            .map(Backend::done)
            .fold((Tokens::ZERO, Tokens::ZERO), |sum, done| (sum.0.plus(done.0), sum.1.plus(done.1)));
        Ok(Run {
            figures: self.tally.figures(done_in_time, (Micros(time), Tokens(kv)), self.events),
            totals: *self.driver.ledger.totals(),
            endings: self.endings,
            charged: self.charged,
            worked,
        })
    }

    fn tell(&mut self, event: Event) -> Result<(), Broken> {
        let gate_now = self.gate_now();
        self.driver.handle(event, gate_now)
    }

    fn plan(&mut self, at: Moment, what: Occurrence) {
        self.plans += 1;
        self.planned.push(Reverse(Planned { at, order: self.plans, what }));
    }

    const fn gate_now(&self) -> Moment {
        Moment(self.now.0.saturating_add_signed(self.ahead))
    }

    const fn world_moment(&self, gate_moment: Moment) -> Moment {
        Moment(gate_moment.0.saturating_add_signed(-self.ahead))
    }

    /// A gate that asks for ticks without end would stop the world, and the gateway.
    fn count_tick(&mut self, at: Moment, next: &Next) -> Result<(), Broken> {
        self.events += 1;
        let again = matches!(next, Next::Tick) && at == self.now;
        self.ticks = if again { self.ticks + 1 } else { 0 };
        demand(self.ticks < TICKS_MAX, || format!("the gate asks for ticks without end at {at:?}"))?;
        demand(self.events < EVENTS_MAX, || format!("the world does not end, it is at {at:?}"))
    }
}

/// Replica time of all work done.
fn done(fleet: &[Backend]) -> Micros {
    let works = fleet.iter().map(|backend| {
        let (prompt, output) = backend.done();
        backend.replica.shape().work(prompt, output).0
    });
    Micros(works.sum())
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Broken {}

/// The stream of what happens by chance, apart from those of any tenant.
const CHANCE: u64 = 1 << 40;
const TICKS_MAX: u32 = 1_000;
/// Some hours of the largest scenarios; a world that is not over by then never is.
const EVENTS_MAX: u64 = 2_000_000_000;
