//! Output that no reservation covers, taken as it streams; and the end of a stream whose tenant has it stopped at its budget's end.

use alloc::vec::Vec;

use super::{Effect, Gate, RequestId};
use crate::charge::Need;
use crate::ledger::{Charge, ReservationId, Shortage};
use crate::policy::{Charging, Dimension, OnBudgetEnd, Tenant};
use crate::refusal::{Reason, Refusal, Retry};
use crate::units::Tokens;

impl Gate {
    /// Takes what `output` passes what is covered already.
    pub(super) fn draw(&mut self, id: RequestId, output: Tokens) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let tenant = &self.policy.tenants[request.arrival.tenant.0 as usize];
        let is_first = request.drawn == request.need.output;
        let slack = if is_first { slack(tenant, request.need.output) } else { Tokens::ZERO };
        if !draws(tenant) || output <= request.drawn.plus(slack) {
            return;
        }
        let drawn = Need { input: Tokens::ZERO, output: output.minus(request.drawn) };
        request.drawn = output;
        let work = self.policy.pools[request.pool.0 as usize].work;
        let mut charges = Vec::new();
        for charge in &mut request.admission.charges {
            if charge.limit.dimension.counts_output() {
                let amount = drawn.amount(charge.limit.dimension, &work);
                charge.reserved += amount;
                charges.push(Charge { reserved: amount, ..*charge });
            }
        }
        if tenant.on_budget_end == OnBudgetEnd::Stop {
            request.last_draw.clone_from(&charges);
        }
        self.effects.push_back(Effect::Draw { reservation: request.admission.id, charges });
    }

    /// A draw was not covered.
    pub(super) fn overdrawn(&mut self, reservation: ReservationId, shortage: &Shortage) {
        let Some(id) = self.reservations.get(&reservation) else { return };
        let Some(request) = self.requests.get(id) else { return };
        let tenant = &self.policy.tenants[request.arrival.tenant.0 as usize];
        let Some(charge) = request.last_draw.get(shortage.charge) else { return };
        if tenant.on_budget_end == OnBudgetEnd::Finish {
            return;
        }
        let all = request.admission.charges.iter().find(|held| held.cell == charge.cell).unwrap_or(charge);
        let refusal = Refusal {
            reason: match charge.limit.dimension {
                Dimension::RunBudget => Reason::RunBudgetSpent,
                Dimension::Requests
                | Dimension::Tokens
                | Dimension::InputTokens
                | Dimension::OutputTokens
                | Dimension::Work
                | Dimension::ConcurrentRequests
                | Dimension::RunSteps
                | Dimension::NewRuns => Reason::LimitExhausted,
            },
            limit: Some(charge.limit),
            asked: all.reserved.ceil_units().unsigned_abs(),
            left: u64::try_from(shortage.level.floor_units()).unwrap_or(0),
            retry: shortage.wait.map_or(Retry::Never, Retry::After),
        };
        self.effects.push_back(Effect::Stop { request: *id, refusal });
    }
}

/// Whether what a tenant's streams produce is taken as it comes.
pub(super) fn draws(tenant: &Tenant) -> bool {
    tenant.charging == Charging::Postpay || tenant.on_budget_end == OnBudgetEnd::Stop
}

/// How much output may pass a reservation that holds its whole bound before it is believed: the count is an estimate, right within a
/// third, and a backend keeps the bound by itself.
fn slack(tenant: &Tenant, reserved: Tokens) -> Tokens {
    match tenant.charging {
        Charging::Reserve => Tokens(reserved.0.div_ceil(SLACK_PART)),
        Charging::Quantile | Charging::Postpay => Tokens::ZERO,
    }
}

const SLACK_PART: u64 = 3;
