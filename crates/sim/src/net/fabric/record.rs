//! What the fabric records of each packet: arrivals and losses in the trace's hash, and everything for a tracer, if it has
//! one.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Time;

use super::Fabric;
use crate::net::packet::Packet;
use crate::net::trace::{LossCause, PacketEvent, TraceEvent, Tracer};
use crate::topology::LinkId;

impl Fabric {
    /// Sets a tracer, which sees everything from now on.
    pub fn set_tracer(&mut self, tracer: Option<Box<dyn Tracer>>) {
        self.tracer = tracer;
    }

    /// Removes the tracer, and returns it.
    pub fn take_tracer(&mut self) -> Option<Box<dyn Tracer>> {
        self.tracer.take()
    }

    /// Records that a node created a packet.
    #[inline(always)]
    pub fn record_created(&mut self, packet: &Packet) {
        if self.tracer.is_some() {
            self.record(packet.src, PacketEvent::Created, &{ *packet });
        }
    }

    /// Records that a packet reached its receiver, which now holds its payload.
    #[inline(always)]
    pub fn record_delivered(&mut self, node: NodeId, packet: &Packet) {
        if self.tracer.is_some() {
            self.record(node, PacketEvent::Delivered, &{ *packet });
        }
    }

    /// Records that a switch's program has handled a packet.
    #[inline(always)]
    pub(crate) fn record_handled(&mut self, node: NodeId, packet: &Packet) {
        if let Some(tracer) = &mut self.tracer {
            tracer.record_handled(self.now, node, packet);
        }
    }

    #[inline]
    pub(in crate::net) fn record_arrival(&mut self, id: LinkId, to: NodeId, packet: &Packet) {
        self.hops += 1;
        self.hash.add(to, self.now, id.0, packet);
        if self.tracer.is_some() {
            self.record(to, PacketEvent::Arrived { link: id }, &{ *packet });
        }
    }

    /// Drops a packet for which there is no path.
    pub fn lose_unroutable(&mut self, node: NodeId, packet: &Packet) {
        self.hash.add(node, self.now, u32::MAX, packet);
        self.record(node, PacketEvent::Lost { link: None, cause: LossCause::NoRoute }, packet);
        self.payloads.release(packet.payload);
    }

    /// Drops a packet that came over a link, because the switch's packet memory is full.
    pub fn lose_in_switch(&mut self, from: LinkId, packet: &Packet) {
        self.lose(from, self.links[from.index()].to, LossCause::PacketMemory, packet);
    }

    /// Drops a packet. `node` is where that happened, so that each node has its own chain of hashes.
    #[cold]
    pub(in crate::net) fn lose(&mut self, link: LinkId, node: NodeId, cause: LossCause, packet: &Packet) {
        self.losses[link.index()][cause as usize] += 1;
        self.hash.add(node, self.now, !(link.0 << 3 | cause as u32), packet);
        self.record(node, PacketEvent::Lost { link: Some(link), cause }, packet);
        self.payloads.release(packet.payload);
    }

    #[cold]
    pub(in crate::net) fn record_enqueued(&mut self, id: LinkId, packet: &Packet) {
        let link = &self.links[id.index()];
        let end = link.busy_until();
        let start = Time(end.0 - link.transmission(u64::from(packet.bytes)).0);
        let node = self.near_end(id);
        self.record(node, PacketEvent::Enqueued { link: id, start, end }, packet);
    }

    #[cold]
    pub(in crate::net) fn record(&mut self, node: NodeId, kind: PacketEvent, packet: &Packet) {
        let Some(tracer) = &mut self.tracer else { return };
        let payload = if packet.payload.is_none() { &[][..] } else { self.payloads.get(packet.payload).0 };
        tracer.record(&TraceEvent { time: self.now, node, kind, packet: *packet }, payload);
    }
}
