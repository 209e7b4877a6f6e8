//! Checks links: no link is faster than its rate, packets keep their order, no queue holds more than fits, and marks are set
//! only above the threshold; where switches serve classes, each has a queue of its own, and a strict service sends no packet
//! before one of a higher class. In a lossless network, no packet is dropped because of a full queue, no port of a switch holds
//! more packets from its link than fit into its buffer, and no packets wait that could close a cycle of ports (deadlock).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::packet::Ecn;
use tributary_proto::contract::time::{Span, Time};

use super::packets::{Location, Name, PacketChecker, in_order, name};
use crate::net::{CLASSES, LossCause, Packet, PacketEvent, Service, SharedBuffer, TraceEvent};
use crate::topology::{Graph, LinkId, LinkSpec};

/// A packet in a queue or on a wire.
struct Waiting {
    name: Name,
    bytes: u64,
    start: Time,
    end: Time,
}

struct State {
    spec: LinkSpec,
    /// The node at the near end.
    from: NodeId,
    /// Propagation and the latency of the node at the far end.
    delay: Span,
    /// Where the far end cuts through, the bytes of a packet after which it has it.
    head: Option<u64>,
    /// True for a host's NIC, whose queue is not checked.
    of_host: bool,
    last_end: Time,
    /// Packets in the order of leaving.
    waiting: VecDeque<Waiting>,
    /// The packet that came out last: where the far end cuts through, its rest may not have left yet.
    last_out: Option<Waiting>,
    /// Where switches serve classes, the packets of each class that have not begun to leave, and their bytes.
    classes: Option<[(u32, u64); CLASSES]>,
}

/// All links.
pub struct LinkChecker {
    links: Vec<State>,
    /// The buffer that a switch's queues share.
    shared: Option<SharedBuffer>,
    /// Which class a switch sends first.
    service: Option<Service>,
}

impl LinkChecker {
    pub fn new(graph: &Graph, shared: Option<SharedBuffer>, service: Option<Service>) -> LinkChecker {
        let has_classes = service.is_some();
        let state = |link: u32, spec: LinkSpec| {
            let (from, to) = graph.ends(LinkId(link));
            State {
                spec,
                from,
                delay: spec.delay + graph.latency(to),
                head: None,
                of_host: graph.switch_index(from).is_none(),
                last_end: Time::ZERO,
                waiting: VecDeque::new(),
                last_out: None,
                classes: (has_classes && graph.switch_index(from).is_some()).then(Default::default),
            }
        };
        let edges = graph.edges().iter().enumerate();
        let links = edges.flat_map(|(index, edge)| {
            let link = 2 * index as u32;
            [state(link, edge.a_to_b), state(link + 1, edge.b_to_a)]
        });
        LinkChecker { links: links.collect(), shared, service }
    }

    /// Switches cut through, except from links that are slower than one of their own.
    pub fn cut_through(&mut self, graph: &Graph) {
        for index in 0..self.links.len() {
            let (to, rate) = (graph.ends(LinkId(index as u32)).1, self.links[index].spec.rate);
            let is_slower = self.links.iter().any(|next| next.from == to && next.spec.rate > rate);
            self.links[index].head = (graph.switch_index(to).is_some() && !is_slower).then_some(84);
        }
    }

    pub fn check(&mut self, event: &TraceEvent, packets: &PacketChecker, sentences: &mut Vec<String>) {
        match event.kind {
            PacketEvent::Waits { link } => self.links[link.index()].waits(event, sentences),
            PacketEvent::Enqueued { link, start, end } => {
                self.links[link.index()].leaves_class(event, self.service == Some(Service::Strict), sentences);
                self.links[link.index()].joined(event, start, end, sentences);
            }
            PacketEvent::Arrived { link } if in_order(event) => self.links[link.index()].left(event, sentences),
            PacketEvent::Reordered { link } => self.links[link.index()].left(event, sentences),
            PacketEvent::Lost { link: Some(link), cause } => self.lost(event, link, cause, packets, sentences),
            _ => {}
        }
    }

    /// True if the shared buffer of a switch takes no packet for a queue that holds `own` bytes.
    fn is_shared_full(&mut self, node: NodeId, own: u64, event: &TraceEvent) -> bool {
        let Some(SharedBuffer { bytes, alpha }) = self.shared else { return false };
        let queues = self.links.iter_mut().filter(|link| link.from == node);
        // Each queue's packet in transmission is rounded down to a byte.
        let used: u64 = queues.map(|link| link.queued_bytes(event.time) + 1).sum();
        let free = bytes.saturating_sub(used);
        u64::from(event.packet.bytes) > free || own as f64 + 1.0 >= alpha * free as f64
    }

    fn lost(
        &mut self,
        event: &TraceEvent,
        link: LinkId,
        cause: LossCause,
        packets: &PacketChecker,
        sentences: &mut Vec<String>,
    ) {
        let state = &mut self.links[link.index()];
        if cause == LossCause::QueueFull {
            // The rest of the packet in transmission is rounded down to a byte.
            let waiting = state.class_bytes(&event.packet).unwrap_or_else(|| state.queued_bytes(event.time));
            let queued = waiting + u64::from(event.packet.bytes);
            let (own, most, from) = (queued - u64::from(event.packet.bytes), state.spec.queue_bytes, state.from);
            let is_full = queued >= most || self.is_shared_full(from, own, event);
            if !is_full {
                sentences.push(format!("lost to a full queue that holds only {queued} bytes"));
            }
        } else if !packets.is_at(&event.packet, Location::At(event.node)) && in_order(event) {
            state.left(event, sentences);
        }
    }
}

impl State {
    /// A byte takes `8e12 / rate` picoseconds.
    fn shortest(&self, packet: &Packet) -> u64 {
        (u128::from(packet.bytes) * 8_000_000_000_000 / u128::from(self.spec.rate.0)) as u64
    }

    fn queued_bytes(&mut self, now: Time) -> u64 {
        let mut bytes = self.classes.map_or(0, |classes| classes.iter().map(|(_, bytes)| bytes).sum());
        for packet in self.last_out.iter().chain(&self.waiting).rev().take_while(|packet| packet.end > now) {
            // Of the packet in transmission, only what has not left yet counts.
            let rest = if packet.start >= now {
                packet.bytes
            } else {
                packet.bytes * packet.end.since(now).0 / packet.end.since(packet.start).0.max(1)
            };
            bytes += rest;
        }
        bytes
    }

    /// Bytes that have not begun to leave in the class of a packet, where there are classes.
    fn class_bytes(&self, packet: &Packet) -> Option<u64> {
        Some(self.classes?[usize::from(packet.flags.priority())].1)
    }

    /// A packet joins the queue of its class.
    fn waits(&mut self, event: &TraceEvent, sentences: &mut Vec<String>) {
        let Some(classes) = &mut self.classes else { return };
        let (packets, bytes) = &mut classes[usize::from(event.packet.flags.priority())];
        let threshold = self.spec.mark_bytes.map_or(u64::MAX, |marks| marks.mark_all_above);
        if *bytes > threshold.saturating_add(1) && event.packet.flags.ecn() == Ecn::Capable {
            sentences.push(format!("{bytes} bytes of its class wait, and it is not marked"));
        }
        *packets += 1;
        *bytes += u64::from(event.packet.bytes);
        if *bytes > self.spec.queue_bytes {
            sentences.push(format!("{bytes} bytes of its class wait and the queue holds {}", self.spec.queue_bytes));
        }
    }

    /// A packet leaves the queue of its class.
    fn leaves_class(&mut self, event: &TraceEvent, is_strict: bool, sentences: &mut Vec<String>) {
        let Some(classes) = &mut self.classes else { return };
        let class = usize::from(event.packet.flags.priority());
        let (packets, bytes) = &mut classes[class];
        if *packets == 0 {
            return sentences.push("it leaves and has not waited".to_string());
        }
        *packets -= 1;
        *bytes -= u64::from(event.packet.bytes);
        if is_strict && classes[class + 1..].iter().any(|(packets, _)| *packets > 0) {
            sentences.push("it is sent before a packet of a higher class".to_string());
        }
    }

    fn joined(&mut self, event: &TraceEvent, start: Time, end: Time, sentences: &mut Vec<String>) {
        let packet = &event.packet;
        if start < event.time || start < self.last_end {
            sentences.push("it is sent while the link is busy".to_string());
        }
        if end.since(start).0 < self.shortest(packet) {
            sentences.push(format!("it is sent faster than {} bit/s", self.spec.rate.0));
        }
        let before = self.queued_bytes(event.time);
        if !self.of_host && self.classes.is_none() {
            if before + u64::from(packet.bytes) > self.spec.queue_bytes {
                sentences.push(format!("{before} bytes wait and the queue holds {}", self.spec.queue_bytes));
            }
            let threshold = self.spec.mark_bytes.map_or(u64::MAX, |marks| marks.mark_all_above);
            let marked = packet.flags.ecn() == Ecn::CongestionExperienced;
            // A packet may have been marked before, but a packet that should be marked must be.
            if before > threshold.saturating_add(1) && packet.flags.ecn() == Ecn::Capable && !marked {
                sentences.push(format!("{before} bytes wait, and it is not marked"));
            }
        }
        self.last_end = end;
        self.waiting.push_back(Waiting { name: name(packet), bytes: u64::from(packet.bytes), start, end });
    }

    /// A packet comes out: it must be the first, neither too early nor too late.
    fn left(&mut self, event: &TraceEvent, sentences: &mut Vec<String>) {
        let Some(first) = self.waiting.pop_front() else {
            sentences.push("it comes out of an empty link".to_string());
            return;
        };
        if first.name != name(&event.packet) {
            return sentences.push(format!("it overtakes {:?} on its link", first.name));
        }
        let first = self.last_out.insert(first);
        let passes = event.packet.dst != event.node && !event.packet.flags.every_hop();
        let head = self.head.filter(|_| passes).unwrap_or(first.bytes);
        let behind_head = self.spec.rate.time_of(first.bytes.saturating_sub(head));
        let expected = Time((first.end + self.delay).0 - behind_head.0);
        if event.time != expected {
            sentences.push(format!("it should have come out at {} ps", expected.0));
        }
    }
}

/// One link's far end, if it is at a switch.
struct Port {
    buffer_bytes: u64,
    buffered: u64,
}

/// The ports at which packets come in.
pub struct LosslessChecker {
    ports: Vec<Option<Port>>,
    /// The packet that a switch works on: the switch, the packet's name, and the link over which it came.
    at_work: Option<(u32, Name, LinkId)>,
    /// For each link and packet that waits for it, the links over which its copies came.
    waiting: BTreeMap<(LinkId, Name), VecDeque<Option<LinkId>>>,
    /// For packets that are leaving a switch: when they have left, the link over which they came in, and their bytes.
    leaving: BinaryHeap<Reverse<(Time, LinkId, u16)>>,
    /// For each link, how many levels it rises; negative if it descends.
    rises: Vec<i16>,
}

/// The rise of a cable's two links.
fn rise(graph: &Graph, a: NodeId, b: NodeId) -> [i16; 2] {
    let rise = i16::from(graph.level(b)) - i16::from(graph.level(a));
    [rise, -rise]
}

impl LosslessChecker {
    /// For switches where each of this many classes has a buffer at every port.
    pub fn new(graph: &Graph, classes: u64) -> LosslessChecker {
        let links = graph.edges().iter().flat_map(|edge| [(edge.b, edge.a_to_b), (edge.a, edge.b_to_a)]);
        let port = |(to, spec): (_, crate::topology::LinkSpec)| {
            graph.switch_index(to).map(|_| Port { buffer_bytes: classes * spec.queue_bytes, buffered: 0 })
        };
        LosslessChecker {
            ports: links.map(port).collect(),
            at_work: None,
            waiting: BTreeMap::new(),
            leaving: BinaryHeap::new(),
            rises: graph.edges().iter().flat_map(|edge| rise(graph, edge.a, edge.b)).collect(),
        }
    }

    pub fn check(&mut self, event: &TraceEvent, sentences: &mut Vec<String>) {
        while let Some(&Reverse((end, link, bytes))) = self.leaving.peek() {
            if end > event.time {
                break;
            }
            self.leaving.pop();
            self.release(link, bytes);
        }
        let (node, packet, bytes) = (event.node.0, name(&event.packet), event.packet.bytes);
        match event.kind {
            PacketEvent::Arrived { link } => {
                if let Some(port) = &mut self.ports[link.index()] {
                    port.buffered += u64::from(bytes);
                    self.at_work = Some((node, packet, link));
                }
            }
            PacketEvent::Waits { link } => {
                let origin = self.take(node, packet);
                // A packet that has come down or across must go on downwards: see docs/simulator-reference.md.
                if origin.is_some_and(|from| self.rises[from.index()] <= 0 && self.rises[link.index()] >= 0) {
                    sentences.push("it has come down and waits to go up: ports can wait in a cycle".to_string());
                }
                self.waiting.entry((link, packet)).or_default().push_back(origin);
            }
            PacketEvent::Enqueued { link, end, .. } => {
                let origins = self.waiting.get_mut(&(link, packet));
                if let Some(origin) = origins.and_then(VecDeque::pop_front).flatten() {
                    self.leaving.push(Reverse((end, origin, bytes)));
                }
                if self.waiting.get(&(link, packet)).is_some_and(VecDeque::is_empty) {
                    self.waiting.remove(&(link, packet));
                }
            }
            PacketEvent::Delivered | PacketEvent::Lost { .. } => {
                if let Some(link) = self.take(node, packet) {
                    self.release(link, bytes);
                }
            }
            _ => {}
        }
        if matches!(event.kind, PacketEvent::Lost { cause: LossCause::QueueFull, .. }) {
            sentences.push("a lossless network dropped it".to_string());
        } else if let PacketEvent::Arrived { link } = event.kind
            && let Some(port) = self.ports[link.index()].as_ref().filter(|port| port.buffered > port.buffer_bytes)
        {
            // A packet for a program of the switch does not wait: the program takes it at once.
            if event.packet.dst != event.node {
                sentences
                    .push(format!("{} bytes that came in there wait where {} fit", port.buffered, port.buffer_bytes));
            }
        }
    }

    /// The link over which a packet came in, if the switch works on this packet.
    fn take(&mut self, node: u32, packet: Name) -> Option<LinkId> {
        let (_, _, link) = self.at_work.take_if(|&mut (at, name, _)| (at, name) == (node, packet))?;
        Some(link)
    }

    fn release(&mut self, link: LinkId, bytes: u16) {
        if let Some(port) = &mut self.ports[link.index()] {
            port.buffered -= u64::from(bytes);
        }
    }
}
