//! How an exchange is run: plainly, with comments while its client waits, or on to its end though its client leaves.

use std::time::Duration;

use fairlane_core::policy::{OnBudgetEnd, OnClientGone};
use fairlane_wire::answer::Problem;
use fairlane_wire::dialect::Endpoint;
use http::{HeaderMap, Response};
use tokio::sync::oneshot;

use super::{Exchange, budget_headers, with_headers};
use crate::body::Body;
use crate::heartbeat::{self, Work};
use crate::outliving::{Outliving, ReadOn, Survivors};
use crate::problem;
use crate::relay::Relay;

/// Where an answer goes that does not go straight to its client.
pub(super) type Give = oneshot::Sender<Response<Body>>;

impl Exchange {
    pub(super) async fn answer(self) -> Response<Body> {
        match (self.heartbeat(), self.drains()) {
            (None, false) => self.run(None).await,
            (None, true) => Box::pin(self.outlive()).await,
            (Some((endpoint, every)), _) => Box::pin(self.beat(endpoint, every)).await,
        }
    }

    /// The body of an answer that streams or not.
    pub(super) fn relayed(&self, relay: Relay) -> Body {
        let relay = Box::new(relay);
        if !self.drains() {
            return Body::Relayed(relay);
        }
        let edge = &self.live.edge;
        let bounds =
            ReadOn { wait_max: edge.timeouts.client_gone, bytes_max: edge.bounds.drained_answer_bytes_max };
        Body::Outliving(Outliving::new(relay, self.gateway.clone(), bounds))
    }

    fn heartbeat(&self) -> Option<(Endpoint, Duration)> {
        let every = self.live.edge.queue_heartbeat.filter(|_| self.intake.is_streaming)?;
        Some((self.endpoint?, every))
    }

    pub(super) fn cuts(&self) -> bool {
        let tenant = self.intake.arrival.tenant;
        self.live.policy.tenants[tenant.0 as usize].on_budget_end == OnBudgetEnd::Stop
    }

    fn drains(&self) -> bool {
        let tenant = self.intake.arrival.tenant;
        self.live.policy.tenants[tenant.0 as usize].on_client_gone == OnClientGone::Drain
    }

    async fn beat(self, endpoint: Endpoint, every: Duration) -> Response<Body> {
        let (gateway, dialect) = (self.gateway.clone(), self.dialect);
        let (tenant, key) = (self.intake.arrival.tenant, self.intake.arrival.key);
        let mut named = HeaderMap::new();
        self.name(&mut named);
        let work: Work = if self.drains() { Box::pin(self.outlive()) } else { Box::pin(self.run(None)) };
        heartbeat::answer(work, endpoint, every, || {
            let mut headers = budget_headers(&gateway.driver.budgets(tenant, key), dialect);
            headers.extend(named);
            headers
        })
        .await
    }

    /// Runs in a task of its own, which a client that leaves does not end once a backend has the request.
    async fn outlive(self) -> Response<Body> {
        let (gateway, dialect, id) = (self.gateway.clone(), self.dialect, self.id);
        let (mut give, take) = oneshot::channel();
        let survivor = Survivors::enter(&gateway);
        tokio::spawn(async move {
            let _counted = survivor;
            let response = self.run(Some(&mut give)).await;
            // Its body is read on where nobody takes it.
            let _ = give.send(response);
        });
        take.await.unwrap_or_else(|_| {
            let message = "the request was cut by the gateway".to_owned();
            let response = problem::respond(&Problem::BadGateway { message }, dialect, &id.to_string());
            with_headers(response, HeaderMap::new())
        })
    }
}
