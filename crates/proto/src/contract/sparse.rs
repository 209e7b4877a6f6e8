//! The data of a collective that is sparse: values at some indices, which are ascending and not doubled.
//!
//! What a rank does not name it does not bring: it takes no part in the result there, whatever the operator. The result has the
//! indices that any rank has named, also where values cancel to zero.

use std::ops::Range;

/// The input and the output of a sparse collective. Input and output are apart: a machine reads the input until the block's
/// result has come.
pub trait SparseTensor {
    /// All indices, by their elements' places.
    fn indices(&self) -> &[u32];
    /// The elements whose indices are in a range, by their places.
    fn places(&self, indices: Range<u32>) -> Range<usize> {
        let at = |bound: u32| self.indices().partition_point(|&index| index < bound);
        at(indices.start)..at(indices.end)
    }
    /// Copies the values of some elements, big-endian.
    fn read_values(&self, places: Range<usize>, values: &mut [u8]);
    /// The result of a block of indices, told once for each block: indices of the block, ascending, and their values,
    /// big-endian.
    fn write_block(&mut self, block: Range<u32>, indices: &[u32], values: &[u8]);
}
