//! The data of a sparse collective: values at some indices, which are ascending and distinct.
//!
//! A rank contributes nothing at indices that it does not have, whatever the operator. The result has all indices that
//! any rank has, even where values cancel to zero.

use std::ops::Range;

/// The input and the output of a sparse collective, which do not overlap: a machine reads a block's input until the
/// block's result has come.
pub trait SparseTensor {
    /// All indices, by the positions of their elements.
    fn indices(&self) -> &[u32];
    /// The positions of the elements whose indices are in a range.
    fn positions(&self, indices: Range<u32>) -> Range<usize> {
        let at = |bound: u32| self.indices().partition_point(|&index| index < bound);
        at(indices.start)..at(indices.end)
    }
    /// Copies the values of some elements, big-endian.
    fn read_values(&self, positions: Range<usize>, values: &mut [u8]);
    /// Writes the result of a block; called once for each block. The indices are of the block and ascending, the values
    /// big-endian.
    fn write_block(&mut self, block: Range<u32>, indices: &[u32], values: &[u8]);
}
