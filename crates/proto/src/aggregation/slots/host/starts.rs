//! When slots start: as their blocks are submitted, and as results free them for their next blocks.

use std::ops::Range;

use super::{SlotHost, Stage};
use crate::aggregation::slots::Dialect;
use crate::contract::host::{Collective, SubmitError};
use crate::contract::ids::OpId;
use crate::contract::time::Time;

impl<D: Dialect> SlotHost<D> {
    /// The same worker of a job whose trees are servers, each on a link of its own.
    pub fn among_servers(self) -> SlotHost<D> {
        let slots = self.config.job.slots / self.config.job.trees.max(1);
        SlotHost { gate: self.gate.map(|gate| Box::new(gate.among_servers(slots.into()))), ..self }
    }

    /// Submits collectives side by side: one for each of the job's trees, which alone serves it.
    pub fn submit_striped(&mut self, now: Time, collectives: Vec<Collective>) -> Result<Vec<OpId>, SubmitError> {
        debug_assert_eq!(collectives.len(), usize::from(self.config.job.trees));
        let slots = u64::from(self.config.job.slots / self.config.job.trees);
        let (ids, blocks) = self.life.submit_striped(now, collectives, slots)?;
        self.begin(blocks);
        Ok(ids)
    }

    /// Starts the slots that wait for these blocks, which were submitted.
    pub(super) fn begin(&mut self, blocks: Range<u64>) {
        let slots = self.slots.len() as u64;
        if self.epochs.is_some() {
            return self.send_in_epochs(false);
        }
        for block in blocks.take(self.slots.len()) {
            let idx = (block % slots) as u16;
            if !self.drives(idx) {
                continue;
            }
            let slot = &mut self.slots[usize::from(idx)];
            if slot.stage == Stage::Idle && slot.block == block {
                slot.block = self.life.stream.next_in_slot(block, slots);
                self.start(idx, false);
            }
        }
        self.release();
    }

    /// Starts a slot whose block was submitted, or was agreed on and is summed next.
    pub(super) fn start(&mut self, idx: u16, in_step: bool) {
        let pool = self.slots.len() as u64;
        let slot = &mut self.slots[usize::from(idx)];
        let Some(op) = self.life.stream.op_of(slot.block) else {
            slot.stage = Stage::Idle;
            return;
        };
        slot.stage = slot.agreement.begin(op, slot.block, pool);
        slot.in_step = in_step;
        let may_go = self.gate.as_mut().is_none_or(|gate| gate.begin(slot.block));
        if may_go {
            self.queue.push(idx);
        }
    }

    /// Goes on after a block's result: the slot's next block follows, or the blocks that are next in the host's own
    /// order.
    pub(super) fn go_on(&mut self, idx: u16) {
        if self.epochs.is_none() {
            return self.start(idx, true);
        }
        self.slots[usize::from(idx)].stage = Stage::Idle;
        self.send_in_epochs(true);
    }

    /// Starts the blocks that come next in the host's own order, as long as their slots are free.
    fn send_in_epochs(&mut self, in_step: bool) {
        let pool = self.slots.len() as u64;
        while let Some(block) = self.next_in_epochs() {
            let idx = (block % pool) as u16;
            if self.drives(idx) {
                self.start(idx, in_step);
            }
        }
    }

    fn next_in_epochs(&mut self) -> Option<u64> {
        let (slots, stream, config) = (&self.slots, &self.life.stream, &self.config);
        let is_free = |block: u64| {
            let idx = block % slots.len() as u64;
            let slot = &slots[idx as usize];
            // The turn of another core's block passes.
            slot.stage == Stage::Idle && (slot.block == block || !config.slots.has(&config.job, idx as u16))
        };
        // Another core's block may be of a collective whose share here is over.
        let is_submitted = |block: u64| match config.slots.has(&config.job, (block % slots.len() as u64) as u16) {
            true => stream.op_of(block).is_some(),
            false => block < stream.blocks(),
        };
        self.epochs.as_mut()?.next(is_submitted, is_free)
    }
}
