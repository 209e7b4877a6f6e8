//! What the fabric does where credits, or PAUSE by class, keep buffers from overflowing.

use tributary_proto::contract::time::Time;

use super::Fabric;
use crate::events::{EventId, EventKind};
use crate::net::credits::{ClassOrder, Credit, join};
use crate::net::lossless::{Charge, Order, Origin};
use crate::net::packet::Packet;
use crate::net::trace::{LossCause, PacketEvent};
use crate::topology::LinkId;

impl Fabric {
    /// A packet joins a queue. It always fits if it has brought its credits along; a class may have too little headroom.
    pub(super) fn send_with_credits(&mut self, origin: Origin, id: LinkId, mut packet: Packet) -> bool {
        packet.flags = self.flags_with_class(&packet);
        let Some(lossless) = &mut self.lossless else { return false };
        let origin = lossless.resolve(origin, id, packet.bytes);
        if let Origin::Link(from) = origin
            && lossless.is_class_full(from, packet.bytes)
        {
            self.lose(id, self.near_end(id), LossCause::QueueFull, &packet);
            return false;
        }
        let charge = Charge { origin, channel: lossless.channel_at(origin) };
        lossless.charge(id, origin, packet.bytes);
        let link = &mut self.links[id.index()];
        let before = match lossless.service {
            Some(_) => link.transmission(lossless.credits[id.index()].bytes_of(&packet)),
            None => link.backlog(self.now),
        };
        link.join_waiting(self.now, packet.bytes, before, &mut packet.flags);
        lossless.credits[id.index()].push(charge, packet);
        if self.tracer.is_some() {
            self.record(self.near_end(id), PacketEvent::Waits { link: id }, &packet);
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
        if lossless.service.is_none() {
            let credit = Credit { channel: port.arrived, bytes: packet.bytes.into() };
            self.give(id, credit);
        }
    }

    /// What has just come in over a link waits here, and keeps its credits.
    pub(super) fn hold_credits(&mut self, from: LinkId, bytes: u16) {
        let Some(lossless) = &self.lossless else { return };
        let channel = lossless.credits[from.index()].arrived;
        self.give(from, Credit { channel, bytes: -i32::from(bytes) });
    }

    /// Sends credits to the near end of a link; where PAUSE stops classes, an order if one is due.
    fn give(&mut self, id: LinkId, credit: Credit) {
        if self.lossless.as_ref().is_some_and(|lossless| lossless.service.is_some()) {
            return self.count_class(id, credit);
        }
        let at = self.now + self.links[id.reverse().index()].delay();
        if self.order_across(id, at, Order::Credit(credit)) {
            return;
        }
        self.accept_credit(id, at, credit);
    }

    /// A class has this many bytes less at the far end of a link, which may order the near end to stop or to go on.
    fn count_class(&mut self, id: LinkId, Credit { channel, bytes }: Credit) {
        let at = self.order_arrival(id);
        let Some(lossless) = &mut self.lossless else { return };
        let (xoff, xon) = (lossless.spec.xoff, lossless.spec.xon);
        let Some(order) = lossless.credits[id.index()].count(channel, -bytes, xoff, xon) else { return };
        lossless.ports[id.index()].pauses += u64::from(order.stop);
        if !self.order_across(id, at, Order::PauseClass(order)) {
            self.accept_class_order(id, at, order);
        }
    }

    /// An order for a class is on its way to a near end of this partition.
    pub(super) fn accept_class_order(&mut self, id: LinkId, at: Time, order: ClassOrder) {
        let Some(lossless) = &mut self.lossless else { return };
        lossless.credits[id.index()].orders.push_back((at, order));
        self.queue.push(at, EventId::new(EventKind::PauseOrder, id.0));
    }

    /// Credits are on their way to a near end of this partition.
    pub(super) fn accept_credit(&mut self, id: LinkId, at: Time, credit: Credit) {
        let Some(lossless) = &mut self.lossless else { return };
        join(&mut lossless.credits[id.index()].coming, at, credit);
        self.queue.push(at, EventId::new(EventKind::PauseOrder, id.0));
    }

    /// Credits or orders that have reached the near end of a link: packets may leave.
    pub(super) fn handle_credits(&mut self, id: LinkId) {
        let Some(lossless) = &mut self.lossless else { return };
        let port = &mut lossless.credits[id.index()];
        while port.coming.front().is_some_and(|&(at, _)| at == self.now)
            && let Some((_, credit)) = port.coming.pop_front()
        {
            port.take(credit);
        }
        while port.orders.front().is_some_and(|&(at, _)| at == self.now)
            && let Some((_, order)) = port.orders.pop_front()
        {
            port.apply(order);
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
        let Some((_, packet)) = lossless.credits[id.index()].pop(lossless.service.as_ref()) else { return };
        let link = &mut self.links[id.index()];
        let arrival = link.begin(self.now, packet.bytes);
        self.queue.push(link.busy_until(), EventId::new(EventKind::Departure, id.0));
        self.depart_with(id, Packet { arrival, ..packet });
    }
}
