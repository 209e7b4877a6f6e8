//! A buffer that all output queues of a switch share, with dynamic thresholds (Choudhury and Hahne, "Dynamic queue length
//! thresholds for shared-memory packet switches", 1998): a packet is dropped if its queue is as long as `alpha` times what
//! is free. `n` queues that are always too full settle at `alpha B / (1 + n alpha)` each, and leave `B / (1 + n alpha)`
//! free for others. Where ports serve classes, each class has a queue.
//!
//! Queues are lengths in time (see [`crate::net::link`]), so that what a switch holds is their sum at that moment.

use tributary_proto::congestion::HopRecord;
use tributary_proto::contract::ids::NodeId;

use super::Fabric;
use crate::net::packet::Packet;
use crate::net::telemetry::stamp;
use crate::net::trace::LossCause;
use crate::topology::{Graph, LinkId};

/// The buffer of each switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedBuffer {
    /// What it holds: `B`.
    pub bytes: u64,
    /// How long a queue may be, in times of what is free.
    pub alpha: f64,
}

impl SharedBuffer {
    /// Whether a queue that holds `own` bytes takes a packet, while all queues hold `used`.
    fn takes(self, packet: u64, own: u64, used: u64) -> bool {
        let free = self.bytes.saturating_sub(used);
        packet <= free && (own as f64) < self.alpha * free as f64
    }
}

impl Fabric {
    /// Makes the queues of each switch share a buffer, before anything is sent.
    pub fn set_shared_buffer(&mut self, buffer: SharedBuffer, graph: &Graph) {
        self.shared = Some(buffer);
        for link in (0..self.links.len() as u32).map(LinkId) {
            self.links[link.index()].shares_buffer = graph.switch_index(self.near_end(link)).is_some();
            self.links[link.index()].faulty |= self.links[link.index()].shares_buffer;
        }
    }

    /// Why a link takes no packet, although its own queue may have space: it is down, or the switch's shared buffer is full.
    #[cold]
    pub(super) fn refuses(&self, id: LinkId, packet: &Packet) -> Option<LossCause> {
        let link = &self.links[id.index()];
        if link.down {
            return Some(self.why_down(id));
        }
        let buffer = self.shared.filter(|_| link.shares_buffer)?;
        let own = self.bytes_of_class(id, packet).unwrap_or_else(|| link.queued_bytes(self.now));
        let takes = buffer.takes(packet.bytes.into(), own, self.shared_bytes(link.from));
        (!takes).then_some(LossCause::QueueFull)
    }

    /// Bytes that wait in all queues of a switch.
    fn shared_bytes(&self, node: NodeId) -> u64 {
        self.ports(node).iter().map(|port| self.links[port.index()].queued_bytes(self.now)).sum()
    }

    /// Writes a switch's record into a packet that is about to join this link's queue; returns the packet with it. A
    /// packet that a fault has doubled gets a payload of its own first.
    #[cold]
    pub fn stamp(&mut self, id: LinkId, mut packet: Packet) -> Packet {
        let (link, length) = (&self.links[id.index()], u64::from(packet.bytes));
        let record = HopRecord {
            queued_bytes: link.queued_bytes(self.now) as u32,
            sent_bytes: (link.counters().bytes + length) as u32,
            left_at: self.now + link.backlog(self.now) + link.transmission(length),
            rate: link.rate(),
        };
        packet.payload = self.payloads.make_unique(packet.payload);
        stamp(self.payloads.get_mut(packet.payload).0, &record);
        packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_may_be_as_long_as_alpha_times_what_is_free() {
        let buffer = SharedBuffer { bytes: 100_000, alpha: 0.5 };
        assert!(buffer.takes(1_500, 33_000, 33_000));
        assert!(!buffer.takes(1_500, 33_400, 33_400), "half of the rest is 33,300");
        assert!(buffer.takes(1_500, 0, 98_500) && !buffer.takes(1_501, 0, 98_500), "the buffer itself is the limit");
    }
}
