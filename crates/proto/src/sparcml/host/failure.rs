//! Collectives that cannot complete: which fail, which ranks are told, and which rank is to blame.
//!
//! A rank that waits for another tells the ranks that wait for it, so that they do not blame a rank that only waits
//! itself.

use std::collections::VecDeque;

use super::super::running::Running;
use super::super::wire::Fault;
use super::SparcmlHost;
use crate::contract::drop_reason::DropReason;
use crate::contract::host::{CollectiveError, HostEvent};
use crate::contract::ids::{OpId, Rank};
use crate::contract::tensor::Spec;
use crate::contract::time::{Span, Time};
use crate::reliability::link::broken::{Broken, mismatch, notice_period};

/// For how many periods a notice is valid: notices may be lost.
const NOTICES_OF_ONE_WORD: u64 = 3;

/// Faults and suspected faults.
#[derive(Clone, Default, Hash)]
pub(super) struct Failure {
    pub(super) broken: Option<Broken>,
    /// Ranks that must be told of the fault.
    to_notify: VecDeque<Rank>,
    /// Notices to send: the receiver, and the rank that this rank waits for.
    notices: VecDeque<(Rank, Rank)>,
    /// When this rank last sent such notices.
    said_at: Time,
}

impl Failure {
    pub(super) fn next_notice(&mut self) -> Option<(Rank, Rank)> {
        self.notices.pop_front()
    }
}

impl SparcmlHost {
    /// True if a collective fails.
    pub(super) fn is_broken_at(&self, op: u64) -> bool {
        self.failure.broken.as_ref().is_some_and(|broken| broken.covers(op))
    }

    /// A rank goes on with a collective that has failed: it must be told.
    pub(super) fn notify(&mut self, rank: Rank) {
        if !self.failure.to_notify.contains(&rank) {
            self.failure.to_notify.push_back(rank);
        }
    }

    /// Every collective from `from_op` on fails. All ranks are told, except the one that told this rank.
    pub(super) fn break_with(&mut self, now: Time, from_op: u64, error: CollectiveError, reported_by: Option<Rank>) {
        let kept = from_op.saturating_sub(self.first_op).min(self.ops.len() as u64);
        let first_failed = self.first_op + kept;
        let caller_knows = self.ops.len() as u64 > kept;
        for (index, running) in self.ops.drain(kept as usize..).enumerate() {
            let op = OpId(first_failed + index as u64);
            self.events.push_back(HostEvent::Failed { op, tensor: running.tensor, error: error.clone() });
        }
        let (gone, kept): (VecDeque<_>, _) = self.early.drain(..).partition(|early| early.op >= from_op);
        self.early = kept;
        gone.into_iter().for_each(|early| self.peers.release(early.from));
        self.peers.forget_from(from_op);
        self.failure.notices.clear();
        self.failure.broken = Some(Broken::new(now, &self.config, from_op, error, caller_knows));
        self.notify_all_but(reported_by);
    }

    fn notify_all_but(&mut self, one: Option<Rank>) {
        let others = (0..self.config.job.world_size).map(Rank);
        let me = self.config.rank;
        self.failure.to_notify = others.filter(|&rank| rank != me && Some(rank) != one).collect();
    }

    /// Another rank's message belongs to another kind of collective than this rank's.
    pub(super) fn break_with_mismatch(&mut self, now: Time, op: u64, mine: Spec, from: Rank, theirs: Spec) {
        let error = mismatch(op, (self.config.rank, mine), (from, theirs));
        self.break_with(now, op, error, None);
    }

    pub(super) fn handle_fault(&mut self, now: Time, from: Rank, bytes: &[u8]) -> Result<(), DropReason> {
        let fault = Fault::parse(bytes, self.config.job.world_size)?;
        // A collective that is complete here has not failed.
        if self.failure.broken.is_none() {
            self.break_with(now, fault.op.0.max(self.first_op), fault.error, Some(from));
        }
        Ok(())
    }

    /// Writes a fault, if a rank must be told; returns the receiver and the length.
    pub(super) fn emit_fault(&mut self, buf: &mut [u8]) -> Option<(Rank, usize)> {
        let broken = self.failure.broken.as_ref()?;
        let to = self.failure.to_notify.pop_front()?;
        Some((to, broken.fault(self.config.rank).emit(buf)))
    }

    pub(super) fn repeat_due(&self) -> Option<Time> {
        self.failure.broken.as_ref().and_then(Broken::repeat_due)
    }

    /// Tells the fault again, if it is time, since packets may have been lost.
    pub(super) fn repeat_fault(&mut self, now: Time) {
        let timers = &self.config.timers;
        if self.failure.broken.as_mut().is_some_and(|broken| broken.is_repeated(now, timers)) {
            self.notify_all_but(None);
        }
    }

    /// Gives up the first collective whose time is over, and all after it.
    pub(super) fn check_deadlines(&mut self, now: Time) {
        let late = self.ops.iter().position(|running| running.deadline.is_some_and(|deadline| deadline <= now));
        let Some(index) = late else { return };
        let op = OpId(self.first_op + index as u64);
        let worker = self.culprit(now, &self.ops[index]).unwrap_or(self.config.rank);
        self.break_with(now, op.0, CollectiveError::PeerSilent { worker, op }, None);
    }

    /// The rank to blame for a collective that waits: if possible a rank that does not say that it waits for another.
    fn culprit(&self, now: Time, running: &Running) -> Option<Rank> {
        let patience = self.period(running).times(NOTICES_OF_ONE_WORD);
        let since = Time(now.0.saturating_sub(patience.0));
        let named = |rank: Rank| self.peers.waits_for(rank, since).filter(|&worker| worker != self.config.rank);
        let awaited = || running.awaited();
        awaited().find(|&rank| named(rank).is_none()).or_else(|| awaited().find_map(named))
    }

    /// The first collective that waits for other ranks.
    fn waiting(&self) -> Option<&Running> {
        self.ops.front().filter(|running| running.is_started && running.awaited().next().is_some())
    }

    pub(super) fn notice_due(&self) -> Option<Time> {
        let running = self.waiting().filter(|running| running.owed().next().is_some())?;
        Some(self.failure.said_at.max(running.submitted_at) + self.period(running))
    }

    /// Tells the ranks that wait for this rank which rank it waits for, if it is time.
    pub(super) fn notify_waiting(&mut self, now: Time) {
        if self.notice_due().is_none_or(|due| due > now) {
            return;
        }
        let Some(running) = self.waiting() else { return };
        let Some(worker) = self.culprit(now, running) else { return };
        let owed: Vec<Rank> = running.owed().filter(|&rank| rank != worker).collect();
        self.failure.said_at = now;
        self.failure.notices = owed.into_iter().map(|rank| (rank, worker)).collect();
    }

    fn period(&self, running: &Running) -> Span {
        notice_period(&self.config.timers, running.submitted_at, running.deadline)
    }
}
