//! Runs without requests that have received more than their neighbours: they are remembered for a while, so that leaving and coming
//! back is no way to forget.

use alloc::collections::VecDeque;

use super::node::{Node, NodeId};

/// Idle runs in the order in which they became idle. Those that came back since are passed over.
#[derive(Debug, Default)]
pub(super) struct Idle {
    line: VecDeque<(NodeId, u32)>,
    count: usize,
}

impl Idle {
    pub(super) fn enter(&mut self, run: NodeId, node: &mut Node) {
        node.idled = node.idled.wrapping_add(1);
        self.line.push_back((run, node.idled));
        self.count += 1;
    }

    pub(super) fn leave(&mut self, node: &mut Node) {
        node.idled = node.idled.wrapping_add(1);
        self.count -= 1;
    }

    /// The run that has been idle for longest, taken out, where there are more than can be remembered.
    pub(super) fn over(&mut self, nodes: &[Node]) -> Option<NodeId> {
        let is_idle = |(run, idled): &(NodeId, u32)| nodes[run.index()].idled == *idled;
        if self.line.len() > 2 * self.count + SPARE {
            self.line.retain(is_idle);
        }
        if self.count <= IDLE_RUNS_MAX {
            return None;
        }
        while let Some(oldest) = self.line.pop_front() {
            if is_idle(&oldest) {
                self.count -= 1;
                return Some(oldest.0);
            }
        }
        None
    }
}

const IDLE_RUNS_MAX: usize = 16_384;
const SPARE: usize = 64;
