//! The network between the machines.

use tributary_control::routes::{Cabling, Routes};
use tributary_control::trees::{Tree, TreePlanner};
use tributary_proto::contract::config::{FabricPlan, JobConfig};
use tributary_proto::contract::ids::{JobId, JobKey, NodeId, PortId, Rank};
use tributary_proto::contract::protocol::Placement;

use crate::bounds::{Bounds, BoundsError};

/// The network. Hosts come before switches, and rank `r` is on host `r`.
pub struct Topology {
    /// What is explored.
    pub bounds: Bounds,
    cabling: Cabling,
    routes: Routes,
    /// The neighbours of each node, by port.
    ports: Vec<Vec<NodeId>>,
    /// The tree along which switches sum, if one is planned.
    pub tree: Option<Tree>,
}

impl Topology {
    /// Connects hosts and switches.
    pub fn new(bounds: &Bounds) -> Result<Topology, BoundsError> {
        bounds.check()?;
        let cabling = match bounds.leaves {
            0 => star(bounds.ranks.into()),
            leaves => leaf_spine(leaves.into(), bounds.spines.into(), bounds.ranks.into()),
        };
        let ports = cabling.ports().into_iter().map(|ports| ports.into_iter().map(|port| port.to).collect()).collect();
        let routes = Routes::new(&cabling, |_, _| true);
        let mut topology = Topology { bounds: bounds.clone(), cabling, routes, ports, tree: None };
        if bounds.protocol.placement == Placement::Trees {
            topology.tree = Some(topology.plan_tree()?);
        }
        Ok(topology)
    }

    fn plan_tree(&self) -> Result<Tree, BoundsError> {
        let names = (0..self.nodes() as u32).map(|node| self.name(NodeId(node))).collect();
        let network = TreePlanner::new(self.cabling.clone(), names);
        // The first spine, or the only switch.
        let top = self.cabling.switch(u32::from(self.bounds.leaves));
        network.tree(&self.members(), top).map_err(|error| BoundsError::Tree(error.to_string()))
    }

    /// The hosts of all ranks.
    pub fn members(&self) -> Vec<NodeId> {
        (0..u32::from(self.bounds.ranks)).map(NodeId).collect()
    }

    /// How many nodes there are, with those that have no machine.
    pub fn nodes(&self) -> usize {
        self.cabling.nodes()
    }

    /// The rank at a node, if the node is a host.
    pub fn rank_at(&self, node: NodeId) -> Option<Rank> {
        (node.0 < u32::from(self.bounds.ranks)).then_some(Rank(node.0 as u16))
    }

    /// True if the node is a switch.
    pub fn is_switch(&self, node: NodeId) -> bool {
        self.cabling.switch_index(node).is_some()
    }

    /// The switch that a host is connected to.
    pub fn switch_of(&self, host: NodeId) -> NodeId {
        self.cabling.switch(self.routes.attachment(host).0)
    }

    /// The node behind a switch's port, if there is one.
    pub fn behind(&self, switch: NodeId, port: PortId) -> Option<NodeId> {
        self.ports[switch.index()].get(port.index()).copied()
    }

    /// The port of a switch that leads to a neighbour.
    pub fn port_to(&self, switch: NodeId, neighbour: NodeId) -> PortId {
        let port = self.ports[switch.index()].iter().position(|&node| node == neighbour);
        PortId(port.map_or(PortId::UNKNOWN.0, |port| port as u16))
    }

    /// The ports of a multicast group: the children of a switch in the tree.
    pub fn group(&self, switch: NodeId) -> Vec<PortId> {
        let node = self.tree.as_ref().and_then(|tree| tree.switch(switch));
        node.map_or(Vec::new(), |node| node.children.iter().map(|child| child.port).collect())
    }

    /// The neighbours of a switch that are next on shortest paths to a node.
    pub fn next_hops(&self, switch: NodeId, to: NodeId) -> Vec<NodeId> {
        let index = self.cabling.switch_index(switch).expect("only switches forward");
        let ports = self.routes.next_hops(index, to).0;
        ports.iter().map(|&port| self.ports[switch.index()][usize::from(port)]).collect()
    }

    /// A node's name: "rank 1", "switch 0".
    pub fn name(&self, node: NodeId) -> String {
        match (self.rank_at(node), self.cabling.switch_index(node)) {
            (Some(rank), _) => format!("rank {rank}"),
            (None, Some(switch)) => format!("switch {switch}"),
            (None, None) => format!("host {node}"),
        }
    }

    /// The job.
    pub fn job(&self) -> JobConfig {
        let Bounds { protocol, ranks, slots, ref options, .. } = self.bounds;
        JobConfig {
            job: JobId(1),
            key: JobKey(0x5EED),
            protocol: protocol.code,
            world_size: ranks,
            slots,
            elements_per_packet: Bounds::ELEMENTS_PER_PACKET,
            trees: self.bounds.servers().max(1),
            levels: self.cabling.switches > 1,
            options: options.clone(),
        }
    }

    /// The plan of the fabric; empty if the protocol's hosts do not address nodes.
    pub fn fabric(&self) -> FabricPlan {
        if self.bounds.protocol.placement != Placement::EveryHop {
            return FabricPlan::default();
        }
        let switches = self.members().into_iter().map(|host| self.switch_of(host)).collect();
        FabricPlan { hosts: self.members().into(), switches, roots: [].into() }
    }
}

/// Hosts around one switch.
fn star(hosts: u32) -> Cabling {
    Cabling { hosts, switches: 1, cables: (0..hosts).map(|host| (NodeId(host), NodeId(hosts))).collect() }
}

/// Leaves, then spines. Each leaf is connected to all spines; hosts are spread over the leaves in their order.
fn leaf_spine(leaves: u32, spines: u32, hosts: u32) -> Cabling {
    let each = hosts.div_ceil(leaves);
    let leaf = |number: u32| NodeId(hosts + number);
    let down = (0..hosts).map(|host| (NodeId(host), leaf(host / each)));
    let up = (0..leaves).flat_map(|at| (0..spines).map(move |spine| (leaf(at), leaf(leaves + spine))));
    Cabling { hosts, switches: leaves + spines, cables: down.chain(up).collect() }
}
