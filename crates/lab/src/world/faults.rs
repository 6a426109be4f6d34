//! What goes wrong, carried out.

use std::sync::Arc;

use fairlane_core::gate::Event;
use fairlane_core::policy::BackendId;

use super::fault::Fault;
use super::{Broken, Occurrence, Stage, World};

impl World {
    pub(super) fn happen(&mut self, place: usize) -> Result<(), Broken> {
        let setup = Arc::clone(&self.setup);
        match &setup.faults[place].1 {
            Fault::Dies(backend) => self.die(*backend),
            Fault::Returns(backend) => {
                self.each(*backend, |world, place| world.fleet[place].is_dead = false);
                self.notice_later(*backend);
                Ok(())
            }
            Fault::Stalls(backend, span) => {
                self.each(*backend, |world, place| {
                    if let Some((ends, plan)) = world.fleet[place].stall(*span, world.now) {
                        world.plan(ends, Occurrence::StepEnds { backend: place, plan });
                    }
                });
                Ok(())
            }
            Fault::Slows(backend, percent) => {
                self.each(*backend, |world, place| world.fleet[place].slow(*percent));
                Ok(())
            }
            Fault::Answers(backend, manner) => {
                self.each(*backend, |world, place| world.fleet[place].manner = *manner);
                Ok(())
            }
            Fault::Reports(backend, honesty) => {
                self.each(*backend, |world, place| world.fleet[place].honesty = *honesty);
                Ok(())
            }
            Fault::ClientsVanish(percent) => self.vanish(*percent),
            Fault::ClockJumps(by) => {
                self.ahead = self.ahead.saturating_add(*by);
                Ok(())
            }
            Fault::Reload(policy) => {
                let (aligned, _) = (**policy).clone().aligned_to(self.driver.gate.policy());
                self.tell(Event::Reload(Arc::new(aligned)))
            }
            Fault::Raise(tenant, run, tokens) => {
                self.tell(Event::Raise { tenant: *tenant, run: *run, tokens: *tokens })
            }
            Fault::Scrape => self.scrape(),
            Fault::Drain => self.tell(Event::Drain),
        }
    }

    /// The health check tells the gate how a backend is.
    pub(super) fn notice(&mut self, place: usize) -> Result<(), Broken> {
        let backend = &mut self.fleet[place];
        if backend.is_dead == backend.is_known_dead {
            return Ok(());
        }
        backend.is_known_dead = backend.is_dead;
        let (id, is_dead) = (backend.id, backend.is_dead);
        self.tell(if is_dead { Event::BackendDown(id) } else { Event::BackendUp(id) })
    }

    fn die(&mut self, backend: BackendId) -> Result<(), Broken> {
        let Some(place) = self.places.get(&backend).copied() else { return Ok(()) };
        self.fleet[place].die();
        self.notice_later(backend);
        self.cut_all(place)
    }

    fn notice_later(&mut self, backend: BackendId) {
        let noticed = self.now.after(self.setup.edge.health_check);
        self.each(backend, |world, place| world.plan(noticed, Occurrence::Noticed { backend: place }));
    }

    fn vanish(&mut self, percent: u32) -> Result<(), Broken> {
        for call in 0..self.calls.len() {
            let latest = self.calls[call].latest;
            let is_live = !self.calls[call].is_over && self.tries[latest.0 as usize].stage != Stage::Over;
            if is_live && self.chance.below(100) < u64::from(percent) {
                self.leave(call)?;
            }
        }
        Ok(())
    }

    fn scrape(&mut self) -> Result<(), Broken> {
        for place in 0..self.fleet.len() {
            let (backend, reading) = (self.fleet[place].id, self.fleet[place].reading());
            if !self.fleet[place].is_dead {
                self.tell(Event::Scraped { backend, reading })?;
            }
        }
        Ok(())
    }

    /// Does something to a backend, if the world has it.
    fn each(&mut self, backend: BackendId, mut act: impl FnMut(&mut Self, usize)) {
        if let Some(place) = self.places.get(&backend).copied() {
            act(self, place);
        }
    }
}
