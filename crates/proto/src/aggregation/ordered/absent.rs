//! A block that waits for no more vectors: those that have come are combined along the same tree, and positions without
//! a vector are bypassed, as positions beyond the last child are.

use super::{Arrangement, Node, OrderedAccumulator};

impl OrderedAccumulator {
    /// Treats the block as complete, since no other vector of it will come. At least one vector has come.
    pub fn close(&mut self, block: usize) {
        if self.rule(block).arrangement != Arrangement::Tree || self.is_complete(block) {
            return;
        }
        let root = Node { level: self.children.next_power_of_two().ilog2(), start: 0 };
        if let Some(slot) = self.bring_up(block, root)
            && slot != 0
        {
            let (to, from) = (self.lanes(block, 0), self.lanes(block, slot));
            self.memory_mut().copy_within(from, to.start);
        }
    }

    /// Combines the vectors of a node's positions; returns the slot of the result, or `None` if no vector has come.
    fn bring_up(&mut self, block: usize, node: Node) -> Option<usize> {
        if node.start >= self.children {
            return None;
        }
        if self.have_arrived(block, self.positions(node)) {
            return Some(node.slot());
        }
        if node.level == 0 {
            return None;
        }
        let left = Node { level: node.level - 1, start: node.start };
        let (left, right) = (self.bring_up(block, left), self.bring_up(block, left.sibling()));
        let (Some(lower), Some(upper)) = (left, right) else { return left.or(right) };
        let merge = self.rule(block).combine.merge;
        let (lower_lanes, upper_lanes) = (self.lanes(block, lower), self.lanes(block, upper));
        let (low, high) = self.memory_mut().split_at_mut(upper_lanes.start);
        merge(&mut low[lower_lanes], &high[..upper_lanes.end - upper_lanes.start]);
        Some(lower)
    }

    /// A child brings nothing to a block whose result is known ([`OrderedAccumulator::replace`]).
    pub fn note(&mut self, block: usize, child: usize) {
        if !self.has(block, child) {
            self.arrive(block, child);
        }
    }
}
