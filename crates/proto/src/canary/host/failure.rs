//! Failures: disagreements, deadlines, and which ranks are blamed for them.

use super::lead::State;
use super::outbox::Outgoing;
use super::steps::Step;
use super::{CanaryHost, Stage};
use crate::aggregation::mismatch::Mismatch;
use crate::canary::wire::{HEADER_LEN, Header, Report};
use crate::contract::drop_reason::DropReason;
use crate::contract::host::CollectiveError;
use crate::contract::ids::Rank;
use crate::contract::packet::Packet;
use crate::contract::time::Time;

/// What a leader last said about a block.
#[derive(Clone, Hash)]
pub(super) struct LastReport {
    step: Step,
    missing: Vec<Rank>,
}

impl CanaryHost {
    pub(super) fn report(&mut self, step: Step, header: &Header, packet: Packet<'_>) -> Result<(), DropReason> {
        self.follows(step, header)?;
        let report = Report::parse(packet.bytes, self.world_size())?;
        let ranks = (0..self.world_size()).map(Rank).filter(|&rank| rank != self.config.rank);
        let missing = ranks.filter(|&rank| !report.has_contributed(rank)).collect();
        self.last_report = Some(LastReport { step, missing });
        Ok(())
    }

    pub(super) fn mismatch(&mut self, step: Step, header: &Header, packet: Packet<'_>) -> Result<(), DropReason> {
        self.note_mismatch(step, header.wid, Mismatch::parse(&packet.bytes[HEADER_LEN..])?)
    }

    /// Ranks disagree on a block: all are told.
    pub(super) fn dispute(&mut self, step: Step, mismatch: Mismatch) {
        if let Some(lead) = self.leads.get_mut(step.position, step.phase) {
            lead.state = State::Refused(mismatch);
        }
        for rank in (0..self.world_size()).map(Rank).filter(|&rank| rank != self.config.rank) {
            self.outbox.push_back(Outgoing::Mismatch(step, rank));
        }
        self.ready.push_back(step);
    }

    /// The collective of a position fails as soon as all collectives before it are complete.
    pub(super) fn refuse(&mut self, now: Time, position: u16, mismatch: Mismatch) {
        let Some(op) = self.op_at(position).map(|op| op.id) else { return };
        self.entries[usize::from(position)].stage = Stage::Refused;
        self.recovery.forget(position);
        self.life.dispute(op, mismatch);
        self.complete_collectives(now);
    }

    /// All collectives that are queued fail, and all later ones. This host still answers for the blocks that it leads.
    pub(super) fn fail(&mut self, error: CollectiveError) {
        self.life.fail(error);
        for (position, state) in self.entries.iter_mut().enumerate() {
            state.stage = Stage::Idle;
            self.recovery.forget(position as u16);
        }
        self.queue.clear();
        self.ready.clear();
        self.claims.end();
        self.question = None;
    }

    /// The position that waits with the earliest block. This is a search, needed only when something is wrong.
    pub(super) fn oldest_waiting(&self) -> Option<u16> {
        let waits = |&position: &u16| self.entries[usize::from(position)].stage.waits();
        (0..self.window()).filter(waits).min_by_key(|&position| self.entries[usize::from(position)].block)
    }

    /// Why a deadline has passed.
    pub(super) fn diagnose(&self) -> CollectiveError {
        if let Some(error) = self.life.failing() {
            return error.clone();
        }
        let Some(position) = self.oldest_waiting() else { return CollectiveError::Aborted };
        let step = self.step_of(position);
        let number = self.entries[usize::from(position)].block;
        let op = self.life.stream.op_of(number).expect("a place that waits has a block");
        let (block, op) = (op.local(number), op.id);
        let leader = self.leader_of(position);
        let missing = |missing| CollectiveError::Missing { missing, others: 0, slot: position.into(), block, op };
        if leader == self.config.rank {
            let seen = |rank: &Rank| self.leads.get(position, step.phase).is_some_and(|lead| lead.seen.contains(*rank));
            let ranks = (0..self.world_size()).map(Rank).filter(|&rank| rank != leader);
            return missing(ranks.filter(|rank| !seen(rank)).collect());
        }
        match &self.last_report {
            Some(report) if report.step == step && !report.missing.is_empty() => missing(report.missing.clone()),
            _ => CollectiveError::PeerSilent { worker: leader, op },
        }
    }
}
