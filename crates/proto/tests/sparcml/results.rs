//! Exact sums of every type, size and density, whatever the network does.

use tributary_numeric::{Element, ReduceOp, bf16, f16};

use crate::harness::hosts::{check_sums, collective as integers, reduce as reduce_dense};
use crate::harness::link::LinkConfig;
use crate::harness::reduction::{at_ms, star};
use crate::harness::sparse::{Pairs, drawn, expected, reduce, whole};
use crate::setup::{ALGORITHMS, dense_job, lossy, sparse_job};

/// Small packets, so that messages have several pieces, and loss. Whole numbers: their sums are exact in any order.
fn every_operator<T: Element>(make: impl Fn(f32) -> T + Copy) {
    for (world_size, algorithm) in
        [1, 2, 3, 5, 8].into_iter().flat_map(|world_size| ALGORITHMS.map(|name| (world_size, name)))
    {
        let job = sparse_job(world_size, 16, algorithm);
        for size in [0, 1, 63, 64, 65] {
            let inputs = drawn(u64::from(size), world_size, size, 0.4, |rank, index| make(whole(rank, index)));
            for op in ReduceOp::ALL.into_iter().filter(|&op| op.takes(T::DTYPE)) {
                // Products of floats depend on the order.
                if op == ReduceOp::Prod && T::DTYPE.is_float() && world_size > 2 {
                    continue;
                }
                let sum = reduce(&mut star(1, lossy(), &job), &inputs, size, op);
                assert!(sum == expected(&inputs, op), "{op} of {size} {}, {algorithm}, {world_size} ranks", T::DTYPE);
            }
        }
    }
}

#[test]
fn floats() {
    every_operator(|value| value);
    every_operator(f64::from);
    every_operator(f16::from_f32);
    every_operator(bf16::from_f32);
}

#[test]
fn integers_of_every_width() {
    every_operator(|value| value as i8);
    every_operator(|value| value as u8);
    every_operator(|value| value as i16);
    every_operator(|value| value as i32);
    every_operator(|value| (value as i64).wrapping_mul(0x1_0000_0001));
}

/// Streams become dense on the way at 10 to 50 %, and are so from the start at 100 %; one rank has all while another
/// has nothing.
#[test]
fn every_density_under_loss() {
    for (world_size, algorithm) in [3, 8].into_iter().flat_map(|world_size| ALGORITHMS.map(|name| (world_size, name))) {
        let job = sparse_job(world_size, 32, algorithm);
        for density in [0.0, 0.001, 0.01, 0.1, 0.5, 1.0] {
            let inputs = drawn(7, world_size, 5_003, density, whole);
            let sum = reduce(&mut star(3, lossy(), &job), &inputs, 5_003, ReduceOp::Sum);
            assert!(sum == expected(&inputs, ReduceOp::Sum), "{algorithm}, {density}, {world_size} ranks");
        }
        let mut lopsided: Vec<Pairs<f32>> = drawn(7, world_size, 5_003, 1.0, whole);
        lopsided[0].clear();
        lopsided[2].truncate(1);
        let sum = reduce(&mut star(4, lossy(), &job), &lopsided, 5_003, ReduceOp::Min);
        assert!(sum == expected(&lopsided, ReduceOp::Min), "{algorithm}, {world_size} ranks");
    }
}

/// What is there is not told by its value: zeros that ranks bring, and those that come of their sum, are elements.
#[test]
fn a_sum_that_cancels_to_zero_stays_an_element() {
    for algorithm in ALGORITHMS {
        let inputs = vec![vec![(3, 2.5f32), (7, -0.0)], vec![(3, -2.5), (9, 0.0)]];
        let job = sparse_job(2, 32, algorithm);
        let sum = reduce(&mut star(1, LinkConfig::default(), &job), &inputs, 10, ReduceOp::Sum);
        assert_eq!(sum.keys().copied().collect::<Vec<_>>(), [3, 7, 9], "{algorithm}");
        assert!(sum == expected(&inputs, ReduceOp::Sum), "{algorithm}");
    }
}

/// `reduce` compares the ranks' bits.
#[test]
fn floats_whose_sum_depends_on_the_order_are_the_same_on_all_ranks() {
    for (world_size, algorithm) in
        [3, 7, 8].into_iter().flat_map(|world_size| ALGORITHMS.map(|name| (world_size, name)))
    {
        let inputs =
            drawn(5, world_size, 2_000, 0.3, |rank, index| 10f32.powi((rank as i32 * 7 + index as i32) % 9 - 4));
        reduce(&mut star(1, lossy(), &sparse_job(world_size, 64, algorithm)), &inputs, 2_000, ReduceOp::Sum);
    }
}

#[test]
fn dense_tensors_of_every_length_for_every_world_size() {
    for (world_size, algorithm) in
        [1, 2, 3, 8, 32].into_iter().flat_map(|world_size| ALGORITHMS.map(|name| (world_size, name)))
    {
        let mut net = star(1, LinkConfig::default(), &dense_job(world_size, 64, algorithm));
        reduce_dense(&mut net, &[0, 1, 63, 64, 65, 20_000], at_ms(60_000));
    }
}

#[test]
fn loss_duplicates_reordering_and_corruption_do_not_change_a_sum() {
    let faults = [
        LinkConfig { loss: 0.2, ..LinkConfig::default() },
        LinkConfig { duplicate: 0.3, reorder: 0.3, ..LinkConfig::default() },
        LinkConfig { loss: 0.05, duplicate: 0.1, reorder: 0.2, corrupt: 0.01, ..LinkConfig::default() },
        LinkConfig { queue_bytes: 20_000, ..LinkConfig::default() },
        LinkConfig { queue_bytes: 200_000, mark_bytes: 30_000, ..LinkConfig::default() },
    ];
    for (seed, link) in faults.into_iter().enumerate() {
        for (world_size, algorithm) in
            [2, 5, 16].into_iter().flat_map(|world_size| ALGORITHMS.map(|name| (world_size, name)))
        {
            let mut net = star(seed as u64, link, &dense_job(world_size, 64, algorithm));
            reduce_dense(&mut net, &[20_000, 0, 3, 100], at_ms(60_000));
        }
    }
}

#[test]
fn many_more_collectives_than_may_be_under_way_complete_in_order() {
    for algorithm in ALGORITHMS {
        reduce_dense(&mut star(1, lossy(), &dense_job(5, 64, algorithm)), &[5; 300], at_ms(60_000));
    }
}

#[test]
fn a_straggler_delays_all_and_loses_nothing() {
    let sizes = [100_000, 10, 0, 5_000];
    for (world_size, algorithm) in
        [2, 3, 8].into_iter().flat_map(|world_size| ALGORITHMS.map(|name| (world_size, name)))
    {
        let mut net = star(1, LinkConfig::default(), &dense_job(world_size, 64, algorithm));
        for (op, &elements) in sizes.iter().enumerate() {
            for rank in 0..world_size {
                let at = if rank == 1 { at_ms(500 + 10 * op as u64) } else { at_ms(1) };
                net.submit_at(at, usize::from(rank), integers(rank, op as u64, elements, None));
            }
        }
        check_sums(net.run_until_idle(at_ms(3_000)), &sizes);
    }
}
