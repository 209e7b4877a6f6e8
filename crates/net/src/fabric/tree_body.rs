//! Trees as JSON, in which the controller sends them to the other switches.

use serde::{Deserialize, Serialize};
use tributary_control::trees::{RankPosition, Tree, TreeChild, TreeParent, TreeSwitch};
use tributary_proto::contract::config::Below;
use tributary_proto::contract::ids::{ChildId, NodeId, PortId, Rank};

/// A tree: its switches, ascending by node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeBody {
    switches: Vec<TreeSwitchBody>,
}

/// A switch of a tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TreeSwitchBody {
    node: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<ParentBody>,
    children: Vec<ChildBody>,
}

/// The parent switch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ParentBody {
    node: u32,
    port: u16,
    child: u16,
}

/// A child: a worker with its rank, or a switch with the ranks below it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChildBody {
    node: u32,
    port: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rank: Option<u16>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    below: Vec<u16>,
}

impl TreeBody {
    /// A tree as JSON.
    pub fn new(tree: &Tree) -> TreeBody {
        let child = |child: &TreeChild| {
            let (rank, below) = match &child.below {
                Below::Worker(rank) => (Some(rank.0), Vec::new()),
                Below::Switch(ranks) => (None, ranks.iter().map(|rank| rank.0).collect()),
            };
            ChildBody { node: child.node.0, port: child.port.0, rank, below }
        };
        let parent =
            |parent: TreeParent| ParentBody { node: parent.node.0, port: parent.port.0, child: parent.child.0 };
        let switch = |switch: &TreeSwitch| TreeSwitchBody {
            node: switch.node.0,
            parent: switch.parent.map(parent),
            children: switch.children.iter().map(child).collect(),
        };
        TreeBody { switches: tree.switches.iter().map(switch).collect() }
    }

    /// The tree of a job of `world_size` ranks; `None` if it is inconsistent: a rank is missing or occurs twice, or no switch is
    /// the root.
    pub fn tree(self, world_size: u16) -> Option<Tree> {
        let mut positions: Vec<Option<RankPosition>> = vec![None; world_size.into()];
        let mut switches = Vec::with_capacity(self.switches.len());
        for TreeSwitchBody { node, parent, children } in self.switches {
            let switch = NodeId(node);
            let mut own = Vec::with_capacity(children.len());
            for (number, child) in children.into_iter().enumerate() {
                let below = match child.rank {
                    Some(rank) => {
                        let position = RankPosition { switch, child: ChildId(number as u16) };
                        let free = positions.get_mut(usize::from(rank))?;
                        if free.replace(position).is_some() {
                            return None;
                        }
                        Below::Worker(Rank(rank))
                    }
                    None if child.below.is_empty() => return None,
                    None => Below::Switch(child.below.into_iter().map(Rank).collect()),
                };
                own.push(TreeChild { node: NodeId(child.node), port: PortId(child.port), below });
            }
            let parent = parent.map(|parent| TreeParent {
                node: NodeId(parent.node),
                port: PortId(parent.port),
                child: ChildId(parent.child),
            });
            switches.push(TreeSwitch { node: switch, parent, children: own });
        }
        let roots = switches.iter().filter(|switch| switch.parent.is_none()).count();
        let in_order = switches.is_sorted_by(|a, b| a.node < b.node);
        let whole = roots == 1 && in_order && switches.iter().all(|switch| !switch.children.is_empty());
        let positions = positions.into_iter().collect::<Option<Vec<RankPosition>>>()?;
        whole.then_some(Tree { switches, positions })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use tributary_control::trees::TreePlanner;

    fn tree() -> Tree {
        let fabric = testing::leaf_spine("");
        let names = fabric.nodes.iter().map(|node| node.name.clone()).collect();
        let network = TreePlanner::new(fabric.cabling.clone(), names);
        network.tree(&[3, 0, 2].map(NodeId), fabric.node_named("spine1").unwrap()).unwrap()
    }

    #[test]
    fn a_tree_arrives_as_it_was_sent() {
        let text = serde_json::to_string(&TreeBody::new(&tree())).unwrap();
        assert_eq!(serde_json::from_str::<TreeBody>(&text).unwrap().tree(3), Some(tree()));
    }

    #[test]
    fn a_tree_without_a_rank_or_with_one_too_many_is_none() {
        let body = || TreeBody::new(&tree());
        assert_eq!((body().tree(4), body().tree(2)), (None, None), "a rank is missing, or is not of the job");
        let mut twice = body();
        twice.switches[0].children[0].rank = Some(2);
        assert_eq!(twice.tree(3), None);
        let mut two_roots = body();
        two_roots.switches[0].parent = None;
        assert_eq!(two_roots.tree(3), None);
        let mut nobody = body();
        nobody.switches[2].children[1].below.clear();
        assert_eq!(nobody.tree(3), None, "a child is neither a worker nor a switch with ranks below");
    }
}
