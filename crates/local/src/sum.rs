//! Combines the ranks' elements, block by block, in the tree in which a switch would combine them.
//!
//! A node of `n` ranks splits at the largest power of two below `n`, and the lower ranks are the left operand, as in
//! `proto`'s ordered sums: so the bits are those of one switch that all ranks have joined.

use tributary_numeric::{Combine, DType, Lanes, ReduceOp, native};

/// Bytes of lanes that are combined at once: a block of each level of the tree stays in a core's first cache.
const BLOCK_BYTES: usize = 8 << 10;

/// Combines elements of one type with one operator.
pub struct Adder {
    combine: &'static Combine,
    ranks: usize,
    /// By how many ranks averages are divided.
    averaged: u16,
    /// A block of lanes for each level of the tree.
    levels: Vec<Lanes>,
    /// A block of results, as they are in slots.
    result: Lanes,
}

/// True if slots hold the type's elements big-endian, since its lanes are wider than its elements.
pub fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

impl Adder {
    /// An adder, whose averages are over this many ranks; `None` if the operator has no meaning for the type.
    pub fn new(dtype: DType, op: ReduceOp, ranks: usize, averaged: u16) -> Option<Adder> {
        let combine = native(dtype, op)?;
        let levels = ranks.next_power_of_two().ilog2() as usize + 1;
        let result = Lanes::zeroed(BLOCK_BYTES / combine.lane_size * combine.wire_size);
        Some(Adder {
            combine,
            ranks,
            averaged,
            levels: (0..levels).map(|_| Lanes::zeroed(BLOCK_BYTES)).collect(),
            result,
        })
    }

    /// The most elements of a block.
    pub fn block(&self) -> usize {
        BLOCK_BYTES / self.combine.lane_size
    }

    /// The result of a block of this many elements: in the machine's byte order, or big-endian for narrow types, as
    /// `source` gives those of each rank.
    pub fn combined<'a>(&mut self, elements: usize, source: impl Fn(usize) -> &'a [u8]) -> &[u8] {
        let lanes = elements * self.combine.lane_size;
        let tree = Tree { combine: self.combine, lanes, source };
        tree.sum(0, self.ranks, &mut self.levels);
        let top = &mut self.levels[0][..lanes];
        (self.combine.finish)(top, self.averaged);
        if !tree.is_narrow() {
            return top;
        }
        let result = &mut self.result[..elements * self.combine.wire_size];
        (self.combine.load)(top, result);
        result
    }
}

struct Tree<F> {
    combine: &'static Combine,
    lanes: usize,
    source: F,
}

impl<'a, F: Fn(usize) -> &'a [u8]> Tree<F> {
    fn is_narrow(&self) -> bool {
        self.combine.lane_size != self.combine.wire_size
    }

    /// Leaves the sum of some ranks in the first of these levels.
    fn sum(&self, first: usize, ranks: usize, levels: &mut [Lanes]) {
        if ranks == 1 {
            let (lanes, source) = (&mut levels[0][..self.lanes], (self.source)(first));
            return if self.is_narrow() { (self.combine.store)(lanes, source) } else { lanes.copy_from_slice(source) };
        }
        let left = ranks.next_power_of_two() / 2;
        self.sum(first, left, levels);
        let [lanes, rest @ ..] = levels else { unreachable!("there is a level for each split") };
        let lanes = &mut lanes[..self.lanes];
        if ranks - left == 1 {
            let source = (self.source)(first + left);
            return if self.is_narrow() {
                (self.combine.add)(lanes, source)
            } else {
                (self.combine.merge)(lanes, source)
            };
        }
        self.sum(first + left, ranks - left, rest);
        (self.combine.merge)(lanes, &rest[0][..self.lanes]);
    }
}
