//! The tree under one root: shortest ways up, and children in the order of their lowest rank.

use tributary_proto::contract::config::Below;
use tributary_proto::contract::ids::{ChildId, NodeId, PortId, Rank};

use super::planner::{Entries, Entry};
use super::{RankPosition, Tree, TreeChild, TreeError, TreeParent, TreePlanner, TreeSwitch};

impl TreePlanner {
    /// The tree of these hosts, by rank, under `root`. If all members are below one switch that is not the root, the
    /// switches between that switch and the root are left out.
    pub fn tree(&self, members: &[NodeId], root: NodeId) -> Result<Tree, TreeError> {
        self.tree_in_turn(members, root, 0)
    }

    /// The same; where a host has several cables that are equally near to the root, trees with other turns take others.
    pub fn tree_in_turn(&self, members: &[NodeId], root: NodeId, turn: usize) -> Result<Tree, TreeError> {
        self.tree_around(&self.entries(members)?, self.root_index(root)?, turn, &self.dead_switches)
    }

    pub(super) fn root_index(&self, root: NodeId) -> Result<u32, TreeError> {
        let switch = self.cabling.switch_index(root).filter(|&switch| switch < self.cabling.switches);
        let alive = switch.filter(|&switch| !self.dead_switches[switch as usize]);
        alive.ok_or_else(|| TreeError::NotARoot { node: self.name(root).to_owned() })
    }

    /// The tree without the excluded switches.
    pub(super) fn tree_around(
        &self,
        members: &[Entries],
        root: u32,
        turn: usize,
        excluded: &[bool],
    ) -> Result<Tree, TreeError> {
        let mut builder = Builder::new(self, root, excluded);
        let entries: Vec<Entry> = members.iter().map(|entries| builder.nearest(entries, turn)).collect();
        for (rank, entry) in entries.iter().enumerate() {
            builder.climb(Rank(rank as u16), entry)?;
        }
        for (rank, entry) in entries.iter().enumerate() {
            builder.add(Rank(rank as u16), entry);
        }
        builder.lower_root();
        Ok(builder.finish(&entries))
    }
}

/// The cable from a switch to its parent.
#[derive(Clone, Copy)]
struct Up {
    port: PortId,
    parent: u32,
}

struct Builder<'a> {
    planner: &'a TreePlanner,
    root: u32,
    /// Each switch's distance from the root.
    distance: Vec<u32>,
    /// The cable to the parent of each switch of the tree.
    up: Vec<Option<Up>>,
    /// The number of each such switch among the children of its parent.
    child_id: Vec<Option<ChildId>>,
    children: Vec<Vec<TreeChild>>,
}

impl<'a> Builder<'a> {
    fn new(planner: &'a TreePlanner, root: u32, excluded: &[bool]) -> Builder<'a> {
        let switches = planner.cabling.switches as usize;
        Builder {
            planner,
            root,
            distance: planner.distances(&[root], excluded),
            up: vec![None; switches],
            child_id: vec![None; switches],
            children: vec![Vec::new(); switches],
        }
    }

    /// The entry from which the way to the root is the shortest; among equals the turn decides.
    fn nearest(&self, entries: &Entries, turn: usize) -> Entry {
        let far = |entry: &Entry| self.distance[entry.switch as usize];
        let least = entries.iter().map(far).min();
        let nearest: Vec<&Entry> = entries.iter().filter(|entry| Some(far(entry)) == least).collect();
        *nearest[turn % nearest.len()]
    }

    /// Joins a member's switch to the tree, and all switches between it and the root.
    fn climb(&mut self, rank: Rank, entry: &Entry) -> Result<(), TreeError> {
        let mut switch = entry.switch;
        while switch != self.root && self.up[switch as usize].is_none() {
            let distance = self.distance[switch as usize];
            let closer = |&(_, next): &(PortId, u32)| {
                distance != u32::MAX && self.distance[next as usize].checked_add(1) == Some(distance)
            };
            let ways: Vec<(PortId, u32)> = self.planner.neighbours(switch).filter(closer).collect();
            // Among equal ways the root's number decides, so that trees with different roots use different ways.
            let Some(&(port, parent)) = ways.get(self.root as usize % ways.len().max(1)) else {
                let (host, root) = (self.planner.name(entry.host), self.planner.switch_name(self.root as usize));
                return Err(TreeError::NoWay { rank, host: host.to_owned(), root });
            };
            self.up[switch as usize] = Some(Up { port, parent });
            switch = parent;
        }
        Ok(())
    }

    /// Adds a rank to its switch and to all its ancestors. Ranks come in ascending order, so children come in the
    /// order of their lowest rank.
    fn add(&mut self, rank: Rank, entry: &Entry) {
        let worker = TreeChild { node: entry.host, port: entry.port, below: Below::Worker(rank) };
        self.children[entry.switch as usize].push(worker);
        let mut switch = entry.switch;
        while let Some(Up { port, parent }) = self.up[switch as usize] {
            let siblings = &mut self.children[parent as usize];
            let child = *self.child_id[switch as usize].get_or_insert_with(|| {
                let node = self.planner.cabling.switch(switch);
                let port = self.planner.other_end(node, port);
                siblings.push(TreeChild { node, port, below: Below::Switch(Vec::new()) });
                ChildId(siblings.len() as u16 - 1)
            });
            if let Below::Switch(ranks) = &mut siblings[child.index()].below {
                ranks.push(rank);
            }
            switch = parent;
        }
    }

    /// Makes the root's only child the root, as long as that child is a switch.
    fn lower_root(&mut self) {
        while let [TreeChild { node, below: Below::Switch(_), .. }] = self.children[self.root as usize][..] {
            self.children[self.root as usize].clear();
            self.root = self.planner.cabling.switch_index(node).expect("the child is a switch");
            self.up[self.root as usize] = None;
        }
    }

    fn finish(mut self, entries: &[Entry]) -> Tree {
        let mut switches = Vec::new();
        let mut positions = vec![RankPosition { switch: NodeId(0), child: ChildId(0) }; entries.len()];
        for index in 0..self.planner.cabling.switches {
            let children = std::mem::take(&mut self.children[index as usize]);
            if children.is_empty() {
                continue;
            }
            let node = self.planner.cabling.switch(index);
            for (number, child) in children.iter().enumerate() {
                if let Below::Worker(rank) = child.below {
                    positions[rank.index()] = RankPosition { switch: node, child: ChildId(number as u16) };
                }
            }
            let parent = self.up[index as usize].map(|Up { port, parent }| TreeParent {
                node: self.planner.cabling.switch(parent),
                port,
                child: self.child_id[index as usize].expect("a switch with a parent is its child"),
            });
            switches.push(TreeSwitch { node, parent, children });
        }
        Tree { switches, positions }
    }
}

impl TreePlanner {
    /// The port at the other end of the cable in a node's port.
    fn other_end(&self, node: NodeId, port: PortId) -> PortId {
        let cable = self.ports[node.index()][port.index()].cable;
        let [first, second] = self.ends[cable];
        if self.cabling.cables[cable].0 == node { second } else { first }
    }
}
