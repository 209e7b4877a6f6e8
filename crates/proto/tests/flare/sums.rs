//! Every type with every operator in every design, against sums that are made at home.

use tributary_numeric::{Element, ReduceOp, bf16, f16};
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::sum_tree::SumTree;

use crate::harness::link::LinkConfig;
use crate::harness::reduction::{expected, reduce, star, vector};
use crate::setup::{DESIGNS, inputs, job, lossy, racks};

/// In one switch and under loss, for each operator that the type takes. Where the order makes no difference, all
/// designs have the bits of the tree.
fn every_operator<T: Element>(is_exact: bool, make: impl Fn(f32) -> T) {
    for world_size in [1, 2, 3, 8] {
        for elements in [1, 63, 64, 65] {
            let inputs = inputs(world_size, elements, &make);
            for op in ReduceOp::ALL.into_iter().filter(|&op| op.takes(T::DTYPE)) {
                let of_the_tree = expected(&inputs, op, &SumTree::star(world_size));
                let any_order = is_exact || matches!(op, ReduceOp::Min | ReduceOp::Max);
                for design in DESIGNS {
                    // 63, 64 and 65 elements are about what packets of 64 times four bytes hold.
                    let job = job(world_size, 2, 64, &[("design", design)]);
                    let sum = reduce(&mut star(1, lossy(), &job), &inputs, op);
                    let is_tree = matches!(design, "tree" | "auto");
                    if any_order || is_tree || world_size <= 2 {
                        assert!(sum == of_the_tree, "{op} of {elements} {}, {design}, {world_size} ranks", T::DTYPE);
                    }
                }
            }
        }
    }
}

#[test]
fn floats_of_32_bits() {
    every_operator(false, |value| value);
}

#[test]
fn floats_of_64_bits() {
    every_operator(false, f64::from);
}

#[test]
fn floats_of_16_bits() {
    every_operator(false, f16::from_f32);
    every_operator(false, bf16::from_f32);
}

#[test]
fn integers_of_8_and_16_bits() {
    every_operator(true, |value| value as i8);
    every_operator(true, |value| value as u8);
    every_operator(true, |value| value as i16);
}

#[test]
fn integers_of_32_and_64_bits() {
    every_operator(true, |value| value as i32);
    every_operator(true, |value| (value as i64).wrapping_mul(0x1_0000_0001));
}

/// Small integers as floats: their sums are exact in any order, so that a lost, doubled or misplaced vector shows.
fn whole<T>(world_size: u16, elements: usize, make: impl Fn(f32) -> T) -> Vec<Vec<T>> {
    let value = |rank: usize, i: usize| ((rank * 7919 + i * 31) % 201) as f32 - 100.0;
    (0..usize::from(world_size)).map(|rank| (0..elements).map(|i| make(value(rank, i))).collect()).collect()
}

#[test]
fn each_design_sums_each_contribution_once_under_loss_in_several_shards() {
    for design in DESIGNS {
        for world_size in [3, 5, 7, 13] {
            let job = JobConfig { trees: 4, ..job(world_size, 8, 16, &[("design", design)]) };
            let inputs = whole(world_size, 1_003, |value| value);
            let sum = reduce(&mut star(u64::from(world_size), lossy(), &job), &inputs, ReduceOp::Sum);
            assert!(
                sum == expected(&inputs, ReduceOp::Sum, &SumTree::star(world_size)),
                "{design}, {world_size} ranks"
            );
        }
    }
}

#[test]
fn each_design_sums_each_contribution_once_in_levels() {
    let ranks: [&[u16]; 3] = [&[0, 3, 4], &[1], &[2, 5, 6, 7]];
    for design in DESIGNS {
        let job = job(8, 8, 16, &[("design", design)]);
        for (seed, link) in [(1, LinkConfig::default()), (2, lossy()), (3, lossy())] {
            let floats = whole(8, 1_003, bf16::from_f32);
            let sum = reduce(&mut racks(seed, link, &job, &ranks), &floats, ReduceOp::Sum);
            assert!(sum == expected(&floats, ReduceOp::Sum, &SumTree::star(8)), "bf16, {design}, seed {seed}");
            let integers = whole(8, 1_003, |value| value as i64);
            let sum = reduce(&mut racks(seed, link, &job, &ranks), &integers, ReduceOp::Bxor);
            assert!(sum == expected(&integers, ReduceOp::Bxor, &SumTree::star(8)), "i64, {design}, seed {seed}");
        }
    }
}

/// Every operator that a type takes over 32 ranks of one switch, of no elements and of one more than fills a packet.
fn thirty_two_ranks<T: Element>(make: impl Fn(f32) -> T) {
    for op in ReduceOp::ALL.into_iter().filter(|&op| op.takes(T::DTYPE)) {
        for elements in [0, 65] {
            let inputs = inputs(32, elements, &make);
            let job = job(32, 4, 64, &[("design", "tree")]);
            let sum = reduce(&mut star(1, lossy(), &job), &inputs, op);
            assert!(sum == expected(&inputs, op, &SumTree::star(32)), "{op} of {elements} {}", T::DTYPE);
        }
    }
}

/// 1,000,007 elements are summed in the design that auto takes for 4 MB: one buffer. Small numbers, so that sums are
/// exact in any order.
fn a_million_and_seven<T: Element>(op: ReduceOp, make: impl Fn(f32) -> T) {
    let inputs = whole(3, 1_000_007, make);
    let sum = reduce(&mut star(1, LinkConfig::default(), &job(3, 64, 358, &[])), &inputs, op);
    assert!(sum == expected(&inputs, op, &SumTree::star(3)), "{op} of {}", T::DTYPE);
}

#[test]
fn every_type_and_operator_over_thirty_two_ranks() {
    thirty_two_ranks(|value| value);
    thirty_two_ranks(f64::from);
    thirty_two_ranks(f16::from_f32);
    thirty_two_ranks(bf16::from_f32);
    thirty_two_ranks(|value| value as i8);
    thirty_two_ranks(|value| value as u8);
    thirty_two_ranks(|value| value as i16);
    thirty_two_ranks(|value| value as i32);
    thirty_two_ranks(|value| (value as i64).wrapping_mul(0x1_0000_0001));
}

/// Each type with another operator: each operator is there, and small sums above have every pair.
#[test]
fn a_million_and_seven_elements_of_every_type() {
    a_million_and_seven(ReduceOp::Sum, |value| value);
    a_million_and_seven(ReduceOp::Avg, f64::from);
    a_million_and_seven(ReduceOp::Min, f16::from_f32);
    a_million_and_seven(ReduceOp::Max, bf16::from_f32);
    a_million_and_seven(ReduceOp::Prod, |value| value as i8);
    a_million_and_seven(ReduceOp::Band, |value| value as u8);
    a_million_and_seven(ReduceOp::Bor, |value| value as i16);
    a_million_and_seven(ReduceOp::Avg, |value| value as i32);
    a_million_and_seven(ReduceOp::Bxor, |value| value as i64);
}

#[test]
fn a_tensor_of_no_elements_is_a_barrier() {
    for design in DESIGNS {
        let job = job(3, 4, 16, &[("design", design)]);
        assert!(reduce(&mut star(1, lossy(), &job), &vec![Vec::<f32>::new(); 3], ReduceOp::Sum).is_empty());
    }
}

/// No exponent is agreed on, whatever the floats are: a block is one packet each way, the first one too.
#[test]
fn the_first_block_takes_one_round_trip() {
    let job = job(4, 8, 64, &[]);
    let mut network = star(1, LinkConfig::default(), &job);
    let sum = reduce(&mut network, &vec![vec![2.5f32, 1e9, -0.0]; 4], ReduceOp::Sum);
    assert_eq!(sum, vector(&[10.0f32, 4e9, -0.0]));
    assert!(network.hosts.iter().all(|host| host.machine.stats().packets_sent == 1));
}
