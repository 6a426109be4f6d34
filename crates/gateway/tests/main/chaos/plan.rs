//! What each request of a run is and how its client behaves, by seed and number.

#![cfg(test)]

use std::time::Duration;

use serde_json::{Value, json};

use super::dice::{Dice, REQUESTS};
use super::settings::{TENANTS, Tag};

/// One request, with those that its client sends after it has failed.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) number: u64,
    pub(super) tenant: usize,
    pub(super) key: String,
    pub(super) path: &'static str,
    pub(super) body: Vec<u8>,
    pub(super) is_stream: bool,
    /// Further headers.
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) manner: Manner,
    /// How often its client tries again, at once.
    pub(super) retries: u32,
    /// What the engine is asked to do wrong.
    pub(super) fault: String,
}

/// How a client behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Sends at once and reads to the end.
    Patient,
    /// Sends its body in so many pieces with a pause between them.
    Slow { pieces: usize, pause: Duration },
    /// Leaves in the middle of its head.
    LeavesInHead,
    /// Leaves after so many hundredths of its body.
    LeavesInBody(usize),
    /// Leaves that long after it has sent all.
    LeavesAfter(Duration),
    /// Leaves when it has read so many bytes of its answer.
    LeavesAt(usize),
    /// Reads nothing of its answer for so long, then leaves.
    Deaf(Duration),
    /// Reads nothing for so long, then the rest.
    Dozes(Duration),
}

/// What a third of the requests is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Third {
    Calm,
    Cut,
    Fault,
}

impl Plan {
    /// The request of this number.
    pub(super) fn of(seed: u64, number: u64) -> Self {
        let mut dice = Dice::of(seed, REQUESTS, number);
        let third = [Third::Calm, Third::Cut, Third::Fault][(number % 3) as usize];
        let tenant = dice.below(TENANTS.len() as u64) as usize;
        let manner = manner(third, &mut dice);
        let fault = if third == Third::Fault { fault(&mut dice) } else { String::from("none") };
        let key = dice.one(&TENANTS[tenant].keys).to_owned();
        let mut plan = Self {
            number,
            tenant,
            key,
            path: "",
            body: Vec::new(),
            is_stream: false,
            headers: Vec::new(),
            manner,
            retries: if dice.chance(50) { 2 } else { 0 },
            fault,
        };
        plan.fill(&mut dice);
        if plan.leaves_unseen() && TENANTS[tenant].tag == Tag::Neither {
            // Nothing would name its record.
            plan.manner = Manner::LeavesAt(1);
        }
        plan
    }

    /// The client may be gone before it learns its request's id.
    const fn leaves_unseen(&self) -> bool {
        matches!(self.manner, Manner::LeavesInHead | Manner::LeavesInBody(_) | Manner::LeavesAfter(_))
    }

    fn fill(&mut self, dice: &mut Dice) {
        let long = "the same beginning ".repeat(dice.within(0, 12) as usize);
        let text = format!("{long}request {} {}", self.number, "word ".repeat(dice.within(0, 60) as usize));
        let model = dice.one(&["a", "b", "q"]);
        let bound = dice.within(4, 120);
        let bound = if dice.chance(80) { Some(bound) } else { None };
        let output = dice.within(1, 90);
        self.is_stream = dice.chance(60);
        let messages = json!([{"role": "user", "content": text}]);
        let stream = self.is_stream;
        let (path, mut body) = match dice.below(20) {
            0..=7 => {
                let n = dice.one(&[1, 1, 1, 2]);
                let mut body = json!({"messages": messages, "max_tokens": bound, "n": n, "stream": stream});
                if dice.chance(40) {
                    let usage = json!({"include_usage": true, "continuous_usage_stats": dice.chance(50)});
                    body["stream_options"] = if stream { usage } else { Value::Null };
                }
                (CHAT, body)
            }
            8..=12 => {
                let most = bound.unwrap_or(64);
                ("/v1/messages", json!({"messages": messages, "max_tokens": most, "stream": stream}))
            }
            13 | 14 => {
                let best_of = if stream { 1 } else { 2 };
                (
                    "/v1/completions",
                    json!({"prompt": text, "max_tokens": bound, "best_of": best_of, "stream": stream}),
                )
            }
            15 | 16 => {
                ("/v1/responses", json!({"input": text, "max_output_tokens": bound, "stream": stream}))
            }
            17 => ("/v1/embeddings", json!({"input": [text, "and more"]})),
            18 => ("/v1/messages/count_tokens", json!({"messages": messages})),
            _ => ("/tokenize", json!({"prompt": text})),
        };
        let is_passed = path == "/tokenize";
        self.is_stream &= !matches!(path, "/v1/embeddings" | "/v1/messages/count_tokens" | "/tokenize");
        body["model"] = json!(if is_passed { "q" } else { model });
        self.path = path;
        self.headers.push(("x-sim-output-tokens", output.to_string()));
        if self.fault != "none" {
            self.headers.push(("x-sim-fault", self.fault.clone()));
        }
        if dice.chance(20) {
            self.headers.push(("x-fairlane-class", String::from("batch")));
        }
        if dice.chance(15) {
            self.headers.push(("x-fairlane-max-wait-ms", dice.within(0, 400).to_string()));
        }
        if dice.below(LONG_ONE_IN) == 0 {
            self.make_long(&mut body);
        }
        self.body = body.to_string().into_bytes();
        if dice.chance(3) {
            self.spoil(dice);
        }
    }

    /// An answer that no socket's buffers hold, for a client that does not read it.
    fn make_long(&mut self, body: &mut Value) {
        self.tenant = WHALE;
        self.key = TENANTS[WHALE].keys[0].to_owned();
        self.path = CHAT;
        self.is_stream = true;
        self.manner = Manner::Deaf(Duration::from_millis(1_500));
        self.headers = vec![("x-sim-output-tokens", LONG_TOKENS.to_string())];
        self.fault = String::from("none");
        *body = json!({
            "model": "q", "stream": true, "max_tokens": LONG_TOKENS,
            "messages": [{"role": "user", "content": "at length"}],
        });
    }

    /// Something that is no request.
    fn spoil(&mut self, dice: &mut Dice) {
        match dice.below(4) {
            0 => self.body.truncate(self.body.len() / 2),
            1 => self.body = br#"{"model": "nobody", "messages": [], "input": "", "prompt": ""}"#.to_vec(),
            2 => self.key = String::from("no-such-key"),
            _ => self.path = "/v1/nothing",
        }
    }
}

fn manner(third: Third, dice: &mut Dice) -> Manner {
    if third != Third::Cut {
        return match dice.below(10) {
            0 => Manner::Slow { pieces: dice.within(2, 5) as usize, pause: dice.millis(1, 10) },
            1 => Manner::Dozes(dice.millis(5, 120)),
            _ => Manner::Patient,
        };
    }
    match dice.below(10) {
        0 => Manner::LeavesInHead,
        1 => Manner::LeavesInBody(dice.within(1, 99) as usize),
        2..=4 => Manner::LeavesAfter(dice.millis(0, 60)),
        5..=7 => Manner::LeavesAt(dice.within(1, 6_000) as usize),
        8 => Manner::LeavesAt(1),
        _ => Manner::Deaf(dice.millis(5, 150)),
    }
}

fn fault(dice: &mut Dice) -> String {
    let few = dice.within(0, 40);
    match dice.below(20) {
        // Every backend is too busy for such a one, and the others wait behind it: few are enough.
        0 => dice.one(&["429", "429:1", "503", "html-503"]).to_owned(),
        1 => String::from("500"),
        2 => String::from("400"),
        3 => String::from("refuse"),
        4 => String::from("empty"),
        5 | 6 => format!("slow-start:{}", dice.within(1, 150)),
        7 => String::from("stall"),
        8 | 9 => format!("stall:{}", dice.within(1, 150)),
        10..=12 => format!("cut:{few}"),
        13..=15 => format!("error-event:{few}"),
        16 | 17 => String::from("no-usage"),
        _ => format!("usage-over:{}", dice.within(1, 500)),
    }
}

pub(super) const CHAT: &str = "/v1/chat/completions";
/// The tenant of long answers: its limits hold them.
const WHALE: usize = 6;
const LONG_ONE_IN: u64 = 1_200;
const LONG_TOKENS: u64 = 30_000;
