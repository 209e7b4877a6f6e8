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

use super::{Origin, Site};
use crate::udp::{Inbox, Segments, UdpPort};

/// The most bytes of a machine's own packet.
const LONGEST: usize = 1 << 16;

/// The packets that machines have made by themselves and that were not sent yet.
pub struct Own {
    memory: Box<[u8]>,
    /// Where the next packet goes.
    end: usize,
}

impl Own {
    /// The memory holds a few packets of the greatest length, and is small enough for a core's own cache.
    pub fn new() -> Own {
        Own { memory: vec![0; 4 * LONGEST].into_boxed_slice(), end: 0 }
    }
}

/// The surroundings of a switch's machines for one turn.
pub struct Burst<'a, S> {
    now: Time,
    site: &'a mut S,
    udp: &'a mut UdpPort,
    inbox: &'a mut Inbox,
    own: &'a mut Own,
    /// The number of messages that have begun. `left` has the packets of the last one that have not had their turn.
    begun: usize,
    left: Segments,
    /// The port by which the last message came in.
    ingress: PortId,
    /// Where the packet lies that is in the pipeline.
    place: Range<usize>,
    /// True if machines have made packets since the last flush.
    made: bool,
}

impl<'a, S: Site> Burst<'a, S> {
    /// A burst with the messages of an inbox.
    pub fn new(now: Time, site: &'a mut S, udp: &'a mut UdpPort, inbox: &'a mut Inbox, own: &'a mut Own) -> Self {
        let (left, ingress, place, made) = (Segments::default(), PortId::UNKNOWN, 0..0, false);
        Burst { now, site, udp, inbox, own, begun: 0, left, ingress, place, made }
    }

    /// Sends the rest of the machines' own packets.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.made) {
            self.site.flush(self.now, &self.own.memory, self.udp);
            self.own.end = 0;
        }
    }

    /// The next packet that is for the pipeline.
    #[inline]
    fn next(&mut self) -> Option<Range<usize>> {
        loop {
            let Some(place) = self.left.next() else {
                let message = self.inbox.messages.get(self.begun)?;
                self.ingress = self.site.ingress(self.now, message, self.udp);
                self.left = message.segments();
                self.begun += 1;
                continue;
            };
            let message = &self.inbox.messages[self.begun - 1];
            let packet = &mut self.inbox.memory[place.clone()];
            if self.site.accepts(self.now, self.ingress, message.from, packet, message.ecn, self.udp) {
                return Some(place);
            }
        }
    }
}

impl<S: Site> SwitchIo for Burst<'_, S> {
    type Ports<'a>
        = S::Ports<'a>
    where
        Self: 'a;

    #[inline]
    fn now(&self) -> Time {
        self.now
    }

    #[inline]
    fn receive(&mut self) -> Option<Arrival<'_, S::Ports<'_>>> {
        let Some(place) = self.next() else {
            self.site.flush(self.now, &self.inbox.memory, self.udp);
            return None;
        };
        self.place = place.clone();
        let ecn = self.inbox.messages[self.begun - 1].ecn;
        let packet = PacketMut::new(&mut self.inbox.memory[place], ecn);
        Some(Arrival { ingress: self.ingress, packet, ports: self.site.ports() })
    }

    #[inline]
    fn carry_out(&mut self, verdict: Verdict, packet: Passed) {
        if !matches!(verdict, Verdict::Consume | Verdict::Drop(_)) {
            let place = self.place.start..self.place.start + packet.len;
            let origin = Origin::Packet(self.ingress);
            self.site.carry_out(verdict, place, packet.ecn, origin, &self.inbox.memory, self.udp);
        }
    }

    #[inline]
    fn room(&mut self) -> &mut [u8] {
        if self.own.memory.len() - self.own.end < LONGEST {
            self.end();
        }
        &mut self.own.memory[self.own.end..]
    }

    #[inline]
    fn send(&mut self, emission: Emission) {
        let Emission { len, ecn, verdict, ingress, .. } = emission;
        let place = self.own.end..self.own.end + len;
        if matches!(verdict, Verdict::Consume | Verdict::Drop(_)) {
            return;
        }
        self.made = true;
        self.own.end = place.end;
        let origin = ingress.map_or(Origin::Own, Origin::Collected);
        if !self.site.carry_out(verdict, place, ecn, origin, &self.own.memory, self.udp) {
            // The next packet is written to the same memory, which is still in the core's own cache.
            self.own.end = 0;
        }
    }
}
