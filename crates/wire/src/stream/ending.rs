//! The account of a stream when it has ended.

use super::StreamReader;
use super::reports::Extent;
use super::summary::{EndOfStream, Outcome, Summary};
use crate::usage::{Usage, UsageSource};

impl StreamReader {
    /// The account at the end. Call it once; a client that left is a broken end.
    pub fn finish(&mut self, how: EndOfStream) -> Summary {
        let verdict = self.end_document();
        let release = match &mut self.hold {
            Some(hold) => {
                let waiting = hold.finish(verdict);
                self.events_hidden += u64::from(waiting.is_none());
                waiting.unwrap_or_default()
            }
            None => Vec::new(),
        };
        let outcome = self.outcome(how);
        let (usage, source) = self.conclude(outcome);
        let (texts, texts_complete) = self.facts.texts.take();
        Summary {
            usage,
            source,
            outcome,
            counted_output: self.reports.counted(),
            deltas: self.reports.deltas(),
            first_content_event: self.first_content,
            events: self.events,
            events_hidden: self.events_hidden,
            choices_finished: self.reports.choices_finished(),
            error: self.error.take().map(|(_, facts)| facts),
            texts,
            texts_complete,
            release,
        }
    }

    fn outcome(&self, how: EndOfStream) -> Outcome {
        match &self.error {
            Some((0, _)) => return Outcome::UpstreamError,
            Some(_) => return Outcome::UpstreamErrorMidStream,
            None => {}
        }
        let nothing = self.events == 0 && !self.terminal;
        match how {
            EndOfStream::Broken if nothing => Outcome::UpstreamError,
            EndOfStream::Clean if nothing => Outcome::UpstreamEmpty,
            EndOfStream::Clean if !self.terminal && !self.reports.all_finished() => Outcome::Interrupted,
            EndOfStream::Broken if !self.terminal => Outcome::Interrupted,
            EndOfStream::Clean | EndOfStream::Broken if self.first_content.is_none() => {
                Outcome::UpstreamEmpty
            }
            EndOfStream::Clean | EndOfStream::Broken => Outcome::Completed,
        }
    }

    fn conclude(&self, outcome: Outcome) -> (Usage, UsageSource) {
        let extent = match outcome {
            Outcome::Completed | Outcome::UpstreamEmpty => Extent::Whole,
            Outcome::Interrupted | Outcome::UpstreamError | Outcome::UpstreamErrorMidStream => Extent::Cut,
        };
        let (usage, source) = self.reports.conclude(extent);
        let nothing_ran = source == UsageSource::Estimated
            && usage.output.is_none()
            && (outcome == Outcome::UpstreamError || self.events == 0);
        if nothing_ran {
            return (Usage::default(), UsageSource::None);
        }
        (usage, source)
    }
}
