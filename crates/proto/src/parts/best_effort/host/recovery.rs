//! A worker's recovery from losses, without harm to ranks that are only late (A7, A8).
//!
//! A gradient that nobody acknowledged is sent again, past all aggregators. A gradient that was acknowledged is never
//! sent again for its age: others may be late for as long as they like. When the worker has heard nothing for long, or
//! a later result of the same server has come, the worker asks; switches on the way say what they hold, and the server
//! says what it lacks.

use super::BestEffortHost;
use crate::contract::config::TimerConfig;
use crate::contract::drop_reason::DropReason;
use crate::contract::time::{Span, Time};
use crate::parts::best_effort::host::window::Place;
use crate::parts::best_effort::wire::Header;
use crate::parts::recovery::apart;

/// Results of one server that overtake another's before something is done (A7) ...
const PATIENCE: u32 = 3;
/// ... and the most, of a path where they were late and not lost.
const MOST_PATIENCE: u32 = 256;
/// After so many timeouts without a result a worker asks.
const SILENT_TIMEOUTS: u64 = 4;
/// The longest time between two questions, in longest timeouts: a rank may be late for as long as it likes.
const LONGEST_WAIT: u64 = 8;
/// Where one block was lost, so many more are asked about at once, up to a window after it: losses come together.
const MOST_QUESTIONS: usize = 16;

/// How long a worker has heard nothing, and how much it bears.
#[derive(Clone, Hash)]
pub(super) struct Recovery {
    timers: TimerConfig,
    patience: u32,
    /// Since when no result has come, nor a question was asked; none while nothing is awaited.
    since: Option<Time>,
    wait: Span,
    /// Times that it has asked since a result came.
    asks: u32,
    /// Nothing was lost, said somebody who was asked last.
    told_to_wait: bool,
    /// When a gradient was last acknowledged, or sent again because none was; and how many were since.
    stirred: (Time, u32),
    /// A window beyond the last block of which this rank's part was lost, or behind the last one whose result was.
    lossy_up_to: u64,
    /// The shortest time from a gradient to its answer: others' lateness makes it longer, and losses do.
    least: Option<Span>,
}

impl Recovery {
    /// Nothing is awaited.
    pub(super) fn new(timers: TimerConfig) -> Recovery {
        Recovery {
            timers,
            patience: PATIENCE,
            since: None,
            wait: timers.initial_rto,
            asks: 0,
            told_to_wait: false,
            stirred: (Time::ZERO, 0),
            lossy_up_to: 0,
            least: None,
        }
    }

    /// Something is awaited.
    pub(super) fn begin(&mut self, now: Time) {
        if self.since.is_none() {
            self.heard(now);
        }
    }

    /// After so long what nobody delays has been answered.
    fn timeout(&self) -> Span {
        self.least.map_or(self.timers.initial_rto, |least| least.max(self.timers.min_rto))
    }

    /// So long after it was sent for the only time, a gradient was answered.
    pub(super) fn sample(&mut self, span: Span) {
        self.least = Some(self.least.map_or(span, |least| least.min(span)));
    }

    /// A result has come.
    fn heard(&mut self, now: Time) {
        (self.since, self.wait, self.told_to_wait) = (Some(now), self.timeout().times(SILENT_TIMEOUTS), false);
        self.asks = 0;
    }

    /// Questions leave: they, or their answers, may be lost; or the last answer was that others are late.
    fn asked(&mut self, now: Time) {
        let longest = self.timers.max_rto.times(if self.told_to_wait { LONGEST_WAIT } else { 1 });
        (self.since, self.wait) = (Some(now), self.wait.times(2).min(longest.max(self.wait)));
        self.told_to_wait = false;
        self.asks += 1;
    }
}

impl BestEffortHost {
    /// When the oldest gradient that nobody has acknowledged counts as lost: a timeout after it was sent, and after the
    /// last acknowledgement of any, behind which it may queue.
    pub(super) fn loss_due(&self) -> Option<Time> {
        let place = self.window.first_flying().filter(|_| self.rules.acknowledges)?;
        let (stirred_at, silences) = self.recovery.stirred;
        Some(place.sent_at.max(stirred_at) + self.rtt.rto(place.sends.max(silences + 1)))
    }

    /// Acknowledgements come: what flies is not late yet.
    pub(super) fn stirred(&mut self, now: Time) {
        self.recovery.stirred = (now, 0);
    }

    /// Whether something may be sent again now: in each timeout, as much as the window has packets. All of a burst but the
    /// first would be lost once more at a queue that is short.
    pub(super) fn may_resend(&mut self, now: Time) -> bool {
        if self.resend_due(now) {
            self.resent = (now, 0);
        }
        self.resent.1 < self.windows.packets()
    }

    fn resend_due(&self, now: Time) -> bool {
        now >= self.resent.0 + self.recovery.timeout()
    }

    /// When something that waits may be sent again.
    pub(super) fn pace_due(&self) -> Option<Time> {
        let is_held = self.window.has_again() && self.resent.1 >= self.windows.packets();
        is_held.then(|| self.resent.0 + self.recovery.timeout())
    }

    /// Sends the oldest gradient again that nobody has acknowledged for a timeout, and no other before twice that timeout:
    /// where nothing was lost, because a thread slept, few blocks go to their servers for it.
    pub(super) fn resend_lost(&mut self, now: Time) {
        if self.loss_due().is_none_or(|due| due > now) {
            return;
        }
        let Some(place) = self.window.oldest_flying() else { return };
        let (block, transmission) = (place.block, place.transmission);
        self.recovery.stirred = (now, self.recovery.stirred.1 + 1);
        self.window.send_again(block, true);
        let next = self.window.transmissions;
        self.windows.on_loss(transmission, next);
        if self.window.waiting(block).is_some_and(|place| place.sends > 1) {
            self.windows.on_silence();
        }
    }

    /// When to ask, if nothing comes. Ranks ask apart from each other, the first time excepted: the answers to all of them at
    /// once would not pass a short queue.
    pub(super) fn silence_due(&self) -> Option<Time> {
        let waits = self.window.first < self.window.next && self.life.broken().is_none();
        let Recovery { since, wait, asks, .. } = self.recovery;
        let earlier = if asks == 0 { Span::ZERO } else { apart(self.config.job.job, self.config.rank, 0, asks, wait) };
        since.filter(|_| waits).map(|since| since + (wait - earlier))
    }

    pub(super) fn ask_if_silent(&mut self, now: Time) {
        if self.silence_due().is_some_and(|due| due <= now) {
            self.ask_oldest();
            if self.window.first < self.recovery.lossy_up_to {
                self.ask_more(now);
            }
            self.recovery.asked(now);
        }
    }

    /// Asks about the oldest block that waits at another host.
    pub(super) fn ask_oldest(&mut self) {
        let oldest = self.window.all_waiting().map(|place| place.block).find(|&block| !self.serves(block));
        if let Some(block) = oldest.filter(|block| !self.questions.contains(block)) {
            self.questions.push_back(block);
        }
    }

    /// Asks about the oldest blocks besides of which this rank's part may be lost, or the result is: later ones have come.
    fn ask_more(&mut self, now: Time) {
        let patience = self.recovery.patience;
        let lacks = |place: &Place| !place.has_arrived || place.overtaken >= patience;
        let may_be_lost = |place: &&Place| lacks(place) && self.may_ask(now, place);
        let blocks = self.window.all_waiting().filter(may_be_lost).map(|place| place.block);
        let blocks: Vec<u64> = blocks.take(MOST_QUESTIONS).collect();
        blocks.into_iter().for_each(|block| self.ask(now, block));
    }

    /// True if neither the block nor a question about it was sent for a timeout.
    fn may_ask(&self, now: Time, place: &Place) -> bool {
        let long_ago = |at: Time| now.since(at) >= self.recovery.timeout();
        let is_quiet = long_ago(place.sent_at) && place.questioned_at.is_none_or(long_ago);
        is_quiet && !place.queued && !self.serves(place.block) && !self.questions.contains(&place.block)
    }

    fn ask(&mut self, now: Time, block: u64) {
        self.questions.push_back(block);
        if let Some(place) = self.window.waiting_mut(block) {
            place.questioned_at = Some(now);
        }
    }

    /// The block's server lacks this rank's part, and others wait for it: a switch may have it.
    pub(super) fn prompted(&mut self, now: Time, block: u64) {
        let Some(place) = self.window.waiting_mut(block) else { return };
        place.has_arrived = false;
        if self.window.waiting(block).is_some_and(|place| self.may_ask(now, place)) {
            self.ask(now, block);
        }
    }

    /// This rank's part of a block has arrived, says its server: others' are late, or lost.
    pub(super) fn told_to_wait(&mut self, block: u64) {
        self.recovery.told_to_wait = true;
        if let Some(place) = self.window.waiting_mut(block) {
            place.has_arrived = true;
        }
    }

    /// Something has come of a block.
    pub(super) fn heard(&mut self, now: Time) {
        self.recovery.heard(now);
        if self.window.first == self.window.next {
            self.recovery.since = None;
        }
    }

    /// The result of a block has come before those of earlier blocks of the same server: packets of one server do not
    /// overtake each other by themselves.
    pub(super) fn overtake(&mut self, now: Time, block: u64, multicast: bool) {
        if self.recovery_was_hasty(block, multicast) {
            self.recovery.patience = (2 * self.recovery.patience).min(MOST_PATIENCE);
        }
        let step = u64::from(self.places.servers());
        let (first, patience, next) = (self.window.first, self.recovery.patience, self.window.transmissions);
        let mut earlier = block;
        while let Some(other) = earlier.checked_sub(step).filter(|&other| other >= first) {
            earlier = other;
            let Some(place) = self.window.waiting_mut(other) else { continue };
            place.overtaken += 1;
            if place.overtaken < patience || std::mem::replace(&mut place.asked, true) {
                continue;
            }
            self.recovery.lossy_up_to = self.recovery.lossy_up_to.max(self.window.next);
            let Some(place) = self.window.waiting_mut(other) else { continue };
            if place.acked {
                self.ask(now, other);
                continue;
            }
            let transmission = place.transmission;
            self.window.send_again(other, true);
            self.windows.on_loss(transmission, next);
        }
    }

    /// A server has answered: it is asked about more, where losses came together. What was lost with the first
    /// answers need not wait for a silence each.
    pub(super) fn answered(&mut self, now: Time) {
        if self.window.first < self.recovery.lossy_up_to && self.questions.is_empty() {
            self.ask_more(now);
        }
    }

    /// True if something was done about a block whose result then came as if nothing was.
    fn recovery_was_hasty(&self, block: u64, multicast: bool) -> bool {
        multicast && self.window.was_asked(block)
    }

    /// The server lacks this rank's part of a block, and no switch has it.
    pub(super) fn needed(&mut self, now: Time, block: u64, header: &Header) -> Result<(), DropReason> {
        let place = self.window.waiting(block).ok_or(DropReason::Stale)?;
        if place.attempt != header.attempt {
            return Err(DropReason::Stale);
        }
        if place.queued && place.resend || place.sends > 1 && now.since(place.sent_at) < self.recovery.timeout() {
            return Err(DropReason::Duplicate);
        }
        let transmission = place.transmission;
        self.window.send_again(block, true);
        let next = self.window.transmissions;
        self.windows.on_loss(transmission, next);
        self.recovery.lossy_up_to = self.window.next + u64::from(self.config.job.slots);
        if self.questions.is_empty() {
            self.ask_more(now);
        }
        Ok(())
    }
}
