//! Traffic that keeps queues full, comes and goes, and what its flows receive beside each other.

use std::collections::BTreeMap;

use fairlane_core::gate::{Arrival, Event, RequestId};
use fairlane_core::policy::{Policy, TenantId, Work};
use fairlane_core::units::{Micros, Tokens};

use crate::chance::Chance;
use crate::world::{World, ask};

/// Whoever is compared with others: a tenant, a team or a run.
pub(crate) type FlowId = u32;

/// Somebody who sends.
pub(crate) struct Sender {
    pub(crate) tenant: TenantId,
    pub(crate) run: Option<u128>,
    pub(crate) flow: FlowId,
    pub(crate) weight_millis: u32,
    /// How many of its requests may run at the same time.
    pub(crate) quota: Option<u32>,
    pub(crate) output_mean: u64,
    pub(crate) is_on: bool,
    pub(crate) waiting: u32,
    pub(crate) running: u32,
}

struct Running {
    sender: usize,
    output: u64,
    made: u64,
}

/// The traffic.
pub(crate) struct Traffic {
    pub(crate) world: World,
    chance: Chance,
    work: Work,
    senders: Vec<Sender>,
    running: BTreeMap<RequestId, Running>,
    /// Work received by each flow, divided by its weight, in thousandths.
    received: BTreeMap<FlowId, i128>,
    /// Least and greatest difference of a pair since both have something to send.
    spans: BTreeMap<(FlowId, FlowId), (i128, i128)>,
    /// The widest change between two flows while both had something to send, in thousandths of work for a weight of one.
    pub(crate) widest_gap: i128,
}

impl Sender {
    pub(crate) fn new(tenant: u32, flow: FlowId, chance: &mut Chance) -> Self {
        Self {
            tenant: TenantId(tenant),
            run: None,
            flow,
            weight_millis: 1_000,
            quota: None,
            output_mean: 1 + chance.below(150),
            is_on: chance.one_in(2),
            waiting: 0,
            running: 0,
        }
    }

    fn is_ready(&self) -> bool {
        self.waiting > 0 && self.quota.is_none_or(|quota| self.running < quota)
    }
}

impl Traffic {
    pub(crate) fn new(mut policy: Policy, senders: Vec<Sender>, chance: Chance) -> Self {
        policy.classes[0].wait_max = Micros::from_secs(1_000_000);
        policy.classes[0].queue_requests_max = 1_000_000;
        policy.classes[0].queue_tokens_max = Tokens(u64::MAX);
        Self {
            work: policy.pools[0].work,
            world: World::new(policy),
            chance,
            senders,
            running: BTreeMap::new(),
            received: BTreeMap::new(),
            spans: BTreeMap::new(),
            widest_gap: 0,
        }
    }

    /// Some traffic: a sender begins or stops, or what runs makes output; whoever is on keeps two requests waiting.
    pub(crate) fn step(&mut self) {
        if self.chance.one_in(8) {
            let sender = self.chance.below(self.senders.len() as u64) as usize;
            self.senders[sender].is_on = !self.senders[sender].is_on;
        } else {
            self.make_output();
        }
        for sender in 0..self.senders.len() {
            while self.senders[sender].is_on && self.senders[sender].waiting < 2 {
                self.arrive(sender);
            }
        }
    }

    /// D and the bound on the gap of `docs/scheduling.md`, in thousandths of work for a weight of one; `in_flight` is how many
    /// requests one flow can have on backends.
    pub(crate) fn bounds_millis(&self, in_flight: u64, alpha_permille: u32) -> (i128, i128) {
        let least = self.senders.iter().map(|sender| sender.weight_millis).min().unwrap_or(1_000);
        let (input, output) = (u64::from(self.work.input_millis), u64::from(self.work.output_millis));
        let alpha = u64::from(alpha_permille);
        let all_output = output * OUTPUT_MAX * in_flight;
        let spread = input * INPUT_MAX + alpha * output * OUTPUT_MAX / 1_000 + all_output;
        let gap = 2 * spread + 2 * alpha * all_output / 1_000;
        let scaled = |bound: u64| i128::from(bound) * 1_000 / i128::from(least);
        (scaled(spread), scaled(gap))
    }

    fn arrive(&mut self, sender: usize) {
        let Sender { tenant, run, .. } = self.senders[sender];
        let input = 1 + self.chance.below(INPUT_MAX);
        self.senders[sender].waiting += 1;
        let request = self.world.arrive(Arrival { tenant, run, ..ask(input, OUTPUT_MAX) });
        assert!(!self.world.is_refused(request), "{:?}", self.world.state(request));
        self.take_note();
    }

    /// Every running request makes some output; the last piece ends it.
    fn make_output(&mut self) {
        let requests: Vec<RequestId> = self.running.keys().copied().collect();
        for request in requests {
            let Running { sender, output, made } = self.running[&request];
            let now = (made + 1 + self.chance.below(8)).min(output);
            self.receive(sender, (now - made) * u64::from(self.work.output_millis));
            self.world.handle(Event::Produced { request, output: Tokens(now) });
            if let Some(running) = self.running.get_mut(&request) {
                running.made = now;
            }
            if now == output {
                self.running.remove(&request);
                self.senders[sender].running -= 1;
                let input = self.world.arrivals[&request].input.0;
                self.world.complete(request, input, output);
                self.take_note();
            }
        }
        self.look();
    }

    /// Takes note of what was dispatched.
    fn take_note(&mut self) {
        for (_, request, _) in std::mem::take(&mut self.world.starts) {
            let Arrival { tenant, run, input, .. } = self.world.arrivals[&request];
            let of = |sender: &Sender| sender.tenant == tenant && sender.run == run;
            let sender = self.senders.iter().position(of).unwrap();
            let output = (1 + self.chance.below(2 * self.senders[sender].output_mean)).min(OUTPUT_MAX);
            self.senders[sender].waiting -= 1;
            self.senders[sender].running += 1;
            self.receive(sender, input.0 * u64::from(self.work.input_millis));
            self.running.insert(request, Running { sender, output, made: 0 });
            self.look();
        }
        self.look();
    }

    fn receive(&mut self, sender: usize, work_millis: u64) {
        let Sender { flow, weight_millis, .. } = self.senders[sender];
        let share = i128::from(work_millis) * 1_000 / i128::from(weight_millis);
        *self.received.entry(flow).or_default() += share;
    }

    fn look(&mut self) {
        let mut flows: BTreeMap<FlowId, bool> = BTreeMap::new();
        for sender in &self.senders {
            *flows.entry(sender.flow).or_default() |= sender.is_ready();
        }
        let of = |flow| self.received.get(flow).copied().unwrap_or(0);
        for (one, is_one_ready) in &flows {
            for (other, is_other_ready) in flows.range(one + 1..) {
                if !is_one_ready || !is_other_ready {
                    self.spans.remove(&(*one, *other));
                    continue;
                }
                let difference = of(one) - of(other);
                let (least, most) = self.spans.entry((*one, *other)).or_insert((difference, difference));
                (*least, *most) = ((*least).min(difference), (*most).max(difference));
                self.widest_gap = self.widest_gap.max(*most - *least);
            }
        }
    }
}

/// The largest input of a request.
pub(crate) const INPUT_MAX: u64 = 400;
/// The output bound of every request.
pub(crate) const OUTPUT_MAX: u64 = 300;
