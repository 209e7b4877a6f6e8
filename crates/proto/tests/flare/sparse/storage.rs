//! Tables that spill, down to one slot and one element a packet; blocks of one index; blocks that fill their packets
//! exactly.

use tributary_numeric::ReduceOp;

use super::{drawn, expected, job, metric, reduce, whole};
use crate::harness::link::LinkConfig;
use crate::harness::reduction::star;
use crate::setup::{lossy, racks};

#[test]
fn one_slot_and_spills_of_one_element_lose_nothing() {
    for (slots, spill) in [("1", "1"), ("1", "0"), ("1", "3"), ("7", "1"), ("7", "2")] {
        let given = [("sparse", "hash"), ("hash_slots", slots), ("spill", spill), ("span", "300")];
        let job = job(3, 2, 32, &given);
        for seed in 0..4 {
            let inputs = drawn(seed, 3, 1_000, 0.3, whole);
            let link = if seed == 0 { LinkConfig::default() } else { lossy() };
            let mut network = star(seed, link, &job);
            let sum = reduce(&mut network, &inputs, 1_000, ReduceOp::Sum);
            assert!(sum == expected(&inputs, ReduceOp::Sum), "{slots} slots, spills of {spill}, seed {seed}");
            assert!(metric(&network, 0, "elements_spilled") > 0.0);
        }
    }
}

#[test]
fn blocks_of_one_index() {
    for storage in ["hash", "array"] {
        let job = job(3, 4, 32, &[("sparse", storage), ("span", "1")]);
        let inputs = drawn(2, 3, 65, 0.5, whole);
        let sum = reduce(&mut star(1, lossy(), &job), &inputs, 65, ReduceOp::Sum);
        assert!(sum == expected(&inputs, ReduceOp::Sum), "{storage}");
    }
}

/// 32 elements of four bytes are 128 bytes: 21 pairs of six bytes. The last of full packets says how many there are,
/// both ways.
#[test]
fn a_block_of_exactly_some_full_packets_is_complete() {
    for storage in ["hash", "array"] {
        let job = job(2, 2, 32, &[("sparse", storage), ("span", "1000"), ("hash_slots", "1000")]);
        for packets in 1..5 {
            for pairs in [packets * 21 - 1, packets * 21, packets * 21 + 1] {
                let inputs = drawn(0, 2, pairs, 1.0, whole);
                let mut network = star(1, LinkConfig::default(), &job);
                let sum = reduce(&mut network, &inputs, 1_000, ReduceOp::Sum);
                assert!(sum == expected(&inputs, ReduceOp::Sum), "{pairs} pairs");
                for host in &network.hosts {
                    assert_eq!(host.machine.stats().packets_sent, u64::from(pairs.div_ceil(21)), "{pairs} pairs");
                    assert_eq!(host.machine.stats().packets_received, u64::from(pairs.div_ceil(21)), "{pairs} pairs");
                }
            }
        }
    }
}

/// More shards than a window, up and down: what has arrived is told on the way.
#[test]
fn a_block_may_have_more_shards_than_a_window() {
    for storage in ["hash", "array"] {
        for link in [LinkConfig::default(), lossy()] {
            let job = job(2, 1, 8, &[("sparse", storage), ("span", "2000"), ("hash_slots", "2000")]);
            let inputs = drawn(0, 2, 2_000, 1.0, whole);
            let sum = reduce(&mut star(1, link, &job), &inputs, 2_000, ReduceOp::Sum);
            assert!(sum == expected(&inputs, ReduceOp::Sum), "{storage}");
        }
    }
}

/// §7.1: an array never sends an index twice; a table does where elements collide.
#[test]
fn extra_traffic_is_what_spills() {
    let inputs = drawn(3, 8, 20_000, 0.01, whole);
    let distinct = expected(&inputs, ReduceOp::Sum).len() as f64;
    let out_of = |storage| {
        let mut network = star(1, LinkConfig::default(), &job(8, 8, 64, &[("sparse", storage), ("hash_slots", "64")]));
        let sum = reduce(&mut network, &inputs, 20_000, ReduceOp::Sum);
        assert!(sum == expected(&inputs, ReduceOp::Sum), "{storage}");
        assert_eq!(metric(&network, 0, "elements_in"), inputs.iter().map(Vec::len).sum::<usize>() as f64);
        metric(&network, 0, "elements_out")
    };
    assert_eq!(out_of("array"), distinct);
    assert!(out_of("hash") > distinct);
}

/// Tables that are far too small for what ranks bring refuse most of it. Who is refused brings fewer packets at a time,
/// and not all of its window again for each one that fits.
#[test]
fn a_table_that_refuses_slows_its_children_down() {
    let job = job(4, 8, 64, &[("density_ppm", "1000")]);
    let inputs = drawn(3, 4, 200_000, 0.2, whole);
    let mut network = racks(1, LinkConfig::default(), &job, &[&[0, 1], &[2, 3]]);
    let sum = reduce(&mut network, &inputs, 200_000, ReduceOp::Sum);
    assert!(sum == expected(&inputs, ReduceOp::Sum));
    let [sent, again] = network.hosts.iter().fold([0, 0], |[sent, again], host| {
        let stats = host.machine.stats();
        [sent + stats.packets_sent, again + stats.retransmissions]
    });
    assert!(metric(&network, 1, "shards_refused") + metric(&network, 2, "shards_refused") > 0.0);
    assert!(again < 2 * (sent - again), "{again} of {sent} packets were sent again");
}
