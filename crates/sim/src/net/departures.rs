//! The departures of packets from lossless ports: each ends with an event, which begins the next.
//!
//! A node's own packet that need not wait takes nobody's room. If nothing waits behind it, its departure changes
//! nothing that anybody sees. So it gets no event: a port notes that nobody watches, and looks at the clock when it is
//! asked next. Most packets of hosts are such packets, because a host sends when an answer comes.

use tributary_proto::contract::time::Time;

use super::lossless::{Origin, Port};
use super::{Fabric, Packet};
use crate::events::{EventId, EventKind};
use crate::topology::LinkId;

impl Port {
    /// Notes that a packet has left whose departure nobody watches, if its time is over.
    #[inline]
    pub(super) fn settle(&mut self, busy_until: Time, now: Time) {
        if self.is_unwatched && busy_until <= now {
            self.is_unwatched = false;
            self.own -= self.leaving.take().map_or(0, |(_, bytes)| u64::from(bytes));
        }
    }

    /// Bytes that packets take that have not left the near end's queue of its own packets, or came in at the far end.
    pub(super) fn bytes(&self, busy_until: Time, now: Time) -> u64 {
        let has_left = self.is_unwatched && busy_until <= now;
        let left = self.leaving.filter(|_| has_left).map_or(0, |(_, bytes)| u64::from(bytes));
        self.held + self.own - left
    }
}

impl Fabric {
    /// Begins the transmission of the first waiting packet on a lossless link, if none is leaving and no order forbids
    /// it.
    pub(super) fn begin_next(&mut self, id: LinkId) {
        let Some(lossless) = &mut self.lossless else { return };
        let port = &mut lossless.ports[id.index()];
        port.settle(self.links[id.index()].busy_until(), self.now);
        if port.is_free()
            && let Some(origin) = port.waiting.pop_front()
        {
            let (link, more) = (&mut self.links[id.index()], port.waiting.len());
            let (bytes, next) = link.begin_first(self.now, more);
            port.leaving = Some((origin, bytes));
            self.queue.push(link.busy_until(), EventId::new(EventKind::Departure, id.0));
            let traced = self.tracer.is_some().then(|| link.last_begun(more));
            if link.crosses {
                link.take_first().into_iter().for_each(|packet| self.outgoing = packet);
                self.cross(id);
            } else if let Some(arrival) = next {
                self.queue.push(arrival, EventId::new(EventKind::Arrival, id.0));
            }
            if let Some(packet) = traced {
                self.record_joined(id, &packet);
            }
        }
    }

    /// Begins the transmission of a packet that has not waited.
    #[inline(always)]
    pub(super) fn begin(&mut self, id: LinkId, packet: Packet, origin: Origin) {
        let Some(lossless) = &mut self.lossless else { return };
        let port = &mut lossless.ports[id.index()];
        (port.leaving, port.is_unwatched) = (Some((origin, packet.bytes)), origin == Origin::Own);
        let link = &mut self.links[id.index()];
        let arrival = link.begin(self.now, packet.bytes);
        if origin != Origin::Own {
            self.queue.push(link.busy_until(), EventId::new(EventKind::Departure, id.0));
        }
        self.depart_with(id, Packet { arrival, ..packet });
    }

    /// A host waits until the packet that is leaving has left: from now on, an event tells when.
    pub fn watch(&mut self, id: LinkId) {
        let Some(lossless) = &mut self.lossless else { return };
        if std::mem::take(&mut lossless.ports[id.index()].is_unwatched) {
            self.queue.push(self.links[id.index()].busy_until(), EventId::new(EventKind::Departure, id.0));
        }
    }

    /// A lossless link has finished a packet, unless it has paused since this event was set.
    pub fn depart(&mut self, id: LinkId) {
        let until = self.links[id.index()].busy_until();
        if until > self.now {
            return self.queue.push(until, EventId::new(EventKind::Departure, id.0));
        }
        let Some(lossless) = &mut self.lossless else { return };
        if let Some((origin, bytes)) = lossless.ports[id.index()].leaving.take() {
            self.give_room_back(id, origin, bytes);
        }
        self.begin_next(id);
    }
}
