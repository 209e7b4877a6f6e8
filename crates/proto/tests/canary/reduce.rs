//! A reduce (§6): one rank leads all blocks and gets the sum; no other is sent a vector, and nothing is left behind.

use tributary_numeric::{Element, ReduceOp};
use tributary_proto::canary::wire::Kind;
use tributary_proto::contract::host::{Collective, HostEvent};
use tributary_proto::contract::ids::{NodeId, Rank};
use tributary_proto::contract::time::Span;
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use crate::fabric::{Fabric, bad_cables};
use crate::results::{collective, expected, input, output};
use crate::setup::{switch_config, switch_with};

const PATIENCE: Span = Span::from_millis(50);

pub fn to<T: Element>(rank: usize, values: Vec<T>, op: ReduceOp) -> Collective {
    let tensor = ElementTensor::new(InPlaceStorage::new(values), op).to(Rank(rank as u16));
    Collective { tensor: Box::new(tensor), deadline: None }
}

/// A reduce of integers to a rank; the others keep what they had.
fn reduce(fabric: &mut Fabric, destination: usize, elements: usize, patience: Span) {
    let world_size = fabric.hosts.len();
    (0..world_size).for_each(|rank| fabric.submit(rank, to(destination, input(rank, elements), ReduceOp::Sum)));
    fabric.run(patience);
    for (rank, events) in fabric.events.iter_mut().enumerate() {
        let has = if rank == destination { expected(world_size, elements) } else { input(rank, elements) };
        assert_eq!(output::<i32>(events), has, "rank {rank} of {world_size}, for {destination}");
    }
}

#[test]
fn one_rank_gets_the_sum_and_the_others_keep_their_input() {
    for (leaves, spines, per_leaf) in [(1, 1, 1), (1, 1, 2), (1, 2, 4), (2, 2, 3), (4, 3, 2)] {
        for elements in [0, 1, 9, 500] {
            for destination in [0, (leaves * per_leaf - 1) as usize] {
                let mut fabric = Fabric::leaf_spine(leaves, spines, per_leaf, 16, switch_config());
                reduce(&mut fabric, destination, elements, PATIENCE);
                assert_eq!(fabric.in_use(), 0, "{leaves} x {spines} x {per_leaf}, {elements} elements");
            }
        }
    }
}

#[test]
fn contributions_go_to_that_rank_and_no_vector_comes_back() {
    let mut fabric = Fabric::leaf_spine(2, 2, 3, 16, switch_config());
    let elements = 8 * 40;
    reduce(&mut fabric, 4, elements, PATIENCE);
    let vectors = fabric.sent.iter().filter(|sent| sent.kind == Kind::Reduce && sent.header.spec.elements > 0);
    assert!(vectors.map(|sent| sent.header.destination).all(|leader| leader == NodeId(4)));
    let sums = fabric.sent.iter().filter(|sent| sent.kind == Kind::Broadcast && sent.header.spec.elements > 0);
    assert!(sums.map(|sent| sent.vector_bytes()).all(|bytes| bytes == 0));
}

#[test]
fn floats_agree_on_exponents_although_no_sum_comes_back() {
    let mut fabric = Fabric::leaf_spine(2, 2, 2, 4, switch_config());
    let value = |rank: usize, i: usize| (rank + 1) as f32 * 2f32.powi((i / 8 % 24) as i32 - 12);
    for round in 0..3 {
        for rank in 0..4 {
            fabric.submit(rank, to(2, (0..300).map(|i| value(rank, i)).collect::<Vec<f32>>(), ReduceOp::Sum));
        }
        fabric.run(PATIENCE);
        let sum: Vec<f32> = output(&mut fabric.events[2]);
        assert!(sum.iter().enumerate().all(|(i, &sum)| sum == 10.0 * value(0, i)), "round {round}: {sum:?}");
        for rank in [0, 1, 3] {
            let kept: Vec<f32> = output(&mut fabric.events[rank]);
            assert!(kept.iter().enumerate().all(|(i, &kept)| kept == value(rank, i)), "round {round}, rank {rank}");
        }
    }
    assert_eq!(fabric.in_use(), 0);
}

/// Leaders change at every border between collectives, within the window.
#[test]
fn reduces_to_different_ranks_and_sums_for_all_follow_each_other() {
    let mut fabric = Fabric::leaf_spine(2, 2, 2, 8, switch_config());
    let sizes = [3usize, 100, 8, 17, 64, 1, 0, 200, 30, 9];
    let destination = |turn: usize| [None, Some(1), Some(2)][turn % 3].map(|root| (root + turn) % 4);
    for rank in 0..4 {
        for (turn, &size) in sizes.iter().enumerate() {
            let values = input(rank, size);
            fabric.submit(
                rank,
                match destination(turn) {
                    Some(root) => to(root, values, ReduceOp::Sum),
                    None => collective(values, ReduceOp::Sum),
                },
            );
        }
    }
    fabric.run(PATIENCE);
    for (turn, &size) in sizes.iter().enumerate() {
        for rank in 0..4 {
            let gets = destination(turn).is_none_or(|root| root == rank);
            let has = if gets { expected(4, size) } else { input(rank, size) };
            assert_eq!(output::<i32>(&mut fabric.events[rank]), has, "collective {turn}, rank {rank}");
        }
    }
    assert_eq!(fabric.in_use(), 0);
}

#[test]
fn losses_late_packets_doubles_and_collisions_cost_no_element() {
    for seed in 0..60u64 {
        let config = switch_with(&[("descriptors", ["1", "3", "1024"][seed as usize % 3])]);
        let mut fabric = Fabric::leaf_spine(2, 2, 2, 4, config);
        fabric.fate = bad_cables(seed);
        reduce(&mut fabric, seed as usize % 4, 300, Span::from_millis(1000));
        assert_eq!(fabric.in_use(), 0, "seed {seed}");
    }
}

#[test]
fn a_switch_that_restarts_costs_only_time() {
    let mut fabric = Fabric::leaf_spine(2, 2, 2, 4, switch_config());
    (0..4).for_each(|rank| fabric.submit(rank, to(1, input(rank, 400), ReduceOp::Sum)));
    fabric.run(Span::from_micros(20));
    fabric.restart(0);
    fabric.run(PATIENCE);
    let HostEvent::Done { .. } = &fabric.events[0][0] else { panic!("it failed") };
    assert_eq!(output::<i32>(&mut fabric.events[1]), expected(4, 400));
    assert_eq!(fabric.in_use(), 0);
}
