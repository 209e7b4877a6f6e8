//! The shapes that the papers use.

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::Span;

use super::{Graph, LinkSpec};

/// Hosts around one switch.
pub fn star(hosts: u32, spec: LinkSpec, switch_latency: Span) -> Graph {
    let mut graph = Graph::new(hosts, vec![1], switch_latency);
    for host in 0..hosts {
        graph.connect(NodeId(host), graph.switch(0), spec);
    }
    graph
}

/// Two switches with hosts on each side and one cable between them. Hosts `0..left` are on the left.
pub fn dumbbell(left: u32, right: u32, host: LinkSpec, middle: LinkSpec, switch_latency: Span) -> Graph {
    let mut graph = Graph::new(left + right, vec![1, 1], switch_latency);
    for number in 0..left + right {
        graph.connect(NodeId(number), graph.switch(u32::from(number >= left)), host);
    }
    graph.connect(graph.switch(0), graph.switch(1), middle);
    graph
}

/// A two-level fat tree: every leaf is connected to every spine. Host `h` is on leaf `h / hosts_per_leaf`; a leaf's
/// ports are its hosts, then the spines.
pub fn leaf_spine(
    leaves: u32,
    spines: u32,
    hosts_per_leaf: u32,
    host: LinkSpec,
    up: LinkSpec,
    switch_latency: Span,
) -> Graph {
    let hosts = leaves * hosts_per_leaf;
    let levels = (0..leaves + spines).map(|switch| if switch < leaves { 1 } else { 2 }).collect();
    let mut graph = Graph::new(hosts, levels, switch_latency).with_tiers(&["leaf", "spine"]);
    for number in 0..hosts {
        graph.connect(NodeId(number), graph.switch(number / hosts_per_leaf), host);
    }
    for leaf in 0..leaves {
        for spine in 0..spines {
            graph.connect(graph.switch(leaf), graph.switch(leaves + spine), up);
        }
    }
    graph
}

/// Gives each host of a leaf-spine network `nics` cables: besides that to its leaf, to the next leaves of a group of `nics`.
pub fn join_next_leaves(graph: &mut Graph, hosts_per_leaf: u32, nics: u32, host: LinkSpec) {
    for next in 1..nics {
        for number in 0..graph.hosts() {
            let leaf = number / hosts_per_leaf;
            let group = leaf / nics * nics;
            graph.connect(NodeId(number), graph.switch(group + (leaf - group + next) % nics), host);
        }
    }
}

/// A folded Clos network of three levels: pods of edge and aggregation switches under a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clos {
    /// Pods.
    pub pods: u32,
    /// Edge switches in each pod.
    pub edges: u32,
    /// Aggregation switches in each pod; each is connected to every edge switch of its pod.
    pub aggregations: u32,
    /// Core switches that each aggregation switch is connected to. Aggregation switches of the same number in all pods
    /// share them.
    pub cores: u32,
    /// Hosts on each edge switch.
    pub hosts_per_edge: u32,
}

impl Clos {
    /// The fat tree of switches with `k` ports (Al-Fares et al., 2008): `k^3 / 4` hosts.
    pub fn fat_tree(k: u32) -> Clos {
        Clos { pods: k, edges: k / 2, aggregations: k / 2, cores: k / 2, hosts_per_edge: k / 2 }
    }

    /// The graph. Switches are numbered edges first, then aggregations, then cores.
    pub fn graph(&self, host: LinkSpec, lower: LinkSpec, upper: LinkSpec, switch_latency: Span) -> Graph {
        let (edges, aggregations) = (self.pods * self.edges, self.pods * self.aggregations);
        let cores = self.aggregations * self.cores;
        let levels = (0..edges + aggregations + cores)
            .map(|switch| 1 + u8::from(switch >= edges) + u8::from(switch >= edges + aggregations))
            .collect();
        let hosts = edges * self.hosts_per_edge;
        let tiers = &["edge", "aggregation", "core"];
        let mut graph = Graph::new(hosts, levels, switch_latency).with_tiers(tiers);
        for number in 0..hosts {
            graph.connect(NodeId(number), graph.switch(number / self.hosts_per_edge), host);
        }
        for edge in 0..edges {
            for aggregation in 0..self.aggregations {
                let upper_switch = edges + edge / self.edges * self.aggregations + aggregation;
                graph.connect(graph.switch(edge), graph.switch(upper_switch), lower);
            }
        }
        for aggregation in 0..aggregations {
            for core in 0..self.cores {
                let upper_switch = edges + aggregations + aggregation % self.aggregations * self.cores + core;
                graph.connect(graph.switch(edges + aggregation), graph.switch(upper_switch), upper);
            }
        }
        graph
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{LinkId, Rate};

    const SPEC: LinkSpec =
        LinkSpec { rate: Rate(100_000_000_000), delay: Span(1_000_000), queue_bytes: 1 << 20, mark_bytes: None };

    fn degrees(graph: &Graph) -> Vec<u32> {
        let (first, _) = graph.ports();
        first.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    #[test]
    fn a_leaf_connects_hosts_and_spines() {
        let graph = leaf_spine(4, 3, 2, SPEC, SPEC, Span::ZERO);
        assert_eq!(graph.check(), Ok(()));
        assert_eq!(degrees(&graph)[..8], [1; 8]);
        assert_eq!(degrees(&graph)[8..], [5, 5, 5, 5, 4, 4, 4]);
        let (first, links) = graph.ports();
        let leaf = graph.switch(1);
        let ports: Vec<u32> =
            links[first[9] as usize..first[10] as usize].iter().map(|&link| graph.ends(link).1.0).collect();
        assert_eq!((graph.ends(LinkId(4)), ports), ((NodeId(2), leaf), vec![2, 3, 12, 13, 14]));
    }

    #[test]
    fn hosts_with_two_cables_are_on_both_leaves_of_a_pair() {
        let short = LinkSpec { delay: Span(1_000), ..SPEC };
        let mut graph = leaf_spine(4, 1, 2, short, SPEC, Span::ZERO);
        assert_eq!(graph.lookahead(), Some(SPEC.delay), "hosts are where their switch is");
        join_next_leaves(&mut graph, 2, 2, short);
        assert_eq!(graph.check(), Ok(()));
        assert_eq!(degrees(&graph), [2, 2, 2, 2, 2, 2, 2, 2, 5, 5, 5, 5, 4]);
        let leaves = |host: u32| -> Vec<NodeId> {
            let (first, links) = graph.ports();
            let own = first[host as usize] as usize..first[host as usize + 1] as usize;
            links[own].iter().map(|&link| graph.ends(link).1).collect()
        };
        assert_eq!(leaves(1), [0, 1].map(|leaf| graph.switch(leaf)));
        assert_eq!(leaves(6), [3, 2].map(|leaf| graph.switch(leaf)));
        assert_eq!(graph.lookahead(), Some(short.delay), "a packet for the second leaf may cross");
    }

    #[test]
    fn the_fat_tree_of_four_port_switches_has_sixteen_hosts_and_twenty_switches() {
        let graph = Clos::fat_tree(4).graph(SPEC, SPEC, SPEC, Span::ZERO);
        assert_eq!(graph.check(), Ok(()));
        assert_eq!((graph.hosts(), graph.switches()), (16, 20));
        assert!(degrees(&graph)[16..].iter().all(|&ports| ports == 4));
    }

    #[test]
    fn a_dumbbell_has_one_cable_in_the_middle() {
        let graph = dumbbell(3, 2, SPEC, SPEC, Span::ZERO);
        assert_eq!(graph.check(), Ok(()));
        assert_eq!(degrees(&graph), [1, 1, 1, 1, 1, 4, 3]);
    }
}
