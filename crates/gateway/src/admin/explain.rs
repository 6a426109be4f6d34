//! What would happen to a request, and why; nothing is charged.

use std::sync::Arc;

use fairlane_core::ledger::{Charge, Verdict};
use fairlane_core::policy::Policy;
use fairlane_core::refusal::{Refusal, Retry};
use fairlane_wire::answer::{Problem, render};
use fairlane_wire::dialect::Dialect;
use fairlane_wire::dialect::Endpoint;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::gateway::Gateway;
use crate::identify::identify;
use crate::intake::{self, Intake, Sender};
use crate::live::Live;
use crate::problem;

/// A request to explain: who sends what where.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question<'a> {
    /// The tenant; else the key in `headers` tells.
    pub tenant: Option<String>,
    /// The path, `/v1/chat/completions` if absent.
    pub path: Option<String>,
    /// Headers of the request.
    #[serde(default)]
    pub headers: std::collections::BTreeMap<String, String>,
    /// The body.
    #[serde(borrow)]
    pub body: &'a RawValue,
}

/// Explains the request in `document`: either a `Question`, or a plain body for the chat completions endpoint.
///
/// # Errors
/// The document is neither.
pub async fn explain(gateway: &Arc<Gateway>, headers: &HeaderMap, document: &[u8]) -> Result<Value, String> {
    let question: Result<Question<'_>, _> = serde_json::from_slice(document);
    match question {
        Ok(question) => explain_request(gateway, &question).await,
        Err(error) => {
            let body: &RawValue = serde_json::from_slice(document).map_err(|_| {
                format!(
                    "send {{\"tenant\": NAME, \"path\": PATH, \"headers\": {{}}, \"body\": REQUEST}}: {error}"
                )
            })?;
            let tenant =
                headers.get("x-fairlane-tenant").and_then(|value| value.to_str().ok()).map(str::to_owned);
            let question = Question { tenant, path: None, headers: std::collections::BTreeMap::new(), body };
            explain_request(gateway, &question).await
        }
    }
}

/// Explains a request.
///
/// # Errors
/// The question names nobody who could ask it.
pub async fn explain_request(gateway: &Arc<Gateway>, question: &Question<'_>) -> Result<Value, String> {
    let live = gateway.live();
    let path = question.path.as_deref().unwrap_or("/v1/chat/completions");
    let endpoint =
        Endpoint::from_path("POST", path).ok_or_else(|| format!("no requests are served at {path}"))?;
    let headers = header_map(question)?;
    let sender = sender(gateway, &live, question, &headers)?;
    let body = bytes::Bytes::copy_from_slice(question.body.get().as_bytes());
    let mut steps = vec![who(&live, sender)];
    let taken = intake::take_in(gateway, &live, endpoint, (sender, &headers), body).await;
    let decision = match taken {
        Ok(mut intake) => {
            if intake.input_least.is_some() {
                intake.arrival.input = intake::count(&live, &intake, endpoint).await;
            }
            steps.extend(read_steps(&live, &intake));
            decide(gateway, &live, &intake, &mut steps)
        }
        Err(problem) => refused(&problem, endpoint.dialect()),
    };
    Ok(json!({ "decision": decision, "steps": steps }))
}

fn header_map(question: &Question<'_>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &question.headers {
        let name =
            HeaderName::try_from(name.as_str()).map_err(|_| format!("\"{name}\" is no header name"))?;
        let value =
            HeaderValue::from_str(value).map_err(|_| format!("the value of {name} is no header value"))?;
        headers.insert(name, value);
    }
    Ok(headers)
}

fn sender(
    gateway: &Gateway,
    live: &Live,
    question: &Question<'_>,
    headers: &HeaderMap,
) -> Result<Sender, String> {
    let asked_class = headers.get("x-fairlane-class").and_then(|value| value.to_str().ok());
    let (tenant, key) = match &question.tenant {
        Some(name) => {
            let tenant = super::answers::tenant_id(gateway, name);
            (tenant.ok_or_else(|| format!("no tenant is called \"{name}\""))?, None)
        }
        None => identify(live, headers)
            .map_err(|_| "name the tenant, or send a known key in the headers of the question".to_owned())?,
    };
    Ok(Sender { tenant, key, class: live.class(tenant, asked_class) })
}

fn who(live: &Live, sender: Sender) -> Value {
    let tenant = &live.policy.tenants[sender.tenant.0 as usize];
    json!({
        "step": "identify",
        "tenant": tenant.name,
        "key": sender.key.and_then(|key| tenant.keys.get(key.0 as usize)).map(|key| &key.name),
        "class": live.policy.classes[sender.class.0 as usize].name,
    })
}

fn read_steps(live: &Live, intake: &Intake) -> [Value; 2] {
    let arrival = &intake.arrival;
    let pool = intake::pool_of(live, intake);
    [
        json!({
            "step": "read",
            "model": live.names.model(arrival.model),
            "pool": live.policy.pools[pool.0 as usize].name,
            "input_tokens": arrival.input.0,
            "run": arrival.run.is_some(),
            "end_user": arrival.end_user.is_some(),
        }),
        json!({
            "step": "bound the output",
            "per_choice": arrival.output_bound.0,
            "choices": arrival.choices,
            "clamped": intake.clamped.is_some(),
        }),
    ]
}

fn decide(gateway: &Gateway, live: &Live, intake: &Intake, steps: &mut Vec<Value>) -> Value {
    let dialect = Dialect::OpenAi;
    let policy = &live.policy;
    let tenant = &policy.tenants[intake.arrival.tenant.0 as usize].name;
    let refusal_json = |refusal: Refusal| {
        let limit = problem::bound_name(&refusal, policy, &intake::asker_of(&intake.arrival));
        refused(&Problem::Refused { refusal, limit, tenant: tenant.clone() }, dialect)
    };
    match gateway.driver.preview(&intake.arrival) {
        Err(refusal) => refusal_json(refusal),
        Ok((charges, verdict)) => {
            steps.push(json!({
                "step": "reserve",
                "limits": charges.iter().map(|charge| charge_json(policy, charge)).collect::<Vec<_>>(),
            }));
            match verdict {
                Verdict::Granted { shadowed } => {
                    let shadowed: Vec<String> =
                        shadowed.iter().map(|place| charges[*place].limit.name(policy)).collect();
                    json!({ "admitted": true, "shadow_limits_that_would_refuse": shadowed })
                }
                Verdict::Refused(shortage) => {
                    let charge = &charges[shortage.charge];
                    json!({
                        "admitted": false,
                        "limit": charge.limit.name(policy),
                        "asked": charge.reserved.ceil_units(),
                        "level": shortage.level.floor_units(),
                        "wait_ms": shortage.wait.map(|wait| wait.as_millis_ceil()),
                    })
                }
            }
        }
    }
}

fn charge_json(policy: &Policy, charge: &Charge) -> Value {
    json!({
        "limit": charge.limit.name(policy),
        "cost": charge.reserved.ceil_units(),
        "capacity": charge.shape.capacity.floor_units(),
        "refill_per_minute": charge.shape.rate.units_per_minute(),
        "shadow": charge.shadow,
    })
}

fn refused(problem: &Problem, dialect: Dialect) -> Value {
    let rendered = render(problem, dialect, "explained");
    let error: Value = serde_json::from_str(&rendered.body).unwrap_or_default();
    let mut decision = json!({ "admitted": false, "status": rendered.status, "error": error["error"] });
    if let Problem::Refused { refusal, limit, .. } = problem {
        decision["reason"] = json!(refusal.reason.name());
        decision["limit"] = json!(limit);
        if let Retry::After(wait) = refusal.retry {
            decision["wait_ms"] = json!(wait.as_millis_ceil());
        }
    }
    decision
}
