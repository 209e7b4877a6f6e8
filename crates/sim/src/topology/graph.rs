//! A network as a graph, and the properties of its links.

use std::collections::VecDeque;

use tributary_control::quantity::Rate;
use tributary_control::routes::Cabling;
use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::time::{Span, Time};

/// One direction of a cable. The other direction is [`LinkId::reverse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

impl LinkId {
    /// The other direction of the same cable.
    pub fn reverse(self) -> LinkId {
        LinkId(self.0 ^ 1)
    }

    /// The number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The properties of a link, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// Bits per second.
    pub rate: Rate,
    /// Propagation delay.
    pub delay: Span,
    /// Bytes that the output queue holds, including the packet in transmission.
    pub queue_bytes: u64,
    /// Which packets the queue marks, if their senders take part in ECN.
    pub mark_bytes: Option<MarkBytes>,
}

/// A packet that finds more than `mark_above` bytes in a queue is marked by chance, the more likely the more it finds; one that
/// finds more than `mark_all_above` is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkBytes {
    /// Packets that find no more are not marked.
    pub mark_above: u64,
    /// Equal to `mark_above` for a single threshold.
    pub mark_all_above: u64,
}

impl MarkBytes {
    /// A single threshold.
    pub fn threshold(bytes: u64) -> MarkBytes {
        MarkBytes { mark_above: bytes, mark_all_above: bytes }
    }
}

/// A cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// One end.
    pub a: NodeId,
    /// The other end.
    pub b: NodeId,
    /// The link from `a` to `b`: number `2 * i` for edge `i`.
    pub a_to_b: LinkSpec,
    /// The link from `b` to `a`: number `2 * i + 1`.
    pub b_to_a: LinkSpec,
}

/// Why a graph is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// The graph has no hosts.
    #[error("the network has no hosts")]
    NoHosts,
    /// A host has no cable.
    #[error("host {0} has no link")]
    Unconnected(u32),
    /// A cable connects two hosts directly.
    #[error("a link joins the hosts {0} and {1}; links join hosts to switches, or switches")]
    HostToHost(u32, u32),
    /// Some hosts cannot reach each other.
    #[error("the network is not connected: no path leads from {0} to {1}")]
    Disconnected(String, String),
    /// A node has more ports than there are port numbers.
    #[error("{0} has {1} ports; at most 65,534 fit")]
    TooManyPorts(String, usize),
    /// A cable connects a node to itself.
    #[error("a link joins {0} to itself")]
    Loop(String),
    /// A cable ends at a node that does not exist.
    #[error("a link names node {0}, and there are {1}")]
    NoSuchNode(u32, usize),
}

/// The end of the window in which something happens.
pub fn window_end(time: Time, lookahead: Span) -> Time {
    Time((time.0 / lookahead.0 + 1).saturating_mul(lookahead.0))
}

/// Hosts, switches and cables.
#[derive(Clone, Debug)]
pub struct Graph {
    hosts: u32,
    /// For each switch its level above the hosts: 1 for switches with hosts.
    levels: Vec<u8>,
    edges: Vec<Edge>,
    switch_latency: Span,
    /// The shape's names for the switches of each level, from the first level on; empty if it has no names.
    tiers: &'static [&'static str],
}

impl Graph {
    /// A graph without cables.
    pub fn new(hosts: u32, levels: Vec<u8>, switch_latency: Span) -> Graph {
        Graph { hosts, levels, edges: Vec::new(), switch_latency, tiers: &[] }
    }

    /// The same graph with names for the switches of each level, from the first level on.
    #[must_use]
    pub fn with_tiers(self, tiers: &'static [&'static str]) -> Graph {
        Graph { tiers, ..self }
    }

    /// The switches of the level with this name, in order.
    pub fn tier(&self, name: &str) -> Option<Vec<NodeId>> {
        let level = 1 + self.tiers.iter().position(|&tier| tier == name)?;
        let switches = (0..self.switches()).map(|switch| self.switch(switch));
        Some(switches.filter(|&switch| usize::from(self.level(switch)) == level).collect())
    }

    /// Connects two nodes, with the same properties both ways.
    pub fn connect(&mut self, a: NodeId, b: NodeId, spec: LinkSpec) {
        self.edges.push(Edge { a, b, a_to_b: spec, b_to_a: spec });
    }

    /// Gives every switch its level: 1 if a host is connected, and one more for each switch between.
    pub fn set_levels_by_distance(&mut self) {
        let (first, links) = self.ports();
        let mut distance = vec![u8::MAX; self.nodes()];
        let mut reached: VecDeque<usize> = (0..self.hosts as usize).collect();
        distance[..self.hosts as usize].fill(0);
        while let Some(node) = reached.pop_front() {
            for &link in &links[first[node] as usize..first[node + 1] as usize] {
                let to = self.ends(link).1.index();
                if distance[to] == u8::MAX {
                    distance[to] = distance[node].saturating_add(1).min(u8::MAX - 1);
                    reached.push_back(to);
                }
            }
        }
        self.levels.copy_from_slice(&distance[self.hosts as usize..]);
    }

    /// The switches of the highest level, by number.
    pub fn top_switches(&self) -> Vec<u32> {
        let reachable = |level: &&u8| **level < u8::MAX;
        let highest = self.levels.iter().filter(reachable).max().copied().unwrap_or(0);
        (0..self.switches()).filter(|&switch| self.levels[switch as usize] == highest).collect()
    }

    /// Number of hosts.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Number of switches.
    pub fn switches(&self) -> u32 {
        self.levels.len() as u32
    }

    /// Number of hosts and switches.
    pub fn nodes(&self) -> usize {
        self.hosts as usize + self.levels.len()
    }

    /// The node of the `index`-th switch.
    pub fn switch(&self, index: u32) -> NodeId {
        NodeId(self.hosts + index)
    }

    /// The number of a switch; `None` for hosts.
    pub fn switch_index(&self, node: NodeId) -> Option<u32> {
        node.0.checked_sub(self.hosts)
    }

    /// A switch's level above the hosts; 0 for a host.
    pub fn level(&self, node: NodeId) -> u8 {
        self.switch_index(node).map_or(0, |switch| self.levels[switch as usize])
    }

    /// How long packets are inside a node before they reach an output queue.
    pub fn latency(&self, node: NodeId) -> Span {
        if node.0 < self.hosts { Span::ZERO } else { self.switch_latency }
    }

    /// The cables. Edge `i` is the links `2 * i` and `2 * i + 1`.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// A node's name, which files may use too: "host 3", "spine 0", or "switch 0" where the shape names no tiers.
    pub fn name(&self, node: NodeId) -> String {
        let Some(switch) = self.switch_index(node) else { return format!("host {node}") };
        let level = self.levels[switch as usize];
        match usize::from(level).checked_sub(1).and_then(|tier| self.tiers.get(tier)) {
            Some(tier) => {
                let before = self.levels[..switch as usize].iter().filter(|&&other| other == level).count();
                format!("{tier} {before}")
            }
            None => format!("switch {switch}"),
        }
    }

    /// The ends of a link: where it comes from, and where it goes to.
    pub fn ends(&self, link: LinkId) -> (NodeId, NodeId) {
        let edge = &self.edges[link.index() / 2];
        if link.0 & 1 == 0 { (edge.a, edge.b) } else { (edge.b, edge.a) }
    }

    /// A link's name, as in "host 3 to leaf 0".
    pub fn link_name(&self, link: LinkId) -> String {
        let (from, to) = self.ends(link);
        format!("{} to {}", self.name(from), self.name(to))
    }

    /// The properties of a link.
    pub fn spec(&self, link: LinkId) -> LinkSpec {
        let edge = &self.edges[link.index() / 2];
        if link.0 & 1 == 0 { edge.a_to_b } else { edge.b_to_a }
    }

    /// The limits of the queue before a link. That of a host's NIC has no limit and marks nothing, because the host itself
    /// bounds what it hands to its NIC.
    pub fn queue_spec(&self, link: LinkId) -> LinkSpec {
        let spec = self.spec(link);
        let of_host = self.ends(link).0.0 < self.hosts;
        if of_host { LinkSpec { queue_bytes: u64::MAX, mark_bytes: None, ..spec } } else { spec }
    }

    /// The outgoing links of all nodes in the order of the cables: the index of each node's first link, and the links.
    pub fn ports(&self) -> (Vec<u32>, Vec<LinkId>) {
        let mut first = vec![0u32; self.nodes() + 1];
        for edge in &self.edges {
            first[edge.a.index() + 1] += 1;
            first[edge.b.index() + 1] += 1;
        }
        for node in 0..self.nodes() {
            first[node + 1] += first[node];
        }
        let mut next = first.clone();
        let mut links = vec![LinkId(0); self.edges.len() * 2];
        for (index, edge) in self.edges.iter().enumerate() {
            for (node, link) in [(edge.a, 2 * index), (edge.b, 2 * index + 1)] {
                links[next[node.index()] as usize] = LinkId(link as u32);
                next[node.index()] += 1;
            }
        }
        (first, links)
    }

    /// The cables between nodes; cable `i` is edge `i`.
    pub fn cabling(&self) -> Cabling {
        let cables = self.edges.iter().map(|edge| (edge.a, edge.b)).collect();
        Cabling { hosts: self.hosts, switches: self.switches(), cables }
    }

    /// The length of windows: a packet that is sent during one window arrives in a later one, for any partitions. It is the
    /// shortest delay of links between switches, and between a host and a switch other than that of its first cable, because
    /// hosts are in the partitions of those; `None` without such links, or if one has no delay.
    pub fn lookahead(&self) -> Option<Span> {
        let mut first = vec![None; self.hosts as usize];
        let mut may_cross = |edge: &&Edge| {
            let (lower, upper) = (edge.a.min(edge.b), edge.a.max(edge.b));
            first.get_mut(lower.index()).is_none_or(|first| *first.get_or_insert(upper) != upper)
        };
        let edges = self.edges().iter().filter(|edge| may_cross(edge));
        let delays =
            edges.flat_map(|edge| [edge.a_to_b.delay + self.latency(edge.b), edge.b_to_a.delay + self.latency(edge.a)]);
        delays.min().filter(|&delay| delay > Span::ZERO)
    }

    /// Checks that the graph is a network.
    pub fn check(&self) -> Result<(), GraphError> {
        if self.hosts == 0 {
            return Err(GraphError::NoHosts);
        }
        for edge in &self.edges {
            self.check_edge(edge)?;
        }
        let (first, _) = self.ports();
        for node in 0..self.nodes() {
            let ports = (first[node + 1] - first[node]) as usize;
            if ports == 0 && node < self.hosts as usize {
                return Err(GraphError::Unconnected(node as u32));
            } else if ports > 65_534 {
                return Err(GraphError::TooManyPorts(self.name(NodeId(node as u32)), ports));
            }
        }
        self.check_connected()
    }

    fn check_edge(&self, edge: &Edge) -> Result<(), GraphError> {
        for node in [edge.a, edge.b] {
            if node.index() >= self.nodes() {
                return Err(GraphError::NoSuchNode(node.0, self.nodes()));
            }
        }
        if edge.a == edge.b {
            return Err(GraphError::Loop(self.name(edge.a)));
        }
        if edge.a.0 < self.hosts && edge.b.0 < self.hosts {
            return Err(GraphError::HostToHost(edge.a.0, edge.b.0));
        }
        Ok(())
    }

    /// Checks that the hosts reach each other. They forward nothing, so one switch must reach them all; it is one to which
    /// host 0 has a cable.
    fn check_connected(&self) -> Result<(), GraphError> {
        let (first, links) = self.ports();
        let of =
            |node: usize| links[first[node] as usize..first[node + 1] as usize].iter().map(|&link| self.ends(link).1);
        let mut missing = None;
        for start in of(0) {
            let mut seen = vec![false; self.nodes()];
            let mut reached = vec![start.index()];
            seen[start.index()] = true;
            while let Some(node) = reached.pop() {
                for to in of(node) {
                    if !std::mem::replace(&mut seen[to.index()], true) && to.0 >= self.hosts {
                        reached.push(to.index());
                    }
                }
            }
            // A switch without hosts behind it does no harm; an unreachable host does.
            match seen[..self.hosts as usize].iter().position(|&seen| !seen) {
                Some(host) => missing = missing.or(Some((start, host))),
                None => return Ok(()),
            }
        }
        let Some((start, host)) = missing else { return Ok(()) };
        let start = if of(0).count() == 1 { NodeId(0) } else { start };
        Err(GraphError::Disconnected(self.name(start), self.name(NodeId(host as u32))))
    }
}
