//! Puts the usage that a backend reports, once or many times, for all choices or for each, into one account.
//!
//! Seen in the wild: one total at the end; running totals on every chunk; running figures of each choice on that choice's chunks, with a total
//! at the end; one usage-only chunk per choice (llama.cpp), which must be added up; measurements instead of usage (llama.cpp `timings`).

use crate::dialect::{Dialect, Endpoint};
use crate::reply::facts::{ChoiceEnd, Event, Kind};
use crate::reply::texts::CHOICES_MAX;
use crate::usage::{RawUsage, TOKENS_MAX, Usage, UsageSource};

#[derive(Clone, Copy, Debug)]
struct Choice {
    index: u32,
    finished: bool,
    /// The last output reported on a chunk of this choice.
    output: Option<u64>,
}

/// Reports so far.
#[derive(Clone, Debug)]
pub(crate) struct Reports {
    endpoint: Endpoint,
    input: RawUsage,
    choices: Vec<Choice>,
    choices_expected: usize,
    /// Output of the last report that was not on one choice's chunk.
    total: Option<u64>,
    /// Sum of the usage-only chunks.
    sum: u64,
    usage_only: usize,
    finished_at_usage_only: usize,
    /// Every usage-only chunk followed the end of a further choice: each tells only that choice.
    one_per_choice: bool,
    usage_seen: bool,
    /// The last report ended the answer.
    last_was_final: bool,
    stopped: bool,
    counted: u64,
    deltas: u64,
    counted_at_report: u64,
}

/// Whether the answer is all there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Whole,
    Cut,
}

impl Reports {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            input: RawUsage::default(),
            choices: Vec::new(),
            choices_expected: 1,
            total: None,
            sum: 0,
            usage_only: 0,
            finished_at_usage_only: 0,
            one_per_choice: true,
            usage_seen: false,
            last_was_final: false,
            stopped: false,
            counted: 0,
            deltas: 0,
            counted_at_report: 0,
        }
    }

    pub(crate) fn expect_choices(&mut self, choices: u32) {
        self.choices_expected = usize::try_from(choices).unwrap_or(usize::MAX).max(1);
    }

    /// Estimated tokens of the text so far.
    pub(crate) fn counted(&self) -> u64 {
        self.counted
    }

    pub(crate) fn deltas(&self) -> u64 {
        self.deltas
    }

    pub(crate) fn choices_finished(&self) -> usize {
        self.choices.iter().filter(|choice| choice.finished).count()
    }

    /// Whether every choice that is expected, and every one seen, told its end.
    pub(crate) fn all_finished(&self) -> bool {
        let expected = self.choices_expected.min(CHOICES_MAX);
        let seen = self.choices.len();
        self.stopped || (seen >= expected && self.choices_finished() == seen)
    }

    /// One delta that was read by its template: `choice` is known, or had none at all.
    pub(crate) fn add_delta(&mut self, tokens: u64) {
        self.counted = self.counted.saturating_add(tokens);
        self.deltas += 1;
    }

    pub(crate) fn add(&mut self, event: &Event) {
        self.counted = self.counted.saturating_add(event.tokens);
        self.deltas = self.deltas.saturating_add(event.deltas);
        self.stopped |= event.stopped;
        for end in &event.ends {
            self.choice(*end);
        }
        if let Some(usage) = self.usage_of(event) {
            self.report(&usage, event);
        }
    }

    /// The usage of a whole reply: it is final, for all choices.
    pub(crate) fn add_reply(&mut self, event: &Event) {
        self.counted = event.tokens;
        self.deltas = event.deltas;
        let Some(usage) = self.usage_of(event) else {
            return;
        };
        self.input.take(&usage);
        self.total = usage.output();
        if !self.endpoint.generates() {
            self.total = self.total.or(Some(0));
        }
        self.last_was_final = self.total.is_some();
        self.counted_at_report = self.counted;
    }

    /// Output so far: the last running report plus what was counted since, else what was counted.
    pub(crate) fn produced(&self) -> u64 {
        let since = self.counted - self.counted_at_report;
        self.reported().map_or(self.counted, |output| output.saturating_add(since))
    }

    /// The usage to charge. The input is left out if it was not reported.
    pub(crate) fn conclude(&self, extent: Extent) -> (Usage, UsageSource) {
        let mut usage = self.input.input_side(self.endpoint.dialect());
        let since = self.counted - self.counted_at_report;
        let several = self.choices.len() > 1;
        let (output, source) = match (self.reported(), extent) {
            (Some(output), Extent::Whole) if since == 0 => {
                // No engine makes a piece of text of less than a token: below that, a report left a choice out.
                if several && output < self.deltas {
                    (Some(self.deltas), UsageSource::Mixed)
                } else {
                    (Some(output), UsageSource::Reported)
                }
            }
            (Some(output), Extent::Whole) => (Some(output.saturating_add(since)), UsageSource::Mixed),
            (Some(output), Extent::Cut) if self.last_was_final && since == 0 => {
                (Some(output), UsageSource::Reported)
            }
            (Some(output), Extent::Cut) => {
                let floor =
                    if several { self.counted.max(self.reported_by_choice().unwrap_or(0)) } else { 0 };
                let output = output.saturating_add(since).max(floor);
                (Some(output), UsageSource::ReportedPartial)
            }
            (None, _) => {
                let counted = (self.counted > 0).then_some(self.counted);
                let source = if usage.input.is_some() { UsageSource::Mixed } else { UsageSource::Estimated };
                (counted, source)
            }
        };
        usage.output = output.map(|tokens| tokens.min(TOKENS_MAX));
        (usage, source)
    }

    /// Usage wins over timings, also over those of later events.
    fn usage_of(&mut self, event: &Event) -> Option<RawUsage> {
        if !event.usage.is_empty() {
            self.usage_seen = true;
            return Some(event.usage);
        }
        let timings = event.timings;
        if self.usage_seen || timings.output.is_none() {
            return None;
        }
        let input = timings.input.map(|tokens| tokens.saturating_add(timings.cache_read.unwrap_or(0)));
        let input = match self.endpoint.dialect() {
            Dialect::OpenAi => input,
            Dialect::Anthropic => timings.input,
        };
        Some(RawUsage { input, ..timings })
    }

    fn report(&mut self, usage: &RawUsage, event: &Event) {
        self.input.take(usage);
        // The output of `message_start` is a placeholder.
        let Some(output) = usage.output().filter(|_| event.kind != Kind::MessageStart) else {
            return;
        };
        self.counted_at_report = self.counted;
        if event.kind != Kind::None {
            self.total = Some(output);
            self.last_was_final =
                event.stopped || matches!(event.kind, Kind::ResponseDone | Kind::ResponseFailed);
            return;
        }
        if let Some(first) = event.ends.first() {
            if let Some(known) = self.find(first.index) {
                known.output = Some(output);
            }
        } else {
            let finished = self.choices_finished();
            self.one_per_choice &= finished > self.finished_at_usage_only;
            self.finished_at_usage_only = finished;
            self.usage_only += 1;
            self.sum = self.sum.saturating_add(output);
            self.total = Some(output);
        }
        self.last_was_final = self.all_finished();
    }

    fn reported(&self) -> Option<u64> {
        if self.usage_only > 1 && self.one_per_choice {
            return Some(self.sum);
        }
        self.total.or_else(|| self.reported_by_choice())
    }

    fn reported_by_choice(&self) -> Option<u64> {
        self.choices.iter().filter_map(|choice| choice.output).reduce(u64::saturating_add)
    }

    fn choice(&mut self, end: ChoiceEnd) {
        if let Some(known) = self.find(end.index) {
            known.finished |= end.finished;
        } else if self.choices.len() < CHOICES_MAX {
            self.choices.push(Choice { index: end.index, finished: end.finished, output: None });
        }
    }

    fn find(&mut self, index: u32) -> Option<&mut Choice> {
        self.choices.iter_mut().find(|choice| choice.index == index)
    }
}
