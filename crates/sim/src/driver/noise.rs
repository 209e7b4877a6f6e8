//! How a host itself delays the packets that it sends: operating system noise (Canary §5.2.5).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use tributary_proto::contract::time::{Span, Time};

use crate::net::Packet;
use crate::rng::Rng;

/// What noise holds up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Holds {
    /// The NIC: it stands still before the packet, and what comes later waits as well.
    #[default]
    Nic,
    /// The packet: it comes to the NIC later, and others pass it meanwhile.
    Packet,
}

impl Holds {
    /// True if files need not say it.
    pub fn is_default(&self) -> bool {
        *self == Holds::default()
    }
}

/// The noise of one host.
#[derive(Clone, Debug)]
pub struct Noise {
    /// For each packet.
    pub probability: f64,
    /// How long ...
    pub delay: Span,
    /// ... something is held up.
    pub holds: Holds,
    rng: Rng,
    /// Packets that are kept back, and until when. All are for the same time, so they are in order.
    kept: VecDeque<(Time, Packet)>,
}

impl Noise {
    /// Noise that strikes by these draws.
    pub fn new(probability: f64, delay: Span, holds: Holds, rng: Rng) -> Noise {
        Noise { probability, delay, holds, rng, kept: VecDeque::new() }
    }

    /// True if the next packet is held up.
    pub(super) fn strikes(&mut self) -> bool {
        self.rng.chance(self.probability)
    }

    /// Keeps a packet back; says until when.
    pub(super) fn keep(&mut self, now: Time, packet: Packet) -> Time {
        let until = now + self.delay;
        self.kept.push_back((until, packet));
        until
    }

    /// A packet that was kept back long enough.
    pub(super) fn release(&mut self, now: Time) -> Option<Packet> {
        let due = self.kept.front().is_some_and(|(until, _)| *until <= now);
        due.then(|| self.kept.pop_front()).flatten().map(|(_, packet)| packet)
    }

    /// When the next one will have been.
    pub(super) fn next_release(&self) -> Option<Time> {
        self.kept.front().map(|&(until, _)| until)
    }
}
