//! Collectives that cannot succeed: disagreements, deadlines, and the culprits.

use super::{Dialect, SlotHost, Stage};
use crate::aggregation::life::{Life, LifeCycle};
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

    pub(super) fn waits(&self, idx: u16) -> bool {
        self.slots[usize::from(idx)].stage.waits()
    }
}

impl<D: Dialect> LifeCycle for SlotHost<D> {
    type Waiting = u16;

    fn life(&self) -> &Life {
        &self.life
    }

    fn life_mut(&mut self) -> &mut Life {
        &mut self.life
    }

    fn stop(&mut self) {
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

    fn oldest_waiting(&self) -> Option<u16> {
        let block_of = |&idx: &u16| self.slots[usize::from(idx)].block;
        (0..self.slots.len() as u16).filter(|&idx| self.waits(idx)).min_by_key(block_of)
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
