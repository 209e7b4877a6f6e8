//! Static aggregation trees: which switches sum for a job, and which nodes each of them sums for. Pure planning, for
//! the simulator and for the controller of a fabric.
//!
//! [`TreePlanner`] knows the cables, the dead cables and switches, free memory, and the load on each cable.
//! [`TreePlanner::candidates`] names the switches in which a tree may end, [`TreePlanner::choose`] takes the least loaded
//! of them, and [`TreePlanner::tree`] builds the [`Tree`] under one of them; [`TreePlanner::plan`] does all of that for a
//! job. To plan again after a failure, mark what is dead and choose again.

mod build;
mod choose;
mod planner;

use tributary_proto::contract::config::Below;
use tributary_proto::contract::ids::{ChildId, NodeId, PortId, Rank};
use tributary_proto::contract::sum_tree::SumTree;

pub use choose::{JOB_RATE, TreeJob, TreeRequest};
pub use planner::TreePlanner;

/// The number of trees of a job that asks for no number, if there are that many.
pub const DEFAULT_TREES: u16 = 4;

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

/// The parent of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeParent {
    /// The neighbour.
    pub node: NodeId,
    /// The port that the parent is behind.
    pub port: PortId,
    /// The switch's number among the children of its parent.
    pub child: ChildId,
}

/// One switch of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeSwitch {
    /// The switch.
    pub node: NodeId,
    /// `None` at the root.
    pub parent: Option<TreeParent>,
    /// Its children in the order of their lowest rank, so that a sum in the order of children does not depend on ports.
    pub children: Vec<TreeChild>,
}

/// Where a rank is in a tree: its first switch, and its number among that switch's children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankPosition {
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
    /// Each rank's position.
    pub positions: Vec<RankPosition>,
}

impl Tree {
    /// One switch of the tree; `None` if the tree does not use it.
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

/// Why no tree can be planned, with the names of the nodes that are missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// There are no members.
    #[error("a tree needs at least one member")]
    NoMembers,
    /// The job wants zero trees.
    #[error("trees = 0: a job has at least one tree")]
    NoTrees,
    /// A member is not on a host of the network.
    #[error("rank {rank} is on node {node}, which is not a host of the network")]
    NotAHost {
        /// The member.
        rank: Rank,
        /// The node on which it is said to be.
        node: u32,
    },
    /// Two members are on one host.
    #[error("ranks {a} and {b} are both on {host}: a tree takes one rank from a host")]
    SameHost {
        /// One rank.
        a: Rank,
        /// The other rank.
        b: Rank,
        /// Their host.
        host: String,
    },
    /// The root is not a switch that is alive.
    #[error("{node} is not a switch that is alive, so no tree can end in it")]
    NotARoot {
        /// The would-be root.
        node: String,
    },
    /// A host's only cable is dead, or the switch at its other end.
    #[error("rank {rank} on {host} is cut off: {dead} is dead")]
    CutOff {
        /// The member's rank.
        rank: Rank,
        /// Its host.
        host: String,
        /// The cable or switch.
        dead: String,
    },
    /// A switch that every tree needs has no memory left.
    #[error("{switch} is full: a tree needs {need} bytes there for {children} children, and {free} are free")]
    Full {
        /// The switch.
        switch: String,
        /// Children that it would have.
        children: usize,
        /// Bytes that the tree needs there.
        need: u64,
        /// Bytes that are free there.
        free: u64,
    },
    /// Some member cannot reach the root.
    #[error("no way that is alive and has memory leads from {host}, the host of rank {rank}, to {root}")]
    NoWay {
        /// The member's rank.
        rank: Rank,
        /// Its host.
        host: String,
        /// The root.
        root: String,
    },
    /// No switch reaches all members.
    #[error("no switch connects all ranks: {}", missing(excluded))]
    NoRoot {
        /// Switches that are dead or full.
        excluded: Vec<String>,
    },
}

fn missing(excluded: &[String]) -> String {
    match excluded {
        [] => "too many cables are dead".into(),
        [only] => format!("{only} is dead or full"),
        all => format!("{} are dead or full", all.join(", ")),
    }
}
