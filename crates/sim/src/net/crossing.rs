//! A network of which each thread runs a part: the packets that cross from one part into another, and how parts become
//! one network again.
//!
//! Each part has the whole network and uses what belongs to its own nodes. Of a link that crosses, the sender's part
//! uses the near end (queue, limits, marks, counters) and the receiver's part the far end (the ring of packets under
//! way).

use std::sync::Arc;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Time;

use super::{Fabric, Packet};
use crate::events::{EventId, EventKind};
use crate::topology::LinkId;

/// The part of each node, and the number of this part.
#[derive(Clone, Debug)]
pub struct Share {
    /// The part of each node.
    pub part_of: Arc<[u16]>,
    /// The number of this part.
    pub part: u16,
}

impl Share {
    /// True for the nodes of this part.
    #[inline]
    pub fn owns(&self, node: NodeId) -> bool {
        self.part_of[node.index()] == self.part
    }
}

/// The packets and orders that cross into another part during a window.
#[derive(Default)]
pub struct Outbox {
    packets: Vec<(LinkId, Packet)>,
    /// For each packet with a payload, the payload's length in memory and on the wire.
    payloads: Vec<(u16, u16)>,
    bytes: Vec<u8>,
    /// Orders to stop or to go on at the near end of a lossless link, with their arrival times.
    orders: Vec<(LinkId, Time, bool)>,
}

/// The boxes for all other parts.
pub(super) struct Crossing {
    share: Share,
    boxes: Vec<Outbox>,
}

impl Fabric {
    /// Makes this network one of several parts, before anything has happened.
    pub fn become_part(&mut self, share: Share) {
        for id in (0..self.links.len() as u32).map(LinkId) {
            let near = self.near_end(id);
            let link = &mut self.links[id.index()];
            link.crosses = share.part_of[near.index()] != share.part_of[link.to.index()];
        }
        let parts = share.part_of.iter().max().map_or(1, |&last| usize::from(last) + 1);
        let boxes = (0..parts).map(|_| Outbox::default()).collect();
        self.crossing = Some(Box::new(Crossing { share, boxes }));
    }

    /// True if this is one of several parts.
    pub fn is_part(&self) -> bool {
        self.crossing.is_some()
    }

    /// True for a node that this part runs; for all nodes if there is one part.
    #[inline]
    pub fn owns(&self, node: NodeId) -> bool {
        self.crossing.as_ref().is_none_or(|crossing| crossing.share.owns(node))
    }

    /// The box for another part. The caller empties it.
    pub fn outbox(&mut self, part: usize) -> Option<&mut Outbox> {
        self.crossing.as_mut().map(|crossing| &mut crossing.boxes[part])
    }

    /// Puts the packet in `outgoing`, whose arrival is known, into the box for its link's far end.
    pub(super) fn cross(&mut self, id: LinkId) {
        let packet = self.outgoing;
        let to = self.links[id.index()].to;
        let Some(crossing) = &mut self.crossing else { return };
        let outbox = &mut crossing.boxes[usize::from(crossing.share.part_of[to.index()])];
        outbox.packets.push((id, packet));
        if !packet.payload.is_none() {
            let (bytes, wire_len) = self.payloads.get(packet.payload);
            outbox.bytes.extend_from_slice(bytes);
            outbox.payloads.push((bytes.len() as u16, wire_len as u16));
            self.payloads.release(packet.payload);
        }
    }

    /// Sends an order to the near end of a link if that is in another part; returns false if it is in this part.
    pub(super) fn order_across(&mut self, id: LinkId, at: Time, stop: bool) -> bool {
        let near = self.near_end(id);
        let Some(crossing) = self.crossing.as_mut().filter(|crossing| !crossing.share.owns(near)) else {
            return false;
        };
        let part = crossing.share.part_of[near.index()];
        crossing.boxes[usize::from(part)].orders.push((id, at, stop));
        true
    }

    /// Takes in the contents of a box from another part, and empties the box.
    pub fn accept(&mut self, outbox: &mut Outbox) {
        let (mut payloads, mut first) = (outbox.payloads.drain(..), 0);
        for (id, mut packet) in outbox.packets.drain(..) {
            if !packet.payload.is_none() {
                let (len, wire_len) = payloads.next().expect("a payload for each packet that carries one");
                let end = first + usize::from(len);
                packet.payload = self.payloads.store(&outbox.bytes[first..end], usize::from(wire_len));
                first = end;
            }
            let link = &mut self.links[id.index()];
            *link.come() = packet;
            if link.was_idle() {
                self.queue.push(packet.arrival, EventId::new(EventKind::Arrival, id.0));
            }
        }
        drop(payloads);
        outbox.bytes.clear();
        for (id, at, stop) in outbox.orders.drain(..) {
            if let Some(lossless) = &mut self.lossless {
                lossless.ports[id.index()].orders.push_back((at, stop));
                self.queue.push(at, EventId::new(EventKind::Pause, id.0));
            }
        }
    }

    /// Takes over the knowledge of another part about its nodes. The joined network can be read, but not run on.
    pub fn absorb(&mut self, other: Fabric) {
        let Some(Crossing { share, .. }) = other.crossing.as_deref() else { return };
        self.now = self.now.max(other.now);
        self.hops += other.hops;
        self.hash.absorb(&other.hash, |node| share.owns(node));
        for id in (0..self.links.len() as u32).map(LinkId) {
            let (near, far) = (share.owns(self.near_end(id)), share.owns(self.links[id.index()].to));
            if near {
                self.links[id.index()].absorb_near_end(&other.links[id.index()]);
            }
            for (own, lost) in self.losses[id.index()].iter_mut().zip(other.losses[id.index()]) {
                *own += lost;
            }
            if let (true, Some(own), Some(theirs)) = (far, &mut self.lossless, &other.lossless) {
                let (own, theirs) = (&mut own.ports[id.index()], &theirs.ports[id.index()]);
                (own.pauses, own.most_held) = (theirs.pauses, theirs.most_held);
            }
        }
    }
}
