//! A broadcast (§6): its source leads all blocks; others only say where they are, and get its words as they are.

use tributary_numeric::ReduceOp;
use tributary_proto::canary::wire::Kind;
use tributary_proto::contract::host::Collective;
use tributary_proto::contract::ids::{NodeId, Rank};
use tributary_proto::contract::time::{Span, Time};
use tributary_proto::tensors::{ElementTensor, InPlaceStorage};

use crate::fabric::{Fabric, Fate, bad_cables};
use crate::reduce::to;
use crate::results::{collective, expected, input, output};
use crate::setup::{switch_config, switch_with};

const PATIENCE: Span = Span::from_millis(50);

pub fn from(root: usize, values: Vec<i32>) -> Collective {
    let tensor = ElementTensor::new(InPlaceStorage::new(values), ReduceOp::Sum).from(Rank(root as u16));
    Collective { tensor: Box::new(tensor), deadline: None }
}

fn broadcast(fabric: &mut Fabric, root: usize, elements: usize, patience: Span) {
    let world_size = fabric.hosts.len();
    (0..world_size).for_each(|rank| fabric.submit(rank, from(root, input(rank, elements))));
    fabric.run(patience);
    for (rank, events) in fabric.events.iter_mut().enumerate() {
        assert_eq!(output::<i32>(events), input(root, elements), "rank {rank} of {world_size}, from {root}");
    }
}

#[test]
fn every_rank_gets_what_the_root_has() {
    for (leaves, spines, per_leaf) in [(1, 1, 1), (1, 1, 2), (1, 2, 4), (2, 2, 3), (4, 3, 2)] {
        for elements in [0, 1, 9, 500] {
            for root in [0, (leaves * per_leaf - 1) as usize] {
                let mut fabric = Fabric::leaf_spine(leaves, spines, per_leaf, 16, switch_config());
                broadcast(&mut fabric, root, elements, PATIENCE);
                assert_eq!(fabric.in_use(), 0, "{leaves} x {spines} x {per_leaf}, {elements} elements");
            }
        }
    }
}

/// Nobody but the source sends a vector, and it sends each once.
#[test]
fn the_source_sends_each_block_once_and_the_others_send_headers() {
    let mut fabric = Fabric::leaf_spine(2, 2, 3, 16, switch_config());
    broadcast(&mut fabric, 4, 8 * 40, PATIENCE);
    let about_it = || fabric.sent.iter().filter(|sent| sent.header.spec.elements > 0);
    assert!(about_it().filter(|sent| sent.kind == Kind::Reduce).all(|sent| sent.vector_bytes() == 0));
    assert!(about_it().filter(|sent| sent.kind == Kind::Reduce).all(|sent| sent.header.destination == NodeId(4)));
    let by_source = about_it().filter(|sent| sent.kind == Kind::Broadcast && sent.from == NodeId(4));
    assert_eq!(by_source.map(|sent| sent.vector_bytes()).sum::<usize>(), 4 * 8 * 40);
}

#[test]
fn broadcasts_reduces_and_sums_follow_each_other() {
    let mut fabric = Fabric::leaf_spine(2, 2, 2, 8, switch_config());
    let sizes = [3usize, 100, 8, 17, 64, 1, 0, 200, 30, 9, 77, 8];
    for rank in 0..4 {
        for (turn, &size) in sizes.iter().enumerate() {
            let (values, root) = (input(rank, size), turn * 5 % 4);
            fabric.submit(
                rank,
                match turn % 3 {
                    0 => from(root, values),
                    1 => to(root, values, ReduceOp::Sum),
                    _ => collective(values, ReduceOp::Sum),
                },
            );
        }
    }
    fabric.run(PATIENCE);
    for (turn, &size) in sizes.iter().enumerate() {
        for rank in 0..4 {
            let root = turn * 5 % 4;
            let has = match turn % 3 {
                0 => input(root, size),
                1 if rank != root => input(rank, size),
                _ => expected(4, size),
            };
            assert_eq!(output::<i32>(&mut fabric.events[rank]), has, "collective {turn}, rank {rank}");
        }
    }
    assert_eq!(fabric.in_use(), 0);
}

#[test]
fn losses_late_packets_doubles_and_collisions_change_no_bit() {
    for seed in 0..60u64 {
        let config = switch_with(&[("descriptors", ["1", "3", "1024"][seed as usize % 3])]);
        let mut fabric = Fabric::leaf_spine(2, 2, 2, 4, config);
        fabric.fate = bad_cables(seed);
        broadcast(&mut fabric, seed as usize % 4, 300, Span::from_millis(1000));
        assert_eq!(fabric.in_use(), 0, "seed {seed}");
    }
}

#[test]
fn a_switch_that_restarts_costs_only_time() {
    let mut fabric = Fabric::leaf_spine(2, 2, 2, 4, switch_config());
    (0..4).for_each(|rank| fabric.submit(rank, from(1, input(rank, 400))));
    fabric.run(Span::from_micros(20));
    fabric.restart(0);
    fabric.run(PATIENCE);
    for events in &mut fabric.events {
        assert_eq!(output::<i32>(events), input(1, 400));
    }
    assert_eq!(fabric.in_use(), 0);
}

/// The source keeps what it has sent for those who ask: its caller may write on as soon as it is done.
#[test]
fn the_source_may_change_its_data_as_soon_as_it_is_done() {
    let mut fabric = Fabric::leaf_spine(1, 1, 3, 8, switch_config());
    let mut sums = 0;
    fabric.fate = Box::new(move |sent| {
        let is_first_sum = sent.kind == Kind::Broadcast && sent.vector_bytes() > 0 && sent.header.multicast;
        sums += u32::from(is_first_sum);
        if is_first_sum && sums == 1 { Fate::IsLost } else { Fate::Arrives }
    });
    (0..3).for_each(|rank| fabric.submit(rank, from(0, input(rank, 8))));
    fabric.run(Span::from_micros(100));
    assert_eq!(output::<i32>(&mut fabric.events[0]), input(0, 8), "its memory is back before others have the words");
    assert!(fabric.events[1].is_empty());
    fabric.run(PATIENCE);
    for rank in [1, 2] {
        assert_eq!(output::<i32>(&mut fabric.events[rank]), input(0, 8));
    }
}

#[test]
fn a_rank_that_is_missing_is_named() {
    let mut fabric = Fabric::leaf_spine(2, 2, 2, 4, switch_config());
    for rank in [0, 1, 2] {
        let deadline = Some(Time::ZERO + Span::from_millis(20));
        fabric.submit(rank, Collective { deadline, ..from(1, input(rank, 20)) });
    }
    fabric.run(PATIENCE);
    for rank in [0, 2] {
        let error = crate::failure::error_of(&fabric.events[rank]).to_string();
        assert!(error.contains("rank 3 did not contribute"), "rank {rank}: {error}");
    }
}
