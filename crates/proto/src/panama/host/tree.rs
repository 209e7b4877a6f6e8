//! A worker's part in one tree: what it may send, what has come, and the notices that it has to send.

use super::kept::Kept;
use crate::aggregation::report::LastReport;
use crate::congestion::{RankSynchronous, RttEstimator};
use crate::contract::config::TimerConfig;
use crate::contract::ids::{ChildId, TreeId};
use crate::contract::time::Time;
use crate::panama::options::Choices;
use crate::panama::wire::{Kind, slot_of};

/// One tree.
#[derive(Clone, Hash)]
pub struct Tree {
    /// The tree's number.
    pub id: TreeId,
    /// This worker's number at its first switch.
    pub child: ChildId,
    /// How many times the tree went back.
    pub epoch: u16,
    /// A new epoch begins: nothing may be sent until its first VID is known.
    pub is_syncing: bool,
    /// How many VIDs may be without a result in this epoch.
    pub window: Box<dyn RankSynchronous>,
    /// The vectors that may be sent again.
    pub kept: Kept,
    /// Sums need not wait for this worker: results come for VIDs that it has not sent, and those are not sent any more.
    may_lack: bool,
    /// How many VIDs every port has room for: no VID so far behind the first without a result is ever sent.
    capacity: u64,
    /// The VID of the tree's first block.
    pub first: u64,
    /// The VID to send next.
    next: u64,
    /// The VID behind all that were ever sent.
    sent: u64,
    /// The VID behind the highest result of this epoch.
    acked: u64,
    /// The VID behind the highest result that ever came.
    top: u64,
    /// The first VID whose result has never come.
    done: u64,
    /// For the VIDs from `done` on that may have a result: which of them do.
    have: Vec<bool>,
    rtt: RttEstimator,
    /// A packet whose round trip is measured.
    timed: Option<(u64, Time)>,
    due: Option<Time>,
    /// How often the timer has run out without progress.
    attempts: u32,
    /// A question or a complaint about a VID.
    wants: Option<(Kind, u64)>,
    says_base: bool,
    says_fin: bool,
    /// The worker has reported a lost result in this epoch.
    has_complained: bool,
    /// The worker leaves, and waits until no rank needs it.
    is_parting: bool,
    /// No rank needs anything that this worker has sent.
    pub has_parted: bool,
    /// What switches last said about a VID.
    pub last_report: LastReport<u64>,
}

/// How a result relates to the results that came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrival {
    /// The first result of its VID.
    New,
    /// The result has come before, in an earlier epoch: now it only acknowledges.
    Again,
    /// The result was already counted in this epoch.
    Double,
    /// The result of a VID that was not sent.
    Ahead,
}

impl Tree {
    /// A tree in which nothing was sent, and whose first VID is `first`; `capacity` is at least 1.
    pub fn new(
        (id, child): (TreeId, ChildId),
        first: u64,
        capacity: usize,
        stride: usize,
        choices: Choices,
        timers: TimerConfig,
    ) -> Tree {
        // A sum may be a room ahead of a worker that it does not wait for, and the worker a room ahead of the first
        // result that it lacks.
        let may_lack = choices.quorum.is_some();
        let span = if may_lack { 2 * capacity } else { capacity };
        Tree {
            id,
            child,
            epoch: 0,
            is_syncing: false,
            window: (choices.congestion_control.make)(capacity as u16),
            kept: Kept::new(span, stride),
            may_lack,
            capacity: capacity as u64,
            first,
            next: first,
            sent: first,
            acked: first,
            top: first,
            done: first,
            have: vec![false; span],
            rtt: RttEstimator::new(timers),
            timed: None,
            due: None,
            attempts: 0,
            wants: None,
            says_base: false,
            says_fin: false,
            has_complained: false,
            is_parting: false,
            has_parted: false,
            last_report: LastReport::default(),
        }
    }

    /// The first VID whose result has never come.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// The VID behind the highest result that ever came.
    pub fn top(&self) -> u64 {
        self.top
    }

    /// The VID that may be sent now: one of the first `submitted`, or one whose result this worker has.
    #[inline]
    pub fn sendable(&self, submitted: u64) -> Option<u64> {
        let window = (self.acked + self.window.packets()).min(self.done + self.capacity);
        (!self.is_syncing && self.next < window && self.has_next(submitted)).then_some(self.next)
    }

    /// True if there is something to send.
    #[inline]
    pub fn has_next(&self, submitted: u64) -> bool {
        self.next < submitted || self.has(self.next)
    }

    /// The next VID to send, whether it may be sent now or not.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The next VID is sent; true if it was sent before.
    #[inline]
    pub fn on_sent(&mut self, now: Time, in_step: bool) -> bool {
        let again = self.next < self.sent;
        if in_step && !again && self.timed.is_none() {
            self.timed = Some((self.next, now));
        }
        self.next += 1;
        self.sent = self.sent.max(self.next);
        if self.due.is_none() {
            self.arm(now);
        }
        again
    }

    /// True if the result of a VID has come, in this epoch or before.
    #[inline]
    pub fn has(&self, vid: u64) -> bool {
        vid < self.done || vid < self.done + self.have.len() as u64 && self.have[slot_of(vid, self.have.len())]
    }

    /// The VID behind the last one whose result may come now, where `submitted` VIDs were submitted.
    fn end(&self, submitted: u64) -> u64 {
        if self.may_lack { (self.done + self.have.len() as u64).min(submitted + self.capacity) } else { self.next }
    }

    /// How a result of the current epoch relates to those before it.
    #[inline]
    pub fn arrival(&self, vid: u64, submitted: u64) -> Arrival {
        match self.has(vid) {
            _ if vid >= self.end(submitted) => Arrival::Ahead,
            false => Arrival::New,
            true if vid >= self.acked => Arrival::Again,
            true => Arrival::Double,
        }
    }

    /// The result of a VID was written.
    #[inline]
    pub fn on_written(&mut self, vid: u64) {
        let slots = self.have.len();
        self.top = self.top.max(vid + 1);
        self.have[slot_of(vid, slots)] = true;
        while std::mem::take(&mut self.have[slot_of(self.done, slots)]) {
            self.done += 1;
        }
    }

    /// A result of the current epoch, new or not, is progress. Paths keep the order, so results that it has overtaken
    /// are lost.
    #[inline]
    pub fn on_result(&mut self, now: Time, vid: u64) {
        if let Some((timed, sent_at)) = self.timed
            && timed <= vid
        {
            self.timed = None;
            if timed == vid {
                self.rtt.sample(now.since(sent_at));
            }
        }
        self.acked = self.acked.max(vid + 1);
        if self.may_lack {
            self.next = self.next.max(self.acked);
        }
        if self.done < self.acked && !self.has_complained {
            self.complain(self.done);
        }
        self.attempts = 0;
        self.arm(now);
    }

    fn complain(&mut self, vid: u64) {
        self.has_complained = true;
        self.wants = Some((Kind::Gone, vid));
    }

    /// The root has passed a VID. If it made a result, that came before this notice: the result is lost. If the result
    /// has come in an earlier epoch, the notice acknowledges just as well.
    pub fn on_passed(&mut self, now: Time, vid: u64) {
        if vid >= self.next {
            return;
        }
        if self.has(vid) {
            self.acked = self.acked.max(vid + 1);
            self.arm(now);
        } else {
            self.complain(vid);
        }
    }

    /// The switch lacks a VID and all behind it; true if that is possible.
    pub fn on_resend(&mut self, vid: u64) -> bool {
        let can = !self.is_syncing && vid < self.next && (self.acked.min(self.done)..).contains(&vid);
        if can {
            (self.next, self.timed) = (vid, None);
        }
        can
    }

    /// A new epoch begins, or the switch asks again.
    pub fn on_sync(&mut self, now: Time, epoch: u16) {
        if epoch != self.epoch {
            (self.epoch, self.is_syncing) = (epoch, true);
            (self.wants, self.has_complained, self.timed, self.attempts) = (None, false, None, 0);
            self.arm(now);
        }
        self.says_base = true;
    }

    /// All continue from a VID; false if this worker cannot, because it no longer has what it would have to send.
    pub fn on_rewind(&mut self, now: Time, from: u64) -> bool {
        if !(self.top.saturating_sub(self.have.len() as u64)..=self.done).contains(&from) {
            return false;
        }
        (self.is_syncing, self.says_base) = (false, false);
        (self.next, self.acked) = (from, from);
        // Averages that may lack ranks begin so, and nothing was lost.
        if from == self.first {
            self.window.begin()
        } else {
            self.window.on_rewind()
        }
        self.attempts = 0;
        self.arm(now);
        true
    }

    /// The first VID that is without a result in this epoch, if it was sent.
    fn waits_for(&self) -> Option<u64> {
        let vid = self.acked.min(self.done);
        (vid < self.next).then_some(vid)
    }

    /// The first VID that was sent and whose result has never come, of the first `submitted`.
    pub fn oldest(&self, submitted: u64) -> Option<u64> {
        (self.done < self.sent.min(submitted)).then_some(self.done)
    }

    /// Sets the timer, if there is something to wait for.
    fn arm(&mut self, now: Time) {
        let waits = self.is_syncing || self.waits_for().is_some() || self.is_parting;
        self.due = (waits && !self.has_parted).then(|| now + self.rtt.rto(self.attempts + 1));
    }

    /// When to wake.
    pub fn due(&self) -> Option<Time> {
        self.due
    }

    /// The timer may have run out.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.attempts += 1;
        if self.is_syncing {
            self.says_base = true;
        } else if let Some(vid) = self.waits_for() {
            self.wants.get_or_insert((Kind::Lost, vid));
            // The answer may be a reason to complain about the same VID again.
            self.has_complained = false;
        }
        // A worker that has left does not answer in a new epoch, so leaving does not wait for one.
        self.says_fin |= self.is_parting;
        self.arm(now);
    }

    /// Asks which ranks the oldest VID waits for.
    pub fn ask(&mut self) {
        if let Some(vid) = self.waits_for().filter(|_| !self.is_syncing) {
            self.wants.get_or_insert((Kind::Lost, vid));
        }
    }

    /// This worker will send nothing more.
    pub fn leave(&mut self, now: Time) {
        if !self.is_parting {
            (self.is_parting, self.says_fin, self.attempts) = (true, self.done > self.first, 0);
            self.has_parted = self.done == self.first;
            self.arm(now);
        }
    }

    /// Another worker leaves and asks whether this worker needs anything before a VID.
    pub fn on_fin_ask(&mut self, vid: u64) {
        self.says_fin |= vid <= self.done;
    }

    /// No rank needs anything before a VID.
    pub fn on_fin_done(&mut self, now: Time, vid: u64) {
        self.has_parted |= self.is_parting && vid >= self.done;
        self.arm(now);
    }

    /// The next packet without a vector, for a worker that has submitted this many VIDs. An epoch must begin no later
    /// than with the first VID that the worker has not submitted, even if the worker has later results.
    pub fn poll_notice(&mut self, submitted: u64) -> Option<(Kind, u64)> {
        if std::mem::take(&mut self.says_base) {
            return Some((Kind::Base, self.done.min(submitted)));
        }
        if let Some(wants) = self.wants.take() {
            return Some(wants);
        }
        std::mem::take(&mut self.says_fin).then_some((Kind::Fin, self.done))
    }
}
