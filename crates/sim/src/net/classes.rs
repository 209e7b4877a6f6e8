//! Output ports that serve packets by class: a queue for each priority, and a rule that says which of them sends next.
//!
//! Which packet leaves next is not known when it joins, as it is on other links, so each transmission that others wait for
//! ends with an event of its own.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use tributary_proto::contract::time::{Span, Time};

use super::link::Link;
use super::packet::{Packet, PacketFlags};

/// How many classes there are: the priorities of 802.1Q.
pub const CLASSES: usize = 8;
/// Bytes that a class of weight 1 may send in a round: a full Ethernet packet.
pub(super) const QUANTUM: u64 = 1_538;

/// Which class of an output port sends next.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    /// The highest that has a packet.
    Strict,
    /// All in turn, from class 0 on with these shares of the bytes: deficit round robin (Shreedhar and Varghese, 1996).
    Weights(Vec<u32>),
}

impl Service {
    /// How many classes it knows.
    pub fn classes(&self) -> usize {
        match self {
            Service::Strict => CLASSES,
            Service::Weights(weights) => weights.len(),
        }
    }
}

/// What a switch that trims sends on of a packet for which its queue has no space, in the highest class (Handley et al., "NDP",
/// SIGCOMM 2017): the header of a transport's packet, which has these bytes on a link, `None` of others, and of packets
/// that are not longer.
pub(super) fn header_of(packet: &Packet, bytes: u16) -> Option<Packet> {
    let has_data = !packet.is_of_job() && !packet.payload.is_none() && packet.bytes > bytes;
    has_data.then(|| Packet { bytes, flags: packet.flags.with_priority(CLASSES as u8 - 1), ..*packet })
}

/// The packets that wait at one output port.
#[derive(Default)]
pub(super) struct ClassQueues {
    waiting: [VecDeque<Packet>; CLASSES],
    /// The bytes of each class.
    bytes: [u64; CLASSES],
    /// What each class may still send in this round, by weights.
    deficit: [u64; CLASSES],
    /// The class whose turn it is, by weights.
    turn: usize,
    /// True if a departure is scheduled.
    pub is_armed: bool,
}

impl ClassQueues {
    /// True if no packet waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty)
    }

    /// Bytes that wait in the class of packets with these flags.
    pub fn bytes_of(&self, flags: PacketFlags) -> u64 {
        self.bytes[usize::from(flags.priority())]
    }

    /// All packets that wait.
    pub fn packets(&self) -> impl Iterator<Item = &Packet> {
        self.waiting.iter().flatten()
    }

    /// A packet waits behind those of its class.
    pub fn push(&mut self, packet: Packet) {
        let class = usize::from(packet.flags.priority());
        self.bytes[class] += u64::from(packet.bytes);
        self.waiting[class].push_back(packet);
    }

    /// Removes the packet that leaves next.
    pub fn pop(&mut self, service: &Service) -> Option<Packet> {
        if self.is_empty() {
            return None;
        }
        let class = match service {
            Service::Strict => self.waiting.iter().rposition(|queue| !queue.is_empty())?,
            Service::Weights(weights) => self.turn_of(weights),
        };
        let packet = self.waiting[class].pop_front()?;
        self.bytes[class] -= u64::from(packet.bytes);
        Some(packet)
    }

    /// The class that sends next by weights; some packet waits. A class without packets saves nothing up.
    fn turn_of(&mut self, weights: &[u32]) -> usize {
        loop {
            let class = self.turn;
            match self.waiting[class].front() {
                Some(packet) if u64::from(packet.bytes) <= self.deficit[class] => {
                    self.deficit[class] -= u64::from(packet.bytes);
                    return class;
                }
                Some(_) => {}
                None => self.deficit[class] = 0,
            }
            self.turn = (class + 1) % weights.len();
            self.deficit[self.turn] += QUANTUM * u64::from(weights[self.turn]);
        }
    }
}

impl Link {
    /// Counts a packet that finds this much of its own class, as [`Link::join_waiting`]; false if it does not fit.
    pub(super) fn join_class(&mut self, now: Time, bytes: u16, before: u64, flags: &mut PacketFlags) -> bool {
        let fits = self.transmission(before + u64::from(bytes)) <= self.limit;
        if fits {
            self.join_waiting(now, bytes, self.transmission(before), flags);
        }
        fits
    }

    /// The link has another rate, and packets of these lengths wait.
    pub(super) fn recount_waiting(&mut self, packets: impl Iterator<Item = u16>) {
        self.waiting = packets.fold(Span::ZERO, |sum, bytes| sum + self.transmission(bytes.into()));
    }
}

#[cfg(test)]
mod tests {
    use tributary_proto::contract::packet::Ecn;

    use super::*;

    fn packet(class: u8, bytes: u16) -> Packet {
        Packet { bytes, flags: PacketFlags::new(Ecn::Capable, class), ..Packet::BLANK }
    }

    #[test]
    fn the_highest_class_goes_first_and_each_class_keeps_its_order() {
        let mut queues = ClassQueues::default();
        for (class, bytes) in [(0, 1), (3, 2), (0, 3), (7, 4), (3, 5)] {
            queues.push(packet(class, bytes));
        }
        assert_eq!(queues.bytes_of(packet(3, 0).flags), 7);
        let left: Vec<u16> = std::iter::from_fn(|| queues.pop(&Service::Strict)).map(|packet| packet.bytes).collect();
        assert_eq!((left, queues.is_empty(), queues.bytes_of(packet(3, 0).flags)), (vec![4, 2, 5, 1, 3], true, 0));
    }

    #[test]
    fn weights_share_bytes_and_not_packets_among_classes_that_have_some() {
        let (mut queues, service) = (ClassQueues::default(), Service::Weights(vec![1, 3, 5]));
        for _ in 0..9_000 {
            queues.push(packet(0, 1_500));
            queues.push(packet(1, 100));
        }
        let mut sent = [0u64; 2];
        while sent.iter().sum::<u64>() < 1_000_000 {
            let packet = queues.pop(&service).unwrap();
            sent[usize::from(packet.flags.priority())] += u64::from(packet.bytes);
        }
        // Class 2 has nothing; a round is 4 quanta.
        let share = sent[1] as f64 / (sent[0] + sent[1]) as f64;
        assert!((share - 0.75).abs() < 4.0 * QUANTUM as f64 / 1e6, "{share}");
    }

    #[test]
    fn a_packet_longer_than_a_round_waits_for_some_rounds() {
        let (mut queues, service) = (ClassQueues::default(), Service::Weights(vec![1, 1]));
        queues.push(packet(1, 60_000));
        assert_eq!(queues.pop(&service).map(|packet| packet.bytes), Some(60_000));
        assert_eq!(queues.pop(&service), None);
    }
}
