//! When a collective cannot complete: which collectives fail, which ranks are told, and which rank is to blame.

use super::super::running::Running;
use super::super::wire::Fault;
use super::RingHost;
use crate::contract::drop_reason::DropReason;
use crate::contract::host::{CollectiveError, HostEvent};
use crate::contract::ids::{OpId, Rank};
use crate::contract::tensor::Spec;
use crate::contract::time::{Span, Time};
use crate::reliability::link::broken::{Broken, mismatch, notice_period};

/// The job is over. The fields say which neighbours must still be told.
#[derive(Clone, Hash)]
pub(super) struct Failure {
    pub(super) broken: Broken,
    pub(super) notify_predecessor: bool,
    notify_successor: bool,
}

impl RingHost {
    /// Every collective from `from_op` on fails, except those at the front whose output is complete. The neighbours are
    /// told, except the neighbour that told this rank.
    pub(super) fn break_with(&mut self, now: Time, from_op: u64, error: CollectiveError, reported_by: Option<Rank>) {
        while self.first_op >= from_op && self.ops.front().is_some_and(|front| front.to_receive == 0) {
            self.hand_back();
        }
        let kept = from_op.saturating_sub(self.first_op).min(self.ops.len() as u64);
        let first_failed = self.first_op + kept;
        let caller_knows = self.ops.len() as u64 > kept;
        for (index, running) in self.ops.drain(kept as usize..).enumerate() {
            let op = OpId(first_failed + index as u64);
            self.events.push_back(HostEvent::Failed { op, tensor: running.tensor, error: error.clone() });
        }
        self.forwards.retain(|item| item.op < from_op);
        self.early.retain(|early| early.op < from_op);
        // Copies outlive their collectives.
        self.sender.forget(|cargo| cargo.item.op >= from_op && cargo.copy.is_none());
        self.deadline = self.ops.iter().filter_map(|running| running.deadline).min();
        self.skip_spent();
        let broken = Broken::new(now, &self.config, from_op, error, caller_knows);
        self.failure = Some(Failure { broken, notify_predecessor: false, notify_successor: false });
        self.notify_all_but(reported_by);
    }

    fn notify_all_but(&mut self, one: Option<Rank>) {
        let Some(failure) = self.failure.as_mut().filter(|_| self.config.job.world_size > 1) else { return };
        failure.notify_successor = one != Some(self.successor);
        failure.notify_predecessor = one != Some(self.predecessor) && self.predecessor != self.successor;
    }

    /// The predecessor's block belongs to another kind of collective than this rank's.
    pub(super) fn break_with_mismatch(&mut self, now: Time, op: u64, mine: Spec, predecessors: Spec) {
        let error = mismatch(op, (self.config.rank, mine), (self.predecessor, predecessors));
        self.break_with(now, op, error, None);
    }

    pub(super) fn handle_fault(&mut self, now: Time, from: Rank, bytes: &[u8]) -> Result<(), DropReason> {
        let fault = Fault::parse(bytes, self.config.job.world_size)?;
        if self.failure.is_none() {
            self.break_with(now, fault.op.0, fault.error, Some(from));
        }
        Ok(())
    }

    /// Writes a fault, if a neighbour must be told; returns the neighbour and the packet's length.
    pub(super) fn emit_fault(&mut self, buf: &mut [u8]) -> Option<(Rank, usize)> {
        let failure = self.failure.as_mut()?;
        let to = if std::mem::take(&mut failure.notify_successor) {
            self.successor
        } else if std::mem::take(&mut failure.notify_predecessor) {
            self.predecessor
        } else {
            return None;
        };
        Some((to, failure.broken.fault(self.config.rank).emit(buf)))
    }

    /// Sends the fault again, if it is time: it may have been lost.
    pub(super) fn repeat_fault(&mut self, now: Time) {
        let timers = &self.config.timers;
        if self.failure.as_mut().is_some_and(|failure| failure.broken.is_repeated(now, timers)) {
            self.notify_all_but(None);
        }
    }

    /// Gives up the first collective whose deadline has passed, and all after it.
    pub(super) fn check_deadlines(&mut self, now: Time) {
        if self.deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        self.complete_collectives(now);
        let late = self.ops.iter().position(|running| running.deadline.is_some_and(|deadline| deadline <= now));
        let Some(index) = late else { return };
        let running = &self.ops[index];
        let op = OpId(self.first_op + index as u64);
        let worker = if running.to_receive > 0 {
            let mute = self.sender.timeouts() > 1;
            self.watch.culprit(now, running.submitted_at, self.period_of(running), mute)
        } else {
            self.successor
        };
        self.break_with(now, op.0, CollectiveError::PeerSilent { worker, op }, None);
    }

    /// The first collective that waits for the predecessor: since when it waits, and how long a silence calls for a
    /// notice.
    pub(super) fn waiting(&self) -> Option<(Time, Span)> {
        let running = self.ops.iter().find(|running| running.to_receive > 0)?;
        Some((running.submitted_at, self.period_of(running)))
    }

    /// The period of notices, even if this rank does not wait itself.
    pub(super) fn notice_period(&self) -> Span {
        self.waiting().map_or(self.config.timers.max_rto, |(_, period)| period)
    }

    fn period_of(&self, running: &Running) -> Span {
        notice_period(&self.config.timers, running.submitted_at, running.deadline)
    }
}
