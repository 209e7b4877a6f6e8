//! When to send a packet again: results that overtake, timeouts, and patience with stragglers.
//!
//! * Where results of one tree come in the order of sending ([`Order::Sent`]), a slot that is overtaken by
//!   [`Recovery::reorder`] packets has probably lost one, and is sent again at once.
//! * Every slot that waits is in a list of its tree and of the number of times it was sent, in the order of sending;
//!   so the front of a list is the first to time out.
//! * A tree that says nothing at all is *quiet*: either the last few packets of a collective are lost, or some rank is
//!   still computing. Then only [`PROBES`] slots at a time are sent again, soon at first and then ever more rarely; the
//!   other timers rest until an answer comes. Staggered: if all ranks probed together, a short queue would drop the
//!   same ranks' probes every time.
//! * After a timeout that proves spurious, a tree may be silent for twice as long before the next one ([`tree::Gaps`]).

#[cfg(test)]
mod tests;
mod timers;
mod tree;

use std::ops::Range;

use tributary_numeric::prefetch;

use self::tree::{Flight, TreeFlow};
use super::slot_lists::SendQueue;
use crate::congestion::RttEstimator;
use crate::contract::config::{JobConfig, TimerConfig};
use crate::contract::ids::{JobId, Rank, TreeId};
use crate::contract::options::{Kind, OptionSpec, Options, TO_THE_LETTER};
use crate::contract::time::{Span, Time};
use crate::reliability::slot_lists::{self, SlotLists};
use tributary_numeric::splitmix64;

/// How many slots of a quiet tree are sent again at a time.
const PROBES: usize = 8;
/// Distinct back-offs, and lists of one tree. A slot that was sent more often waits as long as a slot that was sent so
/// often.
const BACK_OFFS: usize = 8;
/// The most packets that drivers hand to the network at a time.
const BATCH: u64 = 44;
/// The most doublings of patience.
const MOST_DOUBT: u32 = 8;
/// How many packets an answer that overtook them sends again, at most: more would be a burst.
const RESENDS_PER_ANSWER: usize = 4;

/// The lists of a tree's slots, by the number of times that they were sent.
fn lists_of(tree: usize) -> Range<usize> {
    tree * BACK_OFFS..(tree + 1) * BACK_OFFS
}

/// The order in which answers are expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// The order in which the tree's slots were sent: a slot that is overtaken has lost a packet.
    Sent,
    /// Any order: only timeouts tell of losses.
    Any,
    /// Any order, and each packet has a timer of its own that always takes as long, whatever else comes: SwitchML's
    /// Algorithm 4 to the letter.
    Timer,
}

impl Order {
    /// The option of protocols whose answers come in the order of sending, and whose paper does not use that.
    pub const OPTION: OptionSpec = OptionSpec {
        name: "resend",
        kind: Kind::Choice(&["overtaken", "timeout", TO_THE_LETTER]),
        default: "overtaken",
        help: "a host sends again what later packets have overtaken too, or only what has timed out, or, as in the paper, \
               each packet after a fixed time",
    };

    /// What was chosen.
    pub fn chosen(options: &Options) -> Order {
        match options.choice(Order::OPTION.name) {
            "timeout" => Order::Any,
            TO_THE_LETTER => Order::Timer,
            _ => Order::Sent,
        }
    }
}

/// The timers of one host's slots.
#[derive(Clone, Hash)]
pub struct Recovery {
    order: Order,
    job: JobId,
    rank: Rank,
    timers: TimerConfig,
    rtt: RttEstimator,
    /// The shortest time to an answer so far: a round trip with hardly any queues.
    fastest: Option<Span>,
    flights: Vec<Flight>,
    trees: Vec<TreeFlow>,
    lists: SlotLists,
    /// The slot whose round trip is measured, and when it was first sent. One is measured at a time, so that a
    /// straggler spoils one sample, not `s`.
    timed: Option<(u16, Time)>,
    /// How many times a tree seemed quiet and then answered since a round trip was measured. Each doubles the patience
    /// (the second half of Karn's rule): a timeout that is too short spoils the very samples that would show it.
    doubt: u32,
}

/// A part of a patience, up to a quarter, that differs between ranks, between trees, and from one time to the next.
/// Ranks whose patience ends at the same moment would meet in a short queue again and again.
pub(crate) fn jitter(job: JobId, rank: Rank, tree: usize, times: u32, patience: Span) -> Span {
    let [job, rank, tree] = [job.0.into(), u64::from(rank.0), tree as u64];
    let hash = splitmix64(splitmix64(job << 32 | rank << 16 | tree) ^ u64::from(times));
    Span((patience.0 >> 18) * (hash % (1 << 16)))
}

impl Recovery {
    /// Timers for all slots of a job, none of which runs.
    pub fn new(job: &JobConfig, rank: Rank, timers: TimerConfig, order: Order) -> Recovery {
        let (trees, slots) = (usize::from(job.trees), job.slots);
        Recovery {
            job: job.job,
            rank,
            order,
            timers,
            rtt: RttEstimator::new(timers),
            fastest: None,
            flights: (0..slots)
                .map(|slot| Flight { tree: slot_lists::tree_at(slot, slots, job.trees).0, ..Flight::default() })
                .collect(),
            trees: vec![TreeFlow::default(); trees],
            lists: SlotLists::new(trees * BACK_OFFS, slots),
            timed: None,
            doubt: 0,
        }
    }

    /// The tree that owns a slot.
    #[inline]
    pub fn tree_of_slot(&self, slot: u16) -> TreeId {
        TreeId(self.flights[usize::from(slot)].tree)
    }

    /// A packet is sent. `in_step`: the slot's last result has just come, so that this round trip measures the network
    /// and not how far ranks are apart. True if the packet was sent before.
    pub fn sent(&mut self, now: Time, slot: u16, in_step: bool) -> bool {
        let tree = self.tree_of_slot(slot).index();
        let (flight, state) = (&mut self.flights[usize::from(slot)], &mut self.trees[tree]);
        if flight.sends == 0 {
            if state.waiting == 0 {
                (state.stirred_at, state.probes) = (now, 0);
                state.gaps.begin();
            }
            state.waiting += 1;
            if in_step && self.timed.is_none() {
                self.timed = Some((slot, now));
            }
            (flight.in_step, flight.stirred_at) = (in_step, Time::ZERO);
        }
        (flight.sends, flight.sent_at, flight.number) = (flight.sends + 1, now, state.sent);
        state.sent += 1;
        let back_off = (flight.sends as usize - 1).min(BACK_OFFS - 1);
        let again = flight.sends > 1;
        self.lists.push(tree * BACK_OFFS + back_off, slot);
        again
    }

    /// True if the slot's tree is quiet: packets that are sent again now are probes.
    pub fn is_quiet(&self, slot: u16) -> bool {
        self.trees[self.tree_of_slot(slot).index()].probes > 0
    }

    /// A slot's answer came. Slots that it overtook are queued to be sent again. Returns how long the answer took, if
    /// the slot was sent once.
    pub fn answered(&mut self, now: Time, slot: u16, queue: &mut SendQueue) -> Option<Span> {
        let tree = self.tree_of_slot(slot).index();
        let flight = self.flights[usize::from(slot)];
        self.trees[tree].gaps.answered(now);
        if self.on_progress(now, tree) {
            self.timed = None;
        } else if flight.sends == 1 && !flight.in_step {
            // Where tensors are so small that no round trip is ever measured, an answer in time is enough to reduce the
            // doubt.
            self.doubt = self.doubt.saturating_sub(1);
        }
        if let Some((timed, first_sent_at)) = self.timed
            && timed == slot
        {
            // Measured from the first sending, even if a timeout sent the slot again. If the first packet was lost, the
            // sample is too long, which later samples mend. No sample is ever too short, which nothing would mend.
            self.rtt.sample(now.since(first_sent_at));
            self.doubt = 0;
        }
        self.judge_silence(now, tree, flight);
        self.forget(slot);
        let front = self.lists.first(tree * BACK_OFFS);
        if front.is_some_and(|front| self.flights[usize::from(front)].number > flight.number) {
            self.trees[tree].in_order_at = now;
        }
        if flight.sends != 1 {
            return None;
        }
        let took = now.since(flight.sent_at);
        self.fastest = Some(self.fastest.map_or(took, |fastest| fastest.min(took)));
        if self.order == Order::Sent {
            self.resend_overtaken(tree, flight.number, queue);
        }
        Some(took)
    }

    /// Part of a slot's answer came, or a sign of it: the slot still waits, and its timeout starts again.
    pub fn stirred(&mut self, now: Time, slot: u16) {
        let tree = self.tree_of_slot(slot).index();
        self.on_progress(now, tree);
        self.flights[usize::from(slot)].stirred_at = now;
        self.lists.move_to_end(slot);
    }

    /// A tree has answered; true if it had seemed quiet, so that the next patience is longer.
    fn on_progress(&mut self, now: Time, tree: usize) -> bool {
        let state = &mut self.trees[tree];
        state.stirred_at = now;
        let was_quiet = std::mem::take(&mut state.probes) > 0;
        if was_quiet {
            state.resumed_at = now;
            (state.silence.is_open, state.silence.answered) = (true, 0);
            // Sooner after the first probe than any answer ever came: it does not answer the probe.
            if self.fastest.is_some_and(|fastest| now.since(state.silence.probed_at) < fastest) {
                state.was_spurious();
            }
            self.doubt = (self.doubt + 1).min(MOST_DOUBT);
        }
        was_quiet
    }

    /// Decides with a slot's answer whether the last timeout was spurious, as Eifel does (RFC 3522): the network or a rank
    /// stood still, if more slots are answered that were sent once than other ranks can have probed beyond this one, and
    /// before a timer can have sent them again elsewhere.
    fn judge_silence(&mut self, now: Time, tree: usize, flight: Flight) {
        let state = &mut self.trees[tree];
        if !state.silence.is_open {
            return;
        }
        if now.since(state.resumed_at) >= self.timers.min_rto {
            state.was_needed();
        } else if flight.sends == 1 && flight.sent_at < state.resumed_at {
            state.silence.answered += 1;
            if state.silence.answered > PROBES {
                state.was_spurious();
            }
        }
    }

    /// A slot's answer came because the host asked for it: the timeout was right, and there is no round trip to
    /// measure.
    pub fn recovered(&mut self, now: Time, slot: u16) {
        let tree = self.tree_of_slot(slot).index();
        let state = &mut self.trees[tree];
        if std::mem::take(&mut state.probes) > 0 {
            state.resumed_at = now;
            state.was_needed();
        }
        state.stirred_at = now;
        self.forget(slot);
    }

    /// The slot no longer waits.
    pub fn forget(&mut self, slot: u16) {
        let tree = self.tree_of_slot(slot).index();
        let flight = &mut self.flights[usize::from(slot)];
        if std::mem::take(&mut flight.sends) > 0 {
            self.trees[tree].waiting -= 1;
        }
        self.lists.remove(slot);
        self.stop_timing(slot);
    }

    fn stop_timing(&mut self, slot: u16) {
        if self.timed.is_some_and(|(timed, _)| timed == slot) {
            self.timed = None;
        }
    }

    /// How many packets that were sent later may be answered earlier without a loss.
    fn reorder(&self, tree: usize) -> u64 {
        u64::from(self.trees[tree].waiting / 4).clamp(3, 3 * BATCH)
    }

    fn resend_overtaken(&mut self, tree: usize, answered: u64, queue: &mut SendQueue) {
        let mut resends = 0;
        let reorder = self.reorder(tree);
        let mut lists = lists_of(tree);
        while let Some(list) = self.lists.next_filled(&mut lists) {
            while let Some(slot) = self.lists.first(list) {
                if self.flights[usize::from(slot)].number + reorder >= answered || resends == RESENDS_PER_ANSWER {
                    break;
                }
                // The slot's packet is probably lost, so its time is not a round trip.
                self.stop_timing(slot);
                self.resend(slot, queue);
                resends += 1;
            }
        }
    }

    fn resend(&mut self, slot: u16, queue: &mut SendQueue) {
        self.lists.remove(slot);
        queue.push(slot);
    }

    /// Queues the slots whose timers have run out.
    pub fn handle_timeout(&mut self, now: Time, queue: &mut SendQueue) {
        for tree in 0..self.trees.len() {
            if self.trees[tree].waiting > 0 && self.probe_at(tree, self.stirred_last()) <= now {
                self.probe(now, tree, queue);
            }
            if self.trees[tree].probes > 0 {
                continue;
            }
            let mut lists = lists_of(tree);
            while let Some(list) = self.lists.next_filled(&mut lists) {
                while let Some(slot) = self.lists.first(list) {
                    if self.due(tree, list % BACK_OFFS, slot) > now {
                        break;
                    }
                    self.resend(slot, queue);
                }
            }
        }
    }

    /// Sends some slots of a quiet tree again: those that were sent least often, the oldest first. The first of them
    /// changes each time: if a queue on the way holds one packet, only the first gets through.
    fn probe(&mut self, now: Time, tree: usize, queue: &mut SendQueue) {
        let mut probes = [0; PROBES];
        let mut count = 0;
        let mut lists = lists_of(tree);
        while let Some(list) = self.lists.next_filled(&mut lists) {
            while count < PROBES
                && let Some(slot) = self.lists.first(list)
            {
                self.lists.remove(slot);
                probes[count] = slot;
                count += 1;
            }
        }
        let probes = &mut probes[..count];
        // Lists keep the order of the last probes, so that rotations add up. They are pseudo-random, so that they do
        // not keep step with the number of slots.
        if self.trees[tree].probes > 0 {
            probes.rotate_left((splitmix64(self.trees[tree].probes.into()) % count.max(1) as u64) as usize);
        }
        probes.iter().for_each(|&slot| queue.push(slot));
        let state = &mut self.trees[tree];
        if state.probes == 0 {
            if state.silence.is_open {
                state.was_needed();
            }
            (state.silence.began_at, state.silence.probed_at) = (state.stirred_at, now);
        }
        state.probes += 1;
        state.stirred_at = now;
    }

    /// Prefetches the memory that each answer touches.
    pub fn prefetch(&self) {
        prefetch::whole(&*self.trees);
        self.lists.prefetch_ends();
    }

    /// Prefetches the memory that an answer to this slot touches.
    pub fn prefetch_slot(&self, slot: u16) {
        if let Some(flight) = self.flights.get(usize::from(slot)) {
            prefetch::first_line(flight);
            self.lists.prefetch(slot);
        }
    }
}
