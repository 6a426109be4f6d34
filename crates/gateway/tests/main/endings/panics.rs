//! A fault of the gateway's own: whatever it interrupts is settled like everything else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fairlane::driver::Decision;
use fairlane::gateway::Gateway;
use fairlane::metrics::Kind;
use fairlane::passage::Passage;
use fairlane::usage_log::Record;
use fairlane_core::gate::{Arrival, RequestId};
use fairlane_core::policy::{ClassId, KeyId, ModelId, PoolId, TenantId};
use fairlane_core::units::Tokens;

use super::setting;
use crate::support::{Backend, TestGateway};

#[tokio::test]
async fn a_panic_at_any_stage_settles_its_request_once_and_leaves_the_gate_usable() {
    let backend = Backend::start(|_| Vec::new()).await;
    let gateway = setting(&backend, "", "").await;
    for (stage, charged) in [("queued", 0), ("sent", 30), ("counted again", 0)] {
        let before = gateway.records().len();
        let held = (stage == "queued").then(|| passage(&gateway));
        let mut passage = passage(&gateway);
        if stage == "sent" {
            let decision = passage.ticket.decision().await;
            let Decision::Start { backend, .. } = decision else { panic!("{decision:?}") };
            passage.sent_to(backend);
        }
        let interrupted = catch_unwind(AssertUnwindSafe(move || {
            let _passage = passage;
            std::panic::resume_unwind(Box::new("a fault"));
        }));
        assert!(interrupted.is_err());
        let record = &gateway.records()[0];
        assert_eq!(gateway.records().len(), before + 1, "{stage}");
        assert_eq!((record.outcome, record.charged), ("shutdown", charged), "{stage}");
        drop(held);
        gateway.idle().await;
    }
}

fn passage(gateway: &TestGateway) -> Passage {
    let inner: Arc<Gateway> = Arc::clone(&gateway.running.gateway);
    let (tenant, class, model) = (TenantId(0), ClassId(0), ModelId(0));
    let arrival = Arrival {
        request: RequestId(0),
        tenant,
        key: Some(KeyId(0)),
        class,
        model,
        run: None,
        end_user: None,
        input: Tokens(10),
        output_bound: Tokens(20),
        choices: 1,
        wait_max: None,
    };
    let arrived = inner.driver.clock().now();
    let ticket = inner.driver.arrive(arrival, None);
    let kind = Kind { tenant, class, model, pool: PoolId(0) };
    let estimate = fairlane_wire::count::InputEstimate::default();
    Passage::new(Arc::clone(&inner), inner.live(), ticket, Record::default(), (kind, arrived, estimate))
}
