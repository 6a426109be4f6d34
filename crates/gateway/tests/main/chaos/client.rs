//! The clients of a run: each takes the next request, behaves as its plan says, and tells what it saw.

#![cfg(test)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::io::AsyncWriteExt as _;

use super::plan::{Manner, Plan};
use super::received::Received;
use super::settings::{TENANTS, Tag};
use super::way::{BrokenOff, Sent, Way, Window, connect, pieces, whole};

/// What all clients of a run share.
pub(super) struct Crowd {
    pub(super) seed: u64,
    pub(super) requests: u64,
    pub(super) next: AtomicU64,
    pub(super) seen: Mutex<Vec<Seen>>,
}

/// One request as its client saw it.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "all of it is printed when a run fails")]
pub(super) struct Seen {
    /// Names the request to the engine, and by a hash in the usage log.
    pub(super) tag: String,
    pub(super) number: u64,
    pub(super) tenant: usize,
    pub(super) path: &'static str,
    pub(super) manner: Manner,
    pub(super) fault: String,
    pub(super) status: Option<u16>,
    pub(super) id: Option<String>,
    /// The gate has decided on it.
    pub(super) decided: bool,
    /// Output tokens that came.
    pub(super) tokens: u64,
    pub(super) end: End,
}

/// How it ended for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was read to its end.
    Whole,
    /// The answer broke off.
    Broken,
    /// No answer came.
    None,
    /// The client left.
    Left,
    /// Nothing happened for too long.
    Hung,
}

/// Takes requests until there are no more.
pub(super) async fn run(crowd: &Crowd, mut way: Way) {
    loop {
        let number = crowd.next.fetch_add(1, Ordering::Relaxed);
        if number >= crowd.requests {
            return;
        }
        let plan = Plan::of(crowd.seed, number);
        for attempt in 0..=plan.retries {
            let seen = attempt_once(&plan, attempt, &mut way).await;
            let again = wants_again(&seen);
            crowd.seen.lock().unwrap().push(seen);
            if !again {
                break;
            }
        }
    }
}

fn wants_again(seen: &Seen) -> bool {
    let failed = seen.status.is_some_and(|status| status == 429 || status >= 500);
    seen.end != End::Left && (failed || seen.end == End::Broken)
}

async fn attempt_once(plan: &Plan, attempt: u32, way: &mut Way) -> Seen {
    let tag = format!("c{}-{attempt}", plan.number);
    let mut seen = Seen {
        tag,
        number: plan.number,
        tenant: plan.tenant,
        path: plan.path,
        manner: plan.manner,
        fault: plan.fault.clone(),
        status: None,
        id: None,
        decided: false,
        tokens: 0,
        end: End::None,
    };
    let done = tokio::time::timeout(HUNG, converse(plan, attempt, way, &mut seen)).await;
    seen.end = done.unwrap_or(End::Hung);
    if seen.end != End::Whole {
        way.cut();
        if way.is_shared() && plan.number.is_multiple_of(16) {
            way.cut_all().await;
        }
    }
    seen
}

async fn converse(plan: &Plan, attempt: u32, way: &mut Way, seen: &mut Seen) -> End {
    let body = match plan.manner {
        Manner::LeavesInHead => return leave_in_head(plan, way).await,
        Manner::Slow { pieces: count, pause } => pieces(&plan.body, count, pause, Ok(())),
        Manner::LeavesInBody(percent) => {
            let sent = plan.body.len() * percent / 100;
            pieces(&plan.body[..sent], 2, Duration::from_millis(1), Err(BrokenOff))
        }
        Manner::Patient
        | Manner::LeavesAfter(_)
        | Manner::LeavesAt(_)
        | Manner::Deaf(_)
        | Manner::Dozes(_) => whole(&plan.body),
    };
    let request = request(plan, attempt, &seen.tag, way, body);
    let sending = way.send(request);
    let answer = match plan.manner {
        Manner::LeavesAfter(pause) => match tokio::time::timeout(pause, sending).await {
            Ok(answer) => answer,
            Err(_) => return End::Left,
        },
        Manner::Patient
        | Manner::Slow { .. }
        | Manner::LeavesInHead
        | Manner::LeavesInBody(_)
        | Manner::LeavesAt(_)
        | Manner::Deaf(_)
        | Manner::Dozes(_) => sending.await,
    };
    let Some(answer) = answer else {
        return if matches!(plan.manner, Manner::LeavesInBody(_)) { End::Left } else { End::None };
    };
    read(plan, answer, seen).await
}

async fn read(plan: &Plan, answer: Response<Incoming>, seen: &mut Seen) -> End {
    let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
    seen.status = Some(answer.status().as_u16());
    seen.id = header("x-fairlane-request-id").map(String::from);
    seen.decided = header("x-fairlane-queue-ms").is_some();
    let is_stream = header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
    let leaves_at = match plan.manner {
        Manner::LeavesAt(bytes) => Some(bytes),
        Manner::Deaf(pause) => {
            tokio::time::sleep(pause).await;
            return End::Left;
        }
        Manner::Dozes(pause) => {
            tokio::time::sleep(pause).await;
            None
        }
        // It meant to leave, and the answer came too soon.
        Manner::LeavesAfter(_) => Some(1),
        Manner::Patient | Manner::Slow { .. } | Manner::LeavesInHead | Manner::LeavesInBody(_) => None,
    };
    let mut body = answer.into_body();
    let mut received = Received::of(plan.path, is_stream);
    loop {
        match body.frame().await {
            None => return End::Whole,
            Some(Err(_)) => return End::Broken,
            Some(Ok(frame)) => {
                received.take(frame.data_ref().map_or(&[][..], |data| data));
                seen.tokens = received.tokens();
                if leaves_at.is_some_and(|bytes| received.bytes() >= bytes) {
                    return End::Left;
                }
            }
        }
    }
}

fn request(plan: &Plan, attempt: u32, tag: &str, way: &Way, body: Sent) -> Request<Sent> {
    let uri = if way.is_shared() { format!("http://gateway{}", plan.path) } else { plan.path.to_owned() };
    let mut request = Request::builder().method("POST").uri(uri).header("content-type", "application/json");
    if !way.is_shared() {
        request = request.header("host", "gateway");
    }
    let is_anthropic = plan.path.starts_with("/v1/messages");
    request = match is_anthropic {
        true => request.header("x-api-key", &plan.key).header("anthropic-version", "2023-06-01"),
        false => request.header("authorization", format!("Bearer {}", plan.key)),
    };
    let shared = format!("shared-{}", plan.number % 5);
    let (run, user) = match TENANTS[plan.tenant].tag {
        Tag::Run => (tag, shared.as_str()),
        Tag::User => (shared.as_str(), tag),
        Tag::Neither => (shared.as_str(), shared.as_str()),
    };
    request = request.header("x-fairlane-run", run).header("x-fairlane-user", user);
    request = request.header("x-request-id", tag).header("x-stainless-retry-count", attempt.to_string());
    for (name, value) in &plan.headers {
        request = request.header(*name, value);
    }
    request.body(body).unwrap()
}

async fn leave_in_head(plan: &Plan, way: &Way) -> End {
    let beginning =
        if way.is_shared() { "PRI * HTTP/2.0\r\n\r\nSM" } else { "POST /v1/chat/completions HTTP/1.1\r\nho" };
    if let Some(mut stream) = connect(way.address(), Window::Usual).await {
        let _ = stream.write_all(beginning.as_bytes()).await;
        tokio::time::sleep(Duration::from_millis(plan.number % 8)).await;
    }
    End::Left
}

/// By then the gateway's own bounds have ended every request.
const HUNG: Duration = Duration::from_secs(20);
