//! What is in flight on the backends of one pool, and which of them has room for a request.
//!
//! The gate asks [`Occupancy::place`] where a request may go, and tells [`enter`](Occupancy::enter),
//! [`produced`](Occupancy::produced) and [`leave`](Occupancy::leave) what became of it. An entry lives exactly as long as its
//! stream at the backend: nothing here forgets one by time.

mod allowance;
mod backend;
mod correction;
mod footprint;
mod gradient;
mod memory;
mod seats;

use alloc::vec::Vec;

use crate::gate::RequestId;
use crate::policy::{Fit, Placement, Placing, Pool};
use crate::units::{Micros, Moment, Tokens};

pub use allowance::Allowance;
pub use backend::Backend;
pub use correction::{FACTOR_MAX_PPM, FACTOR_MIN_PPM, Reading};
pub use footprint::{Ask, Footprint, Headroom, ONE_PPM};

/// The backends of one pool.
#[derive(Clone, Debug, Default)]
pub struct Occupancy {
    rules: Placing,
    backends: Vec<Backend>,
}

/// Why nothing can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// Every backend that is alive and was not tried is full or paused.
    Busy,
    /// Every backend that is alive was tried by this request.
    AllTried,
    /// None is alive.
    NoneAlive,
}

impl Occupancy {
    /// Takes on a reloaded pool: backends that stay keep what runs on them, those beyond the list are out.
    pub fn reload(&mut self, pool: &Pool) {
        self.rules = pool.placing;
        for (index, policy) in pool.backends.iter().enumerate() {
            match self.backends.get_mut(index) {
                Some(backend) => backend.reload(policy),
                None => self.backends.push(Backend::new(policy)),
            }
        }
        for backend in self.backends.iter_mut().skip(pool.backends.len()) {
            backend.remove();
        }
    }

    /// The backends, in the order of the pool's list.
    #[must_use]
    pub fn backends(&self) -> &[Backend] {
        &self.backends
    }

    /// One of them, to tell it what happened there.
    pub fn backend_mut(&mut self, index: u32) -> Option<&mut Backend> {
        self.backends.get_mut(index as usize)
    }

    /// Whether a backend's fit test goes by what its requests have made so far.
    #[must_use]
    pub fn wants_output(&self, index: u32) -> bool {
        self.rules.fit == Fit::Predicted
            && self.backends.get(index as usize).is_some_and(Backend::knows_memory)
    }

    /// Whether any backend is alive.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.backends.iter().any(Backend::is_usable)
    }

    /// Whether any backend is alive and not paused.
    #[must_use]
    pub fn takes_work(&self, now: Moment) -> bool {
        self.backends.iter().any(|backend| backend.is_usable() && !backend.is_paused(now))
    }

    /// Whether any backend is alive that is not among `tried`.
    #[must_use]
    pub fn has_untried(&self, tried: &[u32]) -> bool {
        (0..).zip(&self.backends).any(|(index, backend)| backend.is_usable() && !tried.contains(&index))
    }

    /// The backend for a request: the preferred one if it fits there, else by the pool's rule the one with most room or with
    /// the fewest requests and then the most KV tokens left; among equals the first.
    ///
    /// # Errors
    /// Why it can go nowhere.
    pub fn place(&mut self, ask: &Ask<'_>, now: Moment) -> Result<u32, NoPlace> {
        let rules = self.rules;
        if let Some(index) = ask.preferred.filter(|index| !ask.tried.contains(index))
            && let Some(backend) = self.backends.get_mut(index as usize)
            && backend.room(ask, &rules, now).is_some()
        {
            return Ok(index);
        }
        let by_memory = self.backends.iter().filter(|one| one.is_usable()).all(Backend::knows_memory);
        let mut best: Option<(u32, (u64, u64))> = None;
        let mut has_untried = false;
        for (index, backend) in (0..).zip(&mut self.backends) {
            if !backend.is_usable() || ask.tried.contains(&index) {
                continue;
            }
            has_untried = true;
            let Some(room) = backend.room(ask, &rules, now) else { continue };
            let score = match rules.placement {
                Placement::FewestRunning => (u64::MAX - u64::from(backend.in_flight()), room.memory_left),
                Placement::MostRoom if by_memory => (room.memory_left, 0),
                Placement::MostRoom => (room.slots_left, 0),
            };
            if best.is_none_or(|(_, most)| score > most) {
                best = Some((index, score));
            }
        }
        best.map(|(index, _)| index).ok_or_else(|| self.no_place(has_untried))
    }

    /// When a request that fits nowhere could go, if nothing else happens: the first moment at which a pause, a provider's
    /// allowance or a slow start gives way on a backend that has room besides.
    #[must_use]
    pub fn opening(&mut self, ask: &Ask<'_>, now: Moment) -> Option<Moment> {
        let rules = self.rules;
        (0..)
            .zip(&mut self.backends)
            .filter(|(index, backend)| backend.is_usable() && !ask.tried.contains(index))
            .filter_map(|(_, backend)| backend.opening(ask, &rules, now))
            .min()
    }

    /// A request goes to this backend.
    pub fn enter(&mut self, index: u32, request: RequestId, footprint: &Footprint, now: Moment) {
        let fit = self.rules.fit;
        if let Some(backend) = self.backends.get_mut(index as usize) {
            backend.enter(request, footprint, fit, now);
        }
    }

    /// A request that runs on this backend has made so much output, over all its choices.
    pub fn produced(&mut self, index: u32, request: RequestId, output: Tokens) {
        if let Some(backend) = self.backends.get_mut(index as usize) {
            backend.produced(request, output);
        }
    }

    /// A request is no longer on this backend.
    pub fn leave(&mut self, index: u32, request: RequestId) {
        if let Some(backend) = self.backends.get_mut(index as usize) {
            backend.leave(request);
        }
    }

    /// A backend answers again, or does not. One that comes back is given work slowly at first, where others can do it: alone it
    /// is better slow than idle.
    pub fn set_alive(&mut self, index: u32, liveness: Liveness, now: Moment) {
        let mut others = (0..).zip(&self.backends).filter(|(other, _)| *other != index);
        let is_helped = others.any(|(_, backend)| backend.is_warm(now));
        let slow_start = if is_helped { self.rules.slow_start } else { Micros::ZERO };
        if let Some(backend) = self.backends.get_mut(index as usize) {
            backend.set_alive(liveness, slow_start, now);
        }
    }

    /// A backend was too busy for a request: it is paused as long as it says, and trusted with less.
    pub fn bounced(&mut self, index: u32, retry_after: Option<Micros>, now: Moment) {
        if let Some(backend) = self.backends.get_mut(index as usize) {
            backend.bounced(retry_after, now);
        }
    }

    fn no_place(&self, has_untried: bool) -> NoPlace {
        if has_untried {
            NoPlace::Busy
        } else if self.is_alive() {
            NoPlace::AllTried
        } else {
            NoPlace::NoneAlive
        }
    }
}

/// Whether a backend answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It does.
    Up,
    /// It does not.
    Down,
}
