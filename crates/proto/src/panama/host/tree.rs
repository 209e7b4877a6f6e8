//! A worker's part in one tree: what it may send, what has come, and what it wants to say besides.

use super::kept::Kept;
use super::window::Window;
use crate::contract::config::TimerConfig;
use crate::contract::ids::{ChildId, TreeId};
use crate::contract::time::Time;
use crate::panama::options::Choices;
use crate::panama::vid;
use crate::panama::wire::Kind;
use crate::parts::report::Heard;
use crate::parts::rtt::RttEstimator;

/// One tree.
#[derive(Clone, Hash)]
pub struct Tree {
    /// Its number.
    pub id: TreeId,
    /// This worker's number at its first switch.
    pub child: ChildId,
    /// How many times it went back.
    pub epoch: u16,
    /// A new epoch begins: nothing may be sent before it is known where.
    pub is_syncing: bool,
    /// How many VIDs may be without a result in this epoch.
    pub window: Window,
    /// What may be sent again.
    pub kept: Kept,
    /// Sums need not wait for this worker: results come of what it has not sent, and that is not sent any more.
    may_lack: bool,
    /// No VID so far behind the first that lacks its result is ever sent: what every port has room for.
    room: u64,
    /// The VID of its first block.
    pub first: u64,
    /// The VID to send next.
    next: u64,
    /// Behind all that were ever sent.
    sent: u64,
    /// Behind the highest result of this epoch.
    acked: u64,
    /// Behind the highest result that ever came.
    top: u64,
    /// The first VID whose result has never come.
    done: u64,
    /// Of the VIDs from `done` on that may have a result: which do.
    have: Vec<bool>,
    rtt: RttEstimator,
    /// A packet whose round trip is measured.
    timed: Option<(u64, Time)>,
    due: Option<Time>,
    /// Times that the timer has run without progress.
    attempts: u32,
    /// A question or a complaint about a VID.
    wants: Option<(Kind, u64)>,
    says_base: bool,
    says_fin: bool,
    /// Its results are told of as gone in this epoch.
    has_complained: bool,
    /// It leaves, and waits until nobody needs it.
    is_parting: bool,
    /// Nobody needs anything that this worker has sent.
    pub has_parted: bool,
    /// What switches last said of a VID.
    pub heard: Heard<u64>,
}

/// A result's number, among those that may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrival {
    /// It is the first of its VID.
    New,
    /// After a rewind: an acknowledgement, and no more.
    Again,
    /// It was counted in this epoch.
    Double,
    /// Nothing was sent that it could be of.
    Ahead,
}

impl Tree {
    /// A tree in which nothing was sent, and whose first VID is `first`; `room` is at least 1.
    pub fn new(
        (id, child): (TreeId, ChildId),
        first: u64,
        room: usize,
        stride: usize,
        choices: Choices,
        timers: TimerConfig,
    ) -> Tree {
        // A sum may lie a room ahead of a worker that it does not wait for, which lies a room ahead of the first that it lacks.
        let may_lack = choices.quorum.is_some();
        let span = if may_lack { 2 * room } else { room };
        Tree {
            id,
            child,
            epoch: 0,
            is_syncing: false,
            window: Window::new(room as u16, choices.congestion_control),
            kept: Kept::new(span, stride),
            may_lack,
            room: room as u64,
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
            heard: Heard::default(),
        }
    }

    /// The first VID whose result has never come.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Behind the highest VID whose result ever came.
    pub fn top(&self) -> u64 {
        self.top
    }

    /// The VID that may be sent now, of the first `submitted`, or of what this worker has the result of.
    #[inline]
    pub fn sendable(&self, submitted: u64) -> Option<u64> {
        let window = (self.acked + self.window.packets()).min(self.done + self.room);
        (!self.is_syncing && self.next < window && self.has_next(submitted)).then_some(self.next)
    }

    /// There is something to send.
    #[inline]
    pub fn has_next(&self, submitted: u64) -> bool {
        self.next < submitted || self.has(self.next)
    }

    /// The VID that comes next, whether its time has come or not.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The next VID leaves; true if it was sent before.
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

    /// The result of a VID has come before.
    #[inline]
    pub fn has(&self, vid: u64) -> bool {
        vid < self.done || vid < self.done + self.have.len() as u64 && self.have[vid::slot(vid, self.have.len())]
    }

    /// Behind the last VID whose result may come now, of the first `submitted`.
    fn end(&self, submitted: u64) -> u64 {
        if self.may_lack { (self.done + self.have.len() as u64).min(submitted + self.room) } else { self.next }
    }

    /// What a result of the current epoch is.
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
        self.have[vid::slot(vid, slots)] = true;
        while std::mem::take(&mut self.have[vid::slot(self.done, slots)]) {
            self.done += 1;
        }
    }

    /// A result of the current epoch, new or not: progress. Paths keep the order, so what it has overtaken is gone.
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

    /// The root has passed a VID, and its result, if there was one, came before this news: it is gone. Where that result has
    /// come in an earlier epoch, the news is as good.
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

    /// The switch lacks a VID, and all behind it; true if that can be.
    pub fn on_resend(&mut self, vid: u64) -> bool {
        let can = !self.is_syncing && vid < self.next && (self.acked.min(self.done)..).contains(&vid);
        if can {
            (self.next, self.timed) = (vid, None);
        }
        can
    }

    /// A new epoch, or a question again.
    pub fn on_sync(&mut self, now: Time, epoch: u16) {
        if epoch != self.epoch {
            (self.epoch, self.is_syncing) = (epoch, true);
            (self.wants, self.has_complained, self.timed, self.attempts) = (None, false, None, 0);
            self.arm(now);
        }
        self.says_base = true;
    }

    /// All go on from a VID; false if this worker cannot, having lost what it had.
    pub fn on_rewind(&mut self, now: Time, from: u64) -> bool {
        if !(self.top.saturating_sub(self.have.len() as u64)..=self.done).contains(&from) {
            return false;
        }
        (self.is_syncing, self.says_base) = (false, false);
        (self.next, self.acked) = (from, from);
        self.window.on_rewind();
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

    /// The time has come, or may have.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        self.attempts += 1;
        if self.is_syncing {
            self.says_base = true;
        } else if let Some(vid) = self.waits_for() {
            self.wants.get_or_insert((Kind::Lost, vid));
            // The answer may ask for the same again.
            self.has_complained = false;
        }
        // Whoever has left answers no question about an epoch: leaving does not wait for that.
        self.says_fin |= self.is_parting;
        self.arm(now);
    }

    /// Asks whom the oldest VID waits for.
    pub fn ask(&mut self) {
        if let Some(vid) = self.waits_for().filter(|_| !self.is_syncing) {
            self.wants.get_or_insert((Kind::Lost, vid));
        }
    }

    /// Nothing more will be sent.
    pub fn part(&mut self, now: Time) {
        if !self.is_parting {
            (self.is_parting, self.says_fin, self.attempts) = (true, self.done > self.first, 0);
            self.has_parted = self.done == self.first;
            self.arm(now);
        }
    }

    /// Somebody leaves, and wants to know whether this worker needs anything before a VID.
    pub fn on_fin_ask(&mut self, vid: u64) {
        self.says_fin |= vid <= self.done;
    }

    /// Nobody needs anything before a VID.
    pub fn on_fin_done(&mut self, now: Time, vid: u64) {
        self.has_parted |= self.is_parting && vid >= self.done;
        self.arm(now);
    }

    /// The next packet without a vector, of a worker that has submitted so much. An epoch begins no later than with what it has yet to
    /// submit, though it may have results of that: it counts as heard from there on.
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
