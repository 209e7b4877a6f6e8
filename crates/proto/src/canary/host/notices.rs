//! Notices of completion (§3.3): barriers after which leaders need not keep sums. One follows each large collective,
//! and one follows the last collective of all. Small collectives need none: the next collective shows that they are
//! complete.

use std::collections::VecDeque;

use super::CanaryHost;
use crate::contract::config::TimerConfig;
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
