//! The way out of a host in a lossless fabric. It is a queue that sends at the cable's rate, and stands still when the
//! switch orders it. The kernel cannot be stopped from sending a packet that it has, so it gets packets no faster than
//! the cable takes them.

use tributary_proto::contract::packet::{Addr, Transmit};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::marking::Marking;

use crate::fabric::egress::Egress;
use crate::fabric::rooms::Charge;
use crate::outbox::{Addresses, send};
use crate::udp::UdpPort;

/// The most bytes that wait. They are many windows of a job, and a window holds half of a switch's queue.
const LIMIT: u64 = 64 << 20;

/// The queue in front of the cable.
pub struct Nic {
    queue: Egress<Addr>,
}

impl Nic {
    /// An empty queue, at the cable's rate.
    pub fn new(bits_per_s: u64) -> Nic {
        Nic { queue: Egress::new(LIMIT, Marking::never(), Some(bits_per_s), Addr::Switch(Default::default())) }
    }

    /// Takes a packet.
    pub fn offer(&mut self, packet: &[u8], transmit: &Transmit) {
        self.queue.offer(packet, transmit.ecn, transmit.to, Charge::Nobody);
    }

    /// Sends the packets that may leave by now.
    pub fn drain(&mut self, now: Time, addresses: &Addresses, udp: &mut UdpPort) {
        self.queue.drain(now, |_, _| {}, |to, run, memory| send(to, run, memory, addresses, udp));
    }

    /// The switch wants a pause of so long from now on.
    pub fn pause(&mut self, now: Time, span: Span) {
        self.queue.pause(now, span);
    }

    /// When the next packet may leave; `None` while none waits.
    pub fn due(&self) -> Option<Time> {
        self.queue.due()
    }
}
