//! Collectives that cannot succeed: disagreements, deadlines, and the ranks or switches that are to blame.

use super::PanamaHost;
use super::tree::Tree;
use crate::aggregation::life::{Life, LifeCycle, Op};
use crate::contract::drop_reason::DropReason;
use crate::contract::host::CollectiveError;
use crate::contract::time::Time;
use crate::panama::wire::{Header, Mismatch};

impl PanamaHost {
    pub(super) fn mismatch(
        &mut self,
        now: Time,
        header: &Header,
        vid: u64,
        mismatch: Mismatch,
    ) -> Result<(), DropReason> {
        let index = header.tree().index();
        let tree = &self.trees[index];
        if vid < tree.done() || vid >= tree.next().min(self.submitted(index)) || tree.has(vid) {
            return Err(DropReason::Unexpected);
        }
        let block = self.block(index, vid);
        let op = self.life.stream.op_of(block).expect("what was sent and has no result has a collective").id;
        self.life.dispute(op, mismatch);
        self.complete_or_leave(now);
        Ok(())
    }
}

impl LifeCycle for PanamaHost {
    /// A tree, and the block that it waits with.
    type Waiting = (usize, u64);

    fn life(&self) -> &Life {
        &self.life
    }

    fn life_mut(&mut self) -> &mut Life {
        &mut self.life
    }

    fn on_complete(&mut self, op: &Op) {
        if self.is_input_left(op) {
            self.keep_latest(op);
        }
    }

    /// The trees stop because the life is broken.
    fn stop(&mut self) {}

    fn oldest_waiting(&self) -> Option<(usize, u64)> {
        let waiting = |(index, tree): (usize, &Tree)| {
            tree.oldest(self.submitted(index)).map(|vid| (index, self.block(index, vid)))
        };
        self.trees.iter().enumerate().filter_map(waiting).min_by_key(|&(_, block)| block)
    }

    fn ask(&mut self, waiting: Option<(usize, u64)>) {
        if let Some((tree, _)) = waiting {
            self.trees[tree].ask();
        }
    }

    fn blame(&self, (index, block): (usize, u64)) -> CollectiveError {
        let (tree, op) =
            (&self.trees[index], self.life.stream.op_of(block).expect("a block that waits has a collective"));
        let (local, op) = (op.local(block), op.id);
        let blamed = tree.last_report.of(&tree.done()).and_then(|report| report.blame(index as u32, local, op));
        blamed.unwrap_or(CollectiveError::SwitchSilent { tree: tree.id, block: local, op })
    }
}
