//! Sparse fingerprints: random words at random indices instead of elements, so that every sum proves which
//! contributions it has.
//!
//! A random draw for each index decides whether a rank has it. At an index that it has, the rank has a word that
//! depends on the collective, the rank and the index. Words are added modulo 2^64. A block of the result is right if it
//! has the indices that any rank has, and at each index the sum over the ranks that have it. A contribution that is
//! lost, doubled or another rank's is missed with a probability of 2^-64.

use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use tributary_numeric::{BlockExponent, Scale};

use super::fingerprint::Verification;
use super::ledger::Ledger;
use super::sparse::{not_dense, only_sparse};
use crate::contract::tensor::{SparseTensor, Spec, Tensor};
use tributary_numeric::splitmix64;

/// The contributions of a job's ranks to one collective, and the result; the ranks' tensors share one draw.
#[derive(Debug)]
pub struct SparseDraw {
    spec: Spec,
    seed: u64,
    /// The indices of each rank, ascending.
    indices_of: Vec<Vec<u32>>,
    /// The indices that any rank has, ascending, and the sums at these indices.
    union: Vec<u32>,
    sums: Vec<u64>,
}

impl SparseDraw {
    /// The draw of ranks that each have about `density_ppm` of a million elements. `collective` is a name for job and
    /// collective.
    pub fn new(spec: Spec, world_size: u16, collective: u64, density_ppm: u32) -> Arc<SparseDraw> {
        let seed = splitmix64(collective);
        // A draw is 64 bits; the bound is the density's share of 2^64.
        let bound = u128::from(density_ppm) << 64;
        let of_rank = |rank: u16| {
            let seed = splitmix64(seed ^ u64::from(rank));
            let drawn = move |index: &u32| u128::from(splitmix64(seed ^ u64::from(*index))) * 1_000_000 < bound;
            (0..spec.elements).filter(drawn).collect()
        };
        SparseDraw::of_indices(spec, collective, (0..world_size).map(of_rank).collect())
    }

    /// The contributions of ranks that have elements at these indices, each rank's ascending and below the tensor's
    /// length.
    pub fn of_indices(spec: Spec, collective: u64, indices_of: Vec<Vec<u32>>) -> Arc<SparseDraw> {
        let seed = splitmix64(collective);
        let of_all = indices_of
            .iter()
            .enumerate()
            .flat_map(|(rank, indices)| indices.iter().map(move |&index| (index, word(seed, rank as u16, index))));
        let mut all: Vec<(u32, u64)> = of_all.collect();
        all.sort_unstable_by_key(|&(index, _)| index);
        let sums = all.chunk_by(|(a, _), (b, _)| a == b);
        let sums = sums.map(|same| (same[0].0, same.iter().fold(0u64, |sum, (_, word)| sum.wrapping_add(*word))));
        let (union, sums) = sums.unzip();
        Arc::new(SparseDraw { spec, seed, indices_of, union, sums })
    }

    /// The result of a block.
    fn block(&self, block: &Range<u32>) -> (&[u32], &[u64]) {
        let positions = positions(&self.union, block);
        (&self.union[positions.clone()], &self.sums[positions])
    }
}

/// A rank's word at one of its indices.
fn word(seed: u64, rank: u16, index: u32) -> u64 {
    splitmix64(splitmix64(seed ^ 0x7370_6172_7365) ^ (u64::from(rank) << 32 | u64::from(index)))
}

fn positions(indices: &[u32], block: &Range<u32>) -> Range<usize> {
    let at = |bound: u32| indices.partition_point(|&index| index < bound);
    at(block.start)..at(block.end)
}

/// A rank's [`Tensor`] whose elements are the words of a draw.
#[derive(Clone, Debug)]
pub struct SparseFingerprint {
    draw: Arc<SparseDraw>,
    rank: u16,
    /// Blocks that were written: true if they are right.
    written: Ledger<bool>,
    faulty: Vec<(Range<usize>, u64)>,
}

impl SparseFingerprint {
    /// The tensor of one rank.
    pub fn new(draw: Arc<SparseDraw>, rank: u16) -> SparseFingerprint {
        assert!(usize::from(rank) < draw.indices_of.len(), "rank {rank} is none of {}", draw.indices_of.len());
        let written = Ledger::new(draw.spec.elements as usize, true);
        SparseFingerprint { draw, rank, written, faulty: Vec::new() }
    }

    /// The state of the output. A faulty block is reported with its number of elements.
    pub fn verification(&self) -> Verification {
        Verification::of(self.written.ranges().iter(), self.draw.spec.elements as usize, self.faulty.clone())
    }
}

impl SparseTensor for SparseFingerprint {
    fn indices(&self) -> &[u32] {
        &self.draw.indices_of[usize::from(self.rank)]
    }
    fn read_values(&self, positions: Range<usize>, values: &mut [u8]) {
        for (&index, bytes) in self.indices()[positions].iter().zip(values.as_chunks_mut().0) {
            *bytes = word(self.draw.seed, self.rank, index).to_be_bytes();
        }
    }
    /// A block that is written twice is faulty.
    fn write_block(&mut self, block: Range<u32>, indices: &[u32], values: &[u8]) {
        let range = block.start as usize..block.end as usize;
        let (expected, sums) = self.draw.block(&block);
        let sums = sums.iter().map(|sum| sum.to_be_bytes());
        let is_right =
            !self.written.touches(&range) && indices == expected && values.as_chunks().0.iter().copied().eq(sums);
        if !is_right {
            self.faulty.push((range.clone(), indices.len() as u64));
        }
        self.written.set(range, is_right);
    }
}

impl Tensor for SparseFingerprint {
    fn spec(&self) -> Spec {
        self.draw.spec
    }
    only_sparse!();
    fn fork(&self) -> Option<Box<dyn Tensor>> {
        Some(Box::new(self.clone()))
    }
    fn hash_state(&self, mut hasher: &mut dyn Hasher) {
        (self.draw.seed, self.rank, &self.written, &self.faulty).hash(&mut hasher);
    }
}

#[cfg(test)]
mod tests {
    use tributary_numeric::{DType, ReduceOp};

    use super::*;

    const SPEC: Spec = Spec::allreduce(10_000, DType::F32, ReduceOp::Sum);

    /// The result of a block over some ranks, as machines would write it.
    fn sum(draw: &Arc<SparseDraw>, ranks: &[u16], block: Range<u32>) -> (Vec<u32>, Vec<u8>) {
        let mut sums = std::collections::BTreeMap::<u32, u64>::new();
        for &rank in ranks {
            let tensor = SparseFingerprint::new(Arc::clone(draw), rank);
            let positions = tensor.positions(block.clone());
            let mut values = vec![0; 8 * positions.len()];
            tensor.read_values(positions.clone(), &mut values);
            for (position, value) in positions.zip(values.as_chunks().0) {
                let sum = sums.entry(tensor.indices()[position]).or_default();
                *sum = sum.wrapping_add(u64::from_be_bytes(*value));
            }
        }
        (sums.keys().copied().collect(), sums.values().flat_map(|sum| sum.to_be_bytes()).collect())
    }

    /// The outcome of one block: verified elements, and faulty ranges.
    fn judged(draw: &Arc<SparseDraw>, (indices, values): (Vec<u32>, Vec<u8>)) -> (usize, usize) {
        let mut tensor = SparseFingerprint::new(Arc::clone(draw), 0);
        tensor.write_block(0..500, &indices, &values);
        let verification = tensor.verification();
        let missing: usize = verification.missing.iter().map(Range::len).sum();
        assert_eq!(missing, 9_500);
        (verification.verified, verification.faulty.len())
    }

    #[test]
    fn the_sum_of_all_ranks_is_proven_and_any_other_is_faulty() {
        let draw = SparseDraw::new(SPEC, 3, 7, 100_000);
        assert_eq!(judged(&draw, sum(&draw, &[0, 1, 2], 0..500)), (500, 0));
        assert_eq!(judged(&draw, sum(&draw, &[0, 2], 0..500)), (0, 1), "one is lost");
        assert_eq!(judged(&draw, sum(&draw, &[0, 1, 2, 2], 0..500)), (0, 1), "one is doubled");
        let other = SparseDraw::new(SPEC, 3, 8, 100_000);
        assert_eq!(judged(&draw, sum(&other, &[0, 1, 2], 0..500)), (0, 1), "another collective's");
        let (mut indices, mut values) = sum(&draw, &[0, 1, 2], 0..500);
        indices.pop();
        values.truncate(8 * indices.len());
        assert_eq!(judged(&draw, (indices, values)), (0, 1), "an index is missing");
    }

    #[test]
    fn a_block_that_is_written_twice_is_faulty() {
        let draw = SparseDraw::new(SPEC, 2, 7, 100_000);
        let mut tensor = SparseFingerprint::new(Arc::clone(&draw), 1);
        for _ in 0..2 {
            let (indices, values) = sum(&draw, &[0, 1], 0..10_000);
            tensor.write_block(0..10_000, &indices, &values);
        }
        assert_eq!(tensor.verification().faulty.len(), 1);
    }

    #[test]
    fn ranks_have_the_indices_that_they_are_given() {
        let draw = SparseDraw::of_indices(SPEC, 7, vec![vec![3, 9_999], vec![], vec![3, 4]]);
        assert_eq!(SparseFingerprint::new(Arc::clone(&draw), 2).indices(), [3, 4]);
        assert_eq!(draw.union, [3, 4, 9_999]);
        assert_eq!(judged(&draw, sum(&draw, &[0, 1, 2], 0..500)), (500, 0));
        assert_eq!(judged(&draw, sum(&draw, &[0, 1], 0..500)), (0, 1), "one is lost");
    }

    #[test]
    fn each_rank_has_about_the_configured_share_and_other_elements() {
        for (density_ppm, least, most) in [(1, 0, 5), (100_000, 900, 1_100), (1_000_000, 10_000, 10_000)] {
            let draw = SparseDraw::new(SPEC, 2, 7, density_ppm);
            assert!(draw.indices_of.iter().all(|indices| (least..=most).contains(&indices.len())), "{density_ppm}");
        }
        let draw = SparseDraw::new(SPEC, 2, 7, 100_000);
        assert_ne!(draw.indices_of[0], draw.indices_of[1]);
    }
}
