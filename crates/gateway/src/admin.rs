//! The admin API: what the gateway knows and does, as JSON on its own address.

mod answers;
mod explain;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::middleware::{self, Next};
use axum::response::sse::{Event as SseEvent, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use fairlane_core::gate::Event;
use fairlane_core::policy::TenantId;
use fairlane_core::units::Tokens;
use futures_util::stream::{self, Stream};
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::config::KeyDigest;
use crate::data::{By, Query as UsageQuery, Usage};
use crate::gateway::Gateway;

pub use answers::{state, tenant};
pub use explain::{explain, explain_request};

/// Serves the admin API until it is dropped: what still runs while the gateway shuts down can be watched to the end.
pub async fn serve(gateway: Arc<Gateway>, listener: TcpListener) {
    if let Err(error) = axum::serve(listener, routes(gateway)).await {
        tracing::error!(%error, "the admin API has ended");
    }
}

/// The routes; the health checks ask for no token.
pub fn routes(gateway: Arc<Gateway>) -> Router {
    let guarded = Router::new()
        .route("/metrics", get(metrics))
        .route("/api/v1/state", get(show_state))
        .route("/api/v1/tenants/{tenant}", get(show_tenant))
        .route("/api/v1/tenants/{tenant}/runs/{run}/raise", post(raise))
        .route("/api/v1/requests", get(requests))
        .route("/api/v1/usage", get(usage))
        .route("/api/v1/explain", post(show_explanation))
        .route("/api/v1/events", get(events))
        .route("/api/v1/openapi.json", get(openapi))
        .layer(middleware::from_fn_with_state(Arc::clone(&gateway), ask_for_token));
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/clients", get(clients))
        .route("/readyz", get(ready))
        .merge(guarded)
        .fallback(async || {
            fault(StatusCode::NOT_FOUND, "nothing is here; GET /api/v1/openapi.json lists what is")
        })
        .with_state(gateway)
}

async fn ask_for_token(State(gateway): State<Arc<Gateway>>, request: Request, next: Next) -> Response {
    let live = gateway.live();
    let Some(token) = &live.edge.admin_token else {
        return next.run(request).await;
    };
    let presented = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let presented = presented.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    if KeyDigest::of(presented.trim().as_bytes()).equals(token) {
        next.run(request).await
    } else {
        fault(StatusCode::UNAUTHORIZED, "send the admin token as \"authorization: Bearer TOKEN\"")
    }
}

async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], gateway.metrics.text(&gateway)).into_response()
}

async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    match gateway.readiness() {
        Ok(()) => "ready\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why).into_response(),
    }
}

async fn show_state(State(gateway): State<Arc<Gateway>>) -> Response {
    answer(&state(&gateway))
}

async fn show_tenant(State(gateway): State<Arc<Gateway>>, Path(name): Path<String>) -> Response {
    match tenant(&gateway, &name) {
        Some(found) => answer(&found),
        None => fault(StatusCode::NOT_FOUND, "no tenant has this name; GET /api/v1/state lists them"),
    }
}

#[derive(Deserialize)]
struct Page {
    limit: Option<usize>,
}

async fn requests(
    State(gateway): State<Arc<Gateway>>,
    page: Result<Query<Page>, QueryRejection>,
) -> Response {
    let Ok(Query(page)) = page else {
        return fault(StatusCode::BAD_REQUEST, "limit is the whole number of requests to show");
    };
    let records = gateway.usage.last(page.limit.unwrap_or(PAGE).min(PAGE_MAX));
    answer(&json!({ "requests": records }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsageOf {
    by: Option<By>,
    from_ms: Option<u64>,
}

async fn usage(
    State(gateway): State<Arc<Gateway>>,
    wanted: Result<Query<UsageOf>, QueryRejection>,
) -> Response {
    let Ok(Query(wanted)) = wanted else {
        let how =
            "by is tenant, team, key, run, model or day; from_ms is a moment in milliseconds since 1970";
        return fault(StatusCode::BAD_REQUEST, how);
    };
    let query =
        UsageQuery { by: wanted.by.unwrap_or(By::Tenant), from_ms: wanted.from_ms.unwrap_or_default() };
    // The file is read, which may take a second for a million records.
    let summed = tokio::task::spawn_blocking(move || match gateway.data() {
        Some(data) => data.usage(&query).map_err(|error| error.to_string()),
        None => Ok(Usage::of_records(&gateway.usage.last(usize::MAX), &query)),
    });
    match summed.await.map_err(|error| error.to_string()).flatten() {
        Ok(usage) => answer(&json!(usage)),
        Err(message) => fault(StatusCode::INTERNAL_SERVER_ERROR, &message),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raise {
    tokens: u64,
}

async fn raise(
    State(gateway): State<Arc<Gateway>>,
    Path((name, run)): Path<(String, String)>,
    body: Bytes,
) -> Response {
    let Some(id) = answers::tenant_id(&gateway, &name) else {
        return fault(StatusCode::NOT_FOUND, "no tenant has this name; GET /api/v1/state lists them");
    };
    let Ok(run) = u128::from_str_radix(&run, 16) else {
        return fault(
            StatusCode::BAD_REQUEST,
            "a run is named by its hash, as GET /api/v1/tenants/NAME shows it",
        );
    };
    let Ok(Raise { tokens }) = serde_json::from_slice(&body) else {
        return fault(StatusCode::BAD_REQUEST, "send {\"tokens\": N} with the whole number of tokens to add");
    };
    raise_run(&gateway, id, run, tokens)
}

fn raise_run(gateway: &Gateway, tenant: TenantId, run: u128, tokens: u64) -> Response {
    let is_known = gateway.driver.runs(tenant, usize::MAX).iter().any(|(view, _)| view.run == run);
    if !is_known {
        return fault(StatusCode::NOT_FOUND, "this run is not live");
    }
    gateway.driver.tell(Event::Raise { tenant, run, tokens: Tokens(tokens) });
    answer(&json!({ "raised_by": tokens }))
}

async fn show_explanation(State(gateway): State<Arc<Gateway>>, headers: HeaderMap, body: Bytes) -> Response {
    match explain(&gateway, &headers, &body).await {
        Ok(explanation) => answer(&explanation),
        Err(message) => fault(StatusCode::BAD_REQUEST, &message),
    }
}

async fn events(
    State(gateway): State<Arc<Gateway>>,
) -> Sse<impl Stream<Item = Result<SseEvent, Infallible>>> {
    let states = stream::unfold((gateway, true), async |(gateway, is_first)| {
        if !is_first {
            tokio::time::sleep(STATE_PERIOD).await;
        }
        let event = SseEvent::default().data(state(&gateway).to_string());
        Some((Ok(event), (gateway, false)))
    });
    Sse::new(states)
}

/// What clients should do: the page that operators point their users to.
async fn clients() -> Response {
    ([(header::CONTENT_TYPE, "text/markdown; charset=utf-8")], include_str!("../../../docs/clients.md"))
        .into_response()
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], include_str!("admin/openapi.json")).into_response()
}

fn answer(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

fn fault(status: StatusCode, message: &str) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], json!({ "error": message }).to_string())
        .into_response()
}

const PAGE: usize = 100;
const PAGE_MAX: usize = 10_000;
const STATE_PERIOD: Duration = Duration::from_secs(1);
