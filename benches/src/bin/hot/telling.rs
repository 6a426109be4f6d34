//! Telling: budget headers of every answer, and refusals.

use std::hint::black_box;

use fairlane_core::policy::{Dimension, TenantId};
use fairlane_core::refusal::{Reason, Refusal, Retry};
use fairlane_core::scope::{Limit, Owner};
use fairlane_core::units::Micros;
use fairlane_wire::answer::{Problem, render};
use fairlane_wire::budget::{Budget, headers};
use fairlane_wire::dialect::Dialect;

use crate::Operation;

/// The headers of five limits of three scopes.
pub(crate) fn budget_headers() -> Operation {
    let budget = |scope, dimension, remaining| Budget {
        scope,
        dimension,
        capacity: 200_000,
        remaining,
        until_full: Micros::from_millis(1_146),
        until_more: Micros(17),
        window: Micros::from_secs(20),
    };
    let budgets = [
        budget("key", Dimension::Requests, 99),
        budget("tenant", Dimension::Requests, 399),
        budget("tenant", Dimension::Tokens, 199_716),
        budget("tenant", Dimension::Work, 123_456),
        budget("service", Dimension::Tokens, 150_000),
    ];
    Box::new(move || {
        headers(&budgets, Dialect::OpenAi, 1_796_083_199, |name, value| {
            black_box((name, value));
        });
    })
}

/// A refusal by a token limit, with its body and headers.
pub(crate) fn refusal() -> Operation {
    let limit = Limit { owner: Owner::Tenant(TenantId(0)), model: None, dimension: Dimension::Tokens };
    let refusal = Refusal {
        reason: Reason::LimitExhausted,
        limit: Some(limit),
        asked: 284,
        left: 17,
        retry: Retry::After(Micros::from_millis(1_146)),
    };
    let problem = Problem::Refused {
        refusal,
        limit: Some("tenant/shop-chat/tokens".to_owned()),
        tenant: "shop-chat".to_owned(),
    };
    Box::new(move || {
        black_box(render(&problem, Dialect::OpenAi, "req_0123456789abcdef"));
    })
}
