//! What a request in flight has been charged in the order of its pool, from dispatch to end.

use super::lanes::Lane;
use super::node::{NodeId, WORK_MAX};
use super::tree::Lift;
use super::{EntryId, Schedule};

/// The charges of one request. Work is in thousandths of the pool's work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tab {
    edition: u32,
    run: NodeId,
    lane: u32,
    /// What it was reckoned to cost.
    cost_millis: u64,
    /// How much of that its class's minimum share paid.
    spent_millis: u64,
    charged_millis: u64,
    /// Output that was predicted, and the part of it that has not been made yet.
    output_millis: u64,
    rest_millis: u64,
    made_millis: u64,
}

impl Schedule {
    /// A request goes to a backend: its input is charged at once, so that its flow does not win again on the same grounds.
    pub(crate) fn begin(&mut self, entry: EntryId, backend: u32) -> Tab {
        let waiting = self.entries.of(entry).waiting;
        let cost_millis = waiting.cost_millis();
        let lane = self.lane_of(waiting.class);
        self.earn(cost_millis);
        let spent_millis = self.lanes[lane].spend(cost_millis);
        let run = self.step_out(entry);
        self.tree.of_mut(run).home = Some(backend);
        let mut tab = Tab {
            edition: self.edition,
            run,
            lane: lane as u32,
            cost_millis,
            spent_millis,
            charged_millis: 0,
            output_millis: 0,
            rest_millis: 0,
            made_millis: 0,
        };
        if self.order.is_fair() {
            tab.charged_millis = waiting.input_millis.min(WORK_MAX as u64);
            tab.output_millis = waiting.output_millis;
            tab.rest_millis = waiting.output_millis;
            self.tree.charge(run, signed(tab.charged_millis));
            self.tree.expect(run, tab.rest_millis);
        }
        self.tree.refresh(run, &self.entries, Lift::Least);
        tab
    }

    /// A request in flight has made so much output in all.
    pub(crate) fn produced(&mut self, tab: &mut Tab, made_millis: u64) {
        if tab.edition != self.edition || !self.order.is_fair() || made_millis <= tab.made_millis {
            return;
        }
        let more = made_millis - tab.made_millis;
        let rest = tab.output_millis.saturating_sub(made_millis);
        self.tree.charge(tab.run, signed(more));
        self.tree.expect_less(tab.run, tab.rest_millis - rest);
        tab.charged_millis = tab.charged_millis.saturating_add(more);
        (tab.rest_millis, tab.made_millis) = (rest, made_millis);
    }

    /// A request is off its backend and has used so much in all: what was charged is corrected.
    pub(crate) fn end(&mut self, tab: &Tab, used_millis: u64) {
        if tab.edition != self.edition {
            return;
        }
        self.correct_shares(tab, used_millis);
        if self.order.is_fair() {
            let used = used_millis.min(WORK_MAX as u64);
            self.tree.charge(tab.run, signed(used) - signed(tab.charged_millis));
            self.tree.expect_less(tab.run, tab.rest_millis);
            self.tree.refresh(tab.run, &self.entries, Lift::Least);
        }
        self.tree.leave_run(tab.run);
    }

    fn correct_shares(&mut self, tab: &Tab, used_millis: u64) {
        let lane = tab.lane as usize;
        if used_millis >= tab.cost_millis {
            self.earn(used_millis - tab.cost_millis);
            self.lanes[lane].spend(used_millis - tab.cost_millis);
        } else {
            let less = tab.cost_millis - used_millis;
            self.each_waiting(|lane| lane.earn_less(less));
            self.lanes[lane].give_back(less.min(tab.spent_millis));
        }
    }

    /// Every class that has something to send earns its share of work.
    fn earn(&mut self, cost_millis: u64) {
        self.each_waiting(|lane| lane.earn(cost_millis));
    }

    fn each_waiting(&mut self, change: impl Fn(&mut Lane)) {
        let tree = &self.tree;
        self.lanes.iter_mut().filter(|lane| tree.of(lane.root).has_ready()).for_each(change);
    }
}

fn signed(work_millis: u64) -> i64 {
    i64::try_from(work_millis).unwrap_or(i64::MAX).min(WORK_MAX)
}
