//! What jobs over planned trees hold of each switch of a fabric.
//!
//! Most jobs are charged as if they ran on every switch. A job whose trees are planned, and whose slots never change,
//! is charged at each switch what its own trees need there: jobs over different switches do not crowd each other.

use std::collections::BTreeMap;

use tributary_proto::contract::ids::NodeId;
use tributary_proto::contract::protocol::{Placement, Protocol};

use crate::admission::Limits;
use crate::memory::JobShape;
use crate::trees::Tree;

/// What a job holds of a fabric since its trees were planned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The slots for which its switches have room.
    pub slots: u16,
    /// Bytes at each switch of its trees.
    pub bytes: BTreeMap<NodeId, u64>,
}

/// True if a fabric charges each switch what the trees of a job of this protocol need there. Jobs that divide a memory
/// divide it as if all of them met at one switch, and other jobs are at every switch.
pub fn is_charged_by_tree(protocol: &Protocol) -> bool {
    protocol.placement == Placement::Trees && !protocol.resizes
}

impl JobShape {
    /// The bytes that one of the job's trees takes of a switch at which it has so many children. `levels`: the tree has
    /// further switches.
    pub fn tree_bytes(&self, children: usize, levels: bool) -> u64 {
        let children = children as u16;
        let neighbours = if levels { children + 1 } else { 0 };
        let slots = self.slots / self.trees.max(1);
        JobShape { slots, children, neighbours, shards: 1, trees: 1, ..self.clone() }.bytes()
    }

    /// What the job holds with these trees.
    pub fn holding(&self, trees: &[Tree]) -> Holding {
        let shape = JobShape { trees: trees.len() as u16, ..self.clone() };
        let levels = trees.iter().any(Tree::has_levels);
        let mut bytes = BTreeMap::new();
        for switch in trees.iter().flat_map(|tree| &tree.switches) {
            *bytes.entry(switch.node).or_default() += shape.tree_bytes(switch.children.len(), levels);
        }
        Holding { slots: self.slots, bytes }
    }
}

impl Holding {
    /// The most bytes that the job holds of one switch.
    pub fn most_bytes(&self) -> u64 {
        self.bytes.values().copied().max().unwrap_or(0)
    }
}

/// What jobs hold of each switch of a fabric, or of a switch that stands alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    everywhere: u64,
    /// By jobs that divide the memory, whose trees go around small switches.
    divided: u64,
    at: BTreeMap<NodeId, u64>,
}

impl Held {
    /// Adds a job of this protocol. One that is not charged at single switches holds so many bytes of each.
    pub fn add(&mut self, protocol: &Protocol, holding: Option<&Holding>, bytes: impl FnOnce() -> u64) {
        let of_each = match holding {
            Some(holding) => {
                holding.bytes.iter().for_each(|(&node, held)| *self.at.entry(node).or_default() += held);
                return;
            }
            None if protocol.resizes => &mut self.divided,
            None => &mut self.everywhere,
        };
        *of_each = of_each.saturating_add(bytes());
    }

    /// Bytes of a switch. `is_small`: it has less than jobs divide.
    pub fn of(&self, switch: NodeId, is_small: bool) -> u64 {
        let divided = if is_small { 0 } else { self.divided };
        self.everywhere.saturating_add(divided).saturating_add(self.at.get(&switch).copied().unwrap_or(0))
    }

    /// Bytes of the switch of which the most is held.
    pub fn most(&self) -> u64 {
        self.most_of(|_| true)
    }

    fn most_of(&self, counts: impl Fn(&NodeId) -> bool) -> u64 {
        let most = self.at.iter().filter(|(node, _)| counts(node)).map(|(_, &bytes)| bytes).max();
        self.everywhere.saturating_add(self.divided).saturating_add(most.unwrap_or(0))
    }

    /// Memory, and what is held of it: of the fullest of the switches that are like most, and of each other one.
    pub(crate) fn by_switch<'a>(&'a self, limits: &'a Limits) -> impl Iterator<Item = (u64, u64)> + 'a {
        let usual = (limits.memory_bytes, self.most_of(|node| !limits.memory_at.contains_key(node)));
        let other = |(&node, &memory)| (memory, self.of(node, memory < limits.memory_bytes));
        [usual].into_iter().chain(limits.memory_at.iter().map(other))
    }
}
