//! A burst at a switch: the packets that one call has received, and the packets that machines make of them.
//!
//! Packets are processed in the memory into which they were received. Packets that machines make by themselves are
//! gathered one behind the other in memory of its own, so that they leave in runs as forwarded packets do.

use std::ops::Range;

use tributary_proto::contract::drive::switch::{Arrival, Passed, SwitchIo};
use tributary_proto::contract::ids::PortId;
use tributary_proto::contract::packet::PacketMut;
use tributary_proto::contract::switch::{Emission, Verdict};
use tributary_proto::contract::time::Time;

use super::{Origin, Site};
use crate::udp::{Inbox, Segments, UdpPort};

/// Bytes that a machine's packet may have.
const LONGEST: usize = 1 << 16;

/// Packets that machines make by themselves, until they are sent.
pub struct Own {
    memory: Box<[u8]>,
    /// Where the next one goes.
    end: usize,
}

impl Own {
    /// Room for some runs of the longest packets, and little enough to stay in a core's own cache.
    pub fn new() -> Own {
        Own { memory: vec![0; 4 * LONGEST].into_boxed_slice(), end: 0 }
    }
}

/// A switch's surroundings for one turn.
pub struct Burst<'a, S> {
    now: Time,
    site: &'a mut S,
    udp: &'a mut UdpPort,
    inbox: &'a mut Inbox,
    own: &'a mut Own,
    /// Messages that have begun, and what is left of the last one.
    begun: usize,
    left: Segments,
    /// Where that one came in.
    ingress: PortId,
    /// The packet in the pipeline.
    place: Range<usize>,
    /// Machines have made packets since the last flush.
    made: bool,
}

impl<'a, S: Site> Burst<'a, S> {
    /// The burst of the messages of an inbox.
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
            if self.site.admits(self.now, self.ingress, message.from, packet, message.ecn, self.udp) {
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
            // The next one is written to the same memory, which is still in the core's own cache.
            self.own.end = 0;
        }
    }
}
