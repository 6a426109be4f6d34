//! Every row of the table of endings in `docs/accounting.md`: its outcome, its charge, its request unit.

#![cfg(test)]

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    Backend, KEY, LAST_CHUNK, STREAM_HEAD, Step, TestGateway, chat_answer, chat_body, chat_stream,
    chat_stream_end, delta, event, gateway, json_answer, pool, send, streaming, until,
};

mod budget;
mod drained;
mod estimates;
mod panics;

const TABLE: &str = include_str!("../../../../docs/accounting.md");
const LIMITS: &str = "tokens: 20000/day burst 1d, requests: 100/day burst 1d";

/// A row of the table.
struct Row {
    outcome: String,
    unit: String,
}

/// The row whose first cell this is.
fn row(ending: &str) -> Row {
    let found = rows().into_iter().find(|cells| cells[0] == ending);
    let cells = found.unwrap_or_else(|| panic!("the table has no row \"{ending}\""));
    Row { outcome: cells[1].trim_matches('`').to_owned(), unit: cells[3].to_owned() }
}

fn rows() -> Vec<Vec<&'static str>> {
    let after = TABLE.split("| ending | outcome | charged | request unit |").nth(1).unwrap();
    let lines = after.lines().skip(2).take_while(|line| line.starts_with('|'));
    lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

impl Row {
    /// The last request ended so and was charged this much.
    async fn check(&self, gateway: &TestGateway, charged: u64) {
        self.check_within(gateway, charged..=charged).await;
    }

    async fn check_within(&self, gateway: &TestGateway, charged: RangeInclusive<u64>) {
        gateway.idle().await;
        let records = gateway.records();
        let record = records.first().unwrap();
        assert_eq!(record.outcome, self.outcome, "{record:?}");
        assert!(charged.contains(&record.charged), "{charged:?}: {record:?}");
        let all: u64 = records.iter().map(|record| record.charged).sum();
        assert_eq!(gateway.level("t", "tenant/t/tokens").await, 20_000 - all as i64);
        let before = records.len() as i64 - 1;
        let kept = i64::from(self.unit == "kept");
        assert_eq!(gateway.level("t", "tenant/t/requests").await, 100 - before - kept, "{}", self.unit);
    }
}

/// One tenant before these backends; `top` are lines of the whole configuration, `tenant` is a line of it.
async fn setting(backend: &Backend, top: &str, tenant: &str) -> TestGateway {
    let pool = pool(&[backend.address], "    slots: 1\n");
    gateway(&format!(
        "{top}\n{pool}tenants:\n  - name: t\n    keys: [\"{KEY}\"]\n    limits: {{{LIMITS}}}\n    {tenant}\n"
    ))
    .await
}

#[test]
fn every_row_of_the_table_of_endings_is_walked() {
    let own = include_str!("endings.rs");
    let rows = rows();
    assert_eq!(rows.len(), 18);
    for cells in rows {
        assert!(own.contains(&format!("row(\"{}\")", cells[0])), "no test asks for \"{}\"", cells[0]);
    }
}

#[tokio::test]
async fn a_complete_answer_costs_its_usage() {
    let backend = Backend::always(chat_stream(3, Some((10, 3)))).await;
    let gateway = setting(&backend, "", "").await;
    assert_eq!(gateway.chat(&streaming(&chat_body(10, 20))).await.status, 200);
    row("the answer is complete").check(&gateway, 13).await;
}

#[tokio::test]
async fn an_answer_for_which_nothing_ran_costs_a_request() {
    let backend = Backend::always(json_answer(200, &json!({"input_tokens": 10}))).await;
    let gateway = setting(&backend, "", "").await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "w w"}]});
    assert_eq!(gateway.post("/v1/messages/count_tokens", &body).await.status, 200);
    row("the answer is complete and nothing ran for it, as a token count").check(&gateway, 0).await;
}

#[tokio::test]
async fn success_without_content_costs_its_input() {
    let mut bytes = STREAM_HEAD.to_vec();
    bytes.extend(chat_stream_end(Some((10, 0))));
    let backend = Backend::always(bytes).await;
    let gateway = setting(&backend, "", "").await;
    assert_eq!(gateway.chat(&streaming(&chat_body(10, 20))).await.status, 200);
    row("success without content").check(&gateway, 10).await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_costs_what_was_counted() {
    let backend = Backend::start(|_| {
        let mut steps = pieces(3);
        steps.push(Step::Close);
        steps
    })
    .await;
    let gateway = setting(&backend, "", "").await;
    assert!(gateway.chat(&streaming(&chat_body(10, 20))).await.broken);
    row("the backend breaks off in the middle").check(&gateway, 13).await;
}

#[tokio::test]
async fn an_error_in_the_middle_of_a_stream_costs_what_was_counted() {
    let backend = Backend::start(|_| {
        let mut steps = pieces(3);
        steps.push(Step::Write(event("{\"error\": {\"message\": \"lost\", \"code\": 500}}")));
        steps.push(Step::Write(LAST_CHUNK.to_vec()));
        steps
    })
    .await;
    let gateway = setting(&backend, "", "").await;
    gateway.chat(&streaming(&chat_body(10, 20))).await;
    row("an error event in the middle of a stream").check(&gateway, 13).await;
}

#[tokio::test]
async fn a_silence_inside_an_answer_costs_what_was_counted() {
    let backend = Backend::start(|_| waiting_after(3)).await;
    let gateway = setting(&backend, "timeouts: {stream_idle: 150ms}", "").await;
    assert!(gateway.chat(&streaming(&chat_body(10, 20))).await.broken);
    row("the backend falls silent inside its answer").check(&gateway, 13).await;
}

#[tokio::test]
async fn a_backend_without_a_first_byte_costs_the_time_that_it_had() {
    let backend = Backend::start(|got| match got.json()["max_tokens"].as_u64() {
        // 20 tokens in 200 ms are the pace.
        Some(100) => vec![Step::Pause(Duration::from_millis(200)), Step::Write(chat_answer(10, 20))],
        _ => vec![Step::AwaitClose],
    })
    .await;
    let gateway = setting(&backend, "timeouts: {first_byte: 600ms}", "").await;
    for _ in 0..8 {
        gateway.chat(&chat_body(10, 100)).await;
        gateway.idle().await;
    }
    let reply = gateway.chat(&chat_body(10, 90)).await;
    assert_eq!(reply.status, 504);
    // 60 tokens in 600 ms, and the mean of 20 is less.
    row("the backend has the request and gives no first byte in time").check(&gateway, 30).await;
    let record = &gateway.records()[0];
    assert_eq!((record.usage_source, record.status, record.input), ("estimated", 504, 10));
}

#[tokio::test]
async fn a_failure_before_the_first_byte_costs_nothing() {
    let ending =
        "the backend fails before its first byte, is busy to the end of the wait, or cannot be reached";
    assert_eq!(
        row("the backend fails before its first byte, is busy to the end of the wait, or cannot be reached")
            .unit,
        row(ending).unit
    );
    for (status, wait) in [(500, "5s"), (503, "100ms")] {
        let backend = Backend::always(json_answer(status, &json!({"error": {"message": "no"}}))).await;
        let classes = format!("classes: [{{name: interactive, max_wait: {wait}}}]");
        let gateway = setting(&backend, &classes, "").await;
        assert_eq!(gateway.chat(&chat_body(10, 20)).await.status, status);
        row(ending).check(&gateway, 0).await;
    }
    let nobody = Backend::start(|_| vec![Step::Close]).await;
    let gateway = setting(&nobody, "", "").await;
    drop(nobody);
    assert_eq!(gateway.chat(&chat_body(10, 20)).await.status, 502);
    row(ending).check(&gateway, 0).await;
}

#[tokio::test]
async fn a_connection_that_nobody_accepts_costs_nothing_however_long_it_took() {
    // A listener whose queue is full takes no connection and refuses none.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(300), tokio::net::TcpStream::connect(address)).await
    {
        waiting.push(stream);
        assert!(waiting.len() < 100, "the queue has an end");
    }
    let gateway = gateway(&format!(
        "timeouts: {{first_byte: 200ms}}\n{}tenants:\n  - name: t\n    keys: [\"{KEY}\"]\n    limits: {{{LIMITS}}}\n",
        pool(&[address], "")
    ))
    .await;
    let reply = gateway.chat(&chat_body(10, 20)).await;
    assert_eq!(reply.status, 504);
    row("the backend fails before its first byte, is busy to the end of the wait, or cannot be reached")
        .check(&gateway, 0)
        .await;
}

#[tokio::test]
async fn a_refusal_by_the_backend_costs_a_request() {
    let backend = Backend::always(json_answer(422, &json!({"error": {"message": "no"}}))).await;
    let gateway = setting(&backend, "", "").await;
    assert_eq!(gateway.chat(&chat_body(10, 20)).await.status, 422);
    row("the backend refuses the request (status 400 to 499)").check(&gateway, 0).await;
}

#[tokio::test]
async fn a_client_that_leaves_its_answer_pays_what_was_counted() {
    let backend = Backend::start(|_| waiting_after(3)).await;
    let gateway = setting(&backend, "", "").await;
    drop(gateway.stream(&chat_body(10, 20), 3).await);
    row("the client leaves its answer").check(&gateway, 13).await;
    backend.is_left(1).await;
}

#[tokio::test]
async fn a_client_that_takes_nothing_pays_what_was_counted() {
    // More than the buffers between hold.
    let backend = Backend::start(|_| {
        let mut steps = vec![Step::Write(STREAM_HEAD.to_vec())];
        let piece = json!({"choices": [{"index": 0, "delta": {"content": "w "}}], "pad": "x".repeat(20_000)});
        steps.extend((0..2_000).map(|_| Step::Write(event(&piece.to_string()))));
        steps.push(Step::AwaitClose);
        steps
    })
    .await;
    let gateway = setting(&backend, "timeouts: {client_write: 300ms}", "").await;
    let response = gateway.begin("/v1/chat/completions", &[], &streaming(&chat_body(10, 20))).await;
    until("the slot is free", || gateway.running.gateway.driver.live() == 0).await;
    drop(response);
    row("the client takes nothing of its answer for too long").check_within(&gateway, 11..=2_010).await;
}

#[tokio::test]
async fn a_client_that_leaves_before_an_answer_pays_the_estimate() {
    let backend = Backend::start(|_| vec![Step::AwaitClose]).await;
    let gateway = setting(&backend, "", "").await;
    leave_once_sent(&gateway, &backend, &chat_body(10, 20)).await;
    // Before any pace is known the bound of 20 is the least of the three.
    row("the client leaves after dispatch, before anything was seen of an answer").check(&gateway, 30).await;
    backend.is_left(1).await;
}

#[tokio::test]
async fn a_client_that_leaves_hidden_reasoning_pays_the_estimate() {
    let backend = Backend::start(|_| {
        let role = json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]});
        vec![Step::Write(STREAM_HEAD.to_vec()), Step::Write(event(&role.to_string())), Step::AwaitClose]
    })
    .await;
    let gateway = setting(&backend, "", "").await;
    drop(gateway.stream(&chat_body(10, 20), 1).await);
    row("the client leaves after dispatch, before anything was seen of an answer").check(&gateway, 30).await;
}

#[tokio::test]
async fn a_client_that_leaves_a_drained_answer_pays_its_usage() {
    let backend = Backend::start(|_| {
        let mut steps = pieces(3);
        steps.extend([Step::Wait, Step::Write(delta("w ")), Step::Write(chat_stream_end(Some((10, 17))))]);
        steps
    })
    .await;
    let gateway = setting(&backend, "", "on_client_gone: drain").await;
    drop(gateway.stream(&chat_body(10, 20), 3).await);
    backend.go_on();
    row("the client leaves, and `on_client_gone: drain` reads the answer on").check(&gateway, 27).await;
    assert_eq!(gateway.records()[0].usage_source, "reported");
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_pays_nothing() {
    for tenant in ["on_client_gone: cancel", "on_client_gone: drain"] {
        let backend = Backend::start(|_| vec![Step::Wait, Step::Write(chat_answer(10, 5))]).await;
        let gateway = setting(&backend, "", tenant).await;
        let body = chat_body(10, 20);
        let running = gateway.chat(&body);
        let leaving = async {
            backend.has_got(1).await;
            let queued = tokio::time::timeout(Duration::from_millis(200), gateway.chat(&body));
            assert!(queued.await.is_err());
            until("it is out of the queue", || gateway.running.gateway.driver.live() == 1).await;
            let left = gateway.records()[0].clone();
            backend.go_on();
            left
        };
        let (_, left) = tokio::join!(running, leaving);
        let row = row("the client leaves the queue");
        assert_eq!((left.outcome, left.charged), (row.outcome.as_str(), 0), "{tenant}");
        assert_eq!(row.unit, "comes back");
        gateway.idle().await;
        assert_eq!(gateway.level("t", "tenant/t/requests").await, 99, "that of the other");
        assert_eq!(backend.got().len(), 1);
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_at_its_budgets_end_costs_what_was_counted() {
    let backend = Backend::start(|_| waiting_after(40)).await;
    let limits = "tokens: 40/day burst 1d, requests: 100/day burst 1d";
    let gateway = gateway(&format!(
        "{}tenants:\n  - name: t\n    keys: [\"{KEY}\"]\n    limits: {{{limits}}}\n    charging: postpay\n    on_budget_end: stop\n",
        pool(&[backend.address], "")
    ))
    .await;
    let reply = gateway.chat(&streaming(&chat_body(10, 1_000))).await;
    assert!(!reply.broken);
    gateway.idle().await;
    let row = row("a budget ends under a stream, and `on_budget_end: stop` cuts it");
    let record = &gateway.records()[0];
    assert_eq!(record.outcome, row.outcome, "{record:?}");
    assert!((41..=50).contains(&record.charged), "{record:?}");
    assert_eq!(gateway.level("t", "tenant/t/tokens").await, 40 - record.charged as i64);
    assert_eq!((gateway.level("t", "tenant/t/requests").await, row.unit.as_str()), (99, "kept"));
}

#[tokio::test]
async fn a_shutdown_that_cuts_an_answer_costs_what_was_counted() {
    let backend = Backend::start(|_| waiting_after(3)).await;
    let gateway = setting(&backend, "timeouts: {shutdown: 100ms}", "").await;
    let stream = gateway.stream(&chat_body(10, 20), 3).await;
    check_cut(gateway, &row("a shutdown cuts an answer"), 13).await;
    drop(stream);
}

#[tokio::test]
async fn a_shutdown_that_cuts_a_request_before_its_answer_costs_the_estimate() {
    for tenant in ["on_client_gone: cancel", "on_client_gone: drain"] {
        let backend = Backend::start(|_| vec![Step::AwaitClose]).await;
        let gateway = setting(&backend, "timeouts: {shutdown: 100ms}", tenant).await;
        let address = gateway.address();
        let asked = tokio::spawn(async move { ask_and_read(address, &chat_body(10, 20)).await });
        backend.has_got(1).await;
        let row = row("a shutdown cuts a request before anything was seen of an answer");
        check_cut(gateway, &row, 30).await;
        assert_eq!(asked.await.unwrap(), b"", "{tenant}");
    }
}

#[tokio::test]
async fn a_refusal_costs_nothing_at_all() {
    let backend = Backend::start(|_| vec![Step::Wait, Step::Write(chat_answer(10, 5))]).await;
    let gateway = setting(&backend, "classes: [{name: interactive, max_wait: 100ms}]", "").await;
    let body = chat_body(10, 20);
    let waits = async {
        backend.has_got(1).await;
        let refused = gateway.chat(&body).await;
        backend.go_on();
        refused
    };
    let (_, refused) = tokio::join!(gateway.chat(&body), waits);
    assert_eq!(refused.status, 429);
    let row = row("a limit, a full queue, a wait that is over, or a shutdown refuses it");
    gateway.idle().await;
    let record = gateway.records().into_iter().find(|record| record.refusal.is_some()).unwrap();
    assert_eq!((record.outcome, record.charged), (row.outcome.as_str(), 0));
    assert_eq!(gateway.level("t", "tenant/t/requests").await, 99, "that of the other");
    assert_eq!(gateway.level("t", "tenant/t/tokens").await, 20_000 - 15);
    assert!(row.unit.starts_with("comes back"));
}

/// Stops a gateway while one request runs.
async fn check_cut(gateway: TestGateway, row: &Row, charged: u64) {
    let inner = std::sync::Arc::clone(&gateway.running.gateway);
    gateway.running.stop().await;
    let record = &inner.usage.last(1)[0];
    assert_eq!((record.outcome, record.charged), (row.outcome.as_str(), charged), "{record:?}");
    assert_eq!(row.unit, "kept");
    let tenant = fairlane_core::policy::TenantId(0);
    let mut levels = inner.driver.limits(tenant).into_iter();
    let requests = levels.find(|level| level.view.limit.dimension.name() == "requests").unwrap();
    assert_eq!(requests.level.floor_units(), 99);
    let totals = inner.driver.totals();
    assert!(totals.law_holds() && totals.outstanding == 0, "{totals:?}");
}

/// Asks on a plain socket and reads until the gateway closes it.
async fn ask_and_read(address: std::net::SocketAddr, body: &Value) -> Vec<u8> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let body = body.to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {KEY}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

/// Sends a request and leaves when the backend has it.
async fn leave_once_sent(gateway: &TestGateway, backend: &Backend, body: &Value) {
    let (address, body, before) = (gateway.address(), body.to_string(), backend.got().len());
    let asking = tokio::spawn(async move {
        let bearer = format!("Bearer {KEY}");
        let headers = [("authorization", bearer.as_str())];
        send(address, "POST", "/v1/chat/completions", &headers, body.into()).await
    });
    backend.has_got(before + 1).await;
    asking.abort();
    let _ = asking.await;
}

/// A stream's head and so many pieces of a token, each written alone.
fn pieces(count: usize) -> Vec<Step> {
    let mut steps = vec![Step::Write(STREAM_HEAD.to_vec())];
    steps.extend((0..count).map(|_| Step::Write(delta("w "))));
    steps
}

/// So many pieces, then silence.
fn waiting_after(count: usize) -> Vec<Step> {
    let mut steps = pieces(count);
    steps.push(Step::AwaitClose);
    steps
}
