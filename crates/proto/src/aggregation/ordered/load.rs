//! The result of a complete block, in the form in which its readers get it, and the same result without a network.

use tributary_numeric::{Combine, DType, ReduceOp, native};

use super::rule::Rule;
use super::{Arrangement, Node, OrderedAccumulator};
use crate::contract::sum_tree::SumTree;

impl OrderedAccumulator {
    /// Writes a complete block's result for hosts, as long as their vectors were.
    pub fn load(&self, block: usize, vector: &mut [u8]) {
        let lanes = self.result(block);
        match *self.rule(block) {
            Rule { is_replaced: true, .. } => vector.copy_from_slice(&lanes[..vector.len()]),
            Rule { own: Some(number), .. } => self.own.load(number, self.node(block, 0), vector),
            Rule { scaled: Some(scaled), .. } => (scaled.kernels.load)(lanes, vector, scaled.scale(), scaled.op),
            Rule { combine, .. } => (combine.load)(lanes, vector),
        }
    }

    /// Writes one of the vectors of a complete block for a switch above; vectors are in the order of their ranks.
    pub fn load_root(&self, block: usize, root: usize, partial: &mut [u8]) {
        let buffer = self.forest.as_ref().map_or(0, |forest| forest.branches[forest.roots[root]].buffer);
        self.load_node(block, buffer, partial);
    }

    /// Writes a complete block for a switch above.
    pub fn load_partial(&self, block: usize, partial: &mut [u8]) {
        self.load_node(block, 0, partial);
    }

    fn load_node(&self, block: usize, slot: usize, partial: &mut [u8]) {
        match *self.rule(block) {
            Rule { own: Some(number), is_replaced: false, .. } => {
                self.own.load(number, self.node(block, slot), partial);
            }
            Rule { combine, .. } => (combine.load_partial)(&self.memory()[self.lanes(block, slot)], partial),
        }
    }
}

// A block that waits for no more vectors: those that have come are combined along the same tree, and positions without
// a vector are bypassed, as positions beyond the last child are.

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

// The bits of a sum where each switch combines along the tree over its children's positions, computed by recursion
// over the vectors of all ranks, without a network.
//
// "Reproducible" means: the same inputs and the same tree give the same bits. With this function, anyone who knows the
// tree can check it.

/// The sum as lanes.
fn lanes(tree: &SumTree, vectors: &[Vec<u8>], combine: &Combine) -> Option<Vec<u8>> {
    match tree {
        SumTree::Rank(rank) => {
            let vector = vectors.get(usize::from(*rank))?;
            let mut lanes = vec![0; vector.len() / combine.wire_size * combine.lane_size];
            (combine.store)(&mut lanes, vector);
            Some(lanes)
        }
        SumTree::Switch(children) => adder_tree(children, vectors, combine),
    }
}

/// A node of several positions splits at the largest power of two below their number; lower ones are on the left.
fn adder_tree(children: &[SumTree], vectors: &[Vec<u8>], combine: &Combine) -> Option<Vec<u8>> {
    if let [child] = children {
        return lanes(child, vectors, combine);
    }
    let (left, right) = children.split_at(children.len().next_power_of_two() / 2);
    let mut lanes = adder_tree(left, vectors, combine)?;
    (combine.merge)(&mut lanes, &adder_tree(right, vectors, combine)?);
    Some(lanes)
}

/// The lanes of vectors, at least one, that are combined in the order of their positions along the tree over them.
pub fn reference_of(vectors: &[Vec<u8>], combine: &Combine) -> Vec<u8> {
    let ranks: Vec<SumTree> = (0..vectors.len() as u16).map(SumTree::Rank).collect();
    adder_tree(&ranks, vectors, combine).expect("each rank has a vector")
}

/// The result over ranks whose data are `vectors`, by rank: big-endian elements of `dtype`, all of one length. `None`
/// if the arguments have no meaning: an operator that the type does not take, a rank without a vector, a switch without
/// children.
pub fn reference(dtype: DType, op: ReduceOp, vectors: &[Vec<u8>], tree: &SumTree) -> Option<Vec<u8>> {
    let combine = native(dtype, op)?;
    if !tree.is_sound() {
        return None;
    }
    let mut lanes = lanes(tree, vectors, combine)?;
    (combine.finish)(&mut lanes, u16::try_from(vectors.len()).ok()?);
    let mut result = vec![0; lanes.len() / combine.lane_size * combine.wire_size];
    (combine.load)(&lanes, &mut result);
    Some(result)
}
