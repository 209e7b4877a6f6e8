//! A network that several threads run in partitions: the packets that cross from one partition into another, and how the
//! partitions are merged at the end.
//!
//! Each partition has the whole network and uses what belongs to its own nodes. Of a link that crosses, the sender's
//! partition uses the near end (queue, limits, marks, counters), and the receiver's partition the far end (the ring of
//! packets in flight).

use std::sync::Arc;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Time;

use super::Fabric;
use crate::events::{EventId, EventKind};
use crate::net::lossless::Order;
use crate::net::packet::Packet;
use crate::topology::LinkId;

/// One partition of a network.
#[derive(Clone, Debug)]
pub struct Partition {
    /// The partition of each node.
    pub of_node: Arc<[u16]>,
    /// This partition.
    pub index: u16,
}

impl Partition {
    /// True for the nodes of this partition.
    #[inline]
    pub fn owns(&self, node: NodeId) -> bool {
        self.of_node[node.index()] == self.index
    }
}

/// The packets and PAUSE orders that cross into another partition during a window.
#[derive(Default)]
pub struct Outbox {
    packets: Vec<(LinkId, Packet)>,
    /// For each packet with a payload, the payload's length in memory and on the wire.
    payloads: Vec<(u16, u16)>,
    bytes: Vec<u8>,
    /// Orders and credits for the near ends of lossless links, with their arrival times.
    orders: Vec<(LinkId, Time, Order)>,
}

/// What leaves this partition, by the partition that it goes to.
pub(in crate::net) struct Crossing {
    partition: Partition,
    outboxes: Vec<Outbox>,
}

impl Fabric {
    /// Makes this network one of several partitions, before anything has happened.
    pub fn become_partition(&mut self, partition: Partition) {
        for id in (0..self.links.len() as u32).map(LinkId) {
            let near = self.near_end(id);
            let link = &mut self.links[id.index()];
            link.crosses = partition.of_node[near.index()] != partition.of_node[link.to.index()];
        }
        let partitions = partition.of_node.iter().max().map_or(1, |&last| usize::from(last) + 1);
        let outboxes = (0..partitions).map(|_| Outbox::default()).collect();
        self.crossing = Some(Box::new(Crossing { partition, outboxes }));
    }

    /// True if this is one of several partitions.
    pub fn is_partitioned(&self) -> bool {
        self.crossing.is_some()
    }

    /// True for a node that this partition runs; for all nodes if there is one partition.
    #[inline]
    pub fn owns(&self, node: NodeId) -> bool {
        self.crossing.as_ref().is_none_or(|crossing| crossing.partition.owns(node))
    }

    /// What goes to another partition. The caller empties it.
    pub fn outbox(&mut self, partition: usize) -> Option<&mut Outbox> {
        self.crossing.as_mut().map(|crossing| &mut crossing.outboxes[partition])
    }

    /// Moves the packet in `outgoing`, whose arrival is known, to the outbox of its link's far end.
    pub(in crate::net) fn cross(&mut self, id: LinkId) {
        let packet = self.outgoing;
        let to = self.links[id.index()].to;
        let Some(crossing) = &mut self.crossing else { return };
        let outbox = &mut crossing.outboxes[usize::from(crossing.partition.of_node[to.index()])];
        outbox.packets.push((id, packet));
        if !packet.payload.is_none() {
            let (bytes, wire_len) = self.payloads.get(packet.payload);
            outbox.bytes.extend_from_slice(bytes);
            outbox.payloads.push((bytes.len() as u16, wire_len as u16));
            self.payloads.release(packet.payload);
        }
    }

    /// Sends an order to the near end of a link if that is in another partition; returns false if it is in this partition.
    pub(in crate::net) fn order_across(&mut self, id: LinkId, at: Time, order: Order) -> bool {
        let near = self.near_end(id);
        let Some(crossing) = self.crossing.as_mut().filter(|crossing| !crossing.partition.owns(near)) else {
            return false;
        };
        let partition = crossing.partition.of_node[near.index()];
        crossing.outboxes[usize::from(partition)].orders.push((id, at, order));
        true
    }

    /// Takes in what another partition has sent, and empties the outbox.
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
            *link.push_in_flight() = packet;
            if link.was_idle() {
                self.queue.push(packet.arrival, EventId::new(EventKind::Arrival, id.0));
            }
        }
        drop(payloads);
        outbox.bytes.clear();
        for (id, at, order) in outbox.orders.drain(..) {
            let Some(lossless) = &mut self.lossless else { continue };
            match order {
                Order::Credit(credit) => self.accept_credit(id, at, credit),
                Order::Pause(stop) => {
                    lossless.ports[id.index()].orders.push_back((at, stop));
                    self.queue.push(at, EventId::new(EventKind::PauseOrder, id.0));
                }
            }
        }
    }

    /// Takes over the state of another partition's nodes. The merged network is all nodes', and can be read, but not run any
    /// further.
    pub fn absorb(&mut self, mut other: Fabric) {
        let theirs = other.lossless.as_mut().and_then(|lossless| lossless.log.take());
        if let (Some(lossless), Some(theirs)) = (&mut self.lossless, theirs) {
            lossless.log.iter_mut().for_each(|log| log.absorb(&theirs));
        }
        let Some(Crossing { partition, .. }) = other.crossing.as_deref() else { return };
        self.now = self.now.max(other.now);
        self.hops += other.hops;
        self.hash.absorb(&other.hash, |node| partition.owns(node));
        for id in (0..self.links.len() as u32).map(LinkId) {
            let (near, far) = (partition.owns(self.near_end(id)), partition.owns(self.links[id.index()].to));
            if near {
                self.links[id.index()].absorb_near_end(&other.links[id.index()]);
            }
            for (ours, lost) in self.losses[id.index()].iter_mut().zip(other.losses[id.index()]) {
                *ours += lost;
            }
            if let (true, Some(ours), Some(theirs)) = (far, &mut self.lossless, &other.lossless) {
                let (ours, theirs) = (&mut ours.ports[id.index()], &theirs.ports[id.index()]);
                (ours.pauses, ours.max_buffered) = (theirs.pauses, theirs.max_buffered);
            }
        }
        self.crossing = None;
    }
}
