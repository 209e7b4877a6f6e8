//! The egress queue of one port. It is bounded in bytes, drops at the tail, marks above a threshold, sends at the port's
//! rate, and stops while the other end of the cable wants a pause. A host of a lossless fabric has such a queue too.
//!
//! Packets are copied into memory that is allocated once, and leave in runs of equal segments. The machines' `PortView`
//! and the choice among next hops see the queue's length.

use std::collections::VecDeque;

use tributary_proto::congestion::Marking;
use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::{Span, Time};

use super::ingress_buffers::Charge;
use crate::udp::{Batches, Run};

/// What an Ethernet frame adds to a UDP payload over IPv4. The testbed's shapers count in the same way.
pub const FRAME_BYTES: u64 = 14 + 20 + 8;
/// A timer of a busy machine is late by milliseconds. The queue makes up for at most this lateness ...
const TIMER_SLACK: Span = Span::from_micros(2_000);
/// ... and for no more than this fraction of the queue at once, because that many bytes may meet in the next queue.
const SLACK_DIVISOR: u64 = 4;
/// The number of receivers at the other end whose runs are gathered at the same time. They are members of jobs on one
/// host.
const RECEIVERS: usize = 8;
const PS_PER_S: u128 = 1_000_000_000_000;
/// The longest time for which a PAUSE holds, whatever it says.
const LONGEST_PAUSE: Span = Span::from_millis(1_000);

/// The receiver of a packet, at the other end of the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// The switch at the other end.
    Switch,
    /// The member of a job on the host at the other end.
    Member(JobId),
    /// A UDP port of the host at the other end.
    UdpPort(u16),
}

struct Entry<K> {
    at: usize,
    len: usize,
    ecn: Ecn,
    to: K,
    charge: Charge,
}

/// The counters of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EgressCounters {
    /// Packets that left.
    pub packets: u64,
    /// UDP payload bytes that left.
    pub bytes: u64,
    /// Packets that did not fit the queue.
    pub drops: u64,
    /// Packets that were marked.
    pub marks: u64,
    /// The greatest length of the queue, in bytes on the wire.
    pub peak_bytes: u64,
    /// How often the other end wanted a pause.
    pub pauses: u64,
}

/// The queue of one port, for receivers of the kind `K`.
pub struct Egress<K> {
    memory: Box<[u8]>,
    /// Where the next packet goes, if it fits in front of the memory's end.
    tail: usize,
    entries: VecDeque<Entry<K>>,
    /// The bytes that wait, as on the wire.
    queued: u64,
    limit: u64,
    /// The length that counts as full when next hops are chosen.
    nominal: u64,
    marking: Marking,
    bits_per_s: Option<u64>,
    /// When the packets that have left will have passed the port.
    busy_until: Time,
    /// The end of the pause that the other end wants.
    paused_until: Time,
    slack: Span,
    batches: Batches<K, RECEIVERS>,
    counters: EgressCounters,
}

impl<K: Copy + PartialEq> Egress<K> {
    /// An empty queue that holds `limit` bytes. `idle` may be any receiver.
    pub fn new(limit: u64, marking: Marking, bits_per_s: Option<u64>, idle: K) -> Egress<K> {
        Egress {
            memory: memory(limit),
            tail: 0,
            entries: VecDeque::new(),
            queued: 0,
            limit,
            nominal: limit,
            marking,
            bits_per_s,
            busy_until: Time::ZERO,
            paused_until: Time::ZERO,
            slack: bits_per_s.map_or(TIMER_SLACK, |rate| TIMER_SLACK.min(duration(limit / SLACK_DIVISOR, rate))),
            batches: Batches::new(idle),
            counters: EgressCounters::default(),
        }
    }

    /// The same queue with a capacity of `limit` bytes, for lossless fabrics: all that the ports hold may wait for one
    /// port.
    pub fn with_capacity(self, limit: u64) -> Egress<K> {
        Egress { memory: memory(limit), limit, ..self }
    }

    /// The bytes that wait, as on the wire.
    pub fn queued_bytes(&self) -> u64 {
        self.queued
    }

    /// True if more than half of the nominal length waits.
    pub fn is_over_half(&self) -> bool {
        self.queued * 2 > self.nominal
    }

    /// The counters so far.
    pub fn counters(&self) -> &EgressCounters {
        &self.counters
    }

    /// Takes a packet, marked if the queue is long. False if the packet does not fit and is dropped.
    pub fn offer(&mut self, packet: &[u8], ecn: Ecn, to: K, charge: Charge) -> bool {
        let wire = packet.len() as u64 + FRAME_BYTES;
        if self.queued + wire > self.limit {
            self.refuse();
            return false;
        }
        // A packet that had a mark already counts as one that this queue marks.
        let marks = ecn != Ecn::NotCapable && self.marking.should_mark(self.queued);
        let ecn = if marks { Ecn::CongestionExperienced } else { ecn };
        self.counters.marks += u64::from(marks);
        let at = self.next_offset(packet.len());
        self.memory[at..at + packet.len()].copy_from_slice(packet);
        self.tail = at + packet.len();
        self.entries.push_back(Entry { at, len: packet.len(), ecn, to, charge });
        self.queued += wire;
        self.counters.peak_bytes = self.counters.peak_bytes.max(self.queued);
        true
    }

    /// Counts a packet that is dropped in front of this queue.
    pub fn refuse(&mut self) {
        self.counters.drops += 1;
    }

    /// Pauses for this time. A pause of no length resumes the queue.
    pub fn pause(&mut self, now: Time, span: Span) {
        self.counters.pauses += u64::from(self.paused_until <= now && span > Span(0));
        self.paused_until = now + span.min(LONGEST_PAUSE);
    }

    /// Where the next packet goes: after the last one, or at the beginning of the memory.
    fn next_offset(&self, len: usize) -> usize {
        if self.memory.len() - self.tail >= len { self.tail } else { 0 }
    }

    /// When the next packet may leave; `None` if no packet waits.
    pub fn due(&self) -> Option<Time> {
        (!self.entries.is_empty()).then_some(self.busy_until.max(self.paused_until))
    }

    /// Hands over the packets that may leave by now, in runs for one receiver each, and frees their ingress buffers.
    pub fn drain(&mut self, now: Time, mut free: impl FnMut(Charge, u64), mut send: impl FnMut(K, &Run, &[u8])) {
        if self.paused_until > now {
            return;
        }
        // The queue does not make up for the time of a pause.
        self.busy_until = self.busy_until.max(self.paused_until);
        while self.busy_until <= now
            && let Some(Entry { at, len, ecn, to, charge }) = self.entries.pop_front()
        {
            self.queued -= len as u64 + FRAME_BYTES;
            self.counters.packets += 1;
            self.counters.bytes += len as u64;
            self.occupy(now, len as u64 + FRAME_BYTES);
            free(charge, len as u64 + FRAME_BYTES);
            // The packet's memory counts as free now, but nothing is written there before the runs have left.
            self.batches.push(to, at..at + len, ecn, |to, run| send(to, run, &self.memory));
        }
        self.batches.flush(|to, run| send(to, run, &self.memory));
        if self.entries.is_empty() {
            // The next packets are written to the beginning, which is still in the core's own cache.
            self.tail = 0;
        }
    }

    fn occupy(&mut self, now: Time, bytes: u64) {
        if let Some(rate) = self.bits_per_s {
            let begin = self.busy_until.max(Time(now.0.saturating_sub(self.slack.0)));
            self.busy_until = begin + duration(bytes, rate);
        }
    }

    /// Drops all packets that wait: the other end is gone.
    pub fn clear(&mut self, mut free: impl FnMut(Charge, u64)) {
        self.counters.drops += self.entries.len() as u64;
        self.entries.drain(..).for_each(|entry| free(entry.charge, entry.len as u64 + FRAME_BYTES));
        self.queued = 0;
    }
}

/// Memory for the limit and twice the longest packet: one such length may lie unused at the end of the memory, and one
/// keeps the memory from being full.
fn memory(limit: u64) -> Box<[u8]> {
    vec![0; limit as usize + (2 << 16)].into_boxed_slice()
}

/// How long this number of bytes occupies a port.
fn duration(bytes: u64, bits_per_s: u64) -> Span {
    Span((u128::from(bytes) * 8 * PS_PER_S / u128::from(bits_per_s)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: [u8; 958] = [7; 958];

    /// At 8 Mbit/s a packet of 1,000 bytes on the wire takes a millisecond.
    fn queue(limit: u64) -> Egress<Receiver> {
        Egress::new(limit, Marking::new(2_000, 2_000, 0), Some(8_000_000), Receiver::Switch)
    }

    fn ms(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    fn offer(queue: &mut Egress<Receiver>, packet: &[u8], ecn: Ecn) -> bool {
        queue.offer(packet, ecn, Receiver::Switch, Charge::None)
    }

    fn drain(queue: &mut Egress<Receiver>, now: Time) -> usize {
        let mut packets = 0;
        queue.drain(now, |_, _| {}, |_, run, _| packets += run.packets());
        packets
    }

    #[test]
    fn packets_leave_at_the_rate_of_the_port() {
        let mut queue = queue(100_000);
        (0..10).for_each(|_| assert!(offer(&mut queue, &PACKET, Ecn::NotCapable)));
        assert_eq!(drain(&mut queue, Time::ZERO), 1);
        assert_eq!(queue.due(), Some(ms(1)));
        let left: usize = (1..=10).map(|half| drain(&mut queue, Time::ZERO + Span::from_micros(500 * half))).sum();
        assert_eq!(left, 5, "from 1 ms to 5 ms, at 1 ms each");
        assert_eq!(queue.queued_bytes(), 4_000);
        assert_eq!(drain(&mut queue, ms(100)), 3, "what a timer is late by beyond the slack is lost");
    }

    #[test]
    fn a_fraction_of_the_queue_may_leave_at_once_after_a_pause() {
        let mut queue = Egress::new(4_000, Marking::never(), Some(8_000_000), Receiver::Switch);
        (0..4).for_each(|_| assert!(offer(&mut queue, &PACKET, Ecn::NotCapable)));
        assert_eq!(drain(&mut queue, ms(50)), 2, "one for the slack of a millisecond, one for now");
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_what_waits_long_is_marked() {
        let mut queue = queue(4_000);
        let mut marks = Vec::new();
        (0..6).for_each(|packet| assert_eq!(offer(&mut queue, &PACKET, Ecn::Capable), packet < 4));
        assert_eq!((queue.counters().drops, queue.queued_bytes()), (2, 4_000));
        assert!(queue.is_over_half());
        for at in 1..10 {
            queue.drain(ms(2 * at), |_, _| {}, |_, run, _| marks.push(run.packets()));
        }
        assert_eq!((marks.iter().sum::<usize>(), queue.counters().marks), (4, 1), "it found 3,000 bytes waiting");
        assert_eq!(queue.due(), None);
    }

    #[test]
    fn a_pause_stops_the_queue_is_not_made_up_for_and_runs_out() {
        let mut queue = queue(100_000);
        (0..10).for_each(|_| assert!(offer(&mut queue, &PACKET, Ecn::NotCapable)));
        assert_eq!(drain(&mut queue, ms(0)), 1);
        queue.pause(ms(0), Span::from_millis(50));
        queue.pause(ms(20), Span::from_millis(50));
        assert_eq!((drain(&mut queue, ms(69)), queue.due(), queue.counters().pauses), (0, Some(ms(70)), 1));
        assert_eq!(drain(&mut queue, ms(70)), 1, "it has run out");
        queue.pause(ms(70), Span::from_millis(50));
        queue.pause(ms(80), Span(0));
        assert_eq!((drain(&mut queue, ms(80)), queue.counters().pauses), (1, 2), "resumed");
        queue.pause(ms(80), Span(u64::MAX / 2));
        assert_eq!(queue.due(), Some(ms(1_080)), "a pause is bounded");
    }

    #[test]
    fn ingress_buffers_are_freed_when_packets_leave_or_are_cleared() {
        let mut queue = queue(100_000);
        let charge = |port| Charge::Port(tributary_proto::contract::ids::PortId(port));
        (0..3).for_each(|port| assert!(queue.offer(&PACKET, Ecn::NotCapable, Receiver::Switch, charge(port))));
        let mut freed = Vec::new();
        queue.drain(ms(0), |charge, bytes| freed.push((charge, bytes)), |_, _, _| {});
        assert_eq!(freed, [(charge(0), 1_000)]);
        queue.clear(|charge, bytes| freed.push((charge, bytes)));
        assert_eq!(freed[1..], [(charge(1), 1_000), (charge(2), 1_000)]);
    }

    #[test]
    fn memory_comes_round_and_no_packet_is_overwritten_before_it_leaves() {
        let mut queue = Egress::new(20_000, Marking::never(), None, Receiver::Switch);
        let mut waiting: VecDeque<Vec<u8>> = VecDeque::new();
        let mut passed = 0;
        for number in 0..6_000usize {
            let packet = vec![number as u8; 1 + number * 911 % 3_000];
            if offer(&mut queue, &packet, Ecn::NotCapable) {
                waiting.push_back(packet);
            }
            if number % 7 == 6 {
                let same = |_: Receiver, run: &Run, memory: &[u8]| {
                    let expected: Vec<u8> = waiting.drain(..run.packets()).flatten().collect();
                    let sent: Vec<u8> = run.ranges().iter().flat_map(|range| memory[range.clone()].to_vec()).collect();
                    assert!(sent == expected);
                    passed += run.packets();
                };
                queue.drain(ms(1), |_, _| {}, same);
            }
        }
        assert!(passed > 4_000, "{passed}");
    }

    #[test]
    fn a_run_is_for_one_receiver_though_others_come_between() {
        let mut queue = Egress::new(100_000, Marking::never(), None, Receiver::Switch);
        for job in [1, 1, 2, 1] {
            assert!(queue.offer(&PACKET, Ecn::NotCapable, Receiver::Member(JobId(job)), Charge::None));
        }
        let mut runs = Vec::new();
        queue.drain(ms(0), |_, _| {}, |to, run, _| runs.push((to, run.packets())));
        let member = |job| Receiver::Member(JobId(job));
        assert_eq!(runs, [(member(1), 3), (member(2), 1)]);
    }
}
