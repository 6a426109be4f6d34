//! What a run shows, and the counting of it.

use fairlane_core::policy::Work;
use fairlane_core::units::{Micros, Moment, Tokens};

use super::gap::Gap;
use crate::traffic::Class;

/// The figures of one run. Ratios are from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Of all interactive requests that clients sent first, those that were dispatched within 2 s of it.
    pub interactive_started_2s: f64,
    /// From first sending to dispatch, of interactive requests that were dispatched.
    pub wait: Percentiles,
    /// From first sending to the first token, of interactive requests.
    pub time_to_first_token: Percentiles,
    /// Between the first token and the last, per token after the first, of interactive requests that were completed.
    pub time_per_output_token: Percentiles,
    /// By tenant, in the order of the traffic.
    pub tenants: Vec<TenantFigures>,
    /// By class: interactive, batch, background.
    pub classes: [ClassFigures; 3],
    /// Work done while traffic came, over what the backends can do in that time.
    pub utilisation: f64,
    /// Tokens held of the KV caches while traffic came, over what they hold together.
    pub kv_mean: f64,
    /// The most that one of them held, over what it can hold.
    pub kv_peak: f64,
    /// The widest drift between the service of two tenants that both had requests waiting, in tokens of the pool's work.
    pub fairness_gap: f64,
    /// (First tries and retries) over first tries.
    pub amplification: f64,
    /// Second by second.
    pub timeline: Timeline,
    /// Events that were simulated.
    pub events: u64,
}

/// Of a list of spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percentiles {
    /// The middle one.
    pub p50: Micros,
    /// The smallest that 95 % do not exceed.
    pub p95: Micros,
    /// The smallest that 99 % do not exceed.
    pub p99: Micros,
}

/// One tenant's part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantFigures {
    /// Its name.
    pub name: String,
    /// Requests, retries not counted.
    pub offered: u64,
    /// Of those, refused at the end, whatever retries there were.
    pub refused: f64,
    /// Tokens made for it while traffic came, a second.
    pub output_tokens_per_s: f64,
    /// Its share of all work.
    pub work_share: f64,
    /// From first sending to dispatch.
    pub wait: Percentiles,
    /// The most that was taken at once out of a token limit of its own, in tokens: the bucket that it would have needed, where the
    /// limit was so large that it refused nothing.
    pub deepest_draw_tokens: u64,
}

/// One class's part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassFigures {
    /// Requests, retries not counted.
    pub offered: u64,
    /// Of those, refused at the end.
    pub refused: f64,
    /// Of those, dispatched within 2 s.
    pub started_2s: f64,
    /// From first sending to dispatch.
    pub wait: Percentiles,
}

/// What the chart shows, one entry a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Per second and tenant: work done, in thousandths of a token of the pool's work.
    pub work_millis: Vec<Vec<u64>>,
    /// Requests waiting at the end of each second.
    pub waiting: Vec<u32>,
    /// Refusals in each second.
    pub refused: Vec<u32>,
}

/// Counts while the world runs.
pub(super) struct Tally {
    pub(super) length: Micros,
    pub(super) gap: Gap,
    pub(super) work: Work,
    senders: Vec<Sent>,
    pub(super) timeline: Timeline,
    waiting: u32,
    first_tries: u64,
    retries: u64,
    kv: Kv,
}

#[derive(Clone, Debug, Default)]
struct Sent {
    name: String,
    class: Option<Class>,
    offered: u64,
    refused: u64,
    started_2s: u64,
    output_in_time: u64,
    waits: Vec<Micros>,
    first_tokens: Vec<Micros>,
    paces: Vec<Micros>,
    deepest_draw_tokens: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Kv {
    since: Moment,
    held: u64,
    /// Token microseconds.
    area: u128,
    peak: f64,
}

impl Tally {
    pub(super) fn new(names: &[(String, Class)], length: Micros, work: Work) -> Self {
        let sent = |(name, class): &(String, Class)| Sent {
            name: name.clone(),
            class: Some(*class),
            ..Sent::default()
        };
        let seconds = (length.0.div_ceil(SECOND) as usize).min(SECONDS_SHOWN_MAX);
        Self {
            length,
            gap: Gap::new(names.len()),
            work,
            senders: names.iter().map(sent).collect(),
            timeline: Timeline {
                work_millis: vec![vec![0; names.len()]; seconds],
                waiting: vec![0; seconds],
                refused: vec![0; seconds],
            },
            waiting: 0,
            first_tries: 0,
            retries: 0,
            kv: Kv::default(),
        }
    }

    pub(super) fn offered(&mut self, sender: usize) {
        self.first_tries += 1;
        self.senders[sender].offered += 1;
    }

    pub(super) const fn came_back(&mut self) {
        self.retries += 1;
    }

    pub(super) fn waits(&mut self, sender: usize) {
        self.waiting += 1;
        self.gap.waits(sender);
    }

    pub(super) fn waits_no_more(&mut self, sender: usize) {
        self.waiting = self.waiting.saturating_sub(1);
        self.gap.waits_no_more(sender);
    }

    pub(super) fn started(&mut self, sender: usize, wait: Micros) {
        let sent = &mut self.senders[sender];
        sent.waits.push(wait);
        sent.started_2s += u64::from(wait <= STARTED_WITHIN);
    }

    pub(super) fn turned_away(&mut self, now: Moment) {
        if let Some(count) = self.timeline.refused.get_mut((now.0 / SECOND) as usize) {
            *count += 1;
        }
    }

    pub(super) fn refused_at_last(&mut self, sender: usize) {
        self.senders[sender].refused += 1;
    }

    /// A token limit of the sender's own lacks so much of being full.
    pub(super) fn drew(&mut self, sender: usize, missing_tokens: u64) {
        let deepest = &mut self.senders[sender].deepest_draw_tokens;
        *deepest = missing_tokens.max(*deepest);
    }

    /// A step has made a first token: its prompt was read.
    pub(super) fn first_token(&mut self, sender: usize, prompt: Tokens, waited: Micros, now: Moment) {
        self.senders[sender].first_tokens.push(waited);
        self.worked(sender, prompt.0 * u64::from(self.work.input_millis), now);
    }

    pub(super) fn made(&mut self, sender: usize, output: Tokens, now: Moment) {
        if now.0 < self.length.0 {
            self.senders[sender].output_in_time += output.0;
        }
        self.worked(sender, output.0 * u64::from(self.work.output_millis), now);
    }

    pub(super) fn completed(&mut self, sender: usize, span: Micros, output: Tokens) {
        if output.0 > 1 {
            self.senders[sender].paces.push(Micros(span.0 / (output.0 - 1)));
        }
    }

    /// What the KV caches hold together from now on, and the part of the fullest one that is in use.
    pub(super) fn holds(&mut self, held: Tokens, fullest: f64, now: Moment) {
        let until = now.0.min(self.length.0);
        self.kv.area += u128::from(self.kv.held) * u128::from(until.saturating_sub(self.kv.since.0));
        self.kv.since = Moment(until);
        self.kv.held = held.0;
        if now.0 < self.length.0 {
            self.kv.peak = self.kv.peak.max(fullest);
        }
    }

    /// Notes how many wait, for every second up to `now`.
    pub(super) fn passes(&mut self, from: Moment, now: Moment) {
        let (first, last) = ((from.0 / SECOND) as usize, (now.0 / SECOND) as usize);
        if first < last && first < self.timeline.waiting.len() {
            let last = last.min(self.timeline.waiting.len());
            self.timeline.waiting[first..last].fill(self.waiting);
        }
    }

    fn worked(&mut self, sender: usize, work_millis: u64, now: Moment) {
        self.gap.serves(sender, work_millis);
        if let Some(second) = self.timeline.work_millis.get_mut((now.0 / SECOND) as usize) {
            second[sender] += work_millis;
        }
    }

    /// `capacity` is replica time and the tokens of all KV caches; `done` the replica time of the work done while traffic came.
    pub(super) fn figures(mut self, done: Micros, capacity: (Micros, Tokens), events: u64) -> Figures {
        for sent in &mut self.senders {
            sent.waits.sort_unstable();
        }
        let interactive = self.merged(Class::Interactive);
        let all_work: u64 = (0..self.senders.len()).map(|sender| self.gap.served(sender)).sum();
        let tenants = (0..)
            .zip(&self.senders)
            .map(|(index, sent)| TenantFigures {
                name: sent.name.clone(),
                offered: sent.offered,
                refused: ratio(sent.refused, sent.offered),
                output_tokens_per_s: sent.output_in_time as f64 / self.length.as_secs_f64(),
                work_share: ratio(self.gap.served(index), all_work),
                wait: Percentiles::of(&sent.waits),
                deepest_draw_tokens: sent.deepest_draw_tokens,
            })
            .collect();
        let classes = [Class::Interactive, Class::Batch, Class::Background].map(|class| {
            let sent = self.merged(class);
            ClassFigures {
                offered: sent.offered,
                refused: ratio(sent.refused, sent.offered),
                started_2s: ratio(sent.started_2s, sent.offered),
                wait: Percentiles::of(&sent.waits),
            }
        });
        let kv = capacity.1.0 as f64;
        Figures {
            interactive_started_2s: ratio(interactive.started_2s, interactive.offered),
            wait: Percentiles::of(&interactive.waits),
            time_to_first_token: Percentiles::of(&interactive.first_tokens),
            time_per_output_token: Percentiles::of(&interactive.paces),
            tenants,
            classes,
            utilisation: done.as_secs_f64() / capacity.0.as_secs_f64(),
            kv_mean: self.kv.area as f64 / (kv * self.length.0 as f64),
            kv_peak: self.kv.peak,
            fairness_gap: self.gap.widest(),
            amplification: ratio(self.first_tries + self.retries, self.first_tries),
            timeline: self.timeline,
            events,
        }
    }

    /// All senders of a class together, each list from the shortest span to the longest.
    fn merged(&self, class: Class) -> Sent {
        let mut all = Sent::default();
        for sent in self.senders.iter().filter(|sent| sent.class == Some(class)) {
            all.offered += sent.offered;
            all.refused += sent.refused;
            all.started_2s += sent.started_2s;
            all.waits.extend(&sent.waits);
            all.first_tokens.extend(&sent.first_tokens);
            all.paces.extend(&sent.paces);
        }
        for list in [&mut all.waits, &mut all.first_tokens, &mut all.paces] {
            list.sort_unstable();
        }
        all
    }
}

impl Percentiles {
    /// Of spans in order, the shortest first: the ceil(p · n)-th. Zero where there is none.
    fn of(sorted: &[Micros]) -> Self {
        let at = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100);
            sorted.get(rank.saturating_sub(1)).copied().unwrap_or(Micros::ZERO)
        };
        Self { p50: at(50), p95: at(95), p99: at(99) }
    }
}

/// 0 where there is nothing to share.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// What counts as started in time.
const STARTED_WITHIN: Micros = Micros::from_secs(2);
const SECOND: u64 = 1_000_000;
/// Two hours: a longer run is charted no further.
const SECONDS_SHOWN_MAX: usize = 7_200;
