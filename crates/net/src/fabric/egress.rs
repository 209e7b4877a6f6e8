//! The egress queue of one port: bounded in bytes, drop-tail, marks above a threshold, leaves at the port's rate.
//!
//! Packets are copied into memory that is taken once, and leave in runs of equal segments. A queue is as long as the
//! machines' `PortView` and the choice among ways see it.

use std::collections::VecDeque;

use tributary_proto::contract::ids::JobId;
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::{Span, Time};

use crate::udp::{Lanes, Run};

/// What an Ethernet frame adds to a UDP payload over IPv4: the testbed's shapers count alike.
const FRAME_BYTES: u64 = 14 + 20 + 8;
/// What a timer that is late may make up for: a busy machine's are, by milliseconds ...
const TIMER_SLACK: Span = Span::from_micros(2_000);
/// ... but no more than so large a part of the queue at once, for that is what may come together at the next one.
const SLACK_PART: u64 = 4;
/// Receivers at the other end whose runs are gathered at the same time: members of jobs on one host.
const LANES: usize = 8;
const PS_PER_S: u128 = 1_000_000_000_000;

/// Whom a packet is for, at the other end of the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// The switch there.
    Switch,
    /// The member of a job on the host there.
    Member(JobId),
    /// A UDP port of the host there.
    UdpPort(u16),
}

struct Entry {
    at: usize,
    len: usize,
    ecn: Ecn,
    to: Receiver,
}

/// What a queue did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EgressCounters {
    /// Packets that left.
    pub packets: u64,
    /// UDP payload bytes that left.
    pub bytes: u64,
    /// Packets that did not fit.
    pub drops: u64,
    /// Packets that were marked.
    pub marks: u64,
    /// The longest that the queue was, in bytes on the wire.
    pub peak_bytes: u64,
}

/// The queue of one port.
pub struct Egress {
    memory: Box<[u8]>,
    /// Where the next packet goes, if it fits before the memory's end.
    tail: usize,
    entries: VecDeque<Entry>,
    /// On the wire, waiting.
    queued: u64,
    limit: u64,
    mark_above: u64,
    bits_per_s: Option<u64>,
    /// When what has left will be on the wire.
    busy_until: Time,
    slack: Span,
    lanes: Lanes<Receiver, LANES>,
    counters: EgressCounters,
}

impl Egress {
    /// An empty queue that holds `limit` bytes.
    pub fn new(limit: u64, mark_above: Option<u64>, bits_per_s: Option<u64>) -> Egress {
        // Twice the longest packet over the limit: one may lie unused at the end of the memory, and one is not full.
        let memory = vec![0; limit as usize + (2 << 16)].into_boxed_slice();
        Egress {
            memory,
            tail: 0,
            entries: VecDeque::new(),
            queued: 0,
            limit,
            mark_above: mark_above.unwrap_or(u64::MAX),
            bits_per_s,
            busy_until: Time::ZERO,
            slack: bits_per_s.map_or(TIMER_SLACK, |rate| TIMER_SLACK.min(duration(limit / SLACK_PART, rate))),
            lanes: Lanes::new(Receiver::Switch),
            counters: EgressCounters::default(),
        }
    }

    /// Bytes on the wire that wait.
    pub fn queued_bytes(&self) -> u64 {
        self.queued
    }

    /// More than half of what fits waits.
    pub fn is_over_half(&self) -> bool {
        self.queued * 2 > self.limit
    }

    /// What was counted so far.
    pub fn counters(&self) -> &EgressCounters {
        &self.counters
    }

    /// Takes a packet, marked if the queue is long, or drops it if it does not fit.
    pub fn offer(&mut self, packet: &[u8], ecn: Ecn, to: Receiver) {
        let wire = packet.len() as u64 + FRAME_BYTES;
        if self.queued + wire > self.limit {
            self.counters.drops += 1;
            return;
        }
        let long = self.queued > self.mark_above;
        let ecn = if long && ecn == Ecn::Capable { Ecn::CongestionExperienced } else { ecn };
        self.counters.marks += u64::from(long && ecn == Ecn::CongestionExperienced);
        let at = self.place(packet.len());
        self.memory[at..at + packet.len()].copy_from_slice(packet);
        self.tail = at + packet.len();
        self.entries.push_back(Entry { at, len: packet.len(), ecn, to });
        self.queued += wire;
        self.counters.peak_bytes = self.counters.peak_bytes.max(self.queued);
    }

    /// Free memory for a packet that fits the limit: behind the last one, or at the beginning again.
    fn place(&self, len: usize) -> usize {
        if self.memory.len() - self.tail >= len { self.tail } else { 0 }
    }

    /// When something may leave; `None` while nothing waits.
    pub fn due(&self) -> Option<Time> {
        (!self.entries.is_empty()).then_some(self.busy_until)
    }

    /// Hands over what may leave by now, in runs for one receiver each.
    pub fn drain(&mut self, now: Time, mut send: impl FnMut(Receiver, &Run, &[u8])) {
        while self.busy_until <= now
            && let Some(Entry { at, len, ecn, to }) = self.entries.pop_front()
        {
            self.queued -= len as u64 + FRAME_BYTES;
            self.counters.packets += 1;
            self.counters.bytes += len as u64;
            self.occupy(now, len as u64 + FRAME_BYTES);
            // Its memory is free only now, but nothing is written there before the runs have left.
            self.lanes.push(to, at..at + len, ecn, |to, run| send(to, run, &self.memory));
        }
        self.lanes.flush(|to, run| send(to, run, &self.memory));
    }

    fn occupy(&mut self, now: Time, bytes: u64) {
        if let Some(rate) = self.bits_per_s {
            let begin = self.busy_until.max(Time(now.0.saturating_sub(self.slack.0)));
            self.busy_until = begin + duration(bytes, rate);
        }
    }

    /// Forgets all that waits: the other end is gone.
    pub fn clear(&mut self) {
        self.counters.drops += self.entries.len() as u64;
        self.entries.clear();
        self.queued = 0;
    }
}

/// How long so many bytes occupy a port.
fn duration(bytes: u64, bits_per_s: u64) -> Span {
    Span((u128::from(bytes) * 8 * PS_PER_S / u128::from(bits_per_s)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: [u8; 958] = [7; 958];

    /// 8 Mbit/s: a packet of 1,000 bytes on the wire lasts a millisecond.
    fn queue(limit: u64) -> Egress {
        Egress::new(limit, Some(2_000), Some(8_000_000))
    }

    fn ms(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    fn drain(queue: &mut Egress, now: Time) -> usize {
        let mut packets = 0;
        queue.drain(now, |_, run, _| packets += run.packets());
        packets
    }

    #[test]
    fn packets_leave_at_the_rate_of_the_port() {
        let mut queue = queue(100_000);
        (0..10).for_each(|_| queue.offer(&PACKET, Ecn::NotCapable, Receiver::Switch));
        assert_eq!(drain(&mut queue, Time::ZERO), 1);
        assert_eq!(queue.due(), Some(ms(1)));
        let left: usize = (1..=10).map(|half| drain(&mut queue, Time::ZERO + Span::from_micros(500 * half))).sum();
        assert_eq!(left, 5, "from 1 ms to 5 ms, at 1 ms each");
        assert_eq!(queue.queued_bytes(), 4_000);
        assert_eq!(drain(&mut queue, ms(100)), 3, "what a timer is late by beyond the slack is lost");
    }

    #[test]
    fn what_may_leave_at_once_after_a_pause_is_a_part_of_the_queue() {
        let mut queue = Egress::new(4_000, None, Some(8_000_000));
        (0..4).for_each(|_| queue.offer(&PACKET, Ecn::NotCapable, Receiver::Switch));
        assert_eq!(drain(&mut queue, ms(50)), 2, "one for the slack of a millisecond, one for now");
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_what_waits_long_is_marked() {
        let mut queue = queue(4_000);
        let mut marks = Vec::new();
        (0..6).for_each(|_| queue.offer(&PACKET, Ecn::Capable, Receiver::Switch));
        assert_eq!((queue.counters().drops, queue.queued_bytes()), (2, 4_000));
        assert!(queue.is_over_half());
        for at in 1..10 {
            queue.drain(ms(2 * at), |_, run, _| marks.push(run.packets()));
        }
        assert_eq!((marks.iter().sum::<usize>(), queue.counters().marks), (4, 1), "it found 3,000 bytes waiting");
        assert_eq!(queue.due(), None);
    }

    #[test]
    fn memory_comes_round_and_no_packet_is_overwritten_before_it_leaves() {
        let mut queue = Egress::new(20_000, None, None);
        let mut waiting: VecDeque<Vec<u8>> = VecDeque::new();
        let mut passed = 0;
        for number in 0..6_000usize {
            let packet = vec![number as u8; 1 + number * 911 % 3_000];
            let drops = queue.counters().drops;
            queue.offer(&packet, Ecn::NotCapable, Receiver::Switch);
            if queue.counters().drops == drops {
                waiting.push_back(packet);
            }
            if number % 7 == 6 {
                queue.drain(ms(1), |_, run, memory| {
                    let expected: Vec<u8> = waiting.drain(..run.packets()).flatten().collect();
                    let came: Vec<u8> = run.pieces().iter().flat_map(|piece| memory[piece.clone()].to_vec()).collect();
                    assert!(came == expected);
                    passed += run.packets();
                });
            }
        }
        assert!(passed > 4_000, "{passed}");
    }

    #[test]
    fn a_run_is_for_one_receiver_though_others_come_between() {
        let mut queue = Egress::new(100_000, None, None);
        for job in [1, 1, 2, 1] {
            queue.offer(&PACKET, Ecn::NotCapable, Receiver::Member(JobId(job)));
        }
        let mut runs = Vec::new();
        queue.drain(ms(0), |to, run, _| runs.push((to, run.packets())));
        let member = |job| Receiver::Member(JobId(job));
        assert_eq!(runs, [(member(1), 3), (member(2), 1)]);
    }
}
