//! Collectives that cannot succeed: disagreements, deadlines, and the ranks or switches that are to blame.

use super::PanamaHost;
use super::tree::Tree;
use crate::aggregation::life::Op;
use crate::contract::drop_reason::DropReason;
use crate::contract::host::{CollectiveError, HostEvent};
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
        let op = self.stream.op_of(block).expect("what was sent and has no result has a collective").id;
        let Mismatch { a, a_spec, b, b_spec } = mismatch;
        if self.failing.as_ref().is_none_or(|(earlier, _)| op < *earlier) {
            self.failing = Some((op, CollectiveError::Mismatch { a, a_spec, b, b_spec, op }));
        }
        self.complete_collectives(now);
        Ok(())
    }

    /// All collectives that are queued fail, and all later ones.
    pub(super) fn fail(&mut self, error: CollectiveError) {
        while let Some(Op { id, tensor, .. }) = self.stream.pop() {
            self.deadlines.complete(id);
            self.events.push_back(HostEvent::Failed { op: id, tensor, error: error.clone() });
        }
        self.broken.get_or_insert(error);
    }

    /// The tree that waits with the earliest block, and the block.
    pub(super) fn oldest_waiting(&self) -> Option<(usize, u64)> {
        let waiting = |(index, tree): (usize, &Tree)| {
            tree.oldest(self.submitted(index)).map(|vid| (index, self.block(index, vid)))
        };
        self.trees.iter().enumerate().filter_map(waiting).min_by_key(|&(_, block)| block)
    }

    /// Why a deadline has passed.
    pub(super) fn diagnose(&self) -> CollectiveError {
        if let Some((_, error)) = &self.failing {
            return error.clone();
        }
        let Some((index, block)) = self.oldest_waiting() else { return CollectiveError::Aborted };
        let (tree, op) = (&self.trees[index], self.stream.op_of(block).expect("a block that waits has a collective"));
        let (local, op) = (op.local(block), op.id);
        let blamed = tree.last_report.of(&tree.done()).and_then(|report| report.blame(index as u32, local, op));
        blamed.unwrap_or(CollectiveError::SwitchSilent { tree: tree.id, block: local, op })
    }
}
