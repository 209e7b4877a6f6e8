//! Lossless links: each switch orders the sender of a port's packets to PAUSE before the port's buffer overflows (IEEE
//! 802.3x, and 802.1Qbb with one class).
//!
//! A switch counts, for each port where packets come in, the bytes that still wait in its output queues. When they
//! exceed `xoff`, it orders the other end of the cable to stop; when they have fallen to `xon`, to go on. An order
//! waits for the packet that the reverse link is sending, takes a frame's time and the link's delay, and then holds
//! until the next order (real PAUSE frames expire and are repeated). An order passes all packets that wait, and takes
//! no bandwidth from them.
//!
//! The sender finishes its packet and stops. So a packet's departure is not known when the packet joins the queue, as
//! it is on other links: each transmission ends with an event of its own.

use std::collections::VecDeque;

use tributary_proto::contract::ids::{NodeId, PortId};
use tributary_proto::contract::time::Time;

use super::pause::{Charges, LosslessSpec};
use super::trace::{LossCause, PacketEvent};
use super::{Fabric, Packet};
use crate::events::{EventId, EventKind};
use crate::topology::{Graph, LinkId};

/// Where a packet in a queue came from: the port whose buffer is charged for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The node made it by itself: a host, or a program with a packet of its own.
    Local,
    /// It came over this link.
    Link(LinkId),
    /// A program made it of packets that came over this link.
    Derived(LinkId),
    /// A program made it, when a timer ran out, of packets that it had collected, the last of them from this link.
    /// Until then the program's own memory buffered them.
    Collected(LinkId),
    /// It is one of several copies of a packet, which are charged as one packet until the last copy has left.
    Copies(CopiesId),
}

/// Copies of one packet in output queues of a lossless switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiesId(u32);

/// The charge of one packet that several copies share.
struct Copies {
    origin: LinkId,
    bytes: u16,
    /// How many copies have not left; in a free entry, the next free entry.
    left: u32,
}

/// One link, at both ends: a cache line for each end, and one for orders.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct Port {
    /// The origins of the packets that have not begun to leave. The packets are in the link's ring, behind those in
    /// flight.
    pub waiting: VecDeque<Origin>,
    /// Origin and bytes of the packet that is leaving.
    pub leaving: Option<(Origin, u16)>,
    /// True if the near end has been ordered to stop.
    pub paused: bool,
    /// Bytes of the near end's own packets.
    pub originated: u64,

    /// Bytes that came in over this link and have not left the far end.
    pub buffered: u64,
    /// The most of these bytes at any time.
    pub max_buffered: u64,
    /// The far end's buffer for packets from this link.
    pub buffer_bytes: u64,
    /// How often the far end ordered a stop.
    pub pauses: u64,
    /// True if its last order was to stop.
    pub pausing: bool,
    /// Orders on their way to the near end: their arrival times, and whether they stop it.
    pub orders: VecDeque<(Time, bool)>,
}

impl Port {
    /// True if a packet may begin to leave.
    fn is_free(&self) -> bool {
        !self.paused && self.leaving.is_none()
    }

    /// True if a packet that arrives now need not wait.
    fn is_idle(&self) -> bool {
        self.is_free() && self.waiting.is_empty()
    }
}

/// All links of a lossless network.
pub(super) struct Lossless {
    pub spec: LosslessSpec,
    /// The state of each link.
    pub ports: Vec<Port>,
    copies: Vec<Copies>,
    free_copies: u32,
    /// For each link, whether it leads to a higher level, and whether to a lower one.
    rises: Vec<(bool, bool)>,
}

const NONE_FREE: u32 = u32::MAX;

impl Lossless {
    pub fn new(spec: LosslessSpec, graph: &Graph) -> Lossless {
        let links =
            graph.edges().iter().flat_map(|edge| [(edge.a, edge.b, edge.a_to_b), (edge.b, edge.a, edge.b_to_a)]);
        let ports = links.map(|(near, far, link)| {
            let (far, near) = (graph.level(far), graph.level(near));
            (Port { buffer_bytes: link.queue_bytes, ..Port::default() }, (far > near, far < near))
        });
        let (ports, rises) = ports.unzip();
        Lossless { spec, ports, copies: Vec::new(), free_copies: NONE_FREE, rises }
    }

    /// Charges a packet that joins the queue of link `at`. `None` if its port's buffer is full; otherwise the link whose
    /// sender must stop, if one must.
    fn charge(&mut self, at: LinkId, origin: Origin, bytes: u16) -> Option<Option<LinkId>> {
        let xoff = self.spec.xoff;
        let origin = match origin {
            Origin::Link(origin) => origin,
            Origin::Copies(_) => return Some(None),
            Origin::Local | Origin::Derived(_) | Origin::Collected(_) => {
                self.ports[at.index()].originated += u64::from(bytes);
                return Some(None);
            }
        };
        let port = &mut self.ports[origin.index()];
        if port.buffered + u64::from(bytes) > port.buffer_bytes {
            return None;
        }
        port.buffered += u64::from(bytes);
        port.max_buffered = port.max_buffered.max(port.buffered);
        let stop = port.buffered > xoff && !port.pausing;
        port.pausing |= stop;
        port.pauses += u64::from(stop);
        Some(stop.then_some(origin))
    }

    /// Releases the charge of a packet that has left link `at` or was lost before it; returns the link whose sender may
    /// go on.
    fn release(&mut self, at: LinkId, origin: Origin, bytes: u16) -> Option<LinkId> {
        let (origin, bytes) = match origin {
            Origin::Link(origin) => (origin, bytes),
            Origin::Copies(CopiesId(number)) => {
                let copies = &mut self.copies[number as usize];
                copies.left -= 1;
                if copies.left > 0 {
                    return None;
                }
                copies.left = std::mem::replace(&mut self.free_copies, number);
                (copies.origin, copies.bytes)
            }
            Origin::Local | Origin::Derived(_) | Origin::Collected(_) => {
                self.ports[at.index()].originated -= u64::from(bytes);
                return None;
            }
        };
        let xon = self.spec.xon;
        let port = &mut self.ports[origin.index()];
        port.buffered -= u64::from(bytes);
        let resume = port.pausing && port.buffered <= xon;
        port.pausing &= !resume;
        resume.then_some(origin)
    }

    /// True if packets that came in over `from` may wait there for `over`: on the way up, down, or up and then down. If
    /// down waited for up, or across for across, ports could wait for each other in a cycle (deadlock).
    fn may_wait(&self, from: LinkId, over: LinkId) -> bool {
        self.rises[from.index()].0 || self.rises[over.index()].1
    }

    /// The port that is charged for a packet that joins the queue of link `over`. A packet that a program had collected
    /// is not lost if that port's buffer is full: it stays in the program's memory, and PAUSE has been ordered.
    fn resolve(&self, origin: Origin, over: LinkId, bytes: u16) -> Origin {
        match origin {
            Origin::Derived(from) if self.charges_made() && self.may_wait(from, over) => Origin::Link(from),
            Origin::Collected(from)
                if self.spec.charges == Charges::All && self.may_wait(from, over) && self.fits(from, bytes) =>
            {
                Origin::Link(from)
            }
            origin => origin,
        }
    }

    /// True if packets that a program makes of a packet that has just come in are charged like that packet.
    fn charges_made(&self) -> bool {
        self.spec.charges != Charges::Forwarded
    }

    fn fits(&self, from: LinkId, bytes: u16) -> bool {
        let port = &self.ports[from.index()];
        port.buffered + u64::from(bytes) <= port.buffer_bytes
    }

    /// Makes several copies share one packet's charge.
    fn share(&mut self, origin: LinkId, bytes: u16, left: u32) -> CopiesId {
        let copies = Copies { origin, bytes, left };
        if self.free_copies == NONE_FREE {
            self.copies.push(copies);
            return CopiesId(self.copies.len() as u32 - 1);
        }
        let number = self.free_copies;
        self.free_copies = std::mem::replace(&mut self.copies[number as usize], copies).left;
        CopiesId(number)
    }
}

impl Fabric {
    /// Makes all links lossless, before anything is sent.
    pub fn set_lossless(&mut self, spec: LosslessSpec, graph: &Graph) {
        self.lossless = Some(Box::new(Lossless::new(spec, graph)));
    }

    /// True if PAUSE keeps queues from overflowing.
    #[inline]
    pub fn is_lossless(&self) -> bool {
        self.lossless.is_some()
    }

    #[inline(always)]
    pub(super) fn send_lossless(&mut self, origin: Origin, id: LinkId, packet: Packet) -> bool {
        let link = &mut self.links[id.index()];
        if link.down {
            self.lose(id, self.near_end(id), self.why_down(id), &{ packet });
            if let Origin::Copies(_) = origin {
                self.release_buffer(id, origin, packet.bytes);
            }
            return false;
        }
        let Some(lossless) = &mut self.lossless else { return false };
        let origin = lossless.resolve(origin, id, packet.bytes);
        let Some(stop) = lossless.charge(id, origin, packet.bytes) else {
            self.lose(id, self.near_end(id), LossCause::QueueFull, &{ packet });
            return false;
        };
        let mut flags = packet.flags;
        link.join_waiting(self.now, packet.bytes, &mut flags);
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
    pub(super) fn release_buffer(&mut self, id: LinkId, origin: Origin, bytes: u16) {
        let Some(lossless) = &mut self.lossless else { return };
        if let Some(origin) = lossless.release(id, origin, bytes) {
            self.order(origin, false);
        }
    }

    /// Begins the transmission of the first waiting packet on a lossless link, if none is leaving and no order forbids
    /// it.
    pub(super) fn begin_next(&mut self, id: LinkId) {
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

    /// A lossless link has finished a packet, unless it has paused since this event was set.
    pub fn depart(&mut self, id: LinkId) {
        let until = self.links[id.index()].busy_until();
        if until > self.now {
            return self.queue.push(until, EventId::new(EventKind::Departure, id.0));
        }
        let Some(lossless) = &mut self.lossless else { return };
        if let Some((origin, bytes)) = lossless.ports[id.index()].leaving.take() {
            self.release_buffer(id, origin, bytes);
        }
        self.begin_next(id);
    }
}
