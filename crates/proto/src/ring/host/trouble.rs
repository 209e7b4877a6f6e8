//! When a collective cannot complete: which fail, who is told, and who is to blame.

use super::super::running::Running;
use super::super::wire::Fault;
use super::RingHost;
use crate::contract::drop_reason::DropReason;
use crate::contract::host::{CollectiveError, HostEvent};
use crate::contract::ids::{OpId, Rank};
use crate::contract::tensor::Spec;
use crate::contract::time::{Span, Time};

/// A fault is told so many times in all.
const FAULT_TELLINGS: u32 = 3;
/// The silence that is worth a notice is this part of a collective's time, and never longer than the longest
/// retransmission timeout.
const PERIODS_PER_DEADLINE: u64 = 8;

/// The job is over.
#[derive(Clone, Hash)]
pub(super) struct Broken {
    pub(super) error: CollectiveError,
    /// The first collective that fails.
    pub(super) from_op: u64,
    /// A collective of this rank has failed with the error.
    pub(super) caller_knows: bool,
    pub(super) tell_predecessor: bool,
    tell_successor: bool,
    /// When to tell it again, and how many times more.
    pub(super) repeat: Option<(Time, u32)>,
}

impl RingHost {
    /// Every collective from `from_op` on fails, but for those at the front whose output is complete. The neighbours
    /// are told, except the one that told this rank.
    pub(super) fn break_with(&mut self, now: Time, from_op: u64, error: CollectiveError, told_by: Option<Rank>) {
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
        let repeat = (self.config.job.world > 1).then(|| (now + self.config.timers.initial_rto, FAULT_TELLINGS - 1));
        let (tell_predecessor, tell_successor) = (false, false);
        self.broken = Some(Broken { error, from_op, caller_knows, tell_predecessor, tell_successor, repeat });
        self.tell_all_but(told_by);
    }

    fn tell_all_but(&mut self, one: Option<Rank>) {
        let Some(broken) = self.broken.as_mut().filter(|_| self.config.job.world > 1) else { return };
        broken.tell_successor = one != Some(self.successor);
        broken.tell_predecessor = one != Some(self.predecessor) && self.predecessor != self.successor;
    }

    /// The predecessor's block belongs to another kind of collective than this rank's.
    pub(super) fn break_with_mismatch(&mut self, now: Time, op: u64, mine: Spec, predecessors: Spec) {
        let (mine, predecessors) = ((self.config.rank, mine), (self.predecessor, predecessors));
        let ((a, a_spec), (b, b_spec)) =
            if mine.0 < predecessors.0 { (mine, predecessors) } else { (predecessors, mine) };
        self.break_with(now, op, CollectiveError::Mismatch { a, a_spec, b, b_spec, op: OpId(op) }, None);
    }

    pub(super) fn handle_fault(&mut self, now: Time, from: Rank, bytes: &[u8]) -> Result<(), DropReason> {
        let fault = Fault::parse(bytes, self.config.job.world)?;
        if self.broken.is_none() {
            self.break_with(now, fault.op.0, fault.error, Some(from));
        }
        Ok(())
    }

    /// Writes a fault, if a neighbour is to be told; to whom, and its length.
    pub(super) fn emit_fault(&mut self, buf: &mut [u8]) -> Option<(Rank, usize)> {
        let broken = self.broken.as_mut()?;
        let to = if std::mem::take(&mut broken.tell_successor) {
            self.successor
        } else if std::mem::take(&mut broken.tell_predecessor) {
            self.predecessor
        } else {
            return None;
        };
        let op = OpId(broken.from_op);
        let error = match &broken.error {
            // What this rank's driver wanted is nothing to the others: the rank is gone.
            CollectiveError::Aborted => CollectiveError::PeerSilent { worker: self.config.rank, op },
            error => error.clone(),
        };
        Some((to, Fault { op, error }.emit(buf)))
    }

    /// Tells the fault again, if it is time, since it may have been lost.
    pub(super) fn repeat_fault(&mut self, now: Time) {
        let Some(broken) = &mut self.broken else { return };
        let Some((at, left)) = broken.repeat.filter(|(at, _)| *at <= now) else { return };
        broken.repeat = (left > 1).then(|| (at + self.config.timers.initial_rto, left - 1));
        self.tell_all_but(None);
    }

    /// Gives up the first collective whose time is over, and all after it.
    pub(super) fn check_deadlines(&mut self, now: Time) {
        if self.deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        self.settle(now);
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

    /// The first collective that waits for the predecessor: since when, and the silence that is worth a notice.
    pub(super) fn waiting(&self) -> Option<(Time, Span)> {
        let running = self.ops.iter().find(|running| running.to_receive > 0)?;
        Some((running.submitted_at, self.period_of(running)))
    }

    /// The period of notices, whether or not this rank waits itself.
    pub(super) fn notice_period(&self) -> Span {
        self.waiting().map_or(self.config.timers.max_rto, |(_, period)| period)
    }

    fn period_of(&self, running: &Running) -> Span {
        let longest = self.config.timers.max_rto;
        let Some(deadline) = running.deadline else { return longest };
        let period = Span(deadline.since(running.submitted_at).0 / PERIODS_PER_DEADLINE);
        period.clamp(Span::from_micros(1), longest.max(Span::from_micros(1)))
    }
}
