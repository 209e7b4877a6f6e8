//! Which blocks a host sends next: in an order of its own, and no more at once than its window allows.

use std::collections::BTreeSet;

use super::SlotHost;
use crate::aggregation::slots::Dialect;
use crate::congestion::{self, Ack, Algorithm, Controller, Limits, Loss, Settings, TARGET_DELAY, fixed, measured};
use crate::contract::config::JobConfig;
use crate::contract::options::OptionSpec;
use crate::contract::time::{Span, Time};

/// The options of a protocol with slots that choose the window.
pub const WINDOW_OPTIONS: [OptionSpec; 2] = [congestion::option(measured::ALGORITHM.name), TARGET_DELAY];
/// Simulations use pools that are chosen for their links, and all of them, as in the paper.
pub const SIMULATED_WINDOW: &[(&str, &str)] = &[(congestion::OPTION, fixed::ALGORITHM.name), congestion::SIMULATED[0]];

/// The first window of controllers that do not measure what the first should be, and their smallest.
const FIRST_WINDOW: u32 = 16;
const LEAST_WINDOW: u32 = 2;
/// Blocks that go to one of several servers before the next has its turn, so that they leave in one run of segments.
const RUN: u64 = 8;

/// The gate of one host, through which blocks go when the window allows it.
#[derive(Clone, Hash)]
pub struct SendGate {
    controller: Box<dyn Controller>,
    under_way: u32,
    /// The blocks that wait, in the order in which they go: see [`SendGate::turn`].
    waiting: BTreeSet<(u64, u64)>,
    /// The slots of each of several servers, which get blocks in turns; `None` if blocks go in their order.
    slots_of_server: Option<u64>,
    /// The oldest block without a result.
    oldest: u64,
    /// The last transmission of each slot.
    transmissions: Box<[u64]>,
    next_transmission: u64,
    newest_arrived: u64,
}

impl SendGate {
    /// The gate of a job whose packets have headers of this length; `None` if a window of constant size was chosen,
    /// which is the whole pool, as in the paper.
    pub fn chosen(job: &JobConfig, header_len: usize) -> Option<SendGate> {
        let algorithm = Algorithm::chosen(&job.options);
        if *algorithm == fixed::ALGORITHM {
            return None;
        }
        let max = u32::from(job.slots.max(1));
        let settings = Settings {
            packet_bytes: header_len + job.payload_bytes(),
            target_delay: job.options.time(TARGET_DELAY.name),
            ..Settings::new(Limits { initial: FIRST_WINDOW.min(max), min: LEAST_WINDOW.min(max), max })
        };
        Some(SendGate {
            controller: (algorithm.make)(&settings),
            under_way: 0,
            waiting: BTreeSet::new(),
            slots_of_server: None,
            oldest: 0,
            transmissions: vec![0; max as usize].into(),
            next_transmission: 0,
            newest_arrived: 0,
        })
    }

    /// The same gate for a job of several servers with this many slots each. What is under way is for all of them, so that
    /// no server's link is busy while the others' are idle.
    pub fn among_servers(self, slots: u64) -> SendGate {
        SendGate { slots_of_server: Some(slots.max(1)), ..self }
    }

    /// When a block goes, before all blocks with a later turn: runs of blocks to each server in turn.
    fn turn(&self, block: u64) -> (u64, u64) {
        let Some(slots) = self.slots_of_server else { return (block, block) };
        let pool = self.transmissions.len() as u64;
        (block / pool * slots + block % slots / RUN, block)
    }

    /// Blocks that may be under way now.
    pub fn window(&self) -> u64 {
        self.controller.window()
    }

    fn is_open(&self) -> bool {
        u64::from(self.under_way) < self.controller.window()
    }

    fn slot_of(&self, block: u64) -> usize {
        (block % self.transmissions.len() as u64) as usize
    }

    fn transmit(&mut self, block: u64) {
        self.transmissions[self.slot_of(block)] = self.next_transmission;
        self.next_transmission += 1;
    }

    /// Begins a block that is ready to be sent. False if it must wait until [`SendGate::release`] names it.
    pub fn begin(&mut self, block: u64) -> bool {
        let is_next = self.slots_of_server.is_none() && self.waiting.is_empty() && self.is_open();
        if block == self.oldest || is_next {
            self.under_way += 1;
            self.transmit(block);
            return true;
        }
        self.waiting.insert(self.turn(block));
        if !self.is_open() || self.slots_of_server.is_none() {
            self.controller.on_limited();
        }
        false
    }

    /// The next block that no longer needs to wait.
    pub fn release(&mut self) -> Option<u64> {
        let first = if self.is_open() { *self.waiting.first()? } else { self.turn(self.oldest) };
        if !self.waiting.remove(&first) {
            return None;
        }
        self.under_way += 1;
        self.transmit(first.1);
        Some(first.1)
    }

    /// Notes that a block is no longer under way: it has its answer, or it was lost.
    pub fn on_end(&mut self) {
        self.under_way -= 1;
        if self.under_way == 0 {
            self.controller.on_idle();
        }
    }

    /// Notes that a block's packet was lost and is sent again, which does not count as under way.
    pub fn on_loss(&mut self, now: Time, block: u64) {
        let transmission = self.transmissions[self.slot_of(block)];
        self.transmit(block);
        self.controller.on_loss(Loss { now, transmission, next: self.next_transmission });
        self.on_end();
    }

    /// Moves on to the oldest block that has no result.
    pub fn advance(&mut self, has_result: impl Fn(u64) -> bool) {
        while has_result(self.oldest) {
            self.oldest += 1;
        }
    }

    /// Notes a slot's answer. `rtt` is the time since its packet was sent, if the packet was sent only once.
    pub fn on_answer(&mut self, now: Time, idx: u16, rtt: Option<Span>) {
        self.newest_arrived = self.newest_arrived.max(self.transmissions[usize::from(idx)]);
        let (newest, next, limited) = (self.newest_arrived, self.next_transmission, !self.waiting.is_empty());
        self.controller.on_ack(&Ack { now, rtt, packets: 1, newest, next, limited, ..Ack::default() });
    }

    /// Nothing is under way any more, and nothing waits.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.under_way = 0;
        self.controller.on_idle();
    }
}

// Staggered sending (Flare §5): each rank sends its blocks in an order of its own, so that the packets of one block
// reach a switch at different times.
//
// The paper rotates whole tensors and never says what happens to its own window: rank `c` would fill its slots with
// blocks that no other rank can have sent, and all ranks would wait for one another. Here the stream is cut
// into *epochs* of half the pool, and each rank rotates each epoch by its share of it. An epoch has the slots of the
// epoch before the last one, whose results are on their way while the last one is sent. Every rank ends an epoch
// before it begins the next, so no two blocks wait for each other.

/// A host's own order of blocks.
#[derive(Clone, Hash)]
pub struct Epochs {
    /// The first block of the epoch.
    base: u64,
    /// Where in each epoch this host begins.
    shift: u64,
    /// The blocks of the epoch that were sent.
    sent: Vec<bool>,
    /// The number of blocks of the epoch that were not sent.
    left: usize,
    /// All blocks before this position in the host's own order were sent.
    from: u64,
}

impl Epochs {
    /// The order for a pool of this many slots, of one of `world_size` ranks.
    pub fn new(slots: u16, rank: u16, world_size: u16) -> Epochs {
        let len = (u64::from(slots) / 2).max(1);
        let shift = u64::from(rank) * len / u64::from(world_size.max(1));
        Epochs { base: 0, shift, sent: vec![false; len as usize], left: len as usize, from: 0 }
    }

    /// The next block to send. Of the submitted blocks, it is the next in the host's own order, if its slot is free. A
    /// block that is submitted later has its turn later, and the next epoch begins when all blocks of this one were
    /// sent.
    pub fn next(&mut self, is_submitted: impl Fn(u64) -> bool, is_free: impl Fn(u64) -> bool) -> Option<u64> {
        let len = self.sent.len() as u64;
        let position = |at: u64| ((self.shift + at) % len) as usize;
        let waits = |&at: &u64| !self.sent[position(at)] && is_submitted(self.base + position(at) as u64);
        let at = (self.from..len).find(waits)?;
        let (position, block) = (position(at), self.base + position(at) as u64);
        if !is_free(block) {
            return None;
        }
        self.sent[position] = true;
        self.left -= 1;
        if at == self.from {
            self.from += 1;
        }
        if self.left == 0 {
            self.base += len;
            (self.from, self.left) = (0, self.sent.len());
            self.sent.fill(false);
        }
        Some(block)
    }
}

impl<D: Dialect> SlotHost<D> {
    /// Sends blocks that no longer need to wait for the answers to others.
    pub(super) fn release(&mut self) {
        let (pool, Some(gate)) = (self.slots.len() as u64, &mut self.gate) else { return };
        while let Some(block) = gate.release() {
            self.queue.push((block % pool) as u16);
        }
    }

    /// A lost packet is not under way (RFC 6675's pipe), whether it was lost here or at the rank that others wait for.
    /// In a quiet tree perhaps nothing was lost and some rank is only late.
    pub(super) fn be_late(&mut self, now: Time, idx: u16) {
        let Some(gate) = self.gate.as_mut().filter(|_| !self.recovery.is_quiet(idx)) else { return };
        let slot = &mut self.slots[usize::from(idx)];
        if !std::mem::replace(&mut slot.is_late, true) {
            gate.on_loss(now, slot.block);
            self.release();
        }
    }

    /// Notes that the slot's phase has ended, with an answer or without. Another block then has room.
    pub(super) fn end_phase(&mut self, idx: u16) {
        let slot = &mut self.slots[usize::from(idx)];
        slot.in_flight = false;
        let was_late = std::mem::take(&mut slot.is_late);
        let (pool, Some(gate)) = (self.slots.len() as u64, &mut self.gate) else { return };
        if !was_late {
            gate.on_end();
        }
        let (slots, config) = (&self.slots, &self.config);
        gate.advance(|block| {
            let idx = block % pool;
            slots[idx as usize].block > block || !config.slots.has(&config.job, idx as u16)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ids::{JobId, JobKey};
    use crate::contract::options::OptionSet;

    /// The gate of 1,000 slots of packets of 1,500 bytes. Its least is 64 blocks, and a queue has 500.
    fn gate() -> SendGate {
        let job = JobConfig {
            job: JobId(1),
            key: JobKey(1),
            protocol: 1,
            world_size: 2,
            slots: 1000,
            elements_per_packet: 367,
            trees: 1,
            levels: false,
            options: OptionSet::new("any", &WINDOW_OPTIONS).defaults(),
        };
        SendGate::chosen(&job, 32).expect("the default measures")
    }

    /// A path that answers after `trip`, or later if it gets more than `rate` packets a second.
    fn send(gate: &mut SendGate, start: Time, packets: u64, trip: Span, rate: u64) -> Time {
        let mut under_way = std::collections::VecDeque::new();
        let (mut now, mut free_at) = (start, start);
        for block in gate.oldest..gate.oldest + packets {
            if gate.begin(block) {
                free_at = free_at.max(now) + Span(1_000_000_000_000 / rate);
                under_way.push_back((block, now, free_at + trip));
            }
        }
        while let Some((block, sent_at, answer_at)) = under_way.pop_front() {
            now = answer_at;
            gate.on_answer(now, (block % 1000) as u16, Some(now.since(sent_at)));
            gate.on_end();
            gate.advance(|oldest| oldest == block);
            while let Some(next) = gate.release() {
                free_at = free_at.max(now) + Span(1_000_000_000_000 / rate);
                under_way.push_back((next, now, free_at + trip));
            }
        }
        now
    }

    #[test]
    fn begins_with_little_and_has_a_short_queue_at_most_on_short_paths() {
        let mut gate = gate();
        assert_eq!(gate.window(), 64);
        let now = send(&mut gate, Time::ZERO, 10_000, Span::from_micros(50), 1_000_000);
        assert_eq!(gate.window(), 500, "750 kB on a fast link");
        let now = send(&mut gate, now, 10_000, Span::from_micros(50), 80_000);
        assert!((300..=340).contains(&gate.window()), "4 ms of 1 Gbit/s, not {}", gate.window());
        send(&mut gate, now, 10_000, Span::from_micros(50), 8_000);
        assert!(gate.window() <= 128, "{} are enough at 0.1 Gbit/s", gate.window());
    }

    #[test]
    fn has_two_round_trips_under_way_on_long_paths_also_where_the_path_grew_longer() {
        let mut gate = gate();
        let now = send(&mut gate, Time::ZERO, 10_000, Span::from_micros(50), 20_000);
        assert!(gate.window() < 100);
        send(&mut gate, now, 60_000, Span::from_millis(20), 20_000);
        assert!(gate.window() >= 700, "40 ms of 20,000 packets a second, not {}", gate.window());
    }

    #[test]
    fn what_waits_goes_in_the_order_of_blocks_and_the_oldest_never_waits() {
        let mut gate = gate();
        for block in (0..64).map(|block| block + 100) {
            assert!(gate.begin(block));
        }
        assert!(!gate.begin(300) && !gate.begin(200));
        assert_eq!(gate.release(), None, "no answer has come");
        assert!(gate.begin(0), "the oldest");
        gate.on_end();
        gate.on_end();
        assert_eq!((gate.release(), gate.release()), (Some(200), None));
        gate.advance(|block| block < 300);
        assert_eq!(gate.release(), Some(300), "now it is the oldest");
    }

    #[test]
    fn servers_have_runs_of_blocks_in_turn() {
        let mut gate = gate().among_servers(250);
        assert!(gate.begin(0), "the oldest");
        assert!((1..1000).all(|block| !gate.begin(block)));
        let sent: Vec<u64> = std::iter::from_fn(|| gate.release()).collect();
        assert_eq!(sent.len(), 63, "the window is full");
        let runs = [1..8, 250..258, 500..508, 750..758, 8..16, 258..266, 508..516, 758..766];
        assert_eq!(sent, runs.into_iter().flatten().collect::<Vec<_>>());
        gate.advance(|block| block < 100);
        assert_eq!(gate.release(), Some(100), "it is the oldest, and never waits");
    }

    #[test]
    fn a_small_tensor_changes_nothing() {
        let mut gate = gate();
        let now = send(&mut gate, Time::ZERO, 10_000, Span::from_micros(50), 1_000_000);
        let now = send(&mut gate, now, 10, Span::from_micros(50), 1_000_000);
        send(&mut gate, now, 100, Span::from_millis(10), 1_000);
        assert_eq!(gate.window(), 500);
    }

    /// All blocks that may be sent now.
    fn ready(epochs: &mut Epochs, submitted: u64, free: u64) -> Vec<u64> {
        std::iter::from_fn(|| epochs.next(|block| block < submitted, |block| block < free)).collect()
    }

    #[test]
    fn each_rank_begins_each_epoch_at_its_own_position() {
        let first = |rank| ready(&mut Epochs::new(8, rank, 4), 8, 8);
        assert_eq!(first(0), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(first(1), [1, 2, 3, 0, 5, 6, 7, 4]);
        assert_eq!(first(3), [3, 0, 1, 2, 7, 4, 5, 6]);
    }

    #[test]
    fn a_slot_that_is_not_free_holds_up_what_comes_after_it() {
        let mut epochs = Epochs::new(8, 1, 4);
        assert_eq!(ready(&mut epochs, 16, 5), [1, 2, 3, 0]);
        assert_eq!(ready(&mut epochs, 16, 7), [5, 6]);
        assert_eq!(ready(&mut epochs, 16, 8), [7, 4]);
    }

    #[test]
    fn blocks_that_are_submitted_later_have_their_turn_later() {
        let mut epochs = Epochs::new(8, 1, 4);
        assert_eq!(ready(&mut epochs, 2, 8), [1, 0]);
        assert_eq!(ready(&mut epochs, 3, 8), [2]);
        assert_eq!(ready(&mut epochs, 6, 8), [3, 5, 4]);
    }

    #[test]
    fn a_pool_of_one_slot_has_epochs_of_one_block() {
        let mut epochs = Epochs::new(1, 2, 3);
        assert_eq!(ready(&mut epochs, 3, 1), [0]);
        assert_eq!(ready(&mut epochs, 3, 2), [1]);
    }
}
