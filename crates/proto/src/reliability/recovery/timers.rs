//! When timers run out: the timers of slots, and the timer of a tree that does not answer at all.

use super::tree::TreeFlow;
use super::{BACK_OFFS, Order, Recovery, jitter, lists_of};
use crate::contract::time::{Span, Time};

/// Later than every timer.
const NEVER: Time = Time(u64::MAX);

impl Recovery {
    /// When a tree counts as quiet. It is quiet if no tree answers for two undisturbed round trips, or for twice the
    /// longest recent gap between two answers: drivers send runs of packets, which take long on a slow link. While
    /// other trees answer, its packets may be queued behind theirs: then it has its whole timeout.
    pub(super) fn probe_at(&self, tree: usize, stirred_last: Time) -> Time {
        if self.order == Order::Timer {
            return NEVER;
        }
        let TreeFlow { stirred_at, probes, gaps, .. } = self.trees[tree];
        // A straggler makes a gap too, which must not delay the probes at the end of the collective.
        let gap = gaps.longest().times(2).min(self.timers.initial_rto);
        let undisturbed = self.undisturbed().max(gap).max(self.floor(tree));
        let backed_off = |patience: Span| {
            let patience = self.backed_off(patience, probes.saturating_add(self.doubt));
            patience - self.jitter(tree, patience)
        };
        let alone = stirred_at + backed_off(undisturbed.max(self.rtt.rto(1)));
        alone.min(stirred_last + backed_off(undisturbed))
    }

    /// Two round trips without queues.
    fn undisturbed(&self) -> Span {
        let undisturbed = self.fastest.map_or(self.timers.initial_rto, |fastest| fastest.times(2));
        undisturbed.max(self.timers.min_rto)
    }

    /// The shortest patience with a tree that was silent before though nothing was lost; never longer than when nothing is
    /// known. Without that limit silences that losses make longer would each double the next one.
    pub(super) fn floor(&self, tree: usize) -> Span {
        self.trees[tree].gaps.harmless().times(2).min(self.timers.initial_rto)
    }

    /// A patience after this many doublings.
    fn backed_off(&self, patience: Span, doublings: u32) -> Span {
        patience.times(1 << doublings.min(16)).min(self.timers.max_rto)
    }

    /// When any tree last answered or was probed.
    pub(super) fn stirred_last(&self) -> Time {
        self.trees.iter().map(|tree| tree.stirred_at).max().unwrap_or(Time::ZERO)
    }

    /// How much earlier this rank probes a tree than its patience says, after the first probe: up to a quarter.
    fn jitter(&self, tree: usize, patience: Span) -> Span {
        let probes = self.trees[tree].probes;
        if probes == 0 {
            return Span::ZERO;
        }
        jitter(self.job, self.rank, tree, probes, patience)
    }

    /// When the front of a list times out.
    pub(super) fn due(&self, tree: usize, back_off: usize, slot: u16) -> Time {
        let flight = &self.flights[usize::from(slot)];
        if self.order == Order::Timer {
            return flight.sent_at + self.timers.initial_rto;
        }
        let from = flight.sent_at.max(flight.stirred_at);
        from.max(self.counts_from(tree, back_off)) + self.patience(tree, back_off)
    }

    /// When the waiting time of a list's slots begins, at the earliest. As long as answers come in order, a packet that
    /// was sent once is not late, however long its queue is.
    fn counts_from(&self, tree: usize, back_off: usize) -> Time {
        let TreeFlow { resumed_at, in_order_at, .. } = self.trees[tree];
        if back_off == 0 { resumed_at.max(in_order_at) } else { resumed_at }
    }

    /// How long a slot of a list waits.
    fn patience(&self, tree: usize, back_off: usize) -> Span {
        self.rtt.rto(back_off as u32 + 1 + self.doubt).max(self.floor(tree))
    }

    /// When the first timer runs out.
    pub fn poll_timeout(&self) -> Option<Time> {
        let stirred_last = self.stirred_last();
        (0..self.trees.len()).filter_map(|tree| self.tree_timeout(tree, stirred_last)).min()
    }

    /// When the first timer runs out, if that is before `limit`.
    pub fn poll_timeout_before(&self, limit: Time) -> Option<Time> {
        if self.order != Order::Timer && self.is_calm_until(limit) {
            return None;
        }
        self.poll_timeout().filter(|&due| due < limit)
    }

    /// True if it is plain without a look at any slot that no timer runs out before `limit`: no tree is quiet, no slot
    /// that waits was sent twice, and the least patience since each tree's last answer goes beyond `limit`.
    fn is_calm_until(&self, limit: Time) -> bool {
        let least = self.backed_off(self.undisturbed(), self.doubt).min(self.rtt.rto(1 + self.doubt));
        self.trees.iter().enumerate().all(|(tree, flow)| {
            let again = tree * BACK_OFFS + 1..(tree + 1) * BACK_OFFS;
            let since = flow.stirred_at.min(self.counts_from(tree, 0));
            flow.waiting == 0
                || flow.probes == 0 && since + least >= limit && self.lists.next_filled(&mut again.clone()).is_none()
        })
    }

    fn tree_timeout(&self, tree: usize, stirred_last: Time) -> Option<Time> {
        if self.trees[tree].waiting == 0 {
            return None;
        }
        let probe = self.probe_at(tree, stirred_last);
        if self.trees[tree].probes > 0 {
            return Some(probe);
        }
        let (mut lists, mut earliest) = (lists_of(tree), probe);
        while let Some(list) = self.lists.next_filled(&mut lists) {
            let back_off = list % BACK_OFFS;
            // Mostly true where answers come in order; then no slot need be looked at.
            if self.order != Order::Timer
                && self.counts_from(tree, back_off) + self.patience(tree, back_off) >= earliest
            {
                continue;
            }
            if let Some(slot) = self.lists.first(list) {
                earliest = earliest.min(self.due(tree, back_off, slot));
            }
        }
        (earliest < NEVER).then_some(earliest)
    }
}
