//! Fingerprints instead of elements: every sum proves that it has each rank's contribution exactly once.
//!
//! Rank `r` contributes to a block the words `(a_r * h, b_r * h', 1)`, modulo 2^64. `a_r` and `b_r` are fixed random
//! numbers; `h` and `h'` are odd and depend on the collective, the block and its scale. Contributions are added, so the
//! sum over all ranks is `(A * h, B * h', n)` with `A = sum of a_r` and `B = sum of b_r`. A sum in which rank `r`
//! is counted `c_r` times equals this only if the `a_r` and the `b_r`, weighted by `c_r - 1`, both add up to 0. The
//! probability is 2^-128 for weights that do not depend on those numbers. A contribution to another block, collective
//! or scale has another `h`. The result of a broadcast is its root's contribution alone; other ranks contribute zeros.

mod partial;

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use tributary_numeric::{BlockExponent, Scale};

use self::partial::Partial;
use super::ledger::Ledger;
use crate::contract::ids::Rank;
use crate::contract::tensor::{Primitive, Spec, Tensor};
use crate::contract::values::{FINGERPRINT_LEN, scale_factor};
use tributary_numeric::splitmix64;

/// The three words of a contribution or of a sum of several.
type Words = [u64; 3];

/// The sums of `a_r` and `b_r` over the first ranks of a job. All tensors of a job share one roster.
#[derive(Clone, Debug)]
pub struct Roster {
    /// Entry `r` is the sum over the ranks below `r`.
    prefix: Vec<[u64; 2]>,
}

impl Roster {
    /// The roster of the ranks 0 to `world_size` - 1.
    pub fn new(world_size: u16) -> Arc<Roster> {
        let mut prefix = vec![[0u64; 2]];
        for rank in 0..world_size {
            let [a, b] = constants(rank);
            let [sum_a, sum_b] = prefix[prefix.len() - 1];
            prefix.push([sum_a.wrapping_add(a), sum_b.wrapping_add(b)]);
        }
        Arc::new(Roster { prefix })
    }

    fn world_size(&self) -> u16 {
        (self.prefix.len() - 1) as u16
    }

    /// The sums over `run`, which may continue from the last rank to rank 0.
    fn sum(&self, run: Run) -> [u64; 2] {
        let world_size = usize::from(self.world_size());
        let (first, end) = (usize::from(run.first), usize::from(run.first) + usize::from(run.count));
        let between = |from: usize, to: usize| [0, 1].map(|i| self.prefix[to][i].wrapping_sub(self.prefix[from][i]));
        if end <= world_size {
            return between(first, end);
        }
        let (tail, head) = (between(first, world_size), between(0, end - world_size));
        [0, 1].map(|i| tail[i].wrapping_add(head[i]))
    }
}

/// Ranks that follow each other in a ring: a partial sum of ring allreduce is over such ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Run {
    first: u16,
    count: u16,
}

/// What is known about a range of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// The sum over some ranks in ring order.
    Partial(Run),
    /// Another partial sum, whose words are kept.
    Kept,
    /// The sum over all ranks that contribute, proven.
    Verified,
    /// Another sum.
    Faulty,
}

/// The state of an output, for a checker after a collective. For a rank that gets no result, only faults are reported.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Verification {
    /// The number of elements whose result is proven.
    pub verified: usize,
    /// Ranges whose final sum is wrong, each with the number of contributions that the sum claims to hold.
    pub faulty: Vec<(Range<usize>, u64)>,
    /// Ranges that lack their result.
    pub missing: Vec<Range<usize>>,
}

impl Verification {
    /// Made from the state of ranges, in their order: true for ranges that are proven.
    pub(super) fn of(
        known: impl Iterator<Item = (Range<usize>, bool)>,
        elements: usize,
        faulty: Vec<(Range<usize>, u64)>,
    ) -> Verification {
        let (mut verified, mut missing, mut end) = (0, Vec::new(), 0);
        for (range, is_proven) in known {
            if range.start > end {
                missing.push(end..range.start);
            }
            end = range.end;
            verified += if is_proven { range.len() } else { 0 };
        }
        if end < elements {
            missing.push(end..elements);
        }
        Verification { verified, faulty, missing }
    }

    /// True if every element's result is proven.
    pub fn is_complete(&self) -> bool {
        self.faulty.is_empty() && self.missing.is_empty()
    }
}

/// A [`Tensor`] whose blocks are fingerprints. It keeps a bit for each block that is proven.
#[derive(Clone, Debug)]
pub struct FingerprintTensor {
    spec: Spec,
    rank: u16,
    world_size: u16,
    /// A hash of the collective.
    seed: u64,
    /// The roster's sums for this rank, and for all ranks that contribute.
    own: [u64; 2],
    all: [u64; 2],
    /// The number of ranks that contribute.
    contributors: u16,
    roster: Arc<Roster>,
    states: Ledger<State>,
    /// Words that are neither proven nor the sum of a [`Run`], by the start of their range.
    kept: BTreeMap<usize, Words>,
    faulty: Vec<(Range<usize>, u64)>,
    /// Set if sums may lack ranks.
    partial: Option<Partial>,
    /// Every block has the same magnitude.
    is_steady: bool,
}

/// The magnitude of every block of a steady tensor: that of small gradients.
const STEADY_EXPONENT: i16 = -8;

impl FingerprintTensor {
    /// The tensor of `rank` in a collective. `collective` is a name for job and collective, the same on all ranks.
    pub fn new(spec: Spec, roster: Arc<Roster>, rank: u16, collective: u64) -> FingerprintTensor {
        assert!(rank < roster.world_size(), "rank {rank} is none of {}", roster.world_size());
        let world_size = roster.world_size();
        let contributors = match spec.primitive {
            Primitive::Broadcast(root) => Run { first: root.0, count: 1 },
            Primitive::Allreduce | Primitive::Reduce(_) => Run { first: 0, count: world_size },
        };
        FingerprintTensor {
            spec,
            rank,
            world_size,
            seed: splitmix64(collective),
            own: roster.sum(Run { first: rank, count: 1 }),
            all: roster.sum(contributors),
            contributors: contributors.count,
            roster,
            states: Ledger::new(spec.elements as usize, State::Verified),
            kept: BTreeMap::new(),
            faulty: Vec::new(),
            partial: None,
            is_steady: false,
        }
    }

    /// The same tensor with one magnitude for all blocks, as gradients have from block to block; else each block draws its
    /// own among 32.
    #[must_use]
    pub fn steady(self) -> FingerprintTensor {
        FingerprintTensor { is_steady: true, ..self }
    }

    /// The state of the output.
    pub fn verification(&self) -> Verification {
        let states = self.states.ranges();
        let done = states.iter().filter(|(_, state)| matches!(state, State::Verified | State::Faulty));
        let known = done.map(|(range, state)| (range, state == State::Verified));
        let mut verification = Verification::of(known, self.spec.elements as usize, self.faulty.clone());
        if !self.spec.primitive.receives(Rank(self.rank)) {
            verification.missing.clear();
        }
        verification
    }

    /// This rank's contribution to a block.
    fn own_words(&self, factors: [u64; 2]) -> Words {
        if self.partial.is_some() { self.marked_words(factors) } else { words(self.own, 1, factors) }
    }

    /// The result: the sum over all ranks that contribute.
    fn all_words(&self, factors: [u64; 2]) -> Words {
        words(self.all, self.contributors, factors)
    }

    /// The sum over some ranks.
    fn run_words(&self, run: Run, factors: [u64; 2]) -> Words {
        words(self.roster.sum(run), run.count, factors)
    }

    /// A hash of the collective and the block, from which everything else about the block follows.
    fn block_hash(&self, block: &Range<usize>) -> u64 {
        [block.start as u64, block.end as u64].into_iter().fold(self.seed, |hash, word| splitmix64(hash ^ word))
    }

    /// The block's largest exponent over all ranks.
    fn largest_exponent(&self, hash: u64) -> BlockExponent {
        let [h, _] = factors(hash, None);
        let drawn = (h >> 8 & 31) as i16 - 16;
        BlockExponent { exponent: if self.is_steady { STEADY_EXPONENT } else { drawn }, non_finite: false }
    }

    /// This rank's exponent: the largest or a smaller one.
    fn own_exponent(&self, hash: u64) -> BlockExponent {
        let [h, _] = factors(hash, None);
        let largest = self.largest_exponent(hash);
        if (h >> 16) % u64::from(self.world_size) == u64::from(self.rank) {
            return largest;
        }
        let below = (splitmix64(h ^ u64::from(self.rank)) & 7) as i16;
        BlockExponent { exponent: largest.exponent - below, ..largest }
    }

    fn finish(&mut self, block: Range<usize>, words: Words, right: bool) {
        self.kept.remove(&block.start);
        if !right {
            self.kept.insert(block.start, words);
            self.faulty.push((block.clone(), words[2]));
        }
        self.states.set(block, if right { State::Verified } else { State::Faulty });
    }
}

/// Hashes what was written; rank and collective never change.
impl Hash for FingerprintTensor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.seed, self.rank, &self.states, &self.kept, &self.faulty, self.partial).hash(state);
    }
}

impl Tensor for FingerprintTensor {
    fn spec(&self) -> Spec {
        self.spec
    }

    fn vector_len(&self, elements: usize) -> usize {
        if elements == 0 { 0 } else { FINGERPRINT_LEN }
    }
    fn exponent(&self, block: Range<usize>) -> BlockExponent {
        if !self.spec.dtype.is_float() || block.is_empty() {
            return BlockExponent::ZERO;
        }
        self.own_exponent(self.block_hash(&block))
    }
    fn encode(&self, block: Range<usize>, scale: Scale, vector: &mut [u8]) {
        if !block.is_empty() {
            put(self.own_words(factors(self.block_hash(&block), Some(scale))), vector);
        }
    }
    /// A block that is decoded twice is faulty. A block whose agreed exponent is below that of any rank is faulty too.
    fn decode(&mut self, block: Range<usize>, scale: Scale, vector: &[u8]) {
        if block.is_empty() {
            return;
        }
        let (words, hash) = (get(vector), self.block_hash(&block));
        let safe = !self.spec.dtype.is_float() || scale.shift <= scale.of_block(self.largest_exponent(hash)).shift;
        let first = !self.states.touches(&block);
        let right = words == self.all_words(factors(hash, Some(scale)));
        self.finish(block, words, safe && first && right);
    }

    fn native_len(&self, elements: usize) -> usize {
        self.vector_len(elements)
    }
    fn read_input(&self, block: Range<usize>, bytes: &mut [u8]) {
        if !block.is_empty() {
            put(self.own_words(factors(self.block_hash(&block), None)), bytes);
        }
    }
    /// Elements that were never written read as words that no sum has.
    fn read_output(&self, block: Range<usize>, bytes: &mut [u8]) {
        if block.is_empty() {
            return;
        }
        let factors = factors(self.block_hash(&block), None);
        let words = match self.states.get(&block) {
            Some(State::Verified) => self.all_words(factors),
            Some(State::Partial(run)) => self.run_words(run, factors),
            Some(State::Kept | State::Faulty) => self.kept.get(&block.start).copied().unwrap_or([u64::MAX; 3]),
            None => [u64::MAX; 3],
        };
        put(words, bytes);
    }
    fn accumulate(&mut self, block: Range<usize>, bytes: &[u8]) {
        if block.is_empty() {
            return;
        }
        let factors = factors(self.block_hash(&block), None);
        let (own, partial) = (self.own_words(factors), get(bytes));
        let sum: Words = std::array::from_fn(|i| own[i].wrapping_add(partial[i]));
        if sum == self.all_words(factors) {
            return self.finish(block, sum, true);
        }
        if sum[2] >= u64::from(self.contributors) {
            return self.finish(block, sum, false);
        }
        let count = sum[2] as u16;
        let run = Run { first: (self.rank + 1 + self.world_size - count) % self.world_size, count };
        if count > 0 && sum == self.run_words(run, factors) {
            self.kept.remove(&block.start);
            return self.states.set(block, State::Partial(run));
        }
        self.kept.insert(block.start, sum);
        self.states.set(block, State::Kept);
    }
    fn write(&mut self, block: Range<usize>, bytes: &[u8]) {
        if block.is_empty() {
            return;
        }
        let words = get(bytes);
        if words == [0; 3] && !self.spec.primitive.contributes(Rank(self.rank)) {
            // A partial sum on its way round a ring, which has not come to the root.
            self.kept.insert(block.start, words);
            return self.states.set(block, State::Kept);
        }
        let right = words == self.all_words(factors(self.block_hash(&block), None));
        self.finish(block, words, right);
    }
    fn write_partial(&mut self, block: Range<usize>, contributors: u16, bytes: &[u8]) {
        if !block.is_empty() {
            self.take_partial(block, contributors, bytes);
        }
    }
    /// The switch's scale is part of the sum, as the hosts' scale is part of a sum in fixed point.
    fn write_scaled(&mut self, block: Range<usize>, scale: Scale, bytes: &[u8]) {
        self.decode(block, scale, bytes);
    }
    /// An average needs no division here: a fingerprint proves the sum.
    fn divide(&mut self, _block: Range<usize>, _world_size: u16) {}

    fn fork(&self) -> Option<Box<dyn Tensor>> {
        Some(Box::new(self.clone()))
    }
    fn hash_state(&self, mut hasher: &mut dyn Hasher) {
        self.hash(&mut hasher);
    }
}

/// `h` and `h'` of a block and its scale: odd, so that multiplication loses no contribution.
fn factors(block_hash: u64, scale: Option<Scale>) -> [u64; 2] {
    let h = splitmix64(block_hash);
    [h, splitmix64(h)].map(|factor| (factor | 1).wrapping_mul(scale.map_or(1, scale_factor)))
}

/// The words of `count` ranks whose `a_r` and `b_r` add up to these.
fn words([a, b]: [u64; 2], count: u16, [h, h2]: [u64; 2]) -> Words {
    [a.wrapping_mul(h), b.wrapping_mul(h2), count.into()]
}

/// The fixed random numbers `a_r` and `b_r`.
fn constants(rank: u16) -> [u64; 2] {
    let a = splitmix64(0x7472_6962_7574_6172 ^ u64::from(rank));
    [a | 1, splitmix64(a) | 1]
}

fn put(words: Words, bytes: &mut [u8]) {
    for (word, bytes) in words.iter().zip(bytes.as_chunks_mut().0) {
        *bytes = word.to_be_bytes();
    }
}

fn get(bytes: &[u8]) -> Words {
    let words: [_; 3] = std::array::from_fn(|i| bytes.as_chunks().0.get(i).copied());
    words.map(|word| word.map_or(u64::MAX, u64::from_be_bytes))
}

#[cfg(test)]
mod tests;
