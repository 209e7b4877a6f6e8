//! What the fabric does where PAUSE keeps queues from overflowing: charges packets to ports, and orders senders to stop and
//! to resume.

use tributary_proto::contract::ids::{NodeId, PortId};
use tributary_proto::contract::time::Time;

use super::Fabric;
use crate::events::{EventId, EventKind};
use crate::net::lossless::{Charge, Lossless, LosslessSpec, Order, Origin, PAUSE_BYTES};
use crate::net::packet::Packet;
use crate::net::pauses::PauseLog;
use crate::net::trace::{LossCause, PacketEvent};
use crate::topology::{Graph, LinkId};

impl Fabric {
    /// Makes all links lossless, before anything is sent.
    pub fn set_lossless(&mut self, spec: LosslessSpec, graph: &Graph) {
        self.lossless = Some(Box::new(Lossless::new(spec, graph)));
        // What comes in returns its credits.
        self.links.iter_mut().for_each(|link| link.faulty |= spec.channels.is_some());
    }

    /// Notes every PAUSE from now on, and why it was ordered.
    pub fn log_pauses(&mut self) {
        let links = self.links.len();
        self.lossless.iter_mut().for_each(|lossless| lossless.log = Some(Box::new(PauseLog::new(links))));
    }

    /// What was noted.
    pub fn pause_log(&self) -> Option<&PauseLog> {
        self.lossless.as_ref()?.log.as_deref()
    }

    /// True if PAUSE or credits keep queues from overflowing.
    #[inline]
    pub fn is_lossless(&self) -> bool {
        self.lossless.is_some()
    }

    /// True if credits do.
    pub(in crate::net) fn has_credits(&self) -> bool {
        self.lossless.as_ref().is_some_and(|lossless| !lossless.credits.is_empty())
    }

    #[inline(always)]
    pub(in crate::net) fn send_lossless(&mut self, origin: Origin, id: LinkId, packet: Packet) -> bool {
        let link = &mut self.links[id.index()];
        if link.down {
            self.lose(id, self.near_end(id), self.why_down(id), &{ packet });
            if let Origin::Copies(_) = origin {
                self.release_buffer(id, origin, packet.bytes);
            }
            return false;
        }
        let Some(lossless) = &mut self.lossless else { return false };
        if !lossless.credits.is_empty() {
            return self.send_with_credits(origin, id, packet);
        }
        let origin = lossless.resolve(origin, id, packet.bytes);
        let Some(stop) = lossless.charge(id, origin, packet.bytes) else {
            self.lose(id, self.near_end(id), LossCause::QueueFull, &{ packet });
            return false;
        };
        let mut flags = packet.flags;
        link.join_waiting(self.now, packet.bytes, link.backlog(self.now), &mut flags);
        let packet = Packet { flags, ..packet };
        let port = &mut lossless.ports[id.index()];
        let goes_at_once = port.is_idle();
        if !goes_at_once {
            port.waiting.push_back(origin);
            link.wait(packet);
        }
        if self.tracer.is_some() {
            self.record(self.near_end(id), PacketEvent::Waits { link: id }, &{ packet });
        }
        if let Some(origin) = stop {
            self.order(origin, true);
        }
        if goes_at_once {
            self.begin(id, packet, origin);
        }
        true
    }

    /// Charges the copies that a program made of packets from a link and that leave a node through these ports as one
    /// packet. `None` if the buffer of the port where the packets came in is full: then the caller drops the copies,
    /// each with [`Fabric::lose_copy`].
    pub fn charge_copies(
        &mut self,
        from: LinkId,
        bytes: u16,
        node: NodeId,
        mut ports: impl Iterator<Item = PortId>,
        count: usize,
    ) -> Option<Origin> {
        let first = self.first_port[node.index()] as usize;
        let links = &self.ports[first..self.first_port[node.index() + 1] as usize];
        let Some(lossless) = &mut self.lossless else { return Some(Origin::Local) };
        // A rule against deadlock, not a full buffer: see `may_wait`.
        let mut may_wait =
            || ports.all(|port| links.get(port.index()).is_none_or(|&over| lossless.may_wait(from, over)));
        if !lossless.charges_made() || !may_wait() {
            return Some(Origin::Local);
        }
        let count = count as u32;
        let stop = lossless.charge(from, Origin::Link(from), bytes)?;
        let copies = lossless.share(from, bytes, count);
        if let Some(origin) = stop {
            self.order(origin, true);
        }
        if self.has_credits() {
            self.hold_credits(from, bytes);
        }
        Some(Origin::Copies(copies))
    }

    /// Drops a copy because the buffer where it came in is full, and counts it at the link that it would have left over.
    pub fn lose_copy(&mut self, over: LinkId, packet: &Packet) {
        self.lose(over, self.near_end(over), LossCause::QueueFull, packet);
    }

    /// A packet enters a switch's processor, and is charged to the port where it came in, as packets in output queues
    /// are; false if that port's buffer is full.
    pub fn enter_switch(&mut self, from: LinkId, bytes: u16) -> bool {
        let Some(lossless) = &mut self.lossless else { return true };
        let Some(stop) = lossless.charge(from, Origin::Link(from), bytes) else { return false };
        if let Some(origin) = stop {
            self.order(origin, true);
        }
        true
    }

    /// A packet has left the processor.
    pub fn leave_switch(&mut self, from: LinkId, bytes: u16) {
        self.release_buffer(from, Origin::Link(from), bytes);
    }

    /// Bytes that packets take in the buffers of lossless switches now.
    pub fn buffered_bytes(&self) -> u64 {
        self.lossless
            .as_ref()
            .map_or(0, |lossless| lossless.ports.iter().map(|port| port.buffered + port.originated).sum())
    }

    /// Drops a copy whose port does not exist: releases its payload and its charge.
    pub fn drop_copy(&mut self, origin: Origin, packet: Packet) {
        if let Origin::Copies(_) = origin {
            // For a shared charge the link does not matter.
            self.release_buffer(LinkId(0), origin, packet.bytes);
        }
        self.payloads.release(packet.payload);
    }

    /// Releases the charge of a packet that is no longer in the queue before a link.
    pub(in crate::net) fn release_buffer(&mut self, id: LinkId, origin: Origin, bytes: u16) {
        let Some(lossless) = &mut self.lossless else { return };
        if !lossless.credits.is_empty() {
            let channel = lossless.channel_at(origin);
            return self.return_credits(id, Charge { origin, channel }, bytes);
        }
        if let Some(origin) = lossless.release(id, origin, bytes) {
            self.order(origin, false);
        }
    }

    /// Begins the transmission of the first waiting packet on a lossless link, if none is leaving and no order forbids
    /// it.
    pub(in crate::net) fn begin_next(&mut self, id: LinkId) {
        let Some(lossless) = &mut self.lossless else { return };
        let port = &mut lossless.ports[id.index()];
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
                self.record_enqueued(id, &packet);
            }
        }
    }

    /// Begins the transmission of a packet that has not waited.
    #[inline(always)]
    fn begin(&mut self, id: LinkId, packet: Packet, origin: Origin) {
        let Some(lossless) = &mut self.lossless else { return };
        lossless.ports[id.index()].leaving = Some((origin, packet.bytes));
        let link = &mut self.links[id.index()];
        let arrival = link.begin(self.now, packet.bytes);
        self.queue.push(link.busy_until(), EventId::new(EventKind::Departure, id.0));
        self.depart_with(id, Packet { arrival, ..packet });
    }

    /// A link has finished a packet; a lossless one, unless it has paused since this event was set.
    pub fn depart(&mut self, id: LinkId) {
        if self.links[id.index()].serves_classes {
            return self.depart_by_class(id);
        }
        let until = self.links[id.index()].busy_until();
        if until > self.now {
            return self.queue.push(until, EventId::new(EventKind::Departure, id.0));
        }
        if self.has_credits() {
            return self.depart_with_credits(id);
        }
        let Some(lossless) = &mut self.lossless else { return };
        if let Some((origin, bytes)) = lossless.ports[id.index()].leaving.take() {
            self.release_buffer(id, origin, bytes);
        }
        self.begin_next(id);
    }

    /// Orders the near end of a link to stop or to go on.
    pub(in crate::net) fn order(&mut self, id: LinkId, stop: bool) {
        let back = &self.links[id.reverse().index()];
        let sent = back.busy_until().max(self.now) + back.transmission(PAUSE_BYTES);
        let at = sent + back.delay();
        self.log_order(id, at, stop);
        if self.order_across(id, at, Order::Pause(stop)) {
            return;
        }
        if let Some(lossless) = &mut self.lossless {
            lossless.ports[id.index()].orders.push_back((at, stop));
            self.queue.push(at, EventId::new(EventKind::PauseOrder, id.0));
        }
    }

    /// Notes an order that reaches the near end of a link at this time.
    fn log_order(&mut self, id: LinkId, at: Time, stop: bool) {
        let Some(lossless) = self.lossless.as_mut().filter(|lossless| lossless.log.is_some()) else { return };
        let switch = self.links[id.index()].to.index();
        let outputs = &self.ports[self.first_port[switch] as usize..self.first_port[switch + 1] as usize];
        let cause = stop.then(|| lossless.cause(id, outputs));
        match (&mut lossless.log, cause) {
            (Some(log), Some(cause)) => log.stop(id, self.now, at, cause),
            (Some(log), None) => log.resume(id, at),
            (None, _) => {}
        }
    }

    /// Applies an order that has reached the near end of a link.
    pub fn handle_order(&mut self, id: LinkId) {
        if self.has_credits() {
            return self.handle_credits(id);
        }
        let Some(lossless) = &mut self.lossless else { return };
        let port = &mut lossless.ports[id.index()];
        // Orders that were on a cable when it broke are lost.
        if port.orders.front().is_some_and(|&(at, _)| at == self.now)
            && let Some((_, stop)) = port.orders.pop_front()
        {
            port.paused = stop;
            self.begin_next(id);
        }
    }

    /// Forgets all orders on a link.
    pub(in crate::net) fn forget_orders(&mut self, id: LinkId) {
        if let Some(lossless) = &mut self.lossless {
            let port = &mut lossless.ports[id.index()];
            port.orders.clear();
            (port.paused, port.pausing) = (false, false);
            lossless.log.iter_mut().for_each(|log| log.resume(id, self.now));
            self.begin_next(id);
        }
    }
}
