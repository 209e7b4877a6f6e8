//! A burst at a switch: the packets that one call has received, and the packets that machines send because of them.
//!
//! Packets are processed in the memory into which they were received. Packets that machines make by themselves are
//! written one behind the other into a memory for such packets, so that they leave in runs as forwarded packets do.

use std::ops::Range;

use tributary_proto::contract::drive::switch::{Arrival, Passed, SwitchIo};
use tributary_proto::contract::ids::PortId;
use tributary_proto::contract::packet::PacketMut;
use tributary_proto::contract::switch::{Emission, Verdict};
use tributary_proto::contract::time::Time;

use super::site::{Forwarding, Origin, Site};
use crate::udp::{Inbox, Segments, UdpPort};

/// The most bytes of a machine's own packet.
const LONGEST: usize = 1 << 16;

/// The packets that machines have has_packets by themselves and that were not sent yet.
pub struct MachinePackets {
    memory: Box<[u8]>,
    /// Where the next packet goes.
    end: usize,
}

impl MachinePackets {
    /// The memory holds a few packets of the greatest length, and is small enough for a core's own cache.
    pub fn new() -> MachinePackets {
        MachinePackets { memory: vec![0; 4 * LONGEST].into_boxed_slice(), end: 0 }
    }
}

/// The I/O of a switch's machines for one turn.
pub struct Burst<'a, F> {
    now: Time,
    site: &'a mut Site<F>,
    udp: &'a mut UdpPort,
    inbox: &'a mut Inbox,
    packets: &'a mut MachinePackets,
    /// The number of messages that were begun. `left` has the remaining packets of the last one.
    begun: usize,
    left: Segments,
    /// The port by which the last message came in.
    ingress: PortId,
    /// Where the packet lies that is in the pipeline.
    range: Range<usize>,
    /// True if machines have has_packets packets since the last flush.
    has_packets: bool,
}

impl<'a, F: Forwarding> Burst<'a, F> {
    /// A burst with the messages of an inbox.
    pub fn new(
        now: Time,
        site: &'a mut Site<F>,
        udp: &'a mut UdpPort,
        inbox: &'a mut Inbox,
        packets: &'a mut MachinePackets,
    ) -> Self {
        let (left, ingress, range, has_packets) = (Segments::default(), PortId::UNKNOWN, 0..0, false);
        Burst { now, site, udp, inbox, packets, begun: 0, left, ingress, range, has_packets }
    }

    /// Sends the rest of the machines' own packets.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.has_packets) {
            self.site.forwarding.flush(self.now, &self.packets.memory, self.udp);
            self.packets.end = 0;
        }
    }

    /// The next packet that is for the pipeline.
    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        loop {
            let Some(range) = self.left.next() else {
                let message = self.inbox.messages.get(self.begun)?;
                self.ingress = self.site.forwarding.ingress(self.now, message, self.udp);
                self.left = message.segments();
                self.begun += 1;
                continue;
            };
            let message = &self.inbox.messages[self.begun - 1];
            let packet = &mut self.inbox.memory[range.clone()];
            if self.site.accepts(self.now, self.ingress, message.from, packet, message.ecn, self.udp) {
                return Some(range);
            }
        }
    }
}

impl<F: Forwarding> SwitchIo for Burst<'_, F> {
    type Ports<'a>
        = F::Ports<'a>
    where
        Self: 'a;

    #[inline]
    fn now(&self) -> Time {
        self.now
    }

    #[inline]
    fn receive(&mut self) -> Option<Arrival<'_, F::Ports<'_>>> {
        let Some(range) = self.next() else {
            self.site.forwarding.flush(self.now, &self.inbox.memory, self.udp);
            return None;
        };
        self.range = range.clone();
        let ecn = self.inbox.messages[self.begun - 1].ecn;
        let packet = PacketMut::new(&mut self.inbox.memory[range], ecn);
        Some(Arrival { ingress: self.ingress, packet, ports: self.site.forwarding.ports() })
    }

    #[inline]
    fn carry_out(&mut self, verdict: Verdict, packet: Passed) {
        if !matches!(verdict, Verdict::Consume | Verdict::Drop(_)) {
            let range = self.range.start..self.range.start + packet.len;
            let origin = Origin::Packet(self.ingress);
            self.site.forwarding.carry_out(verdict, range, packet.ecn, origin, &self.inbox.memory, self.udp);
        }
    }

    #[inline]
    fn transmit_buf(&mut self) -> &mut [u8] {
        if self.packets.memory.len() - self.packets.end < LONGEST {
            self.end();
        }
        &mut self.packets.memory[self.packets.end..]
    }

    #[inline]
    fn send(&mut self, emission: Emission) {
        let Emission { len, ecn, verdict, ingress, .. } = emission;
        let range = self.packets.end..self.packets.end + len;
        if matches!(verdict, Verdict::Consume | Verdict::Drop(_)) {
            return;
        }
        self.has_packets = true;
        self.packets.end = range.end;
        let origin = ingress.map_or(Origin::Switch, Origin::Collected);
        if !self.site.forwarding.carry_out(verdict, range, ecn, origin, &self.packets.memory, self.udp) {
            // The next packet is written to the same memory, which is still in the core's own cache.
            self.packets.end = 0;
        }
    }
}
