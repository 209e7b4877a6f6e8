//! Checks lossless networks: no packet is dropped because of a full queue, no port of a switch holds more packets from
//! its link than fit into its buffer, and no packets wait that could close a cycle of ports (deadlock).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Time;

use super::packets::{Name, name};
use crate::net::{LossCause, PacketEvent, TraceEvent};
use crate::topology::Graph;
use crate::topology::LinkId;

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
    pub fn new(graph: &Graph) -> LosslessChecker {
        let links = graph.edges().iter().flat_map(|edge| [(edge.b, edge.a_to_b), (edge.a, edge.b_to_a)]);
        let port = |(to, spec): (_, crate::topology::LinkSpec)| {
            graph.switch_index(to).map(|_| Port { buffer_bytes: spec.queue_bytes, buffered: 0 })
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
                // A packet that has come down or across must go on downwards: see docs/simulator.md.
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
