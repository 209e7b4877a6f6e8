//! What a host does with packets about blocks that other ranks lead.

use super::steps::{Relation, Step};
use super::{CanaryHost, Stage, Way};
use crate::canary::wire::{HEADER_LEN, Header};
use crate::contract::drop_reason::DropReason;
use crate::contract::packet::Packet;
use crate::contract::time::Time;

impl CanaryHost {
    /// Checks that this host waits for the packet's block and that another rank leads the block.
    pub(super) fn follows(&self, step: Step, header: &Header) -> Result<(), DropReason> {
        let state = &self.entries[usize::from(step.position)];
        match self.steps.relation(step.phase, state.phase) {
            Relation::Earlier => return Err(DropReason::Stale),
            Relation::Next | Relation::Later => return Err(DropReason::Ahead),
            Relation::Same => {}
        }
        if !state.stage.waits() || self.leader_of(step.position) == self.config.rank {
            return Err(DropReason::Unexpected);
        }
        // `receive` has checked the field.
        debug_assert!(header.hosts == self.world_size());
        Ok(())
    }

    /// The sum (§3.1.2). The sum of any issue is right: each has all contributions in it.
    pub(super) fn sum(&mut self, now: Time, step: Step, header: &Header, packet: Packet<'_>) -> Result<(), DropReason> {
        self.follows(step, header)?;
        if header.spec != self.spec_at(step.position) {
            return Err(DropReason::BadField);
        }
        let elements = self.vector_elements(header, &packet)?;
        let is_narrow = elements > 0 && self.scale_at(step.position).is_some();
        if elements != self.returned_elements_at(step.position) || header.scale.is_some() != is_narrow {
            return Err(DropReason::BadLength);
        }
        let way = if header.multicast { Way::Tree } else { Way::Answer };
        self.conclude(now, step.position, header.exponent_hint, &packet.bytes[HEADER_LEN..], way)
    }

    /// The leader has given an issue up: the block is sent again as the next issue (§3.3).
    pub(super) fn failed(&mut self, now: Time, step: Step, header: &Header) -> Result<(), DropReason> {
        self.follows(step, header)?;
        let state = &mut self.entries[usize::from(step.position)];
        let direct = header.attempt >= self.reissues;
        if direct && header.attempt == state.attempt && state.contributed {
            // The leader sums alone and lacks this rank's contribution: only this rank sends again.
            state.contributed = false;
            self.queue.push(step.position);
            return Ok(());
        }
        if header.attempt <= state.attempt {
            return Err(DropReason::Stale);
        }
        debug_assert!(state.stage != Stage::Idle);
        (state.attempt, state.contributed, state.in_step) = (header.attempt, false, false);
        // The leader has answered, so the timeout was justified.
        self.recovery.recovered(now, step.position);
        self.queue.push(step.position);
        Ok(())
    }
}
