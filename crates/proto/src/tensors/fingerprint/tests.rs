//! Every kind of fault is seen, and nothing that is right is called a fault.
#![expect(clippy::single_range_in_vec_init, reason = "lists of ranges with one entry are meant")]

use proptest::prelude::*;
use tributary_numeric::{DType, ReduceOp};

use super::*;
use crate::contract::values::Values;

const SPEC: Spec = Spec::allreduce(100, DType::F32, ReduceOp::Sum);

fn ranks(world_size: u16, collective: u64) -> Vec<FingerprintTensor> {
    let roster = Roster::new(world_size);
    (0..world_size).map(|rank| FingerprintTensor::new(SPEC, roster.clone(), rank, collective)).collect()
}

/// The scale that ranks agree on for a block.
fn agreed(ranks: &[FingerprintTensor], block: Range<usize>) -> Scale {
    let exponent = ranks.iter().map(|t| t.exponent(block.clone())).fold(BlockExponent::ZERO, BlockExponent::join);
    Scale::new(exponent, ranks.len() as u16)
}

fn contribution(tensor: &FingerprintTensor, block: Range<usize>, scale: Scale) -> Vec<u8> {
    let mut vector = vec![0; FINGERPRINT_LEN];
    tensor.encode(block, scale, &mut vector);
    vector
}

/// A switch's sum of the contributions, made with its own arithmetic.
fn sum(contributions: &[Vec<u8>]) -> Vec<u8> {
    let combine = Values::Fingerprint.fixed();
    let mut lanes = vec![0; FINGERPRINT_LEN];
    (combine.store)(&mut lanes, &contributions[0]);
    for vector in &contributions[1..] {
        (combine.add)(&mut lanes, vector);
    }
    let mut vector = vec![0; FINGERPRINT_LEN];
    (combine.load)(&lanes, &mut vector);
    vector
}

/// Decodes the sum of the contributions as the block 0..40; true if it was taken for the right one.
fn accepted(contributions: &[Vec<u8>], world_size: u16, scale: Scale) -> bool {
    let mut tensor = ranks(world_size, 7).remove(0);
    tensor.decode(0..40, scale, &sum(contributions));
    let verification = tensor.verification();
    assert_eq!(verification.missing, [40..100]);
    assert_eq!(verification.verified, if verification.faulty.is_empty() { 40 } else { 0 });
    verification.faulty.is_empty()
}

#[test]
fn each_rank_once_is_right() {
    for world_size in [1, 2, 3, 8, 1023] {
        let ranks = ranks(world_size, 7);
        let scale = agreed(&ranks, 0..40);
        let mut contributions: Vec<_> = ranks.iter().map(|tensor| contribution(tensor, 0..40, scale)).collect();
        assert!(accepted(&contributions, world_size, scale), "{world_size} ranks");
        contributions.reverse();
        assert!(accepted(&contributions, world_size, scale), "{world_size} ranks, the last first");
    }
}

#[test]
fn every_kind_of_fault_is_seen() {
    let (ranks, others) = (ranks(4, 7), ranks(4, 8));
    let scale = agreed(&ranks, 0..40);
    let whole: Vec<_> = ranks.iter().map(|tensor| contribution(tensor, 0..40, scale)).collect();
    let with = |index: usize, vector: Vec<u8>| {
        let mut contributions = whole.clone();
        contributions[index] = vector;
        accepted(&contributions, 4, scale)
    };
    assert!(with(2, whole[2].clone()), "nothing changed");
    assert!(!accepted(&whole[..3], 4, scale), "one is missing");
    assert!(!accepted(&[&whole[..], &whole[1..2]].concat(), 4, scale), "one is doubled");
    assert!(!with(2, whole[1].clone()), "one is doubled in place of another");
    assert!(!with(1, contribution(&ranks[1], 40..80, scale)), "one is for another block");
    assert!(!with(1, contribution(&ranks[1], 0..39, scale)), "one is for a shorter block");
    assert!(!with(1, contribution(&others[1], 0..40, scale)), "one is of another collective or job");
    assert!(!with(1, contribution(&ranks[1], 0..40, Scale { shift: scale.shift - 1, ..scale })), "another scale");
    assert!(!with(1, vec![0; FINGERPRINT_LEN]), "one is empty");
    let all_of_another: Vec<_> = others.iter().map(|tensor| contribution(tensor, 0..40, scale)).collect();
    assert!(!accepted(&all_of_another, 4, scale), "a whole sum of another collective");
    let next_block: Vec<_> = ranks.iter().map(|tensor| contribution(tensor, 40..80, scale)).collect();
    assert!(!accepted(&next_block, 4, scale), "a whole sum of another block");
    for bit in 0..8 * FINGERPRINT_LEN {
        let mut flipped = whole[0].clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(!with(0, flipped), "bit {bit} is flipped");
    }
}

#[test]
fn an_exponent_below_some_ranks_own_is_a_fault() {
    let ranks = ranks(4, 7);
    let scale = agreed(&ranks, 0..40);
    for (shift, right) in [(scale.shift, true), (scale.shift - 1, true), (scale.shift + 1, false)] {
        let scale = Scale { shift, ..scale };
        let contributions: Vec<_> = ranks.iter().map(|tensor| contribution(tensor, 0..40, scale)).collect();
        assert_eq!(accepted(&contributions, 4, scale), right);
    }
}

#[test]
fn a_block_that_is_decoded_twice_is_a_fault() {
    let mut ranks = ranks(2, 7);
    let scale = agreed(&ranks, 0..40);
    let contributions: Vec<_> = ranks.iter().map(|tensor| contribution(tensor, 0..40, scale)).collect();
    let vector = sum(&contributions);
    ranks[0].decode(0..40, scale, &vector);
    assert!(ranks[0].verification().faulty.is_empty());
    ranks[0].decode(0..40, scale, &vector);
    assert_eq!(ranks[0].verification().faulty, [(0..40, 2)]);
}

/// Ring allreduce of one chunk over `order`: partial sums are passed on, then the last rank's sum goes round.
fn ring(world_size: u16, order: &[u16]) -> Vec<Verification> {
    let mut ranks = ranks(world_size, 7);
    let mut bytes = vec![0; FINGERPRINT_LEN];
    ranks[usize::from(order[0])].read_input(0..100, &mut bytes);
    for &rank in &order[1..] {
        let tensor = &mut ranks[usize::from(rank)];
        tensor.accumulate(0..100, &bytes);
        tensor.read_output(0..100, &mut bytes);
        tensor.divide(0..100, world_size);
    }
    for &rank in order {
        let tensor = &mut ranks[usize::from(rank)];
        tensor.write(0..100, &bytes);
        tensor.read_output(0..100, &mut bytes);
    }
    ranks.iter().map(FingerprintTensor::verification).collect()
}

#[test]
fn partial_sums_add_up_in_any_order() {
    assert!(ring(5, &[2, 3, 4, 0, 1]).iter().all(Verification::is_complete), "in ring order");
    assert!(ring(5, &[2, 4, 0, 3, 1]).iter().all(Verification::is_complete), "in another");
}

#[test]
fn partial_sums_with_a_fault_are_seen_by_every_rank() {
    assert!(ring(5, &[2, 3, 4, 0]).iter().all(|v| !v.is_complete()), "one is missing");
    assert!(ring(5, &[2, 3, 4, 0, 0]).iter().all(|v| !v.is_complete()), "one is doubled");
    assert!(ring(5, &[2, 3, 4, 0, 1, 1]).iter().all(|v| !v.is_complete()), "all, and one doubled");
}

#[test]
fn output_that_was_never_written_is_not_a_sum() {
    let mut ranks = ranks(2, 7);
    let mut bytes = vec![0; FINGERPRINT_LEN];
    ranks[0].read_output(0..100, &mut bytes);
    ranks[1].write(0..100, &bytes);
    assert!(!ranks[1].verification().is_complete());
}

#[test]
fn blocks_without_elements_have_no_bytes() {
    let mut tensor = ranks(2, 7).remove(0);
    assert_eq!((tensor.vector_len(0), tensor.native_len(0)), (0, 0));
    let scale = Scale::integer(2);
    tensor.encode(0..0, scale, &mut []);
    tensor.decode(0..0, scale, &[]);
    tensor.read_input(5..5, &mut []);
    tensor.accumulate(5..5, &[]);
    tensor.write(5..5, &[]);
    assert_eq!(tensor.verification(), Verification { verified: 0, faulty: vec![], missing: vec![0..100] });
}

/// Thousands of hosts have such a tensor each. A chunk of ring partial sums is one range, whatever its length.
#[test]
fn memory_does_not_grow_with_the_tensor() {
    let roster = Roster::new(4);
    let spec = Spec { elements: 100_000, ..SPEC };
    let mut ranks: Vec<_> = (0..4).map(|rank| FingerprintTensor::new(spec, roster.clone(), rank, 1)).collect();
    let mut bytes = vec![0; FINGERPRINT_LEN];
    for block in 0..1000 {
        let block = block * 100..block * 100 + 100;
        ranks[0].read_input(block.clone(), &mut bytes);
        ranks[1].accumulate(block, &bytes);
    }
    assert_eq!((ranks[1].states.ranges().iter().count(), ranks[1].kept.len()), (1, 0));
}

proptest! {
    /// Any multiset of contributions but the right one is refused.
    #[test]
    fn only_each_rank_once_is_accepted(counts in prop::collection::vec(0usize..3, 2..9)) {
        let world_size = counts.len() as u16;
        let ranks = ranks(world_size, 7);
        let scale = agreed(&ranks, 0..40);
        let repeat = |(tensor, &count)| vec![contribution(tensor, 0..40, scale); count];
        let contributions: Vec<_> = ranks.iter().zip(&counts).flat_map(repeat).collect();
        prop_assume!(!contributions.is_empty());
        prop_assert_eq!(accepted(&contributions, world_size, scale), counts.iter().all(|&count| count == 1));
    }
}

/// A reduce's sum is proven at the root; a rank that gets no result lacks none.
#[test]
fn of_a_reduce_only_the_root_needs_the_sum() {
    let roster = Roster::new(3);
    let spec = Spec { primitive: Primitive::Reduce(Rank(1)), ..SPEC };
    let mut ranks = [0, 1, 2].map(|rank| FingerprintTensor::new(spec, roster.clone(), rank, 7));
    assert!(ranks[0].verification().is_complete());
    assert_eq!(ranks[1].verification().missing, [0..100]);
    let scale = agreed(&ranks, 0..100);
    let contributions: Vec<_> = ranks.iter().map(|tensor| contribution(tensor, 0..100, scale)).collect();
    ranks[1].decode(0..100, scale, &sum(&contributions[..2]));
    assert!(!ranks[1].verification().is_complete(), "one is missing");
    ranks[2].decode(0..100, scale, &sum(&contributions[..2]));
    assert!(!ranks[2].verification().is_complete(), "what is wrong is wrong everywhere");
}

#[test]
fn of_a_broadcast_only_the_roots_own_is_right() {
    let roster = Roster::new(3);
    let spec = Spec::broadcast(100, Rank(1));
    let scale = Scale::integer(3);
    let rank = |rank| FingerprintTensor::new(spec, roster.clone(), rank, 7);
    let is_taken = |vector: &[u8]| {
        let mut tensor = rank(0);
        tensor.decode(0..100, scale, vector);
        tensor.verification().is_complete()
    };
    let [own, root] = [0, 1].map(|who| contribution(&rank(who), 0..100, scale));
    let nothing = vec![0; FINGERPRINT_LEN];
    assert!(is_taken(&root) && is_taken(&sum(&[root.clone(), nothing.clone()])));
    for wrong in [own.clone(), nothing, sum(&[own, root.clone()]), sum(&[root.clone(), root])] {
        assert!(!is_taken(&wrong));
    }
    assert!(rank(1).verification().is_complete(), "the root has it");
    assert_eq!(rank(2).verification().missing, [0..100]);
}
