//! The backends of one pool: who is alive, who has room, who asked for a pause.

use alloc::vec::Vec;

use crate::policy::{Backend, Pool};
use crate::units::{Micros, Moment};

/// One backend's state.
#[derive(Clone, Debug)]
pub(crate) struct BackendState {
    pub(crate) alive: bool,
    pub(crate) slots: u32,
    pub(crate) in_flight: u32,
    /// Nothing is sent before this moment: a limit of the backend is used up.
    pub(crate) limited_until: Moment,
    /// Nothing is sent before this moment: the backend asked for a pause.
    paused_until: Moment,
    /// Answers in a row that asked for a pause without saying how long.
    bounces: u32,
    /// Taken out by a reload: what runs may finish, nothing starts.
    pub(crate) removed: bool,
}

/// Why nothing can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// Every backend that is alive and was not tried is full or paused.
    Busy,
    /// Every backend that is alive was tried by this request.
    AllTried,
    /// None is alive.
    NoneAlive,
}

impl BackendState {
    fn has_room(&self, now: Moment) -> bool {
        self.has_slot() && self.closed_until() <= now
    }

    /// When something may be sent again.
    pub(crate) fn closed_until(&self) -> Moment {
        self.limited_until.max(self.paused_until)
    }

    /// Whether a request could run there, were it not paused.
    pub(crate) const fn has_slot(&self) -> bool {
        self.usable() && self.in_flight < self.slots
    }

    pub(crate) const fn usable(&self) -> bool {
        self.alive && !self.removed
    }

    /// The backend is too busy: it gets a pause, as long as it says or growing.
    pub(crate) fn bounce(&mut self, asked: Option<Micros>, now: Moment) {
        let doubled = Micros(BOUNCE_FIRST.0 << self.bounces.min(BOUNCE_DOUBLINGS_MAX));
        self.bounces = self.bounces.saturating_add(1);
        let pause = asked.map_or(doubled, |asked| asked.min(BOUNCE_MAX));
        self.paused_until = self.paused_until.max(now.after(pause));
    }

    pub(crate) const fn answered(&mut self) {
        self.bounces = 0;
    }
}

/// Takes on a reloaded list: those that stay keep their state, those beyond it are out.
pub(crate) fn reload(states: &mut Vec<BackendState>, pool: &Pool) {
    for (index, backend) in pool.backends.iter().enumerate() {
        match states.get_mut(index) {
            Some(state) => {
                state.slots = slots(backend);
                state.removed = backend.slots == 0;
                state.limited_until = Moment::default();
            }
            None => states.push(BackendState {
                alive: true,
                slots: slots(backend),
                in_flight: 0,
                limited_until: Moment(0),
                paused_until: Moment(0),
                bounces: 0,
                removed: backend.slots == 0,
            }),
        }
    }
    for state in states.iter_mut().skip(pool.backends.len()) {
        state.removed = true;
    }
}

/// Requests that may run on a backend: its slots, or a concurrency limit of its own that is lower.
fn slots(backend: &Backend) -> u32 {
    backend
        .limits
        .concurrency
        .filter(|concurrency| !concurrency.shadow)
        .map_or(backend.slots, |concurrency| concurrency.limit.min(backend.slots))
}

/// The backend with most room that was not tried.
pub(crate) fn place(states: &[BackendState], tried: &[u32], now: Moment) -> Result<u32, NoPlace> {
    let mut best: Option<(u32, u32)> = None;
    let mut untried = false;
    for (index, state) in (0..).zip(states) {
        if !state.usable() || tried.contains(&index) {
            continue;
        }
        untried = true;
        let room = state.slots.saturating_sub(state.in_flight);
        if state.has_room(now) && best.is_none_or(|(_, most)| room > most) {
            best = Some((index, room));
        }
    }
    best.map(|(index, _)| index).ok_or_else(|| {
        if untried {
            NoPlace::Busy
        } else if states.iter().any(BackendState::usable) {
            NoPlace::AllTried
        } else {
            NoPlace::NoneAlive
        }
    })
}

const BOUNCE_FIRST: Micros = Micros::from_millis(100);
const BOUNCE_DOUBLINGS_MAX: u32 = 6;
const BOUNCE_MAX: Micros = Micros::from_secs(60);
