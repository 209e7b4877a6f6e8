//! Notices of completion (§3.3): barriers after which leaders need not keep sums. One follows each large collective,
//! and one follows the last collective of all. Small collectives need none: the next collective shows that they are
//! complete.

use std::collections::VecDeque;

use super::lead::State;
use super::transmit::Outgoing;
use super::window::Step;
use super::{CanaryHost, Stage};
use crate::aggregation::life::{Life, LifeCycle};
use crate::aggregation::report::Mismatch;
use crate::aggregation::stream::Op;
use crate::canary::wire::{HEADER_LEN, Header, Report};
use crate::contract::config::TimerConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::host::CollectiveError;
use crate::contract::ids::Rank;
use crate::contract::packet::Packet;
use crate::contract::time::{Span, Time};

/// Notices of one host.
#[derive(Clone, Default, Hash)]
pub struct Notices {
    /// For each notice that is due: all blocks before this number are complete here.
    due: VecDeque<u64>,
    /// Notices that all ranks have given.
    complete: u64,
    /// Set once the caller submits nothing more: how long this host then still answers other ranks.
    finishing: Option<Patience>,
    /// The last notice was queued.
    is_last_queued: bool,
    leave_at: Option<Time>,
    may_leave: bool,
}

#[derive(Clone, Copy, Hash)]
struct Patience {
    linger: Span,
}

impl Notices {
    /// A notice is due: all blocks before `end` are complete here.
    pub fn push(&mut self, end: u64) {
        self.due.push_back(end);
    }

    /// True if the notice of this number may be given.
    pub fn is_due(&self, number: u64) -> bool {
        number.checked_sub(self.complete).is_some_and(|ahead| (ahead as usize) < self.due.len())
    }

    /// All ranks have given the next notice. Returns the end of the blocks that no rank will ask for.
    pub fn complete(&mut self) -> u64 {
        self.complete += 1;
        self.due.pop_front().unwrap_or(0)
    }

    /// The caller submits nothing more.
    pub fn finish(&mut self, now: Time, timers: TimerConfig) {
        self.finishing.get_or_insert(Patience { linger: timers.max_rto.times(4) });
        // A rank that does not answer for so long has left.
        self.leave_at.get_or_insert(now + timers.max_rto.times(16));
    }

    /// True if the last notice is to be queued now.
    fn takes_last(&mut self) -> bool {
        self.finishing.is_some() && !std::mem::replace(&mut self.is_last_queued, true)
    }

    /// Lets this host leave if its time is over.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.leave_at.is_some_and(|at| at <= now) {
            self.leave_at = None;
            self.may_leave = true;
        }
    }

    /// When to call `handle_timeout`.
    pub fn next_timeout(&self) -> Option<Time> {
        self.leave_at
    }

    /// True if no rank needs this host any more, or this host has waited long enough.
    pub fn may_leave(&self) -> bool {
        self.may_leave
    }

    /// The last notice is complete. Other ranks may still ask its leader for it.
    fn last_complete(&mut self, now: Time, led: bool) {
        let Some(patience) = self.finishing else { return };
        if led {
            self.leave_at = self.leave_at.map(|at| at.min(now + patience.linger));
        } else {
            self.leave_at = None;
            self.may_leave = true;
        }
    }
}

impl CanaryHost {
    /// Gives a notice: all blocks before `end` are complete here.
    pub(super) fn announce(&mut self, end: u64) {
        self.notices.push(end);
        let position = self.window();
        if self.entries[usize::from(position)].stage == super::Stage::Idle {
            self.start(position, false);
        }
    }

    /// Gives the last notice once all collectives are complete; lets this host leave once that notice is complete.
    pub(super) fn finish_if_done(&mut self, now: Time) {
        if self.notices.finishing.is_none() || self.life.stream.front().is_some() {
            return;
        }
        if self.notices.takes_last() {
            return self.announce(u64::MAX);
        }
        let number = self.entries[usize::from(self.window())].block;
        if self.notices.due.is_empty() && !self.notices.may_leave && number > 0 {
            let led = self.leader_in_turn(number - 1) == self.config.rank;
            self.notices.last_complete(now, led);
        }
    }
}

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
        self.complete_or_finish(now);
    }
}

impl LifeCycle for CanaryHost {
    type Waiting = u16;

    fn life(&self) -> &Life {
        &self.life
    }

    fn life_mut(&mut self) -> &mut Life {
        &mut self.life
    }

    fn on_complete(&mut self, op: &Op) {
        if op.blocks > u64::from(self.window()) {
            self.announce(op.first_block + op.blocks);
        }
    }

    /// This host still answers for the blocks that it leads.
    fn stop(&mut self) {
        for (position, state) in self.entries.iter_mut().enumerate() {
            state.stage = Stage::Idle;
            self.recovery.forget(position as u16);
        }
        self.queue.clear();
        self.ready.clear();
        self.claims.end();
        self.question = None;
    }

    fn oldest_waiting(&self) -> Option<u16> {
        let waits = |&position: &u16| self.entries[usize::from(position)].stage.waits();
        (0..self.window()).filter(waits).min_by_key(|&position| self.entries[usize::from(position)].block)
    }

    fn ask(&mut self, waiting: Option<u16>) {
        self.question = waiting;
    }

    fn blame(&self, position: u16) -> CollectiveError {
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
