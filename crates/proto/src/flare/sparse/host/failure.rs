//! Collectives that cannot succeed: disagreements, deadlines, and the ranks or switches that are to blame.

use super::SparseHost;
use crate::aggregation::life::{Life, LifeCycle};
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
}

impl LifeCycle for SparseHost {
    type Waiting = u16;

    fn life(&self) -> &Life {
        &self.life
    }

    fn life_mut(&mut self) -> &mut Life {
        &mut self.life
    }

    fn stop(&mut self) {
        for (idx, slot) in self.slots.iter_mut().enumerate() {
            slot.is_active = false;
            self.recovery.forget(idx as u16);
        }
        self.queue.clear();
        self.late.clear();
        (self.current, self.question) = (None, None);
    }

    fn oldest_waiting(&self) -> Option<u16> {
        let block_of = |&idx: &u16| self.slots[usize::from(idx)].block;
        (0..self.slots.len() as u16).filter(|&idx| self.slots[usize::from(idx)].is_active).min_by_key(block_of)
    }

    fn ask(&mut self, waiting: Option<u16>) {
        self.question = waiting;
    }

    fn blame(&self, idx: u16) -> CollectiveError {
        let slot = &self.slots[usize::from(idx)];
        let op = self.life.stream.op_of(slot.block).expect("a slot that waits has a block");
        let at = (idx.into(), self.recovery.tree_of_slot(idx));
        self.last_report.blame(&(idx, slot.phase), at, op.local(slot.block), op.id)
    }
}
