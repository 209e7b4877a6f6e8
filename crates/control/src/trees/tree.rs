//! A tree as it is installed: for each switch its children and its parent, for each rank its place.

use tributary_proto::contract::config::Below;
use tributary_proto::contract::ids::{ChildId, NodeId, PortId};
use tributary_proto::contract::sum_tree::SumTree;

/// A child of a switch: the host of a worker, or a switch with the ranks below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeChild {
    /// The neighbour.
    pub node: NodeId,
    /// The port that the child is behind.
    pub port: PortId,
    /// The ranks that the child is, or that are below it.
    pub below: Below,
}

/// The switch above another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeParent {
    /// The neighbour.
    pub node: NodeId,
    /// The port that the upper switch is behind.
    pub port: PortId,
    /// The number of the lower switch among the children of the upper one.
    pub child: ChildId,
}

/// One switch of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeSwitch {
    /// The switch.
    pub node: NodeId,
    /// The switch above; `None` at the root.
    pub parent: Option<TreeParent>,
    /// Its children in the order of their lowest rank, so that a sum in the order of children does not depend on ports.
    pub children: Vec<TreeChild>,
}

/// A rank's place: its first switch, and its number among that switch's children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The switch that the rank's host is connected to.
    pub switch: NodeId,
    /// The rank's number at that switch.
    pub child: ChildId,
}

/// A static aggregation tree over shortest paths. Every switch on the way is part of it, even a switch with a single
/// child, so that packets never leave the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The switches, in ascending order of their nodes.
    pub switches: Vec<TreeSwitch>,
    /// Each rank's place.
    pub places: Vec<Place>,
}

impl Tree {
    /// The part of one switch; `None` if the tree does not use it.
    pub fn switch(&self, node: NodeId) -> Option<&TreeSwitch> {
        self.switches.binary_search_by_key(&node, |switch| switch.node).ok().map(|index| &self.switches[index])
    }

    /// True if several switches sum: partial results travel between them.
    pub fn has_levels(&self) -> bool {
        self.switches.len() > 1
    }

    /// The switch that completes the sums.
    pub fn root(&self) -> NodeId {
        let root = self.switches.iter().find(|switch| switch.parent.is_none());
        root.expect("a tree has a root").node
    }

    /// The order in which operands are added.
    pub fn sum_tree(&self) -> SumTree {
        self.sum_below(self.root())
    }

    fn sum_below(&self, node: NodeId) -> SumTree {
        let child = |child: &TreeChild| match child.below {
            Below::Worker(rank) => SumTree::Rank(rank.0),
            Below::Switch(_) => self.sum_below(child.node),
        };
        SumTree::Switch(self.switch(node).into_iter().flat_map(|switch| &switch.children).map(child).collect())
    }
}
