//! What engines and providers tell of themselves, besides their answers.

use super::{Gate, RequestId, Stage};
use crate::occupancy::{Allowance, Backend, Reading};
use crate::policy::BackendId;
use crate::units::Moment;

impl Gate {
    /// An engine's metrics were read: what is in flight there is corrected, and what waits may fit.
    pub(super) fn scraped(&mut self, backend: BackendId, reading: &Reading, now: Moment) {
        let Self { pools, requests, predictor, .. } = self;
        let Some(pool) = pools.get_mut(backend.pool.0 as usize) else { return };
        let Some(state) = pool.backends.backend_mut(backend.index) else { return };
        state.read(
            reading,
            |request, elapsed| predictor.made_in(requests.get(&request)?.arrival.model, elapsed),
            now,
        );
        self.wake(backend.pool);
    }

    pub(super) fn first_token(&mut self, request: RequestId, now: Moment) {
        self.spare(request);
        if let Some(state) = self.backend_of(request) {
            state.first_token(request, now);
        }
    }

    pub(super) fn provider_told(
        &mut self,
        request: RequestId,
        told: (Option<Allowance>, Option<Allowance>),
        now: Moment,
    ) {
        if let Some(state) = self.backend_of(request) {
            state.provider_told(request, told, now);
        }
        if let Some(request) = self.requests.get(&request) {
            self.wake(request.pool);
        }
    }

    /// The backend that runs a request.
    fn backend_of(&mut self, request: RequestId) -> Option<&mut Backend> {
        match self.requests.get(&request)?.stage {
            Stage::Running(backend) => self.pool_mut(backend.pool).backends.backend_mut(backend.index),
            Stage::Ruling | Stage::Held | Stage::Queued(_) | Stage::Dispatching(_) => None,
        }
    }
}
