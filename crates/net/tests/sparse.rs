//! Sparse sums over real sockets on the loopback interface: of each index that any rank brings, the same on every rank.

use std::collections::BTreeMap;

use crate::support::{LocalSwitch, PATIENCE, on_every_rank};
use tributary_net::group::{ConnectOptions, Group, GroupError};
use tributary_numeric::ReduceOp;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;

fn protocol() -> &'static Protocol {
    protocols::ALL.iter().copied().find(|protocol| protocol.check_sparse.is_some()).expect("one can")
}

/// A job of sparse tensors.
fn sparse(options: &mut ConnectOptions, given: &[(&str, &str)]) {
    let given = [given, &[("sparse", "auto")]].concat().into_iter().rev();
    let given: BTreeMap<String, String> = given.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    (options.protocol, options.options) = (protocol(), protocol().options.read(&given).unwrap());
}

/// Some indices of a rank's, and a value at each.
fn elements(rank: u16, size: usize, every: usize) -> (Vec<i64>, Vec<i64>) {
    let indices = (0..size).filter(|index| (index * 31 + usize::from(rank) * 7).is_multiple_of(every));
    indices.map(|index| (index as i64, (index as i64) << rank)).unzip()
}

fn expected(world_size: u16, size: usize, every: usize) -> BTreeMap<u32, i64> {
    let mut sums = BTreeMap::new();
    for (index, value) in
        (0..world_size).map(|rank| elements(rank, size, every)).flat_map(|(i, v)| i.into_iter().zip(v))
    {
        *sums.entry(index as u32).or_insert(0) += value;
    }
    sums
}

fn check(group: &Group, rank: u16, world_size: u16) {
    for (size, every) in [(0, 1), (1, 1), (100_000, 97), (5_000, 1), (65, 2), (1_000_007, 1_009)] {
        let (indices, values) = elements(rank, size, every);
        let (indices, sums) = group.allreduce_sparse(&indices, &values, size, ReduceOp::Sum, PATIENCE).unwrap();
        assert_eq!(
            indices.into_iter().zip(sums).collect::<BTreeMap<_, _>>(),
            expected(world_size, size, every),
            "{size}"
        );
        group.barrier(PATIENCE).unwrap();
    }
}

#[test]
fn sparse_tensors_sum_exactly_with_1_and_3_ranks_in_tables_and_arrays() {
    let switch = LocalSwitch::start(2);
    for (world_size, job) in [(1, "one"), (3, "three")] {
        on_every_rank(
            &switch,
            job,
            world_size,
            |options| sparse(options, &[]),
            |group, rank| check(&group, rank, world_size),
        );
    }
    let tables = |options: &mut ConnectOptions| sparse(options, &[("sparse", "hash"), ("hash_slots", "16")]);
    on_every_rank(&switch, "tables", 3, tables, |group, rank| check(&group, rank, 3));
}

#[test]
fn what_is_not_a_sparse_tensor_is_refused_before_anything_is_sent_and_the_group_goes_on() {
    let switch = LocalSwitch::start(1);
    on_every_rank(
        &switch,
        "refused",
        2,
        |options| sparse(options, &[]),
        |group, rank| {
            let refused = |indices: &[i64]| {
                let error = group.allreduce_sparse(indices, &vec![1.0f32; indices.len()], 10, ReduceOp::Sum, PATIENCE);
                matches!(error, Err(GroupError::Sparse(_)))
            };
            if rank == 0 {
                assert!([&[3i64, 2][..], &[2, 2], &[-1], &[10]].into_iter().all(refused));
                let dense = group.allreduce_in_place(&mut [1i32], ReduceOp::Sum, PATIENCE);
                assert!(matches!(dense, Err(GroupError::Refused(_))));
            }
            let sum = group.allreduce_sparse(&[i64::from(rank)], &[2.5f32], 2, ReduceOp::Sum, PATIENCE).unwrap();
            assert_eq!(sum, (vec![0, 1], vec![2.5, 2.5]));
        },
    );
    on_every_rank(
        &switch,
        "dense",
        1,
        |options| crate::support::speak(options, protocol()),
        |group, _| {
            let refused = group.allreduce_sparse(&[0], &[1i32], 1, ReduceOp::Sum, PATIENCE);
            assert!(matches!(refused, Err(GroupError::Refused(_))));
        },
    );
}
