//! A worker's recovery from losses, without harm to ranks that are only late (A7, A8).
//!
//! A gradient that nobody acknowledged is sent again, past all aggregators. An acknowledged gradient is never sent
//! again because of its age: other ranks may be late for as long as they like. When the worker has heard nothing for
//! long, or a later result of the same server has come, the worker asks; switches on the way say what they hold, and
//! the server says what it lacks.

use super::BestEffortHost;
use crate::aggregation::best_effort::host::window::Entry;
use crate::aggregation::best_effort::wire::Header;
use crate::contract::config::TimerConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::time::{Span, Time};
use crate::reliability::recovery::jitter;

/// How many results of one server must overtake a block before the worker asks about the block (A7).
const PATIENCE: u32 = 3;
/// The greatest patience, for a path where results were late and not lost.
const MOST_PATIENCE: u32 = 256;
/// A worker asks after this many timeouts without a result.
const SILENT_TIMEOUTS: u64 = 4;
/// The longest time between two questions, in longest timeouts: a rank may be late for as long as it likes.
const LONGEST_WAIT: u64 = 8;
/// Losses come together: where one block was lost, a worker asks about this many more blocks at once, up to a window
/// after it.
const MOST_QUESTIONS: usize = 16;
/// A result that was lost before a silence makes the worker ask about this many more blocks: twice as many in each
/// round trip.
const QUESTIONS_AFTER_SILENCE: usize = 2;

/// How long a worker has heard nothing, and how long it waits before it asks.
#[derive(Clone, Hash)]
pub(super) struct Recovery {
    timers: TimerConfig,
    patience: u32,
    /// When the last result came or the last question was asked; `None` while nothing is awaited.
    since: Option<Time>,
    wait: Span,
    /// How many times the worker has asked since a result came.
    asks: u32,
    /// The last answer said that nothing was lost.
    others_are_late: bool,
    /// When a gradient was last acknowledged or sent again for lack of an acknowledgement; and how many were sent again
    /// since the last acknowledgement.
    stirred: (Time, u32),
    /// A window beyond the last block whose gradient was lost, or behind the last block whose result was lost.
    lossy_up_to: u64,
    /// Blocks before this one waited in a silence that a result ended which had been lost.
    silent_up_to: u64,
    /// The shortest time from a gradient to its answer. Late ranks and losses only make it longer.
    least: Option<Span>,
    /// The oldest block that waits, if the result of one that was sent later has come, from whichever server, and when.
    passed: Option<(u64, Time)>,
    /// How many shortest round trips the worker waits before it asks about such a block.
    leeway: u32,
}

impl Recovery {
    /// A recovery that awaits nothing.
    pub(super) fn new(timers: TimerConfig) -> Recovery {
        Recovery {
            timers,
            patience: PATIENCE,
            since: None,
            wait: timers.initial_rto,
            asks: 0,
            others_are_late: false,
            stirred: (Time::ZERO, 0),
            lossy_up_to: 0,
            silent_up_to: 0,
            least: None,
            passed: None,
            leeway: 1,
        }
    }

    /// The worker begins to await something.
    pub(super) fn begin(&mut self, now: Time) {
        if self.since.is_none() {
            self.on_progress(now);
        }
    }

    /// An answer that no rank delays comes within this time.
    fn timeout(&self) -> Span {
        self.least.map_or(self.timers.initial_rto, |least| least.max(self.timers.min_rto))
    }

    /// A gradient that was sent once was answered after this time.
    pub(super) fn sample(&mut self, span: Span) {
        self.least = Some(self.least.map_or(span, |least| least.min(span)));
    }

    /// A result has come.
    fn on_progress(&mut self, now: Time) {
        (self.since, self.wait, self.others_are_late) = (Some(now), self.timeout().times(SILENT_TIMEOUTS), false);
        self.asks = 0;
    }

    /// Questions are sent. They or their answers may be lost, or the last answer may have been that others are late.
    fn on_query(&mut self, now: Time) {
        let longest = self.timers.max_rto.times(if self.others_are_late { LONGEST_WAIT } else { 1 });
        (self.since, self.wait) = (Some(now), self.wait.times(2).min(longest.max(self.wait)));
        self.others_are_late = false;
        self.asks += 1;
    }
}

impl BestEffortHost {
    /// When the oldest gradient without an acknowledgement counts as lost: a timeout after it was sent, and a timeout
    /// after the last acknowledgement of any gradient, behind which its own may queue.
    pub(super) fn loss_due(&self) -> Option<Time> {
        let entry = self.window.first_flying().filter(|_| self.rules.acknowledges)?;
        let (stirred_at, silences) = self.recovery.stirred;
        Some(entry.sent_at.max(stirred_at) + self.rtt.rto(entry.sends.max(silences + 1)))
    }

    /// An acknowledgement has come: gradients under way are not late yet.
    pub(super) fn stirred(&mut self, now: Time) {
        self.recovery.stirred = (now, 0);
    }

    /// True if a packet may be sent again now: as many as the window has packets, and then one for each of which
    /// something comes. A short queue would lose all packets of a burst but the first again. After a timeout those of
    /// which nothing came count as lost.
    pub(super) fn may_resend(&mut self, now: Time) -> bool {
        if self.resend_due(now) {
            self.window.resent = (now, 0);
        }
        self.window.resent.1 < self.congestion.window()
    }

    fn resend_due(&self, now: Time) -> bool {
        now >= self.window.resent.0 + self.recovery.timeout()
    }

    /// When a waiting packet may be sent again.
    pub(super) fn pace_due(&self) -> Option<Time> {
        let is_blocked = self.window.has_again() && self.window.resent.1 >= self.congestion.window();
        is_blocked.then(|| self.window.resent.0 + self.recovery.timeout())
    }

    /// Sends the oldest gradient again that nobody has acknowledged for a timeout, and no other before twice that
    /// timeout. So few blocks go to their servers without cause if nothing was lost, and a thread merely slept.
    pub(super) fn resend_lost(&mut self, now: Time) {
        if self.loss_due().is_none_or(|due| due > now) {
            return;
        }
        let Some(entry) = self.window.oldest_flying() else { return };
        let (block, transmission) = (entry.block, entry.transmission);
        self.recovery.stirred = (now, self.recovery.stirred.1 + 1);
        self.window.send_again(block, true);
        self.note_loss(now, transmission);
        if self.window.waiting(block).is_some_and(|entry| entry.sends > 1) {
            self.congestion.on_timeout(now);
        }
    }

    /// A gradient arrived that was sent again, so it was lost before. Losses come together: all others that are as late
    /// are lost too, and are sent again without a timeout for each.
    pub(super) fn resend_overdue(&mut self, now: Time) {
        while let Some(entry) =
            self.window.oldest_flying().filter(|entry| entry.sent_at + self.rtt.rto(entry.sends) <= now)
        {
            let transmission = entry.transmission;
            self.window.lose_oldest();
            self.note_loss(now, transmission);
        }
    }

    /// When to ask, if nothing comes. Ranks ask at different times, except the first time: a short queue would not hold
    /// the answers to all of them.
    pub(super) fn silence_due(&self) -> Option<Time> {
        let waits = self.window.first < self.window.next && self.life.broken().is_none();
        let Recovery { since, wait, asks, .. } = self.recovery;
        let earlier = if asks == 0 { Span::ZERO } else { jitter(self.config.job.job, self.config.rank, 0, asks, wait) };
        since.filter(|_| waits).map(|since| since + (wait - earlier))
    }

    pub(super) fn ask_if_silent(&mut self, now: Time) {
        if self.silence_due().is_some_and(|due| due <= now) {
            self.ask_oldest();
            if self.window.first < self.recovery.lossy_up_to {
                self.ask_more(now);
            }
            self.recovery.on_query(now);
        }
    }

    /// The oldest block that waits and that another host serves.
    fn oldest(&self) -> Option<&Entry> {
        self.window.all_waiting().find(|entry| !self.serves(entry.block))
    }

    /// Asks about that block.
    pub(super) fn ask_oldest(&mut self) {
        let oldest = self.oldest().map(|entry| entry.block);
        if let Some(block) = oldest.filter(|block| !self.questions.contains(block)) {
            self.questions.push_back(block);
        }
    }

    /// The result of a transmission of that time has come, from whichever server. If the oldest block was sent before
    /// it, and no question later, that block is late by now or lost (RACK, RFC 8985): where windows are short, three
    /// results of its own server may never come.
    pub(super) fn pass(&mut self, now: Time, transmission: u64, sent_at: Time) {
        let is_passed = |entry: &&Entry| {
            entry.was_sent_before(transmission) && entry.questioned_at.is_none_or(|queried_at| queried_at < sent_at)
        };
        let Some(block) = self.oldest().filter(is_passed).map(|entry| entry.block) else { return };
        if self.recovery.passed.is_none_or(|(passed, _)| passed != block) {
            self.recovery.passed = Some((block, now));
        }
    }

    /// When to ask about the block that was passed.
    pub(super) fn passed_due(&self) -> Option<Time> {
        let (block, at) = self.recovery.passed?;
        let entry = self.window.waiting(block).filter(|entry| !entry.queued)?;
        Some(at.max(entry.sent_at) + self.recovery.least?.times(self.recovery.leeway.into()))
    }

    /// Asks about that block.
    pub(super) fn ask_if_passed(&mut self, now: Time) {
        if self.passed_due().is_some_and(|due| due <= now)
            && let Some((block, _)) = self.recovery.passed.take()
        {
            self.ask(now, block);
            if let Some(entry) = self.window.waiting_mut(block) {
                entry.queried_early = true;
            }
        }
    }

    /// The result of a block has come about which the worker asked early. Results of several servers overtake each
    /// other, and threads sleep: if nothing was lost (`for_nothing`), the next question waits twice as long, and
    /// otherwise half as long.
    pub(super) fn judge_early_question(&mut self, for_nothing: bool) {
        let leeway = self.recovery.leeway;
        self.recovery.leeway = if for_nothing { (2 * leeway).min(MOST_PATIENCE) } else { (leeway / 2).max(1) };
    }

    /// Also asks about the oldest blocks whose gradient or result may be lost, because later ones have come.
    fn ask_more(&mut self, now: Time) {
        let patience = self.recovery.patience;
        let lacks = |entry: &Entry| !entry.has_arrived || entry.overtaken >= patience;
        let may_be_lost = |entry: &&Entry| lacks(entry) && self.may_ask(now, entry);
        let blocks = self.window.all_waiting().filter(may_be_lost).map(|entry| entry.block);
        let blocks: Vec<u64> = blocks.take(MOST_QUESTIONS).collect();
        blocks.into_iter().for_each(|block| self.ask(now, block));
    }

    /// True if neither the block nor a question about it was sent for a timeout.
    fn may_ask(&self, now: Time, entry: &Entry) -> bool {
        let long_ago = |at: Time| now.since(at) >= self.recovery.timeout();
        let is_quiet = long_ago(entry.sent_at) && entry.questioned_at.is_none_or(long_ago);
        is_quiet && !entry.queued && !self.serves(entry.block) && !self.questions.contains(&entry.block)
    }

    fn ask(&mut self, now: Time, block: u64) {
        self.questions.push_back(block);
        if let Some(entry) = self.window.waiting_mut(block) {
            entry.questioned_at = Some(now);
        }
    }

    /// The block's server lacks this rank's part, and other ranks wait for it: a switch may have it.
    pub(super) fn prompted(&mut self, now: Time, block: u64) {
        let Some(entry) = self.window.waiting_mut(block) else { return };
        entry.has_arrived = false;
        if self.window.waiting(block).is_some_and(|entry| self.may_ask(now, entry)) {
            self.ask(now, block);
        }
    }

    /// The block's server has this rank's part: other ranks' parts are late, or lost.
    pub(super) fn on_others_late(&mut self, block: u64) {
        (self.recovery.others_are_late, self.recovery.silent_up_to) = (true, 0);
        if let Some(entry) = self.window.waiting_mut(block) {
            entry.has_arrived = true;
        }
    }

    /// Something about a block has come.
    pub(super) fn on_progress(&mut self, now: Time) {
        self.recovery.on_progress(now);
        if self.window.first == self.window.next {
            self.recovery.since = None;
        }
    }

    /// The result of a block, last sent in this transmission, has come before results of earlier blocks of the same
    /// server that were sent before it. Packets of one server do not overtake each other, so those may be lost.
    /// `came_by_itself`: all ranks got it at once, and this rank had no cause to ask.
    pub(super) fn overtake(&mut self, now: Time, block: u64, transmission: u64, came_by_itself: bool) {
        // The worker has asked about it for nothing.
        if came_by_itself && self.window.was_queried(block) {
            self.recovery.patience = (2 * self.recovery.patience).min(MOST_PATIENCE);
        }
        let step = u64::from(self.topology.servers());
        let (first, patience) = (self.window.first, self.recovery.patience);
        let mut earlier = block;
        while let Some(other) = earlier.checked_sub(step).filter(|&other| other >= first) {
            earlier = other;
            let Some(entry) = self.window.waiting_mut(other).filter(|entry| entry.was_sent_before(transmission)) else {
                continue;
            };
            entry.overtaken += 1;
            if entry.overtaken < patience || std::mem::replace(&mut entry.queried, true) {
                continue;
            }
            self.recovery.lossy_up_to = self.recovery.lossy_up_to.max(self.window.next);
            let Some(entry) = self.window.waiting_mut(other) else { continue };
            if entry.acked {
                self.ask(now, other);
                continue;
            }
            let transmission = entry.transmission;
            self.window.send_again(other, true);
            self.note_loss(now, transmission);
        }
    }

    /// A server has answered: the worker asks about more blocks where losses came together, so that each need not wait
    /// for a silence.
    pub(super) fn answered(&mut self, now: Time) {
        if self.window.first < self.recovery.lossy_up_to && self.questions.is_empty() {
            self.ask_more(now);
        }
    }

    /// True if the worker has asked since the last result came: it has heard nothing for long.
    pub(super) fn is_silent(&self) -> bool {
        self.recovery.asks > 0
    }

    /// A question has brought a result that was lost. If that `ended_a_silence`, no later result will reveal other
    /// losses: all that waited in the silence may be lost, until an answer says that ranks are late.
    pub(super) fn on_lost_result(&mut self, now: Time, ended_a_silence: bool) {
        if ended_a_silence {
            self.recovery.silent_up_to = self.window.next;
        }
        for _ in 0..QUESTIONS_AFTER_SILENCE {
            let end = self.recovery.silent_up_to;
            let waited = self.window.all_waiting().take_while(|entry| entry.block < end);
            let next = waited.filter(|entry| self.may_ask(now, entry)).map(|entry| entry.block).next();
            let Some(block) = next else { return };
            self.ask(now, block);
        }
    }

    /// The server lacks this rank's part of a block, and no switch has it.
    pub(super) fn needed(&mut self, now: Time, block: u64, header: &Header) -> Result<(), DropReason> {
        let entry = self.window.waiting(block).ok_or(DropReason::Stale)?;
        if entry.attempt != header.attempt {
            return Err(DropReason::Stale);
        }
        if entry.queued && entry.resend || entry.sends > 1 && now.since(entry.sent_at) < self.recovery.timeout() {
            return Err(DropReason::Duplicate);
        }
        let transmission = entry.transmission;
        self.window.send_again(block, true);
        self.note_loss(now, transmission);
        self.recovery.lossy_up_to = self.window.next + u64::from(self.config.job.slots);
        if self.questions.is_empty() {
            self.ask_more(now);
        }
        Ok(())
    }
}
