//! Fingerprints of sums that may lack ranks. Each contribution has its own bit, so that a sum shows which ranks'
//! data it has.
//!
//! The bits of the first 48 ranks are in the third word, above the number of contributions; the bits of 64 more ranks
//! are the second word. A bit that is added twice becomes another rank's bit. The first word, which is the same as in
//! any other fingerprint, then proves that the sum has exactly those ranks, each once.

use std::ops::Range;

use super::{FingerprintTensor, Run, Words, factors, get};
use tributary_numeric::splitmix64;

/// Ranks whose bits are in the third word, and the position of the first of these bits.
const LOW: u16 = 48;
const LOW_AT: u32 = 16;

/// The state of a tensor whose sums may lack ranks.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Partial {
    /// The fewest ranks that a sum may have.
    least: u16,
    /// A hash of all results that were written, whatever their order.
    digest: u64,
}

impl FingerprintTensor {
    /// The most ranks of a job whose sums may lack some.
    pub const MAX_PARTIAL_RANKS: u16 = LOW + u64::BITS as u16;

    /// The same tensor in a job whose sums have at least `least` ranks. The job has at most
    /// [`FingerprintTensor::MAX_PARTIAL_RANKS`].
    pub fn allow_partial(self, least: u16) -> FingerprintTensor {
        assert!(self.world_size <= FingerprintTensor::MAX_PARTIAL_RANKS, "each rank has a bit");
        FingerprintTensor { partial: Some(Partial { least, digest: 0 }), ..self }
    }

    /// A hash of all results that may lack ranks: equal on all ranks that have the same results. 0 if there are none.
    pub fn digest(&self) -> u64 {
        self.partial.map_or(0, |partial| partial.digest)
    }

    /// This rank's contribution.
    pub(super) fn marked_words(&self, [h, h2]: [u64; 2]) -> Words {
        let [low, high] = bits(self.rank);
        [self.own[0].wrapping_mul(h), high.wrapping_mul(h2), 1 | low << LOW_AT]
    }

    /// Takes a result over `contributors` ranks.
    pub(super) fn take_partial(&mut self, block: Range<usize>, contributors: u16, bytes: &[u8]) {
        let (words, factors) = (get(bytes), factors(self.block_hash(&block), None));
        let right = self.partial.is_some_and(|partial| partial.least <= contributors)
            && self.is_sum_of(contributors, words, factors);
        if let Some(partial) = &mut self.partial {
            let hash = words.into_iter().fold(block.start as u64, |hash, word| splitmix64(hash ^ word));
            partial.digest = partial.digest.wrapping_add(hash);
        }
        self.finish(block, words, right);
    }

    /// True if the words are those of `contributors` different ranks.
    fn is_sum_of(&self, contributors: u16, words: Words, [h, h2]: [u64; 2]) -> bool {
        let said = [words[2] >> LOW_AT, words[1].wrapping_mul(inverse(h2))];
        let is_in = |rank: &u16| bits(*rank).iter().zip(said).any(|(bit, said)| bit & said != 0);
        let ranks: Vec<u16> = (0..self.world_size).filter(is_in).collect();
        let sum = |sum: u64, &rank: &u16| sum.wrapping_add(self.roster.sum(Run { first: rank, count: 1 })[0]);
        let bits_said = said[0].count_ones() + said[1].count_ones();
        ranks.len() == usize::from(contributors)
            && bits_said == u32::from(contributors)
            && words[2] & ((1 << LOW_AT) - 1) == u64::from(contributors)
            && words[0] == ranks.iter().fold(0, sum).wrapping_mul(h)
    }
}

/// A rank's bit, in the third word or in the second.
fn bits(rank: u16) -> [u64; 2] {
    if rank < LOW { [1 << rank, 0] } else { [0, 1 << (rank - LOW)] }
}

/// The inverse of an odd number modulo 2^64. Each of five steps of Newton's method doubles the number of right bits,
/// which begins with three.
fn inverse(odd: u64) -> u64 {
    (0..5).fold(odd, |inverse, _| inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse))))
}

#[cfg(test)]
mod tests {
    use tributary_numeric::{DType, ReduceOp};

    use super::super::{Roster, put};
    use super::*;
    use crate::contract::tensor::{Spec, Tensor};
    use crate::contract::values::FINGERPRINT_LEN;

    const SPEC: Spec = Spec::allreduce(8, DType::F32, ReduceOp::Avg);

    fn tensors(world_size: u16, least: u16) -> Vec<FingerprintTensor> {
        let roster = Roster::new(world_size);
        (0..world_size).map(|rank| FingerprintTensor::new(SPEC, roster.clone(), rank, 3).allow_partial(least)).collect()
    }

    /// The sum of these ranks' contributions to the first half.
    fn sum(tensors: &[FingerprintTensor], ranks: &[usize]) -> Vec<u8> {
        let mut bytes = vec![0; FINGERPRINT_LEN];
        let words = ranks.iter().map(|&rank| {
            tensors[rank].read_input(0..4, &mut bytes);
            get(&bytes)
        });
        let sum = words.fold([0; 3], |sum: Words, words| std::array::from_fn(|i| sum[i].wrapping_add(words[i])));
        put(sum, &mut bytes);
        bytes
    }

    fn is_right(world_size: u16, least: u16, ranks: &[usize], contributors: u16) -> bool {
        let mut tensors = tensors(world_size, least);
        let bytes = sum(&tensors, ranks);
        tensors[0].write_partial(0..4, contributors, &bytes);
        tensors[0].verification().faulty.is_empty()
    }

    #[test]
    fn a_sum_proves_how_many_different_ranks_are_in_it() {
        let all: Vec<usize> = (0..112).collect();
        for (world_size, ranks) in
            [(4, &all[..4]), (4, &all[1..4]), (112, &all[..]), (112, &all[7..105]), (60, &all[40..60])]
        {
            assert!(is_right(world_size, 1, ranks, ranks.len() as u16), "{world_size}: {ranks:?}");
        }
        assert!(!is_right(4, 4, &[0, 1, 2], 3), "too few");
        assert!(!is_right(4, 1, &[0, 1, 2], 4), "one is claimed that is not there");
        assert!(!is_right(4, 1, &[0, 1, 1], 3), "one is there twice");
        assert!(!is_right(4, 1, &[0, 0, 1, 1], 4), "two are");
        assert!(!is_right(4, 1, &[2, 2], 1), "twice one rank is none of the others");
        assert!(!is_right(112, 1, &[60, 60, 61], 3));
    }

    #[test]
    fn ranks_with_other_results_have_other_digests() {
        let mut tensors = tensors(4, 1);
        let (some, others) = (sum(&tensors, &[0, 1, 2]), sum(&tensors, &[1, 2, 3]));
        tensors[0].write_partial(0..4, 3, &some);
        tensors[1].write_partial(0..4, 3, &some);
        tensors[2].write_partial(0..4, 3, &others);
        assert_eq!(tensors[0].digest(), tensors[1].digest());
        assert_ne!(tensors[0].digest(), tensors[2].digest());
        assert!(tensors.iter().all(|tensor| tensor.verification().faulty.is_empty()), "each is right by itself");
    }
}
