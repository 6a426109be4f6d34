//! Many clients at the same time: exactly those whose cost the bucket holds are admitted, and every account is right afterwards.

#![cfg(test)]

mod mixed;

use std::time::Duration;

use bytes::Bytes;
use fairlane::clock;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{
    Backend, DEADLINE, Got, KEY, LAST_CHUNK, Reply, STREAM_HEAD, Step, TestGateway, chat_answer, chat_body,
    chunk, delta, gateway, in_time, send,
};

/// Buckets refill in so many days, which is nothing during a test.
const BURST_DAYS: u64 = 300;
/// Costs are multiples of it, so that such a bucket holds ten of them, or a multiple of ten.
const COST_STEP: u64 = BURST_DAYS / 10;
const SMALL_WORDS: u64 = 10;
const LARGE_WORDS: u64 = 20_000;

#[tokio::test]
async fn exactly_ten_of_twenty_pass_whole_and_small_counted_exactly() {
    ten_of_twenty(&Ask { mode: "exact", words: SMALL_WORDS, delivery: Delivery::Whole }).await;
}

#[tokio::test]
async fn exactly_ten_of_twenty_pass_streamed_and_small_counted_exactly() {
    ten_of_twenty(&Ask { mode: "exact", words: SMALL_WORDS, delivery: Delivery::Streamed }).await;
}

#[tokio::test]
async fn exactly_ten_of_twenty_pass_whole_and_large_counted_exactly() {
    ten_of_twenty(&Ask { mode: "exact", words: LARGE_WORDS, delivery: Delivery::Whole }).await;
}

#[tokio::test]
async fn exactly_ten_of_twenty_pass_streamed_and_large_counted_exactly() {
    ten_of_twenty(&Ask { mode: "exact", words: LARGE_WORDS, delivery: Delivery::Streamed }).await;
}

#[tokio::test]
async fn exactly_ten_of_twenty_pass_whole_and_small_counted_by_need() {
    ten_of_twenty(&Ask { mode: "auto", words: SMALL_WORDS, delivery: Delivery::Whole }).await;
}

#[tokio::test]
async fn exactly_ten_of_twenty_pass_streamed_and_small_counted_by_need() {
    ten_of_twenty(&Ask { mode: "auto", words: SMALL_WORDS, delivery: Delivery::Streamed }).await;
}

#[tokio::test]
async fn exactly_ten_of_twenty_pass_whole_and_large_counted_by_need() {
    ten_of_twenty(&Ask { mode: "auto", words: LARGE_WORDS, delivery: Delivery::Whole }).await;
}

#[tokio::test]
async fn exactly_ten_of_twenty_pass_streamed_and_large_counted_by_need() {
    ten_of_twenty(&Ask { mode: "auto", words: LARGE_WORDS, delivery: Delivery::Streamed }).await;
}

/// In a bucket of many requests the input may be estimated: what that holds too much comes back with the settlement.
#[tokio::test]
async fn estimates_admit_no_more_at_once_than_a_large_bucket_holds_and_all_of_it_once_they_are_settled() {
    let held = 60;
    for words in [SMALL_WORDS, LARGE_WORDS] {
        let ask = Ask { mode: "auto", words, delivery: Delivery::Whole };
        let (bound, cost) = ask.bound_and_cost();
        let backend = ask.backend(bound).await;
        let gateway = bucket(&ask, &backend, held * cost).await;
        let body = ask.body(bound);
        let mut crowd = Crowd::of(90, &gateway, &body);
        let refused = crowd.refusals(&backend).await;
        assert!((30..=45).contains(&refused), "{refused} refused of {words} words");
        let mut admitted = crowd.answers(&backend).await.len() as u64;
        println!("{words} words: {admitted} of {held} admitted at once");
        gateway.idle().await;
        let one_by_one = async {
            while gateway.chat(&body).await.status == 200 {
                admitted += 1;
            }
        };
        tokio::select! { () = let_all_go(&backend) => {}, () = in_time("a refusal", one_by_one) => {} }
        gateway.idle().await;
        assert_eq!((admitted, gateway.level("t", LIMIT).await), (held, 0), "{words} words");
        assert_eq!(gateway.running.gateway.driver.totals().settled, held * cost);
    }
}

/// The first refused caller is told its exact wait; each later one waits behind what the others were promised.
#[tokio::test]
async fn callers_refused_at_the_same_time_are_told_waits_that_lie_one_cost_apart() {
    let ask = Ask { mode: "exact", words: SMALL_WORDS, delivery: Delivery::Whole };
    let backend = ask.backend(90).await;
    let limits = "{tokens: {rate: 10/s, burst: 100s}}";
    let gateway = gateway(&configuration(&ask, &backend, limits)).await;
    let began = clock::monotonic();
    let mut crowd = Crowd::of(20, &gateway, &ask.body(90));
    assert_eq!(crowd.refusals(&backend).await, 10);
    let mut told_ms: Vec<u64> =
        crowd.refused.iter().map(|reply| reply.number("retry-after-ms").unsigned_abs()).collect();
    for reply in &crowd.refused {
        let is_long = reply.number("retry-after-ms") > 60_000;
        assert_eq!(reply.header("x-should-retry"), if is_long { "false" } else { "" });
    }
    // What the bucket regained meanwhile makes a wait shorter.
    let elapsed_ms = u64::try_from(clock::monotonic().duration_since(began).as_millis()).unwrap() + 1;
    told_ms.sort_unstable();
    println!("told to wait {told_ms:?} ms, {elapsed_ms} ms after the first request");
    for (behind, told_ms) in (1..).zip(&told_ms) {
        // A cost of 100 tokens comes back in ten seconds.
        let whole_ms = behind * 10_000;
        assert!(*told_ms <= whole_ms && *told_ms + elapsed_ms >= whole_ms, "{told_ms} of {whole_ms}");
    }
    assert_eq!(crowd.answers(&backend).await.len(), 10);
    gateway.idle().await;
}

/// A kind of request.
struct Ask {
    mode: &'static str,
    words: u64,
    delivery: Delivery,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Delivery {
    Whole,
    Streamed,
}

/// Twenty at once, and the backend answers nobody before all of them are decided.
async fn ten_of_twenty(ask: &Ask) {
    let (bound, cost) = ask.bound_and_cost();
    let used = bound / 2;
    let backend = ask.backend(used).await;
    let gateway = bucket(ask, &backend, 10 * cost).await;
    let mut crowd = Crowd::of(20, &gateway, &ask.body(bound));
    assert_eq!(crowd.refusals(&backend).await, 10);
    assert_eq!(backend.got().len(), 10);
    let totals = gateway.running.gateway.driver.totals();
    // What was held for an estimate that was then counted has come back.
    let held = totals.reserved - totals.refunded;
    assert_eq!((held, totals.outstanding), (10 * cost, 10 * cost), "{totals:?}");
    assert_eq!(gateway.level("t", LIMIT).await, 0);

    for reply in crowd.answers(&backend).await {
        assert_eq!((reply.status, reply.broken), (200, false), "{}", reply.text());
    }
    gateway.idle().await;
    let charged = ask.words + used;
    let totals = gateway.running.gateway.driver.totals();
    assert_eq!((totals.settled, totals.outstanding), (10 * charged, 0), "{totals:?}");
    assert_eq!((totals.overrun, totals.expired, totals.forgiven), (0, 0, 0), "{totals:?}");
    assert_eq!(gateway.level("t", LIMIT).await, i64::try_from(10 * (cost - charged)).unwrap());
    let records = gateway.ended(20).await;
    assert_eq!(records.iter().map(|record| record.charged).sum::<u64>(), 10 * charged);
    assert_eq!(records.iter().filter(|record| record.outcome == "refused").count(), 10);
}

/// A gateway whose tenant has a bucket of so many tokens.
async fn bucket(ask: &Ask, backend: &Backend, tokens: u64) -> TestGateway {
    assert_eq!(tokens % BURST_DAYS, 0);
    let rate = tokens / BURST_DAYS;
    let limits = format!("{{tokens: {{rate: {rate}/day, burst: {BURST_DAYS}d}}}}");
    let gateway = gateway(&configuration(ask, backend, &limits)).await;
    assert_eq!(gateway.level("t", LIMIT).await, i64::try_from(tokens).unwrap());
    gateway
}

fn configuration(ask: &Ask, backend: &Backend, limits: &str) -> String {
    format!(
        "pools:
  - name: main
    models: [m]
    engine: vllm
    backends: [{{url: \"http://{}\"}}]
    tokenizer: {{vocabulary: words, mode: {}}}
    health: off
tenants:
  - name: t
    keys: [\"{KEY}\"]
    limits: {limits}",
        backend.address, ask.mode
    )
}

/// Clients that ask at the same time.
struct Crowd {
    replies: JoinSet<Reply>,
    clients: usize,
    refused: Vec<Reply>,
}

impl Crowd {
    fn of(clients: usize, gateway: &TestGateway, body: &Value) -> Self {
        let address = gateway.address();
        let body = Bytes::from(body.to_string());
        let ask = |body: Bytes| async move {
            let key = format!("Bearer {KEY}");
            send(address, "POST", "/v1/chat/completions", &[("authorization", &key)], body).await
        };
        let replies = (0..clients).map(|_| ask(body.clone())).collect();
        Self { replies, clients, refused: Vec::new() }
    }

    /// How many are refused once everybody is decided, while the backend answers nobody.
    async fn refusals(&mut self, backend: &Backend) -> usize {
        let all = async {
            while self.refused.len() + backend.got().len() < self.clients {
                let a_moment = Duration::from_millis(5);
                if let Ok(reply) = tokio::time::timeout(a_moment, self.replies.join_next()).await {
                    let reply = reply.unwrap().unwrap();
                    check_refusal(&reply);
                    self.refused.push(reply);
                }
            }
        };
        in_time("everybody is decided", all).await;
        self.refused.len()
    }

    /// Lets the backend answer, and takes what it answers.
    async fn answers(self, backend: &Backend) -> Vec<Reply> {
        tokio::select! {
            () = let_all_go(backend) => Vec::new(),
            replies = self.replies.join_all() => replies,
        }
    }
}

fn check_refusal(reply: &Reply) {
    assert_eq!(reply.status, 429, "{}", reply.text());
    assert!(reply.number("retry-after") >= 1);
    assert_eq!(reply.header("x-fairlane-limit"), LIMIT);
    assert_eq!(reply.json()["error"]["code"], "rate_limit_exceeded");
}

/// Lets every waiting request go on, until the deadline.
async fn let_all_go(backend: &Backend) {
    let ever = async {
        loop {
            backend.go_on();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let _ = tokio::time::timeout(DEADLINE, ever).await;
}

impl Ask {
    /// An output bound with which the cost is a multiple of the step, and that cost.
    fn bound_and_cost(&self) -> (u64, u64) {
        let bound = 2 * COST_STEP - self.words % COST_STEP;
        (bound, self.words + bound)
    }

    fn body(&self, bound: u64) -> Value {
        let mut body = chat_body(usize::try_from(self.words).unwrap(), bound);
        if self.delivery == Delivery::Streamed {
            body["stream"] = json!(true);
        }
        body
    }

    /// A backend that waits before it answers, or in the middle of its stream, and reports `output` tokens.
    async fn backend(&self, output: u64) -> Backend {
        let (words, delivery) = (self.words, self.delivery);
        Backend::start(move |_: &Got| match delivery {
            Delivery::Whole => vec![Step::Wait, Step::Write(chat_answer(words, output))],
            Delivery::Streamed => streamed(words, output),
        })
        .await
    }
}

fn streamed(input: u64, output: u64) -> Vec<Step> {
    let usage = json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
    let event = |value: Value| chunk(format!("data: {value}\n\n").as_bytes());
    let end = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let told = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [],
        "usage": usage});
    let rest = [delta(" w"), event(end), event(told), chunk(b"data: [DONE]\n\n"), LAST_CHUNK.to_vec()];
    vec![Step::Write([STREAM_HEAD.to_vec(), delta("w")].concat()), Step::Wait, Step::Write(rest.concat())]
}

const LIMIT: &str = "tenant/t/tokens";
