//! Lossless networks: nothing is dropped for want of room, and no port of a switch holds more of what came in there than
//! its buffer has room for.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use tributary_proto::time::Time;

use super::packets::{Name, name};
use crate::net::{Happening, LinkId, LossCause, TraceEvent};
use crate::topology::Graph;

/// One link's far end, if that is a switch.
struct Port {
    room: u64,
    held: u64,
}

/// All ports where packets come in.
pub struct LosslessChecker {
    ports: Vec<Option<Port>>,
    /// For each node and packet in it, the links over which its copies came.
    inside: BTreeMap<(u32, Name), Vec<LinkId>>,
    /// When a packet has left a switch, over which link it had come in, and its bytes.
    leaving: BinaryHeap<Reverse<(Time, LinkId, u16)>>,
}

impl LosslessChecker {
    pub fn new(graph: &Graph) -> LosslessChecker {
        let links = graph.edges().iter().flat_map(|edge| [(edge.b, edge.a_to_b), (edge.a, edge.b_to_a)]);
        let port = |(to, spec): (_, crate::net::LinkSpec)| {
            graph.switch_index(to).map(|_| Port { room: spec.queue_bytes, held: 0 })
        };
        LosslessChecker { ports: links.map(port).collect(), inside: BTreeMap::new(), leaving: BinaryHeap::new() }
    }

    pub fn check(&mut self, event: &TraceEvent, sentences: &mut Vec<String>) {
        while let Some(&Reverse((end, link, bytes))) = self.leaving.peek() {
            if end > event.time {
                break;
            }
            self.leaving.pop();
            self.release(link, bytes);
        }
        let (place, bytes) = ((event.node.0, name(&event.packet)), event.packet.bytes);
        match event.what {
            Happening::Arrived { link } => {
                if let Some(port) = &mut self.ports[link.index()] {
                    port.held += u64::from(bytes);
                    self.inside.entry(place).or_default().push(link);
                }
            }
            Happening::Joined { end, .. } => {
                if let Some(link) = self.take(place) {
                    self.leaving.push(Reverse((end, link, bytes)));
                }
            }
            Happening::Taken | Happening::Lost { .. } => {
                if let Some(link) = self.take(place) {
                    self.release(link, bytes);
                }
            }
            _ => {}
        }
        if matches!(event.what, Happening::Lost { cause: LossCause::QueueFull, .. }) {
            sentences.push("a lossless network dropped it".to_string());
        } else if let Happening::Arrived { link } = event.what
            && let Some(port) = self.ports[link.index()].as_ref().filter(|port| port.held > port.room)
        {
            // The packet itself may be for a program of the switch, which takes it at once.
            if event.packet.dst != event.node {
                sentences.push(format!("{} bytes that came in there wait where {} have room", port.held, port.room));
            }
        }
    }

    /// The link over which a packet came into a node, if it is there.
    fn take(&mut self, place: (u32, Name)) -> Option<LinkId> {
        let links = self.inside.get_mut(&place)?;
        let link = links.pop();
        if links.is_empty() {
            self.inside.remove(&place);
        }
        link
    }

    fn release(&mut self, link: LinkId, bytes: u16) {
        if let Some(port) = &mut self.ports[link.index()] {
            port.held -= u64::from(bytes);
        }
    }
}
