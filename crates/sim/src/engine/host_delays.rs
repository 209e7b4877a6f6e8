//! What delays the packets of a host before its NIC: the processor that handles them, and the operating system.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use tributary_proto::contract::time::{Span, Time};

use crate::net::Packet;
use crate::rng::Rng;
use crate::topology::LinkId;

/// What packets cost the processor of a host. A packet waits to be sent until the processor has handled those before, sent
/// or received; a received one is with its machine at once, which makes single packets somewhat too fast.
#[derive(Clone, Copy, Debug)]
pub struct HostCosts {
    /// For each packet.
    pub per_packet: Span,
    /// For each byte of it.
    pub per_byte: Span,
    /// When the processor has handled all so far.
    pub free_at: Time,
}

/// What noise delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// The NIC: it stops before the packet, and later packets wait too.
    #[default]
    Nic,
    /// The packet: it comes to the NIC later, and other packets pass it meanwhile.
    Packet,
}

impl Holds {
    /// True for the choice that files need not name.
    pub fn is_default(&self) -> bool {
        *self == Holds::default()
    }
}

/// The noise of one host.
#[derive(Clone, Debug)]
pub struct Noise {
    /// The probability for each packet.
    pub probability: f64,
    /// The length of a delay.
    pub delay: Span,
    /// What is delayed.
    pub holds: Holds,
    rng: Rng,
    /// Delayed packets, and when their delays end. All delays are equal, so the packets are in order.
    kept: VecDeque<(Time, LinkId, Packet)>,
}

impl Noise {
    /// Noise that takes its decisions from this generator.
    pub fn new(probability: f64, delay: Span, holds: Holds, rng: Rng) -> Noise {
        Noise { probability, delay, holds, rng, kept: VecDeque::new() }
    }

    /// True if the next packet is delayed.
    pub(super) fn should_delay(&mut self) -> bool {
        self.rng.chance(self.probability)
    }

    /// Delays a packet; returns when the delay ends.
    pub(super) fn keep(&mut self, now: Time, link: LinkId, packet: Packet) -> Time {
        let until = now + self.delay;
        self.kept.push_back((until, link, packet));
        until
    }

    /// A packet whose delay is over, and its cable.
    pub(super) fn release(&mut self, now: Time) -> Option<(LinkId, Packet)> {
        let due = self.kept.front().is_some_and(|(until, ..)| *until <= now);
        due.then(|| self.kept.pop_front()).flatten().map(|(_, link, packet)| (link, packet))
    }

    /// When the next delay ends.
    pub(super) fn next_release(&self) -> Option<Time> {
        self.kept.front().map(|&(until, ..)| until)
    }
}
