//! What the fabric does where credits keep buffers from overflowing.

use tributary_proto::contract::time::Time;

use super::Fabric;
use crate::events::{EventId, EventKind};
use crate::net::credits::{Credit, join};
use crate::net::lossless::{Charge, Order, Origin};
use crate::net::packet::Packet;
use crate::net::trace::PacketEvent;
use crate::topology::LinkId;

impl Fabric {
    /// A packet joins a queue; it always fits, since it has brought its credits along.
    pub(super) fn send_with_credits(&mut self, origin: Origin, id: LinkId, packet: Packet) -> bool {
        let Some(lossless) = &mut self.lossless else { return false };
        let origin = lossless.resolve(origin, id, packet.bytes);
        let charge = Charge { origin, channel: lossless.channel_at(origin) };
        lossless.charge(id, origin, packet.bytes);
        let link = &mut self.links[id.index()];
        let mut flags = packet.flags;
        link.join_waiting(self.now, packet.bytes, link.backlog(self.now), &mut flags);
        let packet = Packet { flags, ..packet };
        lossless.credits[id.index()].push(charge, packet);
        if self.tracer.is_some() {
            self.record(self.near_end(id), PacketEvent::Waits { link: id }, &{ packet });
        }
        if let Origin::Link(from) = origin {
            self.hold_credits(from, packet.bytes);
        }
        self.begin_with_credits(id);
        true
    }

    /// A packet has come in: its credits return, unless what is made of it waits, in this same instant.
    pub(super) fn arrive_with_credits(&mut self, id: LinkId, packet: &Packet) {
        let Some(lossless) = &mut self.lossless else { return };
        let port = &mut lossless.credits[id.index()];
        port.arrived = port.channel_of(packet);
        let credit = Credit { channel: port.arrived, bytes: packet.bytes.into() };
        self.give(id, credit);
    }

    /// What has just come in over a link waits here, and keeps its credits.
    pub(super) fn hold_credits(&mut self, from: LinkId, bytes: u16) {
        let Some(lossless) = &self.lossless else { return };
        let channel = lossless.credits[from.index()].arrived;
        self.give(from, Credit { channel, bytes: -i32::from(bytes) });
    }

    /// Sends credits to the near end of a link.
    fn give(&mut self, id: LinkId, credit: Credit) {
        let at = self.now + self.links[id.reverse().index()].delay();
        if self.order_across(id, at, Order::Credit(credit)) {
            return;
        }
        self.accept_credit(id, at, credit);
    }

    /// Credits are on their way to a near end of this partition.
    pub(super) fn accept_credit(&mut self, id: LinkId, at: Time, credit: Credit) {
        let Some(lossless) = &mut self.lossless else { return };
        join(&mut lossless.credits[id.index()].coming, at, credit);
        self.queue.push(at, EventId::new(EventKind::PauseOrder, id.0));
    }

    /// Credits that have reached the near end of a link: packets may leave.
    pub(super) fn handle_credits(&mut self, id: LinkId) {
        let Some(lossless) = &mut self.lossless else { return };
        let port = &mut lossless.credits[id.index()];
        while port.coming.front().is_some_and(|&(at, _)| at == self.now)
            && let Some((_, credit)) = port.coming.pop_front()
        {
            port.take(credit);
        }
        self.begin_with_credits(id);
    }

    /// A link has finished a packet.
    pub(super) fn depart_with_credits(&mut self, id: LinkId) {
        let Some(lossless) = &mut self.lossless else { return };
        if let Some((charge, bytes)) = lossless.credits[id.index()].leaving.take() {
            self.return_credits(id, charge, bytes);
        }
        self.begin_with_credits(id);
    }

    /// The charge of a packet ends that has left link `at`, or was dropped before it.
    pub(super) fn return_credits(&mut self, at: LinkId, charge: Charge, bytes: u16) {
        let Some(lossless) = &mut self.lossless else { return };
        if let Some((origin, bytes)) = lossless.discharge(at, charge.origin, bytes) {
            self.give(origin, Credit { channel: charge.channel, bytes: bytes.into() });
        }
    }

    fn begin_with_credits(&mut self, id: LinkId) {
        let Some(lossless) = &mut self.lossless else { return };
        let Some((_, packet)) = lossless.credits[id.index()].pop() else { return };
        let link = &mut self.links[id.index()];
        let arrival = link.begin(self.now, packet.bytes);
        self.queue.push(link.busy_until(), EventId::new(EventKind::Departure, id.0));
        self.depart_with(id, Packet { arrival, ..packet });
    }
}
