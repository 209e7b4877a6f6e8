//! All links of a network, the events of their packets, and the packets that are lost on the way.

pub(super) mod buffers;
mod classes;
mod credits;
mod cut_through;
pub(super) mod faults;
mod lossless;
pub(super) mod partition;
mod record;

use std::collections::BTreeMap;

use tributary_numeric::prefetch;
use tributary_proto::contract::ids::{NodeId, PortId};
use tributary_proto::contract::switch::PortView;
use tributary_proto::contract::time::{Span, Time};

use self::buffers::SharedBuffer;
use self::classes::Classes;
use self::faults::LinkImpairment;
use self::partition::Crossing;
use super::link::{Link, LinkCounters};
use super::lossless::{Lossless, Origin};
use super::packet::{Framing, Packet};
use super::payload::Payloads;
use super::trace::{LossCause, TraceHash, Tracer};
use crate::events::{EventId, EventKind, EventQueue};
use crate::rng::{Purpose, Rng};
use crate::topology::{Graph, LinkId};

/// How many events ahead links, packets and payloads are fetched, which gives main memory time enough.
const LINKS_AHEAD: usize = 9;
const PACKETS_AHEAD: usize = 5;
const PAYLOADS_AHEAD: usize = 2;

/// The queues of one switch's ports, for its programs.
pub struct Queues<'a> {
    links: &'a [Link],
    ports: &'a [LinkId],
    now: Time,
}

impl PortView for Queues<'_> {
    fn queued_bytes(&self, port: PortId) -> u64 {
        self.ports.get(port.index()).map_or(0, |link| self.links[link.index()].queued_bytes(self.now))
    }
}

/// The network while it runs.
pub struct Fabric {
    /// The present.
    pub now: Time,
    /// Future events.
    pub queue: EventQueue,
    /// The payloads of packets.
    pub payloads: Payloads,
    /// The bytes of packets on links besides their payloads.
    pub framing: Framing,
    pub(in crate::net) links: Vec<Link>,
    /// For each node, the index of its first port in `ports`; and one more entry at the end.
    pub(in crate::net) first_port: Vec<u32>,
    /// The outgoing link of each port, node after node.
    pub(in crate::net) ports: Vec<LinkId>,
    /// How many packets each node has made.
    serials: Vec<u32>,
    pub(in crate::net) losses: Vec<[u64; LossCause::ALL.len()]>,
    pub(in crate::net) impairments: Vec<Option<Box<LinkImpairment>>>,
    /// By cable.
    pub(in crate::net) cable_down: Vec<bool>,
    pub(in crate::net) node_down: Vec<bool>,
    /// For each link, packets that a fault took out of its order, with their arrival times.
    pub(in crate::net) reordered: BTreeMap<LinkId, Vec<(Time, Packet)>>,
    pub(in crate::net) hash: TraceHash,
    pub(in crate::net) tracer: Option<Box<dyn Tracer>>,
    pub(in crate::net) lossless: Option<Box<Lossless>>,
    pub(in crate::net) shared: Option<SharedBuffer>,
    pub(in crate::net) classes: Option<Box<Classes>>,
    pub(in crate::net) crossing: Option<Box<Crossing>>,
    /// A packet that is about to cross into another partition.
    pub(in crate::net) outgoing: Packet,
    pub(in crate::net) hops: u64,
}

impl Fabric {
    /// The network of a graph, at rest. `seed` is the experiment's.
    pub fn new(graph: &Graph, framing: Framing, seed: u64) -> Fabric {
        let nodes = graph.nodes();
        let (first_port, ports) = graph.ports();
        let mut port_of = vec![0u16; graph.edges().len() * 2];
        for node in 0..nodes {
            let outgoing = &ports[first_port[node] as usize..first_port[node + 1] as usize];
            for (port, link) in outgoing.iter().enumerate() {
                port_of[link.index()] = port as u16;
            }
        }
        let mut links = Vec::with_capacity(port_of.len());
        for edge in graph.edges() {
            for (from, to) in [(edge.a, edge.b), (edge.b, edge.a)] {
                let id = LinkId(links.len() as u32);
                let spec = graph.queue_spec(id);
                let (to_port, latency) = (port_of[id.reverse().index()], graph.latency(to));
                let seed = Rng::new(seed, Purpose::Marks, id.0.into()).bits();
                links.push(Link::new(&spec, from, to, to_port, latency, seed));
            }
        }
        let horizon = links.iter().map(|link| link.delay() + link.transmission(1500)).max().unwrap_or(Span::ZERO);
        Fabric {
            now: Time::ZERO,
            queue: EventQueue::new(horizon, links.len()),
            payloads: Payloads::default(),
            framing,
            first_port,
            ports,
            serials: vec![0; nodes],
            losses: vec![Default::default(); links.len()],
            impairments: (0..links.len()).map(|_| None).collect(),
            cable_down: vec![false; links.len() / 2],
            node_down: vec![false; nodes],
            reordered: BTreeMap::new(),
            hash: TraceHash::new(nodes),
            tracer: None,
            lossless: None,
            shared: None,
            classes: None,
            crossing: None,
            outgoing: Packet::BLANK,
            hops: 0,
            links,
        }
    }

    /// The number of the next packet that a node makes.
    #[inline]
    pub fn next_serial(&mut self, node: NodeId) -> u32 {
        let serial = &mut self.serials[node.index()];
        let this = *serial;
        *serial = serial.wrapping_add(1);
        this
    }

    /// Takes back the number of the last packet that a node has made, which is not sent yet: packets are numbered as they are
    /// sent.
    pub fn take_back_serial(&mut self, node: NodeId) {
        let serial = &mut self.serials[node.index()];
        *serial = serial.wrapping_sub(1);
    }

    /// The outgoing links of a node, by port.
    #[inline]
    pub fn ports(&self, node: NodeId) -> &[LinkId] {
        &self.ports[self.first_port[node.index()] as usize..self.first_port[node.index() + 1] as usize]
    }

    /// The outgoing link of one port.
    #[inline]
    pub fn port(&self, node: NodeId, port: u16) -> LinkId {
        self.ports[self.first_port[node.index()] as usize + usize::from(port)]
    }

    /// A link.
    #[inline]
    pub fn link(&self, link: LinkId) -> &Link {
        &self.links[link.index()]
    }

    /// All links, by id.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The payloads, and the queues behind a switch's ports.
    pub fn payloads_and_queues(&mut self, node: NodeId) -> (&mut Payloads, Queues<'_>) {
        let (first, end) = (self.first_port[node.index()] as usize, self.first_port[node.index() + 1] as usize);
        (&mut self.payloads, Queues { links: &self.links, ports: &self.ports[first..end], now: self.now })
    }

    /// The counters of a link, with its losses.
    pub fn counters(&self, link: LinkId) -> LinkCounters {
        let port = self.lossless.as_ref().map(|lossless| &lossless.ports[link.index()]);
        LinkCounters {
            losses: self.losses[link.index()],
            pauses: port.map_or(0, |port| port.pauses),
            max_ingress_bytes: port.map_or(0, |port| port.max_buffered),
            ..self.links[link.index()].counters()
        }
    }

    /// How many packets came out of links so far.
    pub fn hops(&self) -> u64 {
        self.hops
    }

    /// The hash of all arrivals and losses so far.
    pub fn trace_hash(&self) -> u64 {
        self.hash.value()
    }

    /// Makes a link pause before the next packet.
    pub fn stall(&mut self, link: LinkId, span: Span) {
        self.links[link.index()].stall(self.now, span);
    }

    /// Sends a packet into a link; false if the link does not take it, so that it is lost and its payload released.
    #[inline(always)]
    pub fn send(&mut self, id: LinkId, packet: Packet) -> bool {
        self.send_of(Origin::Local, id, packet)
    }

    /// Sends a packet into a link; `origin` is the port that is charged for it in a lossless network.
    #[inline(always)]
    pub fn send_of(&mut self, origin: Origin, id: LinkId, packet: Packet) -> bool {
        if self.lossless.is_some() { self.send_lossless(origin, id, packet) } else { self.send_plain(id, packet) }
    }

    #[inline(always)]
    fn send_plain(&mut self, id: LinkId, packet: Packet) -> bool {
        if self.links[id.index()].faulty
            && let Some(sent) = self.send_with_care(id, packet)
        {
            return sent;
        }
        let link = &mut self.links[id.index()];
        let mut flags = packet.flags;
        let Some(arrival) = link.enqueue(self.now, packet.bytes, &mut flags) else {
            self.lose(id, self.near_end(id), LossCause::QueueFull, &{ packet });
            return false;
        };
        self.depart_with(id, Packet { arrival, flags, ..packet });
        true
    }

    /// Sends off a packet whose departure is known. It is written directly to its slot in the ring, field by field: a copy
    /// of a packet that was just built would wait until its fields have left the processor's store buffer.
    #[inline(always)]
    pub(in crate::net) fn depart_with(&mut self, id: LinkId, packet: Packet) {
        let link = &mut self.links[id.index()];
        let (crosses, was_empty) = (link.crosses, link.is_empty());
        let slot = if crosses { &mut self.outgoing } else { link.push_in_flight() };
        *slot = packet;
        if crosses {
            self.cross(id);
        } else if was_empty {
            self.queue.push(packet.arrival, EventId::new(EventKind::Arrival, id.0));
        }
        if self.tracer.is_some() {
            self.record_enqueued(id, &{ packet });
        }
    }

    /// The packet whose arrival event has come; `None` if a fault took it.
    #[inline]
    pub fn arrive(&mut self, id: LinkId) -> Option<Packet> {
        let link = &mut self.links[id.index()];
        let (packet, next) = link.arrive();
        let packet = packet?;
        let (to, faulty) = (link.to, link.faulty);
        if let Some(next) = next {
            self.queue.push(next, EventId::new(EventKind::Arrival, id.0));
        }
        if faulty {
            return self.arrive_faulty(id, packet);
        }
        self.record_arrival(id, to, &packet);
        Some(packet)
    }

    /// Prefetches what the next events will touch: first links (and lossless ports), then packets, then payloads.
    #[inline]
    pub fn prefetch(&self) {
        if let Some(lossless) = &self.lossless {
            self.prefetch_ports(lossless);
        }
        if let Some(link) = self.arriving(PACKETS_AHEAD) {
            self.links[link.index()].prefetch_front();
        }
        if let Some(link) = self.arriving(PAYLOADS_AHEAD) {
            self.payloads.prefetch(self.links[link.index()].front_payload());
        }
    }

    #[inline]
    fn prefetch_ports(&self, lossless: &Lossless) {
        if let Some(id) = self.queue.upcoming(LINKS_AHEAD)
            && matches!(id.kind(), EventKind::Arrival | EventKind::Departure)
        {
            prefetch::whole(&self.links[id.number() as usize]);
            if id.kind() == EventKind::Departure {
                prefetch::first_line(&lossless.ports[id.number() as usize]);
            }
        }
        if let Some(id) = self.queue.upcoming(PACKETS_AHEAD)
            && id.kind() == EventKind::Departure
        {
            let waiting = lossless.ports[id.number() as usize].waiting.len();
            self.links[id.number() as usize].prefetch_waiting(waiting);
        }
    }

    /// Prefetches what copies of a packet touch when they join these ports' queues: links and ports, then slots in the rings.
    #[inline]
    pub fn prefetch_queues(&self, node: NodeId, ports: impl Iterator<Item = PortId> + Clone) {
        let out = self.ports(node);
        let links = ports.filter_map(|port| out.get(port.index()));
        for link in links.clone() {
            prefetch::whole(&self.links[link.index()]);
            if let Some(lossless) = &self.lossless {
                prefetch::first_line(&lossless.ports[link.index()]);
            }
        }
        links.for_each(|link| self.links[link.index()].prefetch_next_slot());
    }

    /// The link of an arrival that comes `ahead` events after the next one.
    #[inline]
    fn arriving(&self, ahead: usize) -> Option<LinkId> {
        let id = self.queue.upcoming(ahead)?;
        (id.kind() == EventKind::Arrival).then(|| LinkId(id.number()))
    }

    /// The payload of the next packet of a link, if it has one.
    #[inline]
    pub fn front_payload(&self, link: LinkId) -> Option<&[u8]> {
        let payload = self.links[link.index()].front_payload();
        (!payload.is_none()).then(|| self.payloads.get(payload).0)
    }

    /// Bytes of memory of links and payloads.
    pub fn memory_bytes(&self) -> usize {
        self.links.iter().map(Link::memory_bytes).sum::<usize>() + self.payloads.memory_bytes()
    }

    pub(in crate::net) fn near_end(&self, link: LinkId) -> NodeId {
        self.links[link.index()].from
    }
}
