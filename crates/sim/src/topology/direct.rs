//! Shapes in which every switch has hosts: torus and mesh, HyperX, dragonfly; and pods whose leaves are rails.
//!
//! A switch's ports are its hosts, then the cables of the first dimension, of the second, and so on. So the first of several
//! ports on shortest paths is the one of dimension order.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Span;

use super::{Graph, LinkSpec};

/// The properties of the cables of hosts, of those between switches, and of switches.
#[derive(Clone, Copy, Debug)]
pub struct Specs {
    /// Between a host and a switch.
    pub host: LinkSpec,
    /// Between switches.
    pub core: LinkSpec,
    /// Of a switch.
    pub switch_latency: Span,
}

impl Specs {
    /// Switches with this many hosts each, not yet connected to each other.
    fn switches(&self, switches: u32, hosts_per_switch: u32) -> Graph {
        let hosts = switches * hosts_per_switch;
        let mut graph = Graph::new(hosts, vec![1; switches as usize], self.switch_latency);
        for host in 0..hosts {
            graph.connect(NodeId(host), graph.switch(host / hosts_per_switch), self.host);
        }
        graph
    }

    fn connect(&self, graph: &mut Graph, a: u32, b: u32) {
        graph.connect(graph.switch(a), graph.switch(b), self.core);
    }
}

/// Switches on a grid; the first coordinate counts first.
#[derive(Clone, Copy, Debug)]
pub struct Grid<'a>(pub &'a [u32]);

impl Grid<'_> {
    /// Number of switches.
    pub fn switches(self) -> u32 {
        self.0.iter().product()
    }

    /// For each dimension its size, and how far apart neighbours in it are numbered.
    fn dimensions(self) -> impl Iterator<Item = (u32, u32)> {
        let strides = self.0.iter().scan(1, |next, size| Some(std::mem::replace(next, *next * size)));
        self.0.iter().copied().zip(strides)
    }

    /// A torus, in which each switch has two neighbours in every dimension; or a mesh, whose rows do not close to rings.
    pub fn torus(self, hosts_per_switch: u32, wraps: bool, specs: &Specs) -> Graph {
        let mut graph = specs.switches(self.switches(), hosts_per_switch);
        for (size, stride) in self.dimensions() {
            for switch in 0..self.switches() {
                let at = switch / stride % size;
                if at + 1 < size {
                    specs.connect(&mut graph, switch, switch + stride);
                } else if wraps && size > 2 {
                    specs.connect(&mut graph, switch, switch - at * stride);
                }
            }
        }
        graph
    }

    /// HyperX (Ahn et al., 2009): each switch has a cable to every other one of its row, in every dimension.
    pub fn hyperx(self, hosts_per_switch: u32, specs: &Specs) -> Graph {
        let mut graph = specs.switches(self.switches(), hosts_per_switch);
        for (size, stride) in self.dimensions() {
            for switch in 0..self.switches() {
                let at = switch / stride % size;
                (at + 1..size).for_each(|other| specs.connect(&mut graph, switch, switch + (other - at) * stride));
            }
        }
        graph
    }
}

/// A dragonfly (Kim et al., 2008): groups of switches that are all connected to each other, and the same number of cables
/// between any two groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dragonfly {
    /// Groups.
    pub groups: u32,
    /// Switches of a group (the paper's a).
    pub switches: u32,
    /// Cables of a switch to other groups (h).
    pub global: u32,
    /// Hosts of a switch (p).
    pub hosts_per_switch: u32,
}

impl Dragonfly {
    /// The cables between two groups; `None` if the groups' cables do not divide evenly.
    pub fn cables_between_groups(&self) -> Option<u32> {
        let (cables, others) = (self.switches.checked_mul(self.global)?, self.groups.checked_sub(1)?);
        match others {
            0 => (cables == 0).then_some(0),
            _ => (cables >= others && cables.is_multiple_of(others)).then(|| cables / others),
        }
    }

    /// The graph. A group's cables to other groups are numbered switch by switch; number `i` leads to the group `1 + i` further
    /// on, modulo the others.
    pub fn graph(&self, specs: &Specs) -> Graph {
        let Dragonfly { groups, switches, global, hosts_per_switch } = *self;
        let mut graph = specs.switches(groups * switches, hosts_per_switch);
        for group in 0..groups {
            for a in 0..switches {
                (a + 1..switches).for_each(|b| specs.connect(&mut graph, group * switches + a, group * switches + b));
            }
        }
        let others = groups - 1;
        for group in 0..groups {
            for cable in 0..switches * global {
                let (round, ahead) = (cable / others, cable % others + 1);
                let to = (group + ahead) % groups;
                // As the other group counts, this one is `groups - ahead` further on.
                let back = round * others + groups - ahead - 1;
                if group < to {
                    specs.connect(&mut graph, group * switches + cable / global, to * switches + back / global);
                }
            }
        }
        graph
    }
}

/// Pods of servers with several accelerators, each with a NIC of its own: the accelerators of the same number in all servers
/// of a pod are below one leaf, their rail. Spines connect all rails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rails {
    /// Pods.
    pub pods: u32,
    /// Servers of a pod.
    pub servers: u32,
    /// Accelerators of a server, which are the network's hosts.
    pub rails: u32,
    /// Spines.
    pub spines: u32,
}

impl Rails {
    /// The graph. Hosts are numbered server by server; leaves pod by pod, then spines.
    pub fn graph(&self, specs: &Specs) -> Graph {
        let Rails { pods, servers, rails, spines } = *self;
        let (hosts, leaves) = (pods * servers * rails, pods * rails);
        let levels = (0..leaves + spines).map(|switch| 1 + u8::from(switch >= leaves)).collect();
        let mut graph = Graph::new(hosts, levels, specs.switch_latency).with_tiers(&["leaf", "spine"]);
        for host in 0..hosts {
            let (pod, rail) = (host / (servers * rails), host % rails);
            graph.connect(NodeId(host), graph.switch(pod * rails + rail), specs.host);
        }
        for leaf in 0..leaves {
            (0..spines).for_each(|spine| specs.connect(&mut graph, leaf, leaves + spine));
        }
        graph
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::Table;
    use crate::topology::{LinkId, Rate};

    const SPEC: LinkSpec =
        LinkSpec { rate: Rate(100_000_000_000), delay: Span(1_000_000), queue_bytes: 1 << 20, mark_bytes: None };
    const SPECS: Specs = Specs { host: SPEC, core: SPEC, switch_latency: Span::ZERO };

    /// How many cables a packet takes between the switches of two hosts; each step is a next hop of the table, and every pair
    /// of hosts is reached.
    fn distances(graph: &Graph) -> Vec<u32> {
        assert_eq!(graph.check(), Ok(()));
        let (first, links) = graph.ports();
        let table = Table::new(graph, |_| true);
        let hops = |from: u32, to: u32| {
            let (mut switch, mut hops) = (table.attachment(NodeId(from)).0, 0);
            loop {
                let port = *table.next_hops(switch, NodeId(to)).0.last().expect("every host is reached");
                let link: LinkId = links[first[graph.switch(switch).index()] as usize + usize::from(port)];
                let next = graph.ends(link).1;
                match graph.switch_index(next) {
                    None => return hops,
                    Some(further) => (switch, hops) = (further, hops + 1),
                }
                assert!(hops < graph.switches(), "a loop");
            }
        };
        let pairs = (0..graph.hosts()).flat_map(|from| (0..graph.hosts()).map(move |to| (from, to)));
        pairs.filter(|(from, to)| from != to).map(|(from, to)| hops(from, to)).collect()
    }

    fn mean(distances: &[u32]) -> f64 {
        f64::from(distances.iter().sum::<u32>()) / distances.len() as f64
    }

    /// The cables between the switches with the lower half of the numbers and the others.
    fn bisection(graph: &Graph) -> usize {
        let half = graph.hosts() + graph.switches() / 2;
        let crosses = |a: NodeId, b: NodeId| a.0.min(b.0) >= graph.hosts() && (a.0 < half) != (b.0 < half);
        graph.edges().iter().filter(|edge| crosses(edge.a, edge.b)).count()
    }

    /// In a ring of k switches, k even, the others are k^2 / 4 hops away in all; each dimension adds its own.
    #[test]
    fn a_torus_has_the_distances_and_the_bisection_of_the_textbook() {
        let torus = Grid(&[4, 4, 4]).torus(1, true, &SPECS);
        let all = distances(&torus);
        assert_eq!((torus.hosts(), torus.edges().len() - 64), (64, 3 * 64), "n k^n cables");
        assert_eq!(all.iter().max(), Some(&6), "n k / 2");
        assert!((mean(&all) - 3.0 * 4.0 / 4.0 * 64.0 / 63.0).abs() < 1e-9, "n k / 4 over all pairs, {}", mean(&all));
        assert_eq!(bisection(&torus), 2 * 16, "2 k^(n-1)");
        let mesh = Grid(&[4, 4]).torus(1, false, &SPECS);
        assert_eq!((distances(&mesh).iter().max(), bisection(&mesh)), (Some(&6), 4));
        // A ring of two is one cable.
        assert_eq!(Grid(&[2, 3]).torus(1, true, &SPECS).edges().len(), 6 + 3 + 6);
    }

    #[test]
    fn a_hyperx_is_crossed_in_one_hop_for_each_dimension() {
        let graph = Grid(&[4, 3]).hyperx(2, &SPECS);
        let all = distances(&graph);
        assert_eq!((graph.hosts(), all.iter().max()), (24, Some(&2)));
        let cables = graph.edges().len() - 24;
        assert_eq!(cables, 3 * 6 + 4 * 3, "all pairs of each row and of each column");
        // 2 + 3 neighbours are one hop away, 2 * 3 are two; each has two hosts.
        let ones = all.iter().filter(|&&hops| hops == 1).count();
        assert_eq!((ones, all.len()), (24 * 5 * 2, 24 * 23));
        assert_eq!(bisection(&Grid(&[2, 4]).hyperx(1, &SPECS)), 2 * 4, "k^2 / 4 in each of two columns");
    }

    /// The balanced dragonfly a = 2 p = 2 h, with a h + 1 groups: the paper's figure 5 has p = h = 2, a = 4, 72 hosts.
    #[test]
    fn a_dragonfly_has_one_cable_between_groups_and_three_hops() {
        let shape = Dragonfly { groups: 9, switches: 4, global: 2, hosts_per_switch: 2 };
        assert_eq!(shape.cables_between_groups(), Some(1));
        let graph = shape.graph(&SPECS);
        let all = distances(&graph);
        assert_eq!((graph.hosts(), graph.switches(), all.iter().max()), (72, 36, Some(&3)), "local, global, local");
        let (first, _) = graph.ports();
        let ports: Vec<u32> = (72..108).map(|node| first[node + 1] - first[node]).collect();
        assert_eq!(ports, [2 + 3 + 2; 36], "p + (a - 1) + h");
        let groups = |a: NodeId, b: NodeId| [(a.0 - 72) / 4, (b.0 - 72) / 4];
        let between = graph.edges().iter().filter(|edge| edge.a.0 >= 72).map(|edge| groups(edge.a, edge.b));
        let mut pairs: Vec<[u32; 2]> = between.filter(|[a, b]| a != b).collect();
        pairs.sort_unstable();
        pairs.dedup();
        assert_eq!(pairs.len(), 9 * 8 / 2, "each pair of groups once");
    }

    #[test]
    fn a_smaller_dragonfly_spreads_its_cables_evenly() {
        let shape = Dragonfly { groups: 3, switches: 2, global: 2, hosts_per_switch: 1 };
        assert_eq!(shape.cables_between_groups(), Some(2));
        let graph = shape.graph(&SPECS);
        // Each switch has a cable to both other groups.
        assert_eq!((distances(&graph).iter().max(), graph.edges().len()), (Some(&2), 6 + 3 + 3 * 2));
        assert_eq!(Dragonfly { groups: 4, ..shape }.cables_between_groups(), None, "4 cables for 3 groups");
        assert_eq!(Dragonfly { groups: 6, ..shape }.cables_between_groups(), None, "4 cables for 5 groups");
    }

    #[test]
    fn accelerators_of_one_number_in_a_pod_share_a_leaf() {
        let rails = Rails { pods: 2, servers: 3, rails: 4, spines: 2 };
        let graph = rails.graph(&SPECS);
        assert_eq!((graph.hosts(), graph.switches(), distances(&graph).iter().max()), (24, 10, Some(&2)));
        let table = Table::new(&graph, |_| true);
        let leaf = |host: u32| table.attachment(NodeId(host)).0;
        assert_eq!([leaf(1), leaf(5), leaf(9)], [1, 1, 1], "rail 1 of the first pod's three servers");
        assert_eq!((leaf(0), leaf(12), leaf(13)), (0, 4, 5), "and of the second");
        assert_eq!(graph.tier("spine").map(|spines| spines.len()), Some(2));
    }
}
