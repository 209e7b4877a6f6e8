//! The tree under one root: shortest ways up, and children in the order of their lowest rank.

use tributary_proto::contract::config::Below;
use tributary_proto::contract::ids::{ChildId, NodeId, PortId, Rank};

use super::network::Entry;
use super::{Network, Place, Tree, TreeChild, TreeError, TreeParent, TreeSwitch};

impl Network {
    /// The tree of these hosts, by rank, with `root` on top. If all members are below one switch that is not the root,
    /// the switches above that switch are left out.
    pub fn tree(&self, members: &[NodeId], root: NodeId) -> Result<Tree, TreeError> {
        self.tree_around(&self.entries(members)?, self.root_index(root)?, &self.dead_switches)
    }

    pub(super) fn root_index(&self, root: NodeId) -> Result<u32, TreeError> {
        let switch = self.cabling.switch_index(root).filter(|&switch| switch < self.cabling.switches);
        let alive = switch.filter(|&switch| !self.dead_switches[switch as usize]);
        alive.ok_or_else(|| TreeError::NotARoot { node: self.name(root).to_owned() })
    }

    /// The tree that avoids the switches that are shut.
    pub(super) fn tree_around(&self, entries: &[Entry], root: u32, shut: &[bool]) -> Result<Tree, TreeError> {
        let mut builder = Builder::new(self, root, shut);
        for (rank, entry) in entries.iter().enumerate() {
            builder.climb(Rank(rank as u16), entry)?;
        }
        for (rank, entry) in entries.iter().enumerate() {
            builder.add(Rank(rank as u16), entry);
        }
        builder.lower_root();
        Ok(builder.finish(entries))
    }
}

/// The way from a switch to the one above it.
#[derive(Clone, Copy)]
struct Up {
    port: PortId,
    above: u32,
}

struct Builder<'a> {
    network: &'a Network,
    root: u32,
    /// Each switch's distance from the root.
    distance: Vec<u32>,
    /// The way up from each switch that is part of the tree.
    up: Vec<Option<Up>>,
    /// The place of each such switch among the children of the switch above.
    place: Vec<Option<ChildId>>,
    children: Vec<Vec<TreeChild>>,
}

impl<'a> Builder<'a> {
    fn new(network: &'a Network, root: u32, shut: &[bool]) -> Builder<'a> {
        let switches = network.cabling.switches as usize;
        Builder {
            network,
            root,
            distance: network.distances(root, shut),
            up: vec![None; switches],
            place: vec![None; switches],
            children: vec![Vec::new(); switches],
        }
    }

    /// Joins a member's switch to the tree, and all switches between it and the root.
    fn climb(&mut self, rank: Rank, entry: &Entry) -> Result<(), TreeError> {
        let mut switch = entry.switch;
        while switch != self.root && self.up[switch as usize].is_none() {
            let distance = self.distance[switch as usize];
            let closer = |&(_, next): &(PortId, u32)| {
                distance != u32::MAX && self.distance[next as usize].checked_add(1) == Some(distance)
            };
            let ways: Vec<(PortId, u32)> = self.network.neighbours(switch).filter(closer).collect();
            // Among equal ways the root's number decides, so that trees with different roots use different ways.
            let Some(&(port, above)) = ways.get(self.root as usize % ways.len().max(1)) else {
                let (host, root) = (self.network.name(entry.host), self.network.switch_name(self.root as usize));
                return Err(TreeError::NoWay { rank, host: host.to_owned(), root });
            };
            self.up[switch as usize] = Some(Up { port, above });
            switch = above;
        }
        Ok(())
    }

    /// Adds a rank to its switch and to all switches above. Ranks come in ascending order, so children come in the
    /// order of their lowest rank.
    fn add(&mut self, rank: Rank, entry: &Entry) {
        let worker = TreeChild { node: entry.host, port: entry.port, below: Below::Worker(rank) };
        self.children[entry.switch as usize].push(worker);
        let mut switch = entry.switch;
        while let Some(Up { port, above }) = self.up[switch as usize] {
            let siblings = &mut self.children[above as usize];
            let place = *self.place[switch as usize].get_or_insert_with(|| {
                let node = self.network.cabling.switch(switch);
                let port = self.network.other_end(node, port);
                siblings.push(TreeChild { node, port, below: Below::Switch(Vec::new()) });
                ChildId(siblings.len() as u16 - 1)
            });
            if let Below::Switch(ranks) = &mut siblings[place.index()].below {
                ranks.push(rank);
            }
            switch = above;
        }
    }

    /// Lowers the root as long as it has only one child and that child is a switch.
    fn lower_root(&mut self) {
        while let [TreeChild { node, below: Below::Switch(_), .. }] = self.children[self.root as usize][..] {
            self.children[self.root as usize].clear();
            self.root = self.network.cabling.switch_index(node).expect("a switch is below");
            self.up[self.root as usize] = None;
        }
    }

    fn finish(mut self, entries: &[Entry]) -> Tree {
        let mut switches = Vec::new();
        let mut places = vec![Place { switch: NodeId(0), child: ChildId(0) }; entries.len()];
        for index in 0..self.network.cabling.switches {
            let children = std::mem::take(&mut self.children[index as usize]);
            if children.is_empty() {
                continue;
            }
            let node = self.network.cabling.switch(index);
            for (number, child) in children.iter().enumerate() {
                if let Below::Worker(rank) = child.below {
                    places[rank.index()] = Place { switch: node, child: ChildId(number as u16) };
                }
            }
            let parent = self.up[index as usize].map(|Up { port, above }| TreeParent {
                node: self.network.cabling.switch(above),
                port,
                child: self.place[index as usize].expect("a switch below another one is its child"),
            });
            switches.push(TreeSwitch { node, parent, children });
        }
        Tree { switches, places }
    }
}

impl Network {
    /// The port at the other end of the cable in a node's port.
    fn other_end(&self, node: NodeId, port: PortId) -> PortId {
        let cable = self.ports[node.index()][port.index()].cable;
        let [first, second] = self.ends[cable];
        if self.cabling.cables[cable].0 == node { second } else { first }
    }
}
