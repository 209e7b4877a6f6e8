//! Draws the shape of a scenario's network.

use super::Draw;
use crate::config::{
    ClosShape, DragonflyShape, DumbbellShape, GraphLink, GraphShape, GridShape, LeafSpineShape, Network, NodeName,
    RailsShape, Routing, StarShape, TorusShape,
};

/// True if a network has a shape of [`Draw::direct_shape`] in which links could PAUSE each other in a circle.
pub(super) fn is_direct(network: &Network) -> bool {
    network.torus.is_some() || network.hyperx.is_some() || network.dragonfly.is_some()
}

impl Draw {
    pub(super) fn shape(&mut self, network: &mut Network) -> (u32, u32) {
        match self.0.below(5) {
            0 => {
                let hosts = self.between(1, 12) as u32;
                network.star = Some(StarShape { hosts });
                (hosts, 1)
            }
            1 => {
                let (left, right) = (self.between(1, 5) as u32, self.between(1, 5) as u32);
                network.dumbbell = Some(DumbbellShape { left, right });
                (left + right, 2)
            }
            2 => {
                let [leaves, spines, hosts_per_leaf] = [4, 3, 4].map(|most| self.between(1, most) as u32);
                network.leaf_spine = Some(LeafSpineShape { leaves, spines, hosts_per_leaf, nics: 1 });
                (leaves * hosts_per_leaf, leaves + spines)
            }
            3 => {
                network.clos = Some(ClosShape {
                    ports: Some(4),
                    pods: None,
                    edges: None,
                    aggregations: None,
                    cores: None,
                    hosts_per_edge: None,
                });
                (16, 20)
            }
            _ => self.any_graph(network),
        }
    }

    /// Switches in a random tree with a few more links, and hosts anywhere.
    fn any_graph(&mut self, network: &mut Network) -> (u32, u32) {
        let (hosts, switches) = (self.between(2, 10) as u32, self.between(1, 6) as u32);
        let mut links = Vec::new();
        let link = |a, b| GraphLink { between: [a, b], rate: None, delay: None, queue: None, mark_above: None };
        for switch in 1..switches {
            links.push(link(NodeName::Switch(switch), NodeName::Switch(self.0.below(switch))));
        }
        if switches > 2 {
            for _ in 0..self.0.below(3) {
                let a = self.0.below(switches);
                let b = (a + 1 + self.0.below(switches - 1)) % switches;
                links.push(link(NodeName::Switch(a), NodeName::Switch(b)));
            }
        }
        for host in 0..hosts {
            links.push(link(NodeName::Host(host), NodeName::Switch(self.0.below(switches))));
        }
        network.graph = Some(GraphShape { hosts, switches, links });
        (hosts, switches)
    }

    /// In some scenarios, gives hosts more cables, if the shape has hosts with several.
    pub(super) fn add_nics(&mut self, network: &mut Network) {
        if !self.0.chance(0.3) {
            return;
        }
        if let Some(shape) = network.leaf_spine.as_mut().filter(|shape| shape.leaves % 2 == 0) {
            shape.nics = 2;
        }
        if let Some(shape) = &mut network.graph {
            for host in 0..shape.hosts {
                for _ in 0..self.0.below(3) {
                    let between = [NodeName::Host(host), NodeName::Switch(self.0.below(shape.switches))];
                    shape.links.push(GraphLink { between, rate: None, delay: None, queue: None, mark_above: None });
                }
            }
        }
    }

    /// In some scenarios, a shape whose switches all have hosts in place of the one that was drawn, or rails; its hosts and
    /// switches.
    pub(super) fn direct_shape(&mut self, network: &mut Network) -> Option<(u32, u32)> {
        if !self.0.chance(0.15) {
            return None;
        }
        (network.star, network.dumbbell, network.leaf_spine) = Default::default();
        (network.clos, network.graph) = Default::default();
        let hosts_per_switch = self.between(1, 2) as u32;
        let size: Vec<u32> = (0..self.between(1, 3)).map(|_| self.between(2, 3) as u32).collect();
        let on_grid: u32 = size.iter().product();
        let kind = self.0.below(4);
        if kind < 3 && self.0.chance(0.5) {
            network.routing = Routing::Valiant;
        }
        if kind < 2 && self.0.chance(0.3) {
            network.background_routing = Some(Routing::DimensionOrder);
        }
        let (hosts, switches) = match kind {
            0 => {
                let wrap = self.0.chance(0.7);
                network.torus = Some(TorusShape { size, hosts_per_switch, wrap });
                (on_grid * hosts_per_switch, on_grid)
            }
            1 => {
                network.hyperx = Some(GridShape { size, hosts_per_switch });
                (on_grid * hosts_per_switch, on_grid)
            }
            2 => {
                let (groups, switches, global) = self.of(&[(3, 2, 1), (5, 2, 2), (4, 3, 1), (2, 2, 1)]);
                network.dragonfly = Some(DragonflyShape { groups, switches, global, hosts_per_switch });
                (groups * switches * hosts_per_switch, groups * switches)
            }
            _ => {
                let [pods, servers, rails, spines] = [2, 3, 3, 2].map(|most| self.between(1, most) as u32);
                network.rails = Some(RailsShape { pods, servers, rails, spines });
                (pods * servers * rails, pods * rails + spines)
            }
        };
        Some((hosts, switches))
    }
}
