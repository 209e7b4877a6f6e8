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
pub(super) struct Heard {
    step: Step,
    missing: Vec<Rank>,
}

impl CanaryHost {
    pub(super) fn report(&mut self, step: Step, header: &Header, packet: Packet<'_>) -> Result<(), DropReason> {
        self.follows(step, header)?;
        let report = Report::parse(packet.bytes, self.world())?;
        let ranks = (0..self.world()).map(Rank).filter(|&rank| rank != self.config.rank);
        let missing = ranks.filter(|&rank| !report.has_contributed(rank)).collect();
        self.heard = Some(Heard { step, missing });
        Ok(())
    }

    pub(super) fn mismatch(&mut self, step: Step, header: &Header, packet: Packet<'_>) -> Result<(), DropReason> {
        self.note_mismatch(step, header.wid, Mismatch::parse(&packet.bytes[HEADER_LEN..])?)
    }

    /// Ranks disagree on a block: all are told.
    pub(super) fn dispute(&mut self, step: Step, mismatch: Mismatch) {
        if let Some(lead) = self.leads.get_mut(step.place, step.phase) {
            lead.state = State::Refused(mismatch);
        }
        for rank in (0..self.world()).map(Rank).filter(|&rank| rank != self.config.rank) {
            self.outbox.push_back(Outgoing::Mismatch(step, rank));
        }
        self.ready.push_back(step);
    }

    /// The collective of a place fails as soon as all collectives before it are complete.
    pub(super) fn refuse(&mut self, now: Time, place: u16, mismatch: Mismatch) {
        let Some(op) = self.op_at(place).map(|op| op.id) else { return };
        self.places[usize::from(place)].stage = Stage::Refused;
        self.recovery.forget(place);
        self.life.dispute(op, mismatch);
        self.settle(now);
    }

    /// All collectives that are queued fail, and all later ones. This host still answers for the blocks that it leads.
    pub(super) fn fail(&mut self, error: CollectiveError) {
        self.life.fail(error);
        for (place, state) in self.places.iter_mut().enumerate() {
            state.stage = Stage::Idle;
            self.recovery.forget(place as u16);
        }
        self.queue.clear();
        self.ready.clear();
        self.claims.end();
        self.question = None;
    }

    /// The place that waits with the earliest block. This is a search, needed only when something is wrong.
    pub(super) fn oldest_waiting(&self) -> Option<u16> {
        let waits = |&place: &u16| self.places[usize::from(place)].stage.waits();
        (0..self.window()).filter(waits).min_by_key(|&place| self.places[usize::from(place)].block)
    }

    /// Why a deadline has passed.
    pub(super) fn diagnose(&self) -> CollectiveError {
        if let Some(error) = self.life.failing() {
            return error.clone();
        }
        let Some(place) = self.oldest_waiting() else { return CollectiveError::Aborted };
        let step = self.step_of(place);
        let number = self.places[usize::from(place)].block;
        let op = self.life.stream.op_of(number).expect("a place that waits has a block");
        let (block, op) = (op.local(number), op.id);
        let leader = self.leader_of(place);
        let missing = |missing| CollectiveError::Missing { missing, others: 0, slot: place.into(), block, op };
        if leader == self.config.rank {
            let heard = |rank: &Rank| self.leads.get(place, step.phase).is_some_and(|lead| lead.heard.contains(*rank));
            let ranks = (0..self.world()).map(Rank).filter(|&rank| rank != leader);
            return missing(ranks.filter(|rank| !heard(rank)).collect());
        }
        match &self.heard {
            Some(heard) if heard.step == step && !heard.missing.is_empty() => missing(heard.missing.clone()),
            _ => CollectiveError::PeerSilent { worker: leader, op },
        }
    }
}
