//! Every type and operator, sizes and densities from nothing to all.

use tributary_numeric::{Element, ReduceOp, bf16, f16};

use super::{Pairs, drawn, expected, job, reduce, whole};
use crate::harness::link::LinkConfig;
use crate::harness::reduction::star;
use crate::setup::{floats, lossy};

const STORAGES: [&str; 3] = ["auto", "hash", "array"];

/// Small packets, so that blocks have several shards; few slots in the tables, so that some spill; and loss.
fn every_operator<T: Element>(is_exact: bool, make: impl Fn(f32) -> T + Copy) {
    for (world_size, storage) in
        [1, 2, 3, 8].into_iter().flat_map(|world_size| STORAGES.map(|storage| (world_size, storage)))
    {
        let given = [("sparse", storage), ("span", "32"), ("hash_slots", "8")];
        let job = job(world_size, 2, 16, &given);
        for size in [0, 1, 63, 64, 65] {
            let odd = drawn(u64::from(size), world_size, size, 0.4, |rank, index| {
                make(floats(rank, size as usize)[index as usize])
            });
            let exact = drawn(u64::from(size), world_size, size, 0.4, |rank, index| make(whole(rank, index)));
            for op in ReduceOp::ALL.into_iter().filter(|&op| op.takes(T::DTYPE)) {
                let in_any_order = is_exact || matches!(op, ReduceOp::Min | ReduceOp::Max);
                // Products of floats depend on the order; their sums, of whole numbers, do not.
                let inputs = match (in_any_order, op) {
                    (true, _) => &odd,
                    (false, ReduceOp::Prod) if world_size > 2 => continue,
                    (false, ReduceOp::Prod) => &odd,
                    _ => &exact,
                };
                let sum = reduce(&mut star(1, lossy(), &job), inputs, size, op);
                assert!(sum == expected(inputs, op), "{op} of {size} {}, {storage}, {world_size} ranks", T::DTYPE);
            }
        }
    }
}

#[test]
fn floats_of_32_and_64_bits() {
    every_operator(false, |value| value);
    every_operator(false, f64::from);
}

#[test]
fn floats_of_16_bits() {
    every_operator(false, f16::from_f32);
    every_operator(false, bf16::from_f32);
}

#[test]
fn integers() {
    every_operator(true, |value| value as i8);
    every_operator(true, |value| value as u8);
    every_operator(true, |value| value as i16);
    every_operator(true, |value| value as i32);
    every_operator(true, |value| (value as i64).wrapping_mul(0x1_0000_0001));
}

/// Whatever the hint says: from nothing to all, and one rank with all while others have nothing.
#[test]
fn every_density_under_loss() {
    for storage in STORAGES {
        let job = job(3, 4, 32, &[("sparse", storage)]);
        for density in [0.0, 0.001, 0.01, 0.1, 0.5, 1.0] {
            let inputs = drawn(7, 3, 5_003, density, whole);
            let sum = reduce(&mut star(3, lossy(), &job), &inputs, 5_003, ReduceOp::Sum);
            assert!(sum == expected(&inputs, ReduceOp::Sum), "{storage}, {density}");
        }
        let mut lopsided: Vec<Pairs<f32>> = drawn(7, 3, 5_003, 1.0, whole);
        lopsided[0].clear();
        lopsided[2].truncate(1);
        let sum = reduce(&mut star(4, lossy(), &job), &lopsided, 5_003, ReduceOp::Sum);
        assert!(sum == expected(&lopsided, ReduceOp::Sum), "{storage}");
    }
}

#[test]
fn a_million_and_seven_elements_at_one_percent_and_all_of_them() {
    let job = job(3, 16, 358, &[]);
    for (density, size) in [(0.01, 1_000_007), (1.0, 100_007)] {
        let inputs = drawn(11, 3, size, density, |rank, index| whole(rank, index) as i32);
        let sum = reduce(&mut star(1, LinkConfig::default(), &job), &inputs, size, ReduceOp::Avg);
        assert!(sum == expected(&inputs, ReduceOp::Avg), "{density}");
    }
}

/// What is there is not told by its value: zeros that ranks bring, and those that come of their sum, are elements.
#[test]
fn a_sum_that_cancels_to_zero_stays_an_element() {
    for storage in STORAGES {
        let job = job(2, 2, 32, &[("sparse", storage)]);
        let inputs = vec![vec![(3, 2.5f32), (7, -0.0)], vec![(3, -2.5), (9, 0.0)]];
        let sum = reduce(&mut star(1, LinkConfig::default(), &job), &inputs, 10, ReduceOp::Sum);
        assert_eq!(sum.keys().copied().collect::<Vec<_>>(), [3, 7, 9], "{storage}");
        assert!(sum == expected(&inputs, ReduceOp::Sum), "{storage}");
    }
}

/// Blocks by slots in several shards of the switch, and collectives one after the other in one stream.
#[test]
fn collectives_of_many_blocks_over_several_shards_follow_one_another() {
    let job = tributary_proto::contract::config::JobConfig { trees: 4, ..job(5, 8, 16, &[("span", "50")]) };
    let mut network = star(5, lossy(), &job);
    for round in 0..4 {
        let size = [1_003, 0, 1, 4_000][round];
        let inputs = drawn(round as u64, 5, size, 0.2, whole);
        let sum = reduce(&mut network, &inputs, size, ReduceOp::Sum);
        assert!(sum == expected(&inputs, ReduceOp::Sum), "round {round}");
        network.hosts.iter_mut().for_each(|host| host.events.clear());
    }
}
