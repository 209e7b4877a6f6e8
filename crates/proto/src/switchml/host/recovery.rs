//! When to send a packet again: timeouts, results that overtake, and patience with stragglers.
//!
//! * Every slot that waits is in a list of its shard and of the number of times it was sent; the list is in the order
//!   of sending, so its front is the first to time out.
//! * Results of one shard come in the order of sending. A slot that was sent [`Recovery::reorder`] packets before one
//!   that is answered now has probably lost its packet: it is sent again at once.
//! * A shard that has said nothing for a whole timeout is *silent*: most likely some rank is still computing. Then only
//!   [`PROBES`] slots are sent again, and the others are parked until an answer comes.

use super::send_queue::SendQueue;
use crate::config::{HostConfig, JobConfig};
use crate::ids::ShardId;
use crate::parts::rtt::RttEstimator;
use crate::parts::slot_lists::SlotLists;
use crate::switchml::layout;
use crate::time::Time;

/// Slots of a silent shard that are sent again.
const PROBES: u16 = 8;
/// Distinct back-offs: a slot that was sent more often waits as long as one that was sent so often.
const BACK_OFFS: usize = 8;
/// Lists of one shard: one for each back-off, and one of parked slots.
const LISTS: usize = BACK_OFFS + 1;
const PARKED: usize = BACK_OFFS;
/// Packets sent again for each answer that overtook them: more would be a burst.
const RESENDS_PER_ANSWER: usize = 4;

#[derive(Clone, Copy, Default)]
struct Flight {
    sends: u32,
    sent_at: Time,
    /// The last sending's number among those of its shard.
    number: u64,
    /// The silence in which the slot was chosen to be sent again.
    silence: u32,
}

#[derive(Clone, Copy, Default)]
struct Shard {
    /// Packets sent.
    sent: u64,
    /// Slots that wait for an answer.
    waiting: u32,
    /// The last answer, or the first sending after none was awaited.
    heard_at: Time,
    /// The end of the last silence: timeouts count from here.
    resumed_at: Time,
    /// Silences so far, plus one.
    silence: u32,
    /// Slots that are sent again in this silence.
    probes: u16,
}

/// The timers of one host's slots.
pub struct Recovery {
    job: JobConfig,
    rtt: RttEstimator,
    flights: Vec<Flight>,
    shards: Vec<Shard>,
    lists: SlotLists,
    /// How many packets sent later may be answered earlier.
    reorder: u64,
    /// The slot whose round trip is measured: one at a time, so that a straggler spoils one sample, not `s`.
    timed: Option<u16>,
}

impl Recovery {
    /// Timers for all slots of a job; none runs.
    pub fn new(config: &HostConfig) -> Recovery {
        let job = config.job.clone();
        let (shards, slots) = (usize::from(job.shards), job.slots);
        Recovery {
            reorder: u64::from(slots / job.shards / 4).clamp(3, 132),
            job,
            rtt: RttEstimator::new(config.timers),
            flights: vec![Flight::default(); usize::from(slots)],
            shards: vec![Shard { silence: 1, ..Shard::default() }; shards],
            lists: SlotLists::new(shards * LISTS, slots),
            timed: None,
        }
    }

    fn shard(&self, slot: u16) -> usize {
        layout::shard_of(&self.job, slot).index()
    }

    /// A packet leaves. `in_step`: the slot's last result has just come, so that this round trip measures the network
    /// and not the distance between ranks. True if the packet was sent before.
    pub fn sent(&mut self, now: Time, slot: u16, in_step: bool) -> bool {
        let shard = self.shard(slot);
        let (flight, state) = (&mut self.flights[usize::from(slot)], &mut self.shards[shard]);
        if flight.sends == 0 {
            if state.waiting == 0 {
                state.heard_at = now;
            }
            state.waiting += 1;
            if in_step && self.timed.is_none() {
                self.timed = Some(slot);
            }
        } else if self.timed == Some(slot) {
            self.timed = None;
        }
        flight.sends += 1;
        flight.sent_at = now;
        flight.number = state.sent;
        state.sent += 1;
        let back_off = (flight.sends as usize - 1).min(BACK_OFFS - 1);
        let again = flight.sends > 1;
        self.lists.push(shard * LISTS + back_off, slot);
        again
    }

    /// A slot's answer came. Slots that it overtook are queued to be sent again.
    pub fn answered(&mut self, now: Time, slot: u16, queue: &mut SendQueue) {
        let shard = self.shard(slot);
        let flight = self.flights[usize::from(slot)];
        self.end_silence(now, shard);
        if self.timed == Some(slot) {
            self.timed = None;
            self.rtt.sample(now.since(flight.sent_at));
        }
        self.forget(slot);
        // Of a packet that was sent twice nobody knows which one is answered.
        if flight.sends == 1 {
            self.resend_overtaken(shard, flight.number, queue);
        }
    }

    /// The slot waits no longer.
    pub fn forget(&mut self, slot: u16) {
        if self.flights[usize::from(slot)].sends > 0 {
            let shard = self.shard(slot);
            self.shards[shard].waiting -= 1;
        }
        self.lists.remove(slot);
        self.flights[usize::from(slot)].sends = 0;
        if self.timed == Some(slot) {
            self.timed = None;
        }
    }

    fn end_silence(&mut self, now: Time, shard: usize) {
        let state = &mut self.shards[shard];
        state.heard_at = now;
        if state.probes > 0 {
            state.probes = 0;
            state.silence += 1;
            state.resumed_at = now;
            self.lists.prepend(shard * LISTS + PARKED, shard * LISTS);
            self.timed = None;
        }
    }

    fn resend_overtaken(&mut self, shard: usize, answered: u64, queue: &mut SendQueue) {
        let mut resends = 0;
        for list in shard * LISTS..shard * LISTS + BACK_OFFS {
            while let Some(slot) = self.lists.first(list) {
                if self.flights[usize::from(slot)].number + self.reorder >= answered || resends == RESENDS_PER_ANSWER {
                    break;
                }
                self.lists.remove(slot);
                queue.push(slot);
                resends += 1;
            }
        }
    }

    /// Queues the slots whose time has come.
    pub fn handle_timeout(&mut self, now: Time, queue: &mut SendQueue) {
        for shard in 0..self.shards.len() {
            let silent = self.shards[shard].heard_at + self.rtt.rto(1) <= now;
            for back_off in 0..BACK_OFFS {
                while let Some(slot) = self.lists.first(shard * LISTS + back_off) {
                    if self.due(shard, back_off, slot) > now {
                        break;
                    }
                    if !silent || self.may_probe(shard, slot) {
                        self.lists.remove(slot);
                        queue.push(slot);
                    } else {
                        self.lists.push(shard * LISTS + PARKED, slot);
                    }
                }
            }
        }
    }

    fn may_probe(&mut self, shard: usize, slot: u16) -> bool {
        let (flight, state) = (&mut self.flights[usize::from(slot)], &mut self.shards[shard]);
        if flight.silence != state.silence {
            if state.probes == PROBES {
                return false;
            }
            state.probes += 1;
            flight.silence = state.silence;
        }
        true
    }

    fn due(&self, shard: usize, back_off: usize, slot: u16) -> Time {
        let from = self.flights[usize::from(slot)].sent_at.max(self.shards[shard].resumed_at);
        from + self.rtt.rto(back_off as u32 + 1)
    }

    /// When the first timer runs out.
    pub fn poll_timeout(&self) -> Option<Time> {
        (0..self.shards.len())
            .flat_map(|shard| (0..BACK_OFFS).map(move |back_off| (shard, back_off)))
            .filter_map(|(shard, back_off)| {
                let slot = self.lists.first(shard * LISTS + back_off)?;
                Some(self.due(shard, back_off, slot))
            })
            .min()
    }

    /// The shard that owns a slot.
    pub fn shard_of(&self, slot: u16) -> ShardId {
        layout::shard_of(&self.job, slot)
    }
}
