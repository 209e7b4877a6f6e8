//! Opaque elements of a custom operator, with the expected results: each block of the result is compared when it is
//! written, and is not kept.

use std::ops::Range;
use std::sync::Arc;

use tributary_numeric::{BlockExponent, Scale};

use super::fingerprint::Verification;
use super::ledger::Ledger;
use crate::contract::ids::Rank;
use crate::contract::tensor::{Spec, Tensor};

/// A [`Tensor`] whose elements are opaque.
#[derive(Clone, Debug)]
pub struct CheckedBytes {
    spec: Spec,
    rank: Rank,
    input: Vec<u8>,
    /// The results that a block may have: one for each tree along which the block may have been combined.
    expected: Arc<[Vec<u8>]>,
    /// True for blocks that were right.
    states: Ledger<bool>,
    faulty: Vec<(Range<usize>, u64)>,
}

impl CheckedBytes {
    /// One rank's view of a collective: its input, and for each tree over which blocks are spread, the result over all
    /// ranks' inputs.
    pub fn new(spec: Spec, rank: Rank, input: Vec<u8>, expected: Arc<[Vec<u8>]>) -> CheckedBytes {
        let bytes = spec.elements as usize * spec.dtype.size();
        assert_eq!(input.len(), bytes, "a rank has whole elements");
        let states = Ledger::new(spec.elements as usize, true);
        CheckedBytes { spec, rank, input, expected, states, faulty: Vec::new() }
    }

    /// The state of the output.
    pub fn verification(&self) -> Verification {
        let elements = self.spec.elements as usize;
        let mut verification = Verification::of(self.states.ranges().iter(), elements, self.faulty.clone());
        if !self.spec.primitive.receives(self.rank) {
            verification.missing.clear();
        }
        verification
    }

    fn bytes_of(&self, block: &Range<usize>) -> Range<usize> {
        let size = self.spec.dtype.size();
        block.start * size..block.end * size
    }
}

const OPAQUE: &str = "only its operator reads an opaque element";

impl Tensor for CheckedBytes {
    fn spec(&self) -> Spec {
        self.spec
    }

    fn vector_len(&self, _elements: usize) -> usize {
        unreachable!("{OPAQUE}")
    }
    fn exponent(&self, _block: Range<usize>) -> BlockExponent {
        unreachable!("{OPAQUE}")
    }
    fn encode(&self, _block: Range<usize>, _scale: Scale, _vector: &mut [u8]) {
        unreachable!("{OPAQUE}")
    }
    fn decode(&mut self, _block: Range<usize>, _scale: Scale, _vector: &[u8]) {
        unreachable!("{OPAQUE}")
    }

    fn native_len(&self, elements: usize) -> usize {
        self.spec.dtype.size() * elements
    }
    fn read_input(&self, block: Range<usize>, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.input[self.bytes_of(&block)]);
    }
    fn read_output(&self, _block: Range<usize>, _bytes: &mut [u8]) {
        unreachable!("{OPAQUE}")
    }
    fn accumulate(&mut self, _block: Range<usize>, _bytes: &[u8]) {
        unreachable!("{OPAQUE}")
    }
    /// A block that is written twice is faulty.
    fn write(&mut self, block: Range<usize>, bytes: &[u8]) {
        if block.is_empty() {
            return;
        }
        let at = self.bytes_of(&block);
        let is_expected = self.expected.iter().any(|expected| expected.get(at.clone()) == Some(bytes));
        let is_right = is_expected && !self.states.touches(&block);
        if !is_right {
            self.faulty.push((block.clone(), 0));
        }
        self.states.set(block, is_right);
    }
    fn divide(&mut self, _block: Range<usize>, _world_size: u16) {}
}

#[cfg(test)]
mod tests {
    use tributary_numeric::{DType, ReduceOp};

    use super::*;

    fn tensor() -> CheckedBytes {
        let spec = Spec::allreduce(6, DType::U8, ReduceOp::Custom(0));
        CheckedBytes::new(spec, Rank(0), vec![1, 2, 3, 4, 5, 6], [vec![9, 8, 7, 6, 5, 4], vec![0; 6]].into())
    }

    #[test]
    fn blocks_are_what_one_of_the_trees_makes_of_them() {
        let mut tensor = tensor();
        let mut input = [0; 2];
        tensor.read_input(2..4, &mut input);
        assert_eq!(input, [3, 4]);
        tensor.write(0..4, &[9, 8, 7, 6]);
        assert!(tensor.verification().missing.iter().eq([&(4..6)]));
        tensor.write(4..6, &[0, 0]);
        assert!(tensor.verification().is_complete());
    }

    #[test]
    fn a_block_of_other_elements_is_faulty_and_so_is_one_that_comes_twice() {
        for (twice, bytes) in [(false, [9, 8, 7, 0]), (true, [9, 8, 7, 6])] {
            let mut tensor = tensor();
            (0..1 + usize::from(twice)).for_each(|_| tensor.write(0..4, &bytes));
            assert_eq!(tensor.verification().faulty, [(0..4, 0)], "{bytes:?}");
        }
    }
}
