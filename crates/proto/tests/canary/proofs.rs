//! Proofs of contributors: what a switch adds up tells any two sets of ranks apart, and where chance makes two agree in
//! one block they differ in the next.

use tributary_proto::canary::wire::{RankProof, proof};
use tributary_proto::contract::ids::Rank;

/// What switches add up for these ranks.
fn added(ranks: &[u16], id: u32, attempt: u8) -> u32 {
    ranks.iter().fold(0, |sum, &rank| sum.wrapping_add(proof(RankProof::of(Rank(rank)), id, attempt)))
}

#[test]
fn proofs_of_single_ranks_add_up_to_what_the_leader_expects_of_all() {
    let all: RankProof = (0..1024).map(|rank| RankProof::of(Rank(rank))).sum();
    let ranks: Vec<u16> = (0..1024).collect();
    for (id, attempt) in [(0, 0), (1, 0), (1, 1), (u32::MAX, 255)] {
        assert_eq!(added(&ranks, id, attempt), proof(all, id, attempt));
    }
}

/// With one number a rank, times an odd factor a block, these agreed in every block: 27 pairs below 1,024 did.
#[test]
fn sets_whose_numbers_once_collided_are_distinguished_in_every_block() {
    for id in 0..10_000 {
        assert_ne!(added(&[8, 1010], id, 0), added(&[123, 822], id, 0), "block {id}");
    }
}

/// No two pairs of ranks have the same numbers: a collision in one block is chance, and says nothing of another block.
#[test]
fn no_two_pairs_of_ranks_agree_in_all_blocks() {
    let ranks: Vec<RankProof> = (0..1024).map(|rank| RankProof::of(Rank(rank))).collect();
    let pair = |a: usize, b: usize| [ranks[a], ranks[b]].into_iter().sum::<RankProof>();
    let mut pairs: Vec<RankProof> =
        (0..1024).flat_map(|a| (a..1024).map(move |b| (a, b))).map(|(a, b)| pair(a, b)).collect();
    pairs.sort_unstable();
    assert!(pairs.windows(2).all(|two| two[0] != two[1]));
}

/// Sets that do agree in some block, found by search, differ in all others.
#[test]
fn a_collision_in_one_block_says_nothing_of_another() {
    const RANKS: u16 = 1024;
    let mut pairs: Vec<(u32, [u16; 2])> =
        (0..RANKS).flat_map(|a| (a..RANKS).map(move |b| [a, b])).map(|ranks| (added(&ranks, 0, 0), ranks)).collect();
    pairs.sort_unstable();
    let agree: Vec<[[u16; 2]; 2]> =
        pairs.windows(2).filter(|two| two[0].0 == two[1].0).map(|two| [two[0].1, two[1].1]).collect();
    assert!(!agree.is_empty(), "of this many pairs some agree in block 0");
    for [one, other] in agree {
        for (id, attempt) in (1..1000).map(|id| (id, 0)).chain([(0, 1)]) {
            assert_ne!(added(&one, id, attempt), added(&other, id, attempt), "{one:?}, {other:?}: block {id}");
        }
    }
}
