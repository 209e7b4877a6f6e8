//! Where the vectors of a switch's children lie in a block. Each child has one position; or, where sums do not depend
//! on where ranks are, one position for each subtree of the tree over all ranks that the child brings.

use std::ops::Range;

use crate::aggregation::ordered::{Forest, cover};
use crate::contract::config::{Below, SwitchConfig};
use crate::contract::ids::ChildId;
use crate::heap::heap_bytes;

/// The positions of all children.
#[derive(Clone, Hash)]
pub struct Positions {
    children: usize,
    /// The position of each subtree, one child after the other; empty where each child has one position.
    of_subtrees: Vec<u16>,
    /// The index of each child's first subtree, and the end.
    first: Vec<u16>,
}

impl Positions {
    /// One position for each child.
    pub fn of_children(children: usize) -> Positions {
        Positions { children, of_subtrees: Vec::new(), first: Vec::new() }
    }

    /// One position for each subtree of the tree over all ranks, and the nodes that the switch makes of these subtrees.
    pub fn of_ranks(config: &SwitchConfig) -> (Positions, Forest) {
        let world_size = config.job.world_size;
        let ranks = |below: &Below| below.ranks().iter().map(|rank| rank.0).collect::<Vec<_>>();
        let subtrees: Vec<Vec<Range<u16>>> =
            config.below.iter().map(|below| cover(&ranks(below), world_size)).collect();
        let mut all: Vec<Range<u16>> = subtrees.concat();
        all.sort_unstable_by_key(|node| node.start);
        let position = |node: &Range<u16>| all.partition_point(|other| other.start < node.start) as u16;
        let of_subtrees = subtrees.iter().flatten().map(position).collect();
        let mut first = vec![0];
        subtrees.iter().for_each(|subtrees| first.push(first[first.len() - 1] + subtrees.len() as u16));
        (Positions { children: subtrees.len(), of_subtrees, first }, Forest::new(&all, world_size))
    }

    /// The number of positions.
    pub fn len(&self) -> usize {
        if self.first.is_empty() { self.children } else { self.of_subtrees.len() }
    }

    /// The position of a child's subtree, if the child brings such a subtree.
    #[inline]
    pub fn of(&self, child: ChildId, subtree: u16) -> Option<usize> {
        if self.first.is_empty() {
            return (subtree == 0).then_some(child.index());
        }
        let subtrees = self.of_child(child);
        subtrees.get(usize::from(subtree)).map(|&position| position.into())
    }

    fn of_child(&self, child: ChildId) -> &[u16] {
        &self.of_subtrees[self.first[child.index()].into()..self.first[child.index() + 1].into()]
    }

    /// True if `is_such` holds for some position of the child.
    pub fn any(&self, child: ChildId, is_such: impl Fn(usize) -> bool) -> bool {
        match self.first.is_empty() {
            true => is_such(child.index()),
            false => self.of_child(child).iter().any(|&position| is_such(position.into())),
        }
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        heap_bytes(&self.of_subtrees) + heap_bytes(&self.first)
    }

    /// The most that [`Positions::memory_bytes`] can be for this many subtrees and children.
    pub fn memory_most(subtrees: usize, children: usize) -> usize {
        (subtrees + children + 1) * size_of::<u16>()
    }
}
