//! The bits of a sum are those of the tree, whatever is lost, late or doubled, and in whatever order ranks begin.

use tributary_numeric::{DType, Element, ReduceOp, bf16, f16};
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::sum_tree::SumTree;

use crate::harness::hosts::separate;
use crate::harness::link::{LinkConfig, SplitMix};
use crate::harness::reduction::{at_ms, expected, in_place, output, reduce, star, vector};
use crate::setup::{faulty, floats, job, racks, reference_of_racks, retransmissions};

#[test]
fn the_bits_are_those_of_the_tree_for_every_world_size_and_length() {
    for world_size in [1u16, 2, 3, 8, 32] {
        for elements in [0, 1, 63, 64, 65, 1_000, 10_007] {
            let inputs: Vec<Vec<f32>> = (0..usize::from(world_size)).map(|rank| floats(rank, elements)).collect();
            let mut network = star(1, LinkConfig::default(), &job(world_size, 2, 16, 64));
            let sum = reduce(&mut network, &inputs, ReduceOp::Sum);
            assert!(
                sum == expected(&inputs, ReduceOp::Sum, &SumTree::star(world_size)),
                "{elements} over {world_size}"
            );
            assert_eq!(retransmissions(&network), 0);
        }
    }
}

#[test]
fn twenty_runs_with_faults_and_random_beginnings_give_one_result() {
    for world_size in [1u16, 2, 3, 8, 32] {
        let elements = 3_001;
        let inputs: Vec<Vec<f32>> = (0..usize::from(world_size)).map(|rank| floats(rank, elements)).collect();
        let right = expected(&inputs, ReduceOp::Sum, &SumTree::star(world_size));
        let mut sent_again = 0;
        for seed in 0..20 {
            let mut network = star(seed, faulty(), &job(world_size, 3, 12, 64));
            let mut rng = SplitMix(seed);
            for (rank, input) in inputs.iter().enumerate() {
                network.submit_at(at_ms(rng.below(30)), rank, in_place(input, ReduceOp::Sum));
            }
            let sum = output(network.run_until_idle(at_ms(10_000_000)), DType::F32, elements);
            assert!(sum == right, "seed {seed}, {world_size} ranks");
            sent_again += retransmissions(&network);
        }
        assert!(sent_again > 0, "something was lost among {world_size} ranks");
    }
}

/// Results that are written apart leave the input to a rewind. Some losses are only seen when the tensor has gone back.
#[test]
fn inputs_separate_from_their_outputs_are_sent_again_while_and_after_they_are_there() {
    const ROUNDS: usize = 6;
    let (world_size, elements) = (3, 150);
    let rounds: Vec<Vec<Vec<f32>>> =
        (0..ROUNDS).map(|round| (0..world_size).map(|rank| floats(rank + 5 * round, elements)).collect()).collect();
    let mut sent_again = 0;
    for seed in 0..40 {
        let mut network = star(seed, faulty(), &job(world_size as u16, 2, 12, 16));
        for (round, inputs) in rounds.iter().enumerate() {
            for (rank, input) in inputs.iter().enumerate() {
                // In between is one in place, as a caller may mix them.
                let collective =
                    if round == 2 { in_place(input, ReduceOp::Sum) } else { separate(input.clone(), ReduceOp::Sum) };
                network.submit(rank, collective).unwrap();
            }
        }
        let mut events = network.run_until_idle(at_ms(10_000_000));
        for inputs in rounds.iter().rev() {
            let round = events.iter_mut().map(|events| vec![events.pop().expect("a result of each round")]).collect();
            let right = expected(inputs, ReduceOp::Sum, &SumTree::star(world_size as u16));
            assert!(output(round, DType::F32, elements) == right, "seed {seed}");
        }
        sent_again += retransmissions(&network);
    }
    assert!(sent_again > 0, "something was lost");
}

#[test]
fn in_levels_the_bits_are_those_of_the_levels() {
    let inputs: Vec<Vec<f32>> = (0..6).map(|rank| floats(rank, 1_000)).collect();
    let right = expected(&inputs, ReduceOp::Sum, &reference_of_racks(2, 6));
    assert!(right != expected(&inputs, ReduceOp::Sum, &SumTree::star(6)), "the tree is in the bits");
    for (seed, link) in [(1, LinkConfig::default()), (2, faulty()), (3, faulty()), (4, faulty())] {
        let job = JobConfig { levels: true, ..job(6, 2, 8, 16) };
        assert!(reduce(&mut racks(seed, link, 2, &job), &inputs, ReduceOp::Sum) == right, "seed {seed}");
    }
}

/// Every type with every operator that it takes, against the same along the tree at home.
#[test]
fn every_type_and_operator_is_summed_under_faults_and_in_levels() {
    fn check<T: Element>(make: impl Fn(f32) -> T) {
        let inputs: Vec<Vec<T>> = (0..4).map(|rank| floats(rank, 100).into_iter().map(&make).collect()).collect();
        for op in ReduceOp::ALL.into_iter().filter(|&op| op.takes(T::DTYPE)) {
            let sum = reduce(&mut star(7, faulty(), &job(4, 2, 8, 16)), &inputs, op);
            assert!(sum == expected(&inputs, op, &SumTree::star(4)), "{op} of {}", T::DTYPE);
            let levels = JobConfig { levels: true, ..job(4, 2, 8, 16) };
            let sum = reduce(&mut racks(7, faulty(), 2, &levels), &inputs, op);
            assert!(sum == expected(&inputs, op, &reference_of_racks(2, 4)), "{op} of {} in levels", T::DTYPE);
        }
    }
    check(|value| value);
    check(f64::from);
    check(f16::from_f32);
    check(bf16::from_f32);
    check(|value| value as i32);
    check(|value| value as i8);
    check(|value| value as i64);
}

#[test]
fn special_values_come_out_as_ieee_754_says() {
    let (inf, nan, tiny) = (f32::INFINITY, f32::NAN, f32::from_bits(1));
    let odd_nan = f32::from_bits(0xFFC0_1234);
    let a = vec![inf, inf, -0.0, -0.0, tiny, nan, odd_nan, 1.0];
    let b = vec![1.0, -inf, -0.0, 0.0, tiny, 1.0, 2.0, f32::from_bits(0x3380_0000)];
    let sum = reduce(&mut star(1, LinkConfig::default(), &job(2, 1, 4, 16)), &[a, b], ReduceOp::Sum);
    let canonical = f32::from_bits(0x7FC0_0000);
    let right = [inf, canonical, -0.0, 0.0, f32::from_bits(2), canonical, canonical, 1.0 + 2f32.powi(-24)];
    assert_eq!(sum, vector(&right));
}

#[test]
fn a_small_tensor_takes_one_round_trip() {
    let mut network = star(1, LinkConfig::default(), &job(4, 1, 8, 64));
    let inputs: Vec<Vec<f32>> = (0..4).map(|rank| floats(rank, 64)).collect();
    reduce(&mut network, &inputs, ReduceOp::Sum);
    assert!(network.hosts.iter().all(|host| host.machine.stats().packets_sent == 1));
}
