//! Where the vectors of a switch's children lie in a block. Each child has one place; or, where sums do not depend on
//! where ranks are, one place for each part of the tree over all ranks that the child brings.

use std::ops::Range;

use crate::aggregation::ordered::{Forest, cover};
use crate::contract::config::{Below, SwitchConfig};
use crate::contract::ids::ChildId;
use crate::heap::heap_bytes;

/// The places of all children.
#[derive(Clone, Hash)]
pub struct Places {
    children: usize,
    /// The place of each part, one child after the other; empty where each child has one place.
    of_parts: Vec<u16>,
    /// The index of each child's first part, and the end.
    first: Vec<u16>,
}

impl Places {
    /// One place for each child.
    pub fn of_children(children: usize) -> Places {
        Places { children, of_parts: Vec::new(), first: Vec::new() }
    }

    /// One place for each part of the tree over all ranks, and the nodes that the switch makes of these parts.
    pub fn of_ranks(config: &SwitchConfig) -> (Places, Forest) {
        let world = config.job.world;
        let ranks = |below: &Below| below.ranks().iter().map(|rank| rank.0).collect::<Vec<_>>();
        let parts: Vec<Vec<Range<u16>>> = config.below.iter().map(|below| cover(&ranks(below), world)).collect();
        let mut all: Vec<Range<u16>> = parts.concat();
        all.sort_unstable_by_key(|node| node.start);
        let place = |node: &Range<u16>| all.partition_point(|other| other.start < node.start) as u16;
        let of_parts = parts.iter().flatten().map(place).collect();
        let mut first = vec![0];
        parts.iter().for_each(|parts| first.push(first[first.len() - 1] + parts.len() as u16));
        (Places { children: parts.len(), of_parts, first }, Forest::new(&all, world))
    }

    /// The number of places.
    pub fn len(&self) -> usize {
        if self.first.is_empty() { self.children } else { self.of_parts.len() }
    }

    /// The place of a child's part, if the child brings such a part.
    #[inline]
    pub fn of(&self, child: ChildId, part: u16) -> Option<usize> {
        if self.first.is_empty() {
            return (part == 0).then_some(child.index());
        }
        let parts = self.of_child(child);
        parts.get(usize::from(part)).map(|&place| place.into())
    }

    fn of_child(&self, child: ChildId) -> &[u16] {
        &self.of_parts[self.first[child.index()].into()..self.first[child.index() + 1].into()]
    }

    /// True if `is_such` holds for some place of the child.
    pub fn any(&self, child: ChildId, is_such: impl Fn(usize) -> bool) -> bool {
        match self.first.is_empty() {
            true => is_such(child.index()),
            false => self.of_child(child).iter().any(|&place| is_such(place.into())),
        }
    }

    /// Bytes on the heap.
    pub fn memory_bytes(&self) -> usize {
        heap_bytes(&self.of_parts) + heap_bytes(&self.first)
    }

    /// The most that [`Places::memory_bytes`] can be for so many parts and children.
    pub fn memory_most(parts: usize, children: usize) -> usize {
        (parts + children + 1) * size_of::<u16>()
    }
}
