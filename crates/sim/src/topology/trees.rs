//! Aggregation trees: which switches sum for a job, and who sums for whom.

use tributary_proto::contract::config::Below;
use tributary_proto::contract::ids::{NodeId, Rank};

use super::Graph;
use crate::net::LinkId;
use crate::routing::Table;

/// One switch of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeSwitch {
    /// The switch.
    pub node: NodeId,
    /// The port towards its parent and the place of this switch among the parent's children; `None` at the root.
    pub parent: Option<(u16, u16)>,
    /// The ports of its children, hosts before switches, each in ascending order: the `wid`s of this switch.
    pub children: Vec<u16>,
    /// The ranks behind each child.
    pub below: Vec<Below>,
}

/// A static aggregation tree over shortest paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The switches, in ascending order of their nodes.
    pub switches: Vec<TreeSwitch>,
    /// For each member, in order: the switch that it is connected to and its place among that switch's children.
    pub places: Vec<(NodeId, u16)>,
}

impl Tree {
    /// The tree of these hosts with the switch number `root` on top. If all members are below one switch that is not
    /// the root, what is above that switch is left out.
    pub fn new(graph: &Graph, table: &Table, members: &[NodeId], root: u32) -> Tree {
        let mut builder = Builder::new(graph);
        for &member in members {
            let (switch, port) = table.attachment(member);
            builder.children[switch as usize].push(port);
            builder.climb(table, switch, root);
        }
        let root = builder.lowest_common(root);
        builder.order_children();
        builder.finish(table, members, root)
    }
}

struct Builder<'a> {
    graph: &'a Graph,
    first_port: Vec<u32>,
    links: Vec<LinkId>,
    children: Vec<Vec<u16>>,
    /// The port towards the parent, once a switch is part of the tree.
    up: Vec<Option<u16>>,
}

impl<'a> Builder<'a> {
    fn new(graph: &'a Graph) -> Builder<'a> {
        let (first_port, links) = graph.ports();
        let switches = graph.switches() as usize;
        Builder { graph, first_port, links, children: vec![Vec::new(); switches], up: vec![None; switches] }
    }

    fn link(&self, switch: u32, port: u16) -> LinkId {
        self.links[self.first_port[self.graph.switch(switch).index()] as usize + usize::from(port)]
    }

    /// The switch behind a port, and the port there that leads back.
    fn behind(&self, switch: u32, port: u16) -> Option<(u32, u16)> {
        let link = self.link(switch, port);
        let (_, to) = self.graph.ends(link);
        let there = self.graph.switch_index(to)?;
        let (from, end) = (self.first_port[to.index()] as usize, self.first_port[to.index() + 1] as usize);
        let back = self.links[from..end].iter().position(|&other| other == link.reverse())?;
        Some((there, back as u16))
    }

    /// Joins a switch to the tree, and all those between it and the root.
    fn climb(&mut self, table: &Table, mut switch: u32, root: u32) {
        while switch != root && self.up[switch as usize].is_none() {
            let ports = table.next_hops(switch, self.graph.switch(root)).0;
            // Among equal paths the root's number decides, so that trees with different roots use different ones.
            let Some(&port) = ports.get(root as usize % ports.len().max(1)) else { return };
            let Some((above, back)) = self.behind(switch, port) else { return };
            self.up[switch as usize] = Some(port);
            self.children[above as usize].push(back);
            switch = above;
        }
    }

    /// Goes down from the root as long as there is only one child, and that is a switch.
    fn lowest_common(&mut self, mut root: u32) -> u32 {
        loop {
            let children = &self.children[root as usize];
            let first = children.first().copied();
            let only = first.filter(|first| children.iter().all(|child| child == first));
            let Some((below, _)) = only.and_then(|port| self.behind(root, port)) else { return root };
            self.children[root as usize].clear();
            self.up[below as usize] = None;
            root = below;
        }
    }

    /// Hosts first, so that a host has the same place in all trees of a job.
    fn order_children(&mut self) {
        for switch in 0..self.children.len() as u32 {
            let mut children = std::mem::take(&mut self.children[switch as usize]);
            children.sort_by_key(|&port| (self.behind(switch, port).is_some(), port));
            children.dedup();
            self.children[switch as usize] = children;
        }
    }

    fn finish(self, table: &Table, members: &[NodeId], root: u32) -> Tree {
        let place = |switch: u32, port: u16| {
            let place = self.children[switch as usize].iter().position(|&child| child == port);
            place.expect("every member and every switch below is a child") as u16
        };
        let places: Vec<(u32, u16)> = members
            .iter()
            .map(|&member| {
                let (switch, port) = table.attachment(member);
                (switch, place(switch, port))
            })
            .collect();
        // The switch above another one that is not the root, and the place there.
        let above = |switch: u32| {
            let port = self.up[switch as usize].filter(|_| switch != root)?;
            let (above, back) = self.behind(switch, port)?;
            Some((port, above, place(above, back)))
        };
        let above: Vec<Option<(u16, u32, u16)>> = (0..self.graph.switches()).map(above).collect();
        let mut below: Vec<Vec<Below>> =
            self.children.iter().map(|children| vec![Below::Switch(Vec::new()); children.len()]).collect();
        for (rank, &(switch, place)) in places.iter().enumerate() {
            let rank = Rank(rank as u16);
            below[switch as usize][usize::from(place)] = Below::Worker(rank);
            let mut at = switch;
            while let Some((_, switch, place)) = above[at as usize] {
                if let Below::Switch(ranks) = &mut below[switch as usize][usize::from(place)] {
                    ranks.push(rank);
                }
                at = switch;
            }
        }
        let switches = (0..self.graph.switches())
            .filter(|&switch| !self.children[switch as usize].is_empty())
            .map(|switch| TreeSwitch {
                node: self.graph.switch(switch),
                parent: above[switch as usize].map(|(port, _, place)| (port, place)),
                children: self.children[switch as usize].clone(),
                below: std::mem::take(&mut below[switch as usize]),
            })
            .collect();
        let places = places.into_iter().map(|(switch, place)| (self.graph.switch(switch), place)).collect();
        Tree { switches, places }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{LinkSpec, Rate};
    use crate::topology::{Clos, leaf_spine};
    use tributary_proto::contract::time::Span;

    const SPEC: LinkSpec =
        LinkSpec { rate: Rate(100_000_000_000), delay: Span(1_000_000), queue_bytes: 1 << 20, mark_bytes: None };

    fn tree(graph: &Graph, members: &[u32], root: u32) -> Tree {
        let members: Vec<NodeId> = members.iter().map(|&member| NodeId(member)).collect();
        Tree::new(graph, &Table::new(graph, |_| true), &members, root)
    }

    fn switch(node: u32, parent: Option<(u16, u16)>, children: &[u16], below: Vec<Below>) -> TreeSwitch {
        TreeSwitch { node: NodeId(node), parent, children: children.to_vec(), below }
    }

    fn worker(rank: u16) -> Below {
        Below::Worker(Rank(rank))
    }

    fn switches(ranks: &[u16]) -> Below {
        Below::Switch(ranks.iter().copied().map(Rank).collect())
    }

    #[test]
    fn leaves_with_members_are_the_children_of_the_spine() {
        // Hosts 0-7, leaves 8-11, spines 12-13.
        let graph = leaf_spine(4, 2, 2, SPEC, SPEC, Span::ZERO);
        let tree = tree(&graph, &[5, 0, 1], 5);
        assert_eq!(
            tree.switches,
            [
                switch(8, Some((3, 0)), &[0, 1], vec![worker(1), worker(2)]),
                switch(10, Some((3, 1)), &[1], vec![worker(0)]),
                switch(13, None, &[0, 2], vec![switches(&[1, 2]), switches(&[0])]),
            ]
        );
        assert_eq!(tree.places, [(NodeId(10), 0), (NodeId(8), 0), (NodeId(8), 1)]);
    }

    #[test]
    fn a_job_on_one_leaf_needs_no_spine() {
        let graph = leaf_spine(4, 2, 2, SPEC, SPEC, Span::ZERO);
        let tree = tree(&graph, &[2, 3], 4);
        assert_eq!(tree.switches, [switch(9, None, &[0, 1], vec![worker(0), worker(1)])]);
    }

    #[test]
    fn a_fat_tree_sums_at_every_level_and_each_switch_has_one_parent() {
        let graph = Clos::fat_tree(4).graph(SPEC, SPEC, SPEC, Span::ZERO);
        for root in 16..20 {
            let tree = tree(&graph, &(0..16).collect::<Vec<_>>(), root);
            let count = |level| tree.switches.iter().filter(|switch| graph.level(switch.node) == level).count();
            assert_eq!((count(1), count(2), count(3)), (8, 4, 1));
            assert_eq!(tree.switches.iter().filter(|switch| switch.parent.is_none()).count(), 1);
            let children: usize = tree.switches.iter().map(|switch| switch.children.len()).sum();
            assert_eq!(children, 16 + 8 + 4);
        }
    }

    #[test]
    fn a_job_in_one_pod_is_summed_below_the_core() {
        let graph = Clos::fat_tree(4).graph(SPEC, SPEC, SPEC, Span::ZERO);
        let tree = tree(&graph, &[0, 1, 2, 3], 17);
        let root = tree.switches.iter().find(|switch| switch.parent.is_none()).unwrap();
        assert_eq!((graph.level(root.node), tree.switches.len()), (2, 3));
    }
}
