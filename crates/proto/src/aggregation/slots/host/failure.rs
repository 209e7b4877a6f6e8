//! Collectives that cannot succeed: disagreements, deadlines, and the culprits.

use super::{Dialect, SlotHost, Stage};
use crate::aggregation::slots::wire::{Header, Mismatch};
use crate::contract::drop_reason::DropReason;
use crate::contract::host::CollectiveError;

impl<D: Dialect> SlotHost<D> {
    pub(super) fn mismatch(&mut self, header: &Header<D::Word>, mismatch: Mismatch) -> Result<(), DropReason> {
        let slot = &mut self.slots[usize::from(header.idx)];
        slot.stage = Stage::Refused;
        self.recovery.forget(header.idx);
        let op = self.life.stream.op_of(slot.block).expect("a slot in flight has a block").id;
        self.life.dispute(op, mismatch);
        self.end_phase(header.idx);
        self.release();
        self.complete_collectives();
        Ok(())
    }

    /// Fails everything that is queued, and everything later.
    pub(super) fn fail(&mut self, error: CollectiveError) {
        self.life.fail(error);
        for (idx, slot) in self.slots.iter_mut().enumerate() {
            slot.stage = Stage::Idle;
            (slot.in_flight, slot.is_late) = (false, false);
            self.recovery.forget(idx as u16);
        }
        self.queue.clear();
        if let Some(gate) = &mut self.gate {
            gate.clear();
        }
        self.question = None;
    }

    pub(super) fn waits(&self, idx: u16) -> bool {
        self.slots[usize::from(idx)].stage.waits()
    }

    /// Of the slots that wait, the one with the earliest block. It is searched for, because it is needed only when
    /// something is wrong.
    pub(super) fn oldest_waiting(&self) -> Option<u16> {
        (0..self.slots.len() as u16)
            .filter(|&idx| self.waits(idx))
            .min_by_key(|&idx| self.slots[usize::from(idx)].block)
    }

    /// The reason why a deadline has passed.
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
