//! One backend: whether it is alive, what runs there, and what more it takes.

use alloc::vec::Vec;

use super::Liveness;
use super::allowance::{Allowance, Told};
use super::correction::{Correction, Reading, Refused};
use super::footprint::{Ask, Footprint, ONE_PPM};
use super::gradient::Gradient;
use super::memory::{Entry, Memory, TOKENS_MAX, WIDTH_MAX};
use crate::gate::RequestId;
use crate::policy::{self, Fit, Pacing, Placing};
use crate::units::{Micros, Moment, Tokens};

/// One backend's state.
#[derive(Clone, Debug)]
pub struct Backend {
    is_alive: bool,
    /// Taken out by a reload: what runs may finish, nothing starts.
    is_removed: bool,
    slots: u32,
    memory_configured: Option<Tokens>,
    memory_read: Option<Tokens>,
    memory: Memory,
    correction: Correction,
    gradient: Option<Gradient>,
    tokens: Option<Told>,
    requests: Option<Told>,
    /// Tokens and requests that the provider had not counted when it last told what is left.
    uncounted: (u64, u64),
    /// Nothing is sent before this moment: a limit of the backend is used up.
    limited_until: Moment,
    /// Nothing is sent before this moment: the backend asked for a pause.
    paused_until: Moment,
    /// Answers in a row that asked for a pause without saying how long.
    bounces: u32,
    /// It came back at this moment and is given work slowly for this span.
    slow_start: Option<(Moment, Micros)>,
}

/// What is left on a backend once a request is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Tokens of its KV cache below the predicted peak; zero where it is not known.
    pub(super) memory_left: u64,
    pub(super) slots_left: u64,
}

impl Backend {
    pub(super) fn new(policy: &policy::Backend) -> Self {
        let mut backend = Self {
            is_alive: !policy.is_awaited,
            is_removed: false,
            slots: 0,
            memory_configured: None,
            memory_read: None,
            memory: Memory::default(),
            correction: Correction::default(),
            gradient: None,
            tokens: None,
            requests: None,
            uncounted: (0, 0),
            limited_until: Moment(0),
            paused_until: Moment(0),
            bounces: 0,
            slow_start: None,
        };
        backend.reload(policy);
        backend
    }

    pub(super) fn reload(&mut self, policy: &policy::Backend) {
        self.slots = slots(policy);
        self.is_removed = policy.slots == 0;
        self.memory_configured = policy.kv_tokens;
        self.limited_until = Moment(0);
        self.gradient = match policy.pacing {
            Pacing::Fixed => None,
            Pacing::Adaptive => Some(self.gradient.unwrap_or_else(|| Gradient::new(self.slots))),
        };
    }

    pub(super) fn remove(&mut self) {
        self.is_removed = true;
    }

    /// Whether a health check or a resolver has not taken it out.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.is_alive
    }

    /// Whether a reload took it out of the configuration.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.is_removed
    }

    /// Whether work may be sent there at all.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.is_alive && !self.is_removed
    }

    /// Requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.memory.requests() as u32
    }

    /// Requests that it may run at the same time, as configured.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Tokens that the requests in flight hold in its KV cache, as far as is known.
    #[must_use]
    pub fn occupied(&self) -> Tokens {
        Tokens(self.memory.occupied())
    }

    /// The most that they will hold at once, as predicted.
    #[must_use]
    pub fn peak(&mut self) -> Tokens {
        Tokens(self.memory.peak())
    }

    /// Tokens that its KV cache holds: as configured, else as its metrics say.
    #[must_use]
    pub fn kv_tokens(&self) -> Option<Tokens> {
        self.memory_configured.or(self.memory_read)
    }

    /// What the predicted peak may reach of the KV cache, in millionths.
    #[must_use]
    pub fn factor_ppm(&self) -> u32 {
        self.correction.factor_ppm()
    }

    /// Requests that it is given at the same time: its slots, or less while it is slow or comes back.
    #[must_use]
    pub fn slots_open(&self, now: Moment) -> u32 {
        let limit = self.gradient.map_or(self.slots, |gradient| gradient.limit(self.slots));
        let Some((since, span)) = self.slow_start else { return limit };
        let elapsed = now.since(since);
        if elapsed >= span {
            return limit;
        }
        let open = u128::from(limit) * u128::from(elapsed.0) / u128::from(span.0.max(1));
        (open as u32).max(slow_start_least(limit))
    }

    /// When something may be sent again after pauses.
    #[must_use]
    pub fn closed_until(&self) -> Moment {
        self.limited_until.max(self.paused_until)
    }

    /// Whether it was too busy and has asked for time until later than `now`.
    #[must_use]
    pub fn is_paused(&self, now: Moment) -> bool {
        self.paused_until > now
    }

    /// A limit of its own, or the last word on one, holds until this moment.
    pub fn limit_until(&mut self, moment: Moment) {
        self.limited_until = moment;
    }

    /// It has answered something other than that it is too busy.
    pub fn answered(&mut self) {
        self.bounces = 0;
    }

    /// The first token of a request came. Backends without metrics are paced by it.
    pub fn first_token(&mut self, request: RequestId, now: Moment) {
        let in_flight = self.memory.requests();
        let slots = self.slots;
        if let (Some(gradient), Some(entry)) = (&mut self.gradient, self.memory.entry_mut(request)) {
            gradient.sample(now.since(entry.entered), in_flight, slots);
        }
    }

    /// Its provider has told, in the answer to this request, what is left of its limits.
    pub fn provider_told(
        &mut self,
        request: RequestId,
        (tokens, requests): (Option<Allowance>, Option<Allowance>),
        now: Moment,
    ) {
        self.count(request);
        if let Some(allowance) = tokens {
            self.tokens = Some(Told::new(allowance, now));
        }
        if let Some(allowance) = requests {
            self.requests = Some(Told::new(allowance, now));
        }
    }

    /// Its metrics were read. `made_in` tells how much output a choice of a request makes in a span, for those that show nothing
    /// while they run.
    pub fn read(
        &mut self,
        reading: &Reading,
        made_in: impl Fn(RequestId, Micros) -> Option<Tokens>,
        now: Moment,
    ) {
        self.memory_read = reading.memory.filter(|memory| memory.0 > 0).or(self.memory_read);
        let silent: Vec<(RequestId, Tokens)> = self
            .memory
            .entries()
            .filter(|(_, entry)| entry.is_silent)
            .filter_map(|(request, entry)| {
                let made = made_in(request, now.since(entry.entered))?.0.min(entry.expected);
                Some((request, Tokens(made * u64::from(entry.width))))
            })
            .collect();
        for (request, made) in silent {
            self.memory.generated(request, made);
        }
        let memory = self.kv_tokens().map_or(0, |memory| memory.0.min(TOKENS_MAX));
        let is_used = memory > 0 && self.memory.peak() > memory / 2;
        self.correction.read(reading, memory, self.memory.occupied(), is_used);
    }

    pub(super) fn set_alive(&mut self, liveness: Liveness, slow_start: Micros, now: Moment) {
        let is_alive = liveness == Liveness::Up;
        if is_alive && !self.is_alive {
            self.slow_start = (slow_start > Micros::ZERO).then_some((now, slow_start));
        }
        if !is_alive {
            // Whatever comes back may be another engine.
            self.correction = Correction::default();
        }
        self.is_alive = is_alive;
    }

    pub(super) fn bounced(&mut self, asked: Option<Micros>, now: Moment) {
        let doubled = Micros(BOUNCE_FIRST.0 << self.bounces.min(BOUNCE_DOUBLINGS_MAX));
        self.bounces = self.bounces.saturating_add(1);
        let pause = asked.map_or(doubled, |asked| asked.min(BOUNCE_MAX));
        self.paused_until = self.paused_until.max(now.after(pause));
        if self.correction.refused(now) == Refused::Cut
            && let Some(gradient) = &mut self.gradient
        {
            gradient.cut(self.slots);
        }
    }

    pub(super) fn enter(&mut self, request: RequestId, footprint: &Footprint, fit: Fit, now: Moment) {
        let entry = entry(footprint, fit, now);
        self.uncounted.0 += entry.cost;
        self.uncounted.1 += 1;
        self.memory.insert(request, entry);
    }

    pub(super) fn produced(&mut self, request: RequestId, output: Tokens) {
        self.memory.produced(request, output);
    }

    pub(super) fn leave(&mut self, request: RequestId) {
        self.count(request);
        self.memory.remove(request);
    }

    /// Whether it is given all that it can take.
    pub(super) fn is_warm(&self, now: Moment) -> bool {
        self.is_usable() && self.slow_start.is_none_or(|(since, span)| now.since(since) >= span)
    }

    pub(super) fn knows_memory(&self) -> bool {
        self.kv_tokens().is_some()
    }

    /// What would be left with this request there; `None` if it does not fit or nothing may be sent.
    pub(super) fn room(&mut self, ask: &Ask<'_>, rules: &Placing, now: Moment) -> Option<Room> {
        (self.is_usable() && self.open_at(ask, now)? <= now).then_some(())?;
        self.fit(ask, rules, self.slots_open(now))
    }

    /// When the request can go if nothing else happens.
    pub(super) fn opening(&mut self, ask: &Ask<'_>, rules: &Placing, now: Moment) -> Option<Moment> {
        let mut moment = self.open_at(ask, now)?;
        if self.fit(ask, rules, self.slots_open(now)).is_none() {
            self.fit(ask, rules, u32::MAX)?;
            moment = moment.max(self.slot_opens(ask)?);
        }
        Some(moment)
    }

    /// When pauses and the provider's allowance let the request through, if time alone can tell.
    fn open_at(&self, ask: &Ask<'_>, now: Moment) -> Option<Moment> {
        let mut moment = self.closed_until();
        if let Some(told) = &self.tokens {
            moment = moment.max(told.fits_at(ask.footprint.cost_max().0.min(TOKENS_MAX), self.uncounted.0)?);
        }
        if let Some(told) = &self.requests {
            moment = moment.max(told.fits_at(1, self.uncounted.1)?);
        }
        Some(moment.max(now))
    }

    /// When a slow start opens a slot for it.
    fn slot_opens(&self, ask: &Ask<'_>) -> Option<Moment> {
        let (since, span) = self.slow_start?;
        let limit = self.gradient.map_or(self.slots, |gradient| gradient.limit(self.slots));
        // The least number of open slots of which the headroom leaves one more than are taken.
        let sequences = self.memory.sequences();
        let share = ask.headroom.usable_ppm(1).max(1);
        let least = (sequences + 1).saturating_mul(u64::from(ONE_PPM)).div_ceil(share);
        let needed = if sequences == 0 { 1 } else { least };
        (needed <= u64::from(limit)).then(|| {
            let wait = (u128::from(needed) * u128::from(span.0)).div_ceil(u128::from(limit.max(1)));
            since.after(Micros(wait as u64))
        })
    }

    fn fit(&mut self, ask: &Ask<'_>, rules: &Placing, slots: u32) -> Option<Room> {
        let sequences = self.memory.sequences();
        let usable = ask.headroom.usable_ppm(u64::from(slots));
        // Once it has its slot the headroom is still free. A backend that is idle takes one in any case: else the lower classes would
        // never run where there are few slots.
        let taken = (sequences + 1).saturating_mul(u64::from(ONE_PPM));
        (taken <= usable || sequences == 0 && slots > 0).then_some(())?;
        let slots_left = u64::from(slots).saturating_sub(sequences);
        let Some(memory) = self.kv_tokens() else {
            return Some(Room { memory_left: 0, slots_left });
        };
        let capacity = self.capacity(memory);
        let peak = self.memory.peak_with(&entry(&ask.footprint, rules.fit, Moment(0)));
        // One that runs alone runs, however large: else it would wait for ever, and all behind it.
        let fits = peak <= ask.headroom.usable_ppm(capacity) / u64::from(ONE_PPM) || sequences == 0;
        fits.then(|| Room { memory_left: capacity.saturating_sub(peak), slots_left })
    }

    /// What the predicted peak may reach: the KV cache less what others hold in it, as far as the prediction is trusted.
    fn capacity(&self, memory: Tokens) -> u64 {
        let own = memory.0.min(TOKENS_MAX).saturating_sub(self.correction.foreign());
        own * u64::from(self.correction.factor_ppm()) / u64::from(ONE_PPM)
    }

    /// The provider has counted this request, or it is over.
    fn count(&mut self, request: RequestId) {
        if let Some(entry) = self.memory.entry_mut(request).filter(|entry| !entry.is_counted) {
            entry.is_counted = true;
            self.uncounted.0 -= entry.cost;
            self.uncounted.1 -= 1;
        }
    }
}

fn entry(footprint: &Footprint, fit: Fit, now: Moment) -> Entry {
    Entry {
        input: footprint.input.0.min(TOKENS_MAX),
        is_reserved: fit == Fit::Reserved,
        expected: footprint.expected(fit).0.min(TOKENS_MAX),
        generated: 0,
        is_silent: true,
        width: footprint.width().min(WIDTH_MAX),
        entered: now,
        cost: footprint.cost_max().0.min(TOKENS_MAX),
        is_counted: false,
    }
}

/// Requests that may run on a backend: its slots, or a concurrency limit of its own that is lower.
fn slots(backend: &policy::Backend) -> u32 {
    backend
        .limits
        .concurrency
        .filter(|concurrency| !concurrency.shadow)
        .map_or(backend.slots, |concurrency| concurrency.limit.min(backend.slots))
}

/// A tenth of the slots are open at once.
fn slow_start_least(slots: u32) -> u32 {
    (slots / 10).max(1).min(slots)
}

const BOUNCE_FIRST: Micros = Micros::from_millis(100);
const BOUNCE_DOUBLINGS_MAX: u32 = 6;
const BOUNCE_MAX: Micros = Micros::from_secs(60);
