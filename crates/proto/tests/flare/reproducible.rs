//! One expression, whatever comes first (F3): where it is asked for the bits are those of the tree, and where it is not
//! they are not always the same.

use std::collections::BTreeSet;

use tributary_numeric::ReduceOp;
use tributary_proto::contract::config::JobConfig;
use tributary_proto::contract::metric::MetricValue;
use tributary_proto::contract::sum_tree::SumTree;
use tributary_proto::flare::PROTOCOL;
use tributary_proto::flare::wire::Order;

use crate::harness::Network;
use crate::harness::link::LinkConfig;
use crate::harness::reduction::{at_ms, expected, in_place, output, reduce, star};
use crate::setup::{inputs, job, lossy, order, racks, tree_of};

/// Ranks begin in an order that the seed draws, so that packets come in many orders.
fn scattered(mut network: Network, inputs: &[Vec<f32>], seed: u64, op: ReduceOp) -> (Vec<u8>, Option<u32>) {
    for (rank, input) in inputs.iter().enumerate() {
        let late = (seed * 31 + rank as u64 * 17) % 23;
        network.submit_at(at_ms(late), rank, in_place(input, op));
    }
    let events = network.run_until_idle(at_ms(10_000_000));
    (output(events, tributary_numeric::DType::F32, inputs[0].len()), order(&network))
}

#[test]
fn reproducible_sums_have_the_bits_of_the_tree_whatever_is_lost_or_late() {
    for world_size in [1u16, 2, 3, 5, 7, 8] {
        let inputs = inputs(world_size, 500, |value| value);
        for op in [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Prod] {
            let expected = expected(&inputs, op, &SumTree::star(world_size));
            for seed in 0..20 {
                let trees = if seed % 2 == 0 { 1 } else { 4 };
                let job = JobConfig { trees, ..job(world_size, 8, 16, &[("reproducible", "tree")]) };
                let (sum, order) = scattered(star(seed, lossy(), &job), &inputs, seed, op);
                assert!(sum == expected, "{op} over {world_size} ranks, seed {seed}");
                assert_eq!(order, Some(Order::of(&SumTree::star(world_size)).0));
            }
        }
    }
}

#[test]
fn in_levels_bits_and_order_are_those_of_the_tree_of_switches() {
    let ranks: [&[u16]; 3] = [&[0, 3, 4], &[1], &[2, 5, 6]];
    let (tree, inputs) = (tree_of(&ranks), inputs(7, 500, |value| value));
    let expected = expected(&inputs, ReduceOp::Sum, &tree);
    for seed in 0..20 {
        let trees = if seed % 2 == 0 { 1 } else { 4 };
        let job = JobConfig { trees, ..job(7, 8, 16, &[("reproducible", "tree")]) };
        let (sum, order) = scattered(racks(seed, lossy(), &job, &ranks), &inputs, seed, ReduceOp::Sum);
        assert!(sum == expected, "seed {seed}");
        assert_eq!(order, Some(Order::of(&tree).0));
    }
}

/// If this fails, the tests above prove nothing.
#[test]
fn by_default_the_bits_depend_on_arrival_and_no_order_is_named() {
    let inputs = inputs(5, 500, |value| value);
    for design in ["single", "multi:2", "multi:4"] {
        let bits: BTreeSet<Vec<u8>> = (0..20)
            .map(|seed| {
                let job = job(5, 8, 16, &[("design", design)]);
                let (sum, order) = scattered(star(seed, lossy(), &job), &inputs, seed, ReduceOp::Sum);
                assert_eq!(order, None, "{design}");
                sum
            })
            .collect();
        assert!(bits.len() >= 2, "{design}: {} different sums", bits.len());
    }
}

#[test]
fn tensors_that_auto_would_sum_as_they_come_are_reproducible_on_request() {
    // 640 KiB.
    let inputs = inputs(3, 160 * 1024, |value| value);
    let tree = SumTree::star(3);
    let sum_of = |given: &[(&str, &str)]| {
        let mut network = star(1, LinkConfig::default(), &job(3, 64, 358, given));
        // The last comes first, and the second last: one of three orders that are not the tree's.
        for rank in [1, 2, 0] {
            network.submit_at(at_ms(10 * (rank as u64 + 2) % 30), rank, in_place(&inputs[rank], ReduceOp::Sum));
        }
        (output(network.run_until_idle(at_ms(10_000_000)), tributary_numeric::DType::F32, 160 * 1024), order(&network))
    };
    assert_eq!(
        sum_of(&[("reproducible", "tree")]),
        (expected(&inputs, ReduceOp::Sum, &tree), Some(Order::of(&tree).0))
    );
    let (bits, order) = sum_of(&[]);
    assert!(bits != expected(&inputs, ReduceOp::Sum, &tree) && order.is_none());
}

#[test]
fn a_design_that_depends_on_arrival_is_refused_where_sums_shall_not() {
    let read = |design: &str| {
        let given = [("design", design), ("reproducible", "tree")];
        PROTOCOL.options.read(&given.map(|(name, value)| (name.to_owned(), value.to_owned())).into())
    };
    assert_eq!(
        read("multi:4").unwrap_err().to_string(),
        "flare: sums in the design multi:4 depend on arrival: leave reproducible or design out"
    );
    assert!(read("single").is_err() && read("tree").is_ok() && read("auto").is_ok());
}

#[test]
fn the_switch_says_the_order_that_ranks_say() {
    let job = job(3, 8, 16, &[("reproducible", "tree")]);
    let mut network = star(1, LinkConfig::default(), &job);
    let metrics = |network: &Network| {
        network.switches[0].pipelines[0]
            .report(job.job)
            .and_then(|report| report.machine)
            .expect("it is installed")
            .metrics
    };
    assert!(metrics(&network).iter().all(|metric| metric.name != "order"), "nothing was summed yet");
    reduce(&mut network, &inputs(3, 100, |value| value), ReduceOp::Sum);
    let said = metrics(&network).into_iter().find(|metric| metric.name == "order").expect("an order");
    assert_eq!(said.value, MetricValue::Gauge(Order::of(&SumTree::star(3)).0.into()));
}

#[test]
fn the_order_is_that_of_each_collective() {
    // 4 bytes in a tree, and 600 KiB in one buffer, in one job.
    let mut network = star(1, LinkConfig::default(), &job(2, 64, 358, &[]));
    reduce(&mut network, &[vec![1.0f32], vec![2.0]], ReduceOp::Sum);
    assert_eq!(order(&network), Some(Order::of(&SumTree::star(2)).0));
    reduce(&mut network, &vec![vec![1.0f32; 150 * 1024]; 2], ReduceOp::Sum);
    assert_eq!(order(&network), None);
}
