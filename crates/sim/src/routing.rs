//! The path of a packet: shortest paths, and a choice among equally short ones.
//!
//! In a tree-like network (leaf-spine, fat tree, folded Clos) the shortest paths go up and then down: there is one way
//! down, and the way up may take any port that leads to a common ancestor.

use std::ops::Deref;

use tributary_control::routes::Routes;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

use crate::net::{Fabric, Packet};
use crate::rng::{Purpose, Rng, mix};
use crate::topology::{Graph, LinkId};

/// Next hops from every switch to every other; hosts are found through their switches, and have first hops.
pub struct Table {
    routes: Routes,
    hosts: u32,
    switches: u32,
}

impl Table {
    /// Shortest paths over the links that `usable` allows.
    pub fn new(graph: &Graph, usable: impl Fn(LinkId) -> bool) -> Table {
        let link = |cable: usize, from| LinkId((2 * cable + usize::from(graph.edges()[cable].a != from)) as u32);
        let routes = Routes::new(&graph.cabling(), |cable, from| usable(link(cable, from)));
        Table { routes, hosts: graph.hosts(), switches: graph.switches() }
    }

    fn switch(&self, index: u32) -> NodeId {
        NodeId(self.hosts + index)
    }

    fn is_between_hosts(&self, packet: &Packet) -> bool {
        packet.src.0.max(packet.dst.0) < self.hosts
    }
}

impl Deref for Table {
    type Target = Routes;
    fn deref(&self) -> &Routes {
        &self.routes
    }
}

/// How a switch chooses among ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balancing {
    /// By a hash of source, destination and flow: a flow keeps its path.
    Ecmp,
    /// The ports in turn, packet by packet.
    RoundRobin,
    /// At random, packet by packet.
    Random,
    /// A flow keeps its path until a pause of `gap`; then it takes a random path.
    Flowlet {
        /// The pause.
        gap: Span,
    },
    /// The port with the fewest bytes in its queue, packet by packet; a random one of several.
    LeastQueued,
    /// The destination's own port unless its queue is more than half full, then the port with the fewest bytes (Canary
    /// §5.2).
    DefaultUnlessHalfFull,
    /// The first port, which is that of the first dimension in which switches differ: a pair of nodes keeps its path.
    DimensionOrder,
    /// By a switch that is drawn for each packet between two hosts, over random shortest paths there and from there
    /// (Valiant, 1982). Packets to and from switches take random shortest paths.
    Valiant,
}

impl Balancing {
    /// True if packets of a flow may take different ports without a pause between them.
    pub fn goes_by_packet(self) -> bool {
        !matches!(self, Balancing::Ecmp | Balancing::Flowlet { .. } | Balancing::DimensionOrder)
    }
}

/// How many flowlets a switch distinguishes.
const FLOWLETS: usize = 1024;

#[derive(Clone, Copy)]
struct Flowlet {
    last: Time,
    choice: u16,
}

/// The state of one switch for its choices.
pub struct Chooser {
    /// Of jobs' packets, and of others'.
    balancing: [Balancing; 2],
    rng: Rng,
    next_port: u32,
    salt: u64,
    /// Draws intermediate switches; the same in all switches.
    detours: u64,
    /// A default port is the destination's number divided by this, modulo the number of ports.
    divisor: u32,
    flowlets: Box<[Flowlet]>,
}

impl Chooser {
    /// The chooser of switch number `switch`, for jobs' packets and for others'. `divisor` spreads default ports on higher levels: it is the number of
    /// hosts for each default port below.
    pub fn new(balancing: [Balancing; 2], seed: u64, switch: u32, divisor: u32) -> Chooser {
        Chooser::with_rng(balancing, seed, Rng::new(seed, Purpose::Paths, u64::from(switch)), divisor)
    }

    /// The chooser among the NICs of a host.
    pub fn of_host(balancing: [Balancing; 2], seed: u64, host: NodeId) -> Chooser {
        Chooser::with_rng(balancing, seed, Rng::new(seed, Purpose::Nics, u64::from(host.0)), 1)
    }

    fn with_rng(balancing: [Balancing; 2], seed: u64, mut rng: Rng, divisor: u32) -> Chooser {
        let flowlets = match balancing.iter().any(|one| matches!(one, Balancing::Flowlet { .. })) {
            true => vec![Flowlet { last: Time::ZERO, choice: u16::MAX }; FLOWLETS],
            false => Vec::new(),
        };
        Chooser {
            balancing,
            salt: rng.bits(),
            detours: Rng::new(seed, Purpose::Detours, 0).bits(),
            next_port: rng.below(1 << 16),
            divisor: divisor.max(1),
            rng,
            flowlets: flowlets.into_boxed_slice(),
        }
    }

    /// Chooses one of the ports, at least one, for a packet.
    #[inline]
    pub fn choose(&mut self, fabric: &Fabric, node: NodeId, ports: &[u16], packet: &Packet) -> u16 {
        if let [port] = ports {
            return *port;
        }
        let count = ports.len() as u32;
        match self.balancing[usize::from(!packet.is_of_job())] {
            Balancing::Random | Balancing::Valiant => ports[self.rng.below(count) as usize],
            Balancing::DimensionOrder => ports[0],
            Balancing::RoundRobin => {
                self.next_port = self.next_port.wrapping_add(1);
                ports[(self.next_port % count) as usize]
            }
            Balancing::Ecmp => ports[scale(self.hash(packet), count)],
            Balancing::Flowlet { gap } => self.flowlet(fabric.now, gap, ports, packet),
            Balancing::LeastQueued => {
                let first = self.rng.below(count) as usize;
                least_queued(fabric, node, ports, first)
            }
            Balancing::DefaultUnlessHalfFull => {
                let default = (packet.dst.0 / self.divisor % count) as usize;
                let link = fabric.port(node, ports[default]);
                if fabric.link(link).over_half(fabric.now) || fabric.link(link).down {
                    least_queued(fabric, node, ports, default)
                } else {
                    ports[default]
                }
            }
        }
    }

    /// True if packets like this one are spread packet by packet.
    pub fn goes_by_packet(&self, packet: &Packet) -> bool {
        self.balancing[usize::from(!packet.is_of_job())].goes_by_packet()
    }

    /// True if packets of either kind take detours.
    pub fn has_detours(&self) -> bool {
        self.balancing.contains(&Balancing::Valiant)
    }

    /// Where a packet goes first at switch number `switch`: to its intermediate switch, until it has passed there.
    #[inline]
    pub fn detour(&self, table: &Table, switch: u32, packet: &mut Packet) -> NodeId {
        let takes_one = self.balancing[usize::from(!packet.is_of_job())] == Balancing::Valiant;
        let is_direct = packet.flags.passed_detour() || packet.flags.every_hop() || !table.is_between_hosts(packet);
        if !takes_one || is_direct {
            return packet.dst;
        }
        // The intermediate switch follows from the packet, so that no switch needs to keep it.
        let name = u64::from(packet.src.0) << 32 | u64::from(packet.serial);
        let by = scale(mix(name ^ self.detours), table.switches) as u32;
        if by == switch || table.next_hops(switch, table.switch(by)).0.is_empty() {
            packet.flags = packet.flags.with_passed_detour();
            return packet.dst;
        }
        // The receiver's own switch delivers what comes by.
        if table.is_next_to(switch, packet.dst) { packet.dst } else { table.switch(by) }
    }

    fn hash(&self, packet: &Packet) -> u64 {
        let ends = u64::from(packet.src.0) << 32 | u64::from(packet.dst.0);
        mix(ends ^ mix(self.salt ^ u64::from(packet.flow) << 8 ^ u64::from(packet.lane)))
    }

    fn flowlet(&mut self, now: Time, gap: Span, ports: &[u16], packet: &Packet) -> u16 {
        let index = scale(self.hash(packet), FLOWLETS as u32);
        let flowlet = &mut self.flowlets[index];
        if flowlet.choice == u16::MAX || now.since(flowlet.last) >= gap {
            flowlet.choice = self.rng.below(1 << 16) as u16;
        }
        flowlet.last = now;
        ports[usize::from(flowlet.choice) % ports.len()]
    }
}

/// The port with the fewest bytes that is not down; of several, the first from `first` on.
fn least_queued(fabric: &Fabric, node: NodeId, ports: &[u16], first: usize) -> u16 {
    let load = |port: u16| {
        let link = fabric.link(fabric.port(node, port));
        if link.down { u64::MAX } else { link.queued_bytes(fabric.now) }
    };
    let (mut best, mut least) = (ports[first], load(ports[first]));
    for step in 1..ports.len() {
        if least == 0 {
            break;
        }
        let port = ports[(first + step) % ports.len()];
        let bytes = load(port);
        if bytes < least {
            (best, least) = (port, bytes);
        }
    }
    best
}

/// Scales the high bits of a hash to `0..count`.
fn scale(hash: u64, count: u32) -> usize {
    (((hash >> 32) * u64::from(count)) >> 32) as usize
}

/// For each level, the divisor of destinations' numbers before the choice of a default port: the product of the numbers
/// of upward ports of all levels below, so that not all levels choose by the same digits.
pub fn default_divisors(graph: &Graph) -> Vec<u32> {
    let (first, links) = graph.ports();
    let highest = (0..graph.switches()).map(|index| graph.level(graph.switch(index))).max().unwrap_or(1);
    let mut divisors = vec![1u32; usize::from(highest) + 1];
    for level in 2..=highest {
        let below = (0..graph.switches()).map(|index| graph.switch(index)).find(|&node| graph.level(node) == level - 1);
        let up_ports = below.map_or(1, |node| {
            let outgoing = &links[first[node.index()] as usize..first[node.index() + 1] as usize];
            outgoing.iter().filter(|&&link| graph.level(graph.ends(link).1) >= level).count() as u32
        });
        divisors[usize::from(level)] = divisors[usize::from(level) - 1].saturating_mul(up_ports.max(1));
    }
    divisors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Clos, leaf_spine};
    use crate::topology::{LinkSpec, Rate};
    use tributary_proto::contract::ids::NodeId;
    use tributary_proto::contract::time::Span;

    const SPEC: LinkSpec =
        LinkSpec { rate: Rate(100_000_000_000), delay: Span(1_000_000), queue_bytes: 1 << 20, mark_bytes: None };

    #[test]
    fn a_leaf_goes_up_by_any_spine_and_down_by_one_port() {
        let graph = leaf_spine(4, 3, 2, SPEC, SPEC, Span::ZERO);
        let table = Table::new(&graph, |_| true);
        assert_eq!(table.next_hops(0, NodeId(1)).0, [1], "its own host");
        assert_eq!(table.next_hops(0, NodeId(7)).0, [2, 3, 4], "a host of another leaf");
        assert_eq!(table.next_hops(5, NodeId(7)).0, [3], "down from a spine");
        assert_eq!(table.next_hops(0, graph.switch(5)).0, [3], "to one spine");
        assert_eq!(table.next_hops(0, graph.switch(0)).0, [0u16; 0], "to itself");
    }

    #[test]
    fn a_fat_tree_goes_up_only_as_far_as_needed() {
        let graph = Clos::fat_tree(4).graph(SPEC, SPEC, SPEC, Span::ZERO);
        let table = Table::new(&graph, |_| true);
        assert_eq!(table.next_hops(0, NodeId(2)).0, [2, 3], "same pod: any aggregation switch");
        assert_eq!(table.next_hops(8, NodeId(2)).0, [1], "and down again from there");
        assert_eq!(table.next_hops(8, NodeId(15)).0, [2, 3], "another pod: any core switch");
    }

    #[test]
    fn dead_links_are_avoided() {
        let graph = leaf_spine(2, 2, 1, SPEC, SPEC, Span::ZERO);
        // Edge 2 joins leaf 0 and spine 0.
        let table = Table::new(&graph, |link| link.index() / 2 != 2);
        assert_eq!(table.next_hops(0, NodeId(1)).0, [2]);
        assert_eq!(table.next_hops(1, NodeId(0)).0, [2]);
    }
}
