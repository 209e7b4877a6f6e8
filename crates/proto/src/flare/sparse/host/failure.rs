//! Collectives that cannot succeed: disagreements, deadlines, and the ranks or switches that are to blame.

use super::SparseHost;
use crate::aggregation::report::Mismatch;
use crate::contract::drop_reason::DropReason;
use crate::contract::host::CollectiveError;
use crate::flare::sparse::wire::Header;

impl SparseHost {
    pub(super) fn mismatch(&mut self, header: &Header, mismatch: Mismatch) -> Result<(), DropReason> {
        let slot = &mut self.slots[usize::from(header.idx)];
        slot.is_active = false;
        self.recovery.forget(header.idx);
        let op = self.life.stream.op_of(slot.block).expect("an active slot has a block").id;
        self.life.dispute(op, mismatch);
        self.complete_collectives();
        Ok(())
    }

    /// All collectives that are queued fail, and all later ones.
    pub(super) fn fail(&mut self, error: CollectiveError) {
        self.life.fail(error);
        for (idx, slot) in self.slots.iter_mut().enumerate() {
            slot.is_active = false;
            self.recovery.forget(idx as u16);
        }
        self.queue.clear();
        self.late.clear();
        (self.current, self.question) = (None, None);
    }

    /// The slot that waits with the earliest block. This is a search, needed only when something is wrong.
    pub(super) fn oldest_waiting(&self) -> Option<u16> {
        (0..self.slots.len() as u16)
            .filter(|&idx| self.slots[usize::from(idx)].is_active)
            .min_by_key(|&idx| self.slots[usize::from(idx)].block)
    }

    /// Why a deadline has passed.
    pub(super) fn diagnose(&self) -> CollectiveError {
        if let Some(error) = self.life.failing() {
            return error.clone();
        }
        let Some(idx) = self.oldest_waiting() else { return CollectiveError::Aborted };
        let slot = &self.slots[usize::from(idx)];
        let op = self.life.stream.op_of(slot.block).expect("a slot that waits has a block");
        let (block, op) = (op.local(slot.block), op.id);
        let blamed = self.last_report.of(&(idx, slot.phase)).and_then(|report| report.blame(idx.into(), block, op));
        blamed.unwrap_or(CollectiveError::SwitchSilent { tree: self.recovery.tree_of_slot(idx), block, op })
    }
}
