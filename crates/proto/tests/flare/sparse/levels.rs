//! Switches in levels: what a leaf sends on are shards like a rank's, and sums come down through it.

use tributary_numeric::{ReduceOp, bf16};

use super::{drawn, expected, job, metric, reduce, whole};
use crate::harness::link::LinkConfig;
use crate::setup::{lossy, racks};

const RACKS: [&[u16]; 3] = [&[0, 3, 4], &[1], &[2, 5, 6, 7]];

#[test]
fn each_storage_sums_each_contribution_once_in_levels() {
    for storage in ["auto", "hash", "array"] {
        for (seed, link) in [(1, LinkConfig::default()), (2, lossy()), (3, lossy())] {
            let job = job(8, 4, 32, &[("sparse", storage), ("span", "200"), ("hash_slots", "40")]);
            let floats = drawn(seed, 8, 1_003, 0.2, |rank, index| bf16::from_f32(whole(rank, index).trunc()));
            let sum = reduce(&mut racks(seed, link, &job, &RACKS), &floats, 1_003, ReduceOp::Sum);
            assert!(sum == expected(&floats, ReduceOp::Sum), "bf16, {storage}, seed {seed}");
            let integers = drawn(seed, 8, 1_003, 0.2, |rank, index| i64::from(index) << rank);
            let sum = reduce(&mut racks(seed, link, &job, &RACKS), &integers, 1_003, ReduceOp::Avg);
            assert!(sum == expected(&integers, ReduceOp::Avg), "i64, {storage}, seed {seed}");
        }
    }
}

/// Everything collides in the leaves and at the root, which has as little room: shards are refused, and come again.
#[test]
fn tables_of_one_slot_at_every_level_lose_nothing() {
    for (seed, link) in [(1, LinkConfig::default()), (2, lossy()), (3, lossy())] {
        let given = [("sparse", "hash"), ("span", "400"), ("hash_slots", "1"), ("spill", "2")];
        let job = job(8, 2, 16, &given);
        let inputs = drawn(seed, 8, 1_000, 0.3, whole);
        let mut network = racks(seed, link, &job, &RACKS);
        let sum = reduce(&mut network, &inputs, 1_000, ReduceOp::Sum);
        assert!(sum == expected(&inputs, ReduceOp::Sum), "seed {seed}");
        assert!(metric(&network, 0, "shards_refused") > 0.0);
    }
}

/// §7: sparse data get denser on their way, and a rack's switch sends each index once that does not collide.
#[test]
fn a_rack_sends_the_union_of_its_ranks() {
    let job = job(8, 4, 358, &[("sparse", "array")]);
    let inputs = drawn(1, 8, 50_000, 0.01, whole);
    let mut network = racks(1, LinkConfig::default(), &job, &RACKS);
    reduce(&mut network, &inputs, 50_000, ReduceOp::Sum);
    for (rack, ranks) in RACKS.iter().enumerate() {
        let below: Vec<_> = ranks.iter().map(|&rank| inputs[usize::from(rank)].clone()).collect();
        let union = expected(&below, ReduceOp::Sum).len() as f64;
        assert_eq!(metric(&network, 1 + rack, "elements_out"), union, "rack {rack}");
    }
}
