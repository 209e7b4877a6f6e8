//! Workers on several cores: each core has a socket, a thread and a share of the slots, and the bits stay the same.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{LocalSwitch, PATIENCE, connect_options, in_flight, on_every_rank};
use tributary_net::client;
use tributary_net::group::{ConnectOptions, Group, GroupError};
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_numeric::ReduceOp;
use tributary_proto::contract::host::CollectiveError;
use tributary_proto::contract::options::Options;
use tributary_proto::contract::protocol::Protocol;
use tributary_proto::protocols;

const RANKS: u16 = 3;
/// No element, fewer blocks than slots, and many times the pool.
const LENGTHS: [usize; 6] = [0, 1, 800, 100_003, 0, 500_001];

/// The protocols whose slots cores divide.
fn able() -> impl Iterator<Item = &'static Protocol> {
    protocols::ALL.iter().copied().filter(|protocol| protocol.divides_slots_by_default())
}

/// Floats of many magnitudes, so that another order of sums would have other bits.
fn input(rank: u16, len: usize) -> Vec<f32> {
    (0..len)
        .map(|at| (at as f32 * 0.37 + f32::from(rank)).sin() * ((at * 7919 + usize::from(rank)) % 1000) as f32)
        .collect()
}

/// The bits of all that a rank gets, and the number of sockets' packets that its switch has rejected.
fn results(group: &Group, rank: u16) -> Vec<Vec<u32>> {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect();
    let mut all: Vec<Vec<u32>> = Vec::new();
    for len in LENGTHS {
        let mut sum = vec![0.0; len];
        group.allreduce(&input(rank, len), &mut sum, ReduceOp::Sum, PATIENCE).unwrap();
        all.push(bits(&sum));
    }
    let (mut chunk, mut whole) = (vec![0.0; 30_001], vec![0.0; 3 * 30_001]);
    group.reduce_scatter(&input(rank, whole.len()), &mut chunk, ReduceOp::Avg, PATIENCE).unwrap();
    group.all_gather(&chunk, &mut whole, PATIENCE).unwrap();
    all.push(bits(&whole));
    // Several under way, in place, which the I/O threads drive.
    let mut data: Vec<Vec<f32>> = [70_001, 5, 40_000].map(|len| input(rank, len)).into();
    let pending: Vec<_> = data.iter_mut().map(|data| in_flight::begin_in_place(group, data)).collect();
    pending.iter().for_each(|one| one.wait(None).unwrap());
    drop(pending);
    all.extend(data.iter().map(|data| bits(data)));
    assert_eq!(group.stats().unwrap().rejected_packets, 0);
    all
}

/// The options of a protocol with which the bits of a sum do not depend on the order of arrival: of floats, in fixed point,
/// and where hosts send blocks in an order of their own.
fn fixed_orders(protocol: &'static Protocol) -> Vec<Options> {
    let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
    let read = |chosen: &[(&str, &str)]| protocol.options.read(&chosen.iter().map(owned).collect()).ok();
    let in_order = ("reproducible", "ranks");
    let floats = read(&[in_order]).unwrap_or_else(|| protocol.options.defaults());
    let more = [read(&[("numbers", "fixed")]), read(&[in_order, ("stagger", "true")])];
    std::iter::once(floats).chain(more.into_iter().flatten()).collect()
}

#[test]
fn the_bits_are_those_of_one_core_on_any_number_of_cores_and_shards() {
    for (protocol, chosen) in
        able().flat_map(|protocol| fixed_orders(protocol).into_iter().map(move |options| (protocol, options)))
    {
        let run = |shards: u16, cores: [u16; 3]| {
            let switch = LocalSwitch::start(shards);
            let adjust = |options: &mut ConnectOptions| {
                (options.protocol, options.options) = (protocol, chosen.clone());
                options.cores = Some(cores[usize::from(options.rank)]);
            };
            on_every_rank(&switch, "bits", RANKS, adjust, |group, rank| results(&group, rank))
        };
        let one = run(1, [1, 1, 1]);
        for (shards, cores) in [(1, [2, 2, 2]), (1, [3, 3, 3]), (2, [2, 2, 2]), (1, [1, 2, 3])] {
            assert!(run(shards, cores) == one, "{protocol} on {cores:?} cores at {shards} shards");
        }
    }
}

#[test]
fn a_pool_of_fewer_slots_than_cores_leaves_cores_idle() {
    let switch = LocalSwitch::start(1);
    let adjust = |options: &mut ConnectOptions| (options.cores, options.slots) = (Some(3), Some(2));
    on_every_rank(&switch, "small pool", 2, adjust, |group, rank| {
        let mut data = vec![i32::from(rank) + 1; 10_000];
        group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
        assert!(data.iter().all(|&sum| sum == 3));
    });
}

#[test]
fn every_core_sends_and_the_control_plane_knows_one_member() {
    let switch = RunningSwitch::start(&SwitchOptions::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let join = |rank| {
        let options = connect_options(switch.listen_addr(), able().next().unwrap(), "two", rank, 2);
        Group::connect(&ConnectOptions { cores: Some(2), ..options }).unwrap()
    };
    let all_seen = AtomicBool::new(false);
    let start = Instant::now();
    thread::scope(|scope| {
        for rank in 0..2 {
            let (join, all_seen) = (&join, &all_seen);
            scope.spawn(move || {
                let group = join(rank);
                let mut data = vec![1i32; 1_000_000];
                group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
                assert!(data.iter().all(|&sum| sum == 2));
                let sent = group.stats().unwrap().core_packets;
                assert!(sent.len() == 2 && sent.iter().all(|&packets| packets > 0), "{sent:?}");
                // The job is there until it has been seen.
                while !all_seen.load(Ordering::Acquire) && start.elapsed() < PATIENCE {
                    thread::sleep(Duration::from_millis(5));
                }
            });
        }
        let status = || client::status(switch.listen_addr()).unwrap();
        let seen = |job: &tributary_net::status::JobStatus| job.members.iter().all(|one| one.last_seen_s_ago.is_some());
        while !status().jobs.first().is_some_and(|job| job.members.len() == 2 && seen(job)) {
            assert!(start.elapsed() < PATIENCE, "the members do not come");
            thread::sleep(Duration::from_millis(5));
        }
        all_seen.store(true, Ordering::Release);
    });
}

#[test]
fn ranks_that_disagree_fail_on_all_cores_and_the_first_cause_stays() {
    let switch = LocalSwitch::start(1);
    let adjust = |options: &mut ConnectOptions| options.cores = Some(2);
    on_every_rank(&switch, "differ", 2, adjust, |group, rank| {
        // Many blocks wait on both cores, and ranks differ in the operator.
        let op = if rank == 0 { ReduceOp::Sum } else { ReduceOp::Max };
        let mut data = vec![1i32; 400_000];
        let error = group.allreduce_in_place(&mut data, op, PATIENCE).unwrap_err();
        assert!(matches!(&error, GroupError::Failed { cause: CollectiveError::Mismatch { .. }, .. }), "{error}");
        let error = group.allreduce_in_place(&mut data, op, PATIENCE).unwrap_err();
        assert!(matches!(&error, GroupError::Broken { cause: CollectiveError::Mismatch { .. }, .. }), "{error}");
    });
}

#[test]
fn what_cores_cannot_divide_is_refused_before_anything_is_sent() {
    let nowhere = "127.0.0.1:9".parse().unwrap();
    let refused = |protocol: &'static Protocol, cores| {
        let options = ConnectOptions { cores: Some(cores), ..connect_options(nowhere, protocol, "any", 0, 1) };
        Group::connect(&options).map(drop).unwrap_err().to_string()
    };
    let able: Vec<&str> = able().map(|protocol| protocol.name).collect();
    for protocol in protocols::ALL.iter().copied().filter(|protocol| !able.contains(&protocol.name)) {
        let sentence = refused(protocol, 2);
        assert!(sentence.contains(&format!("take one core, or {}", able.join(" or "))), "{sentence}");
    }
    let protocol = protocols::named(able[0]).unwrap();
    assert!(refused(protocol, 0).contains("0 cores are not possible; a worker has 1 to 16"));
    assert!(refused(protocol, 17).contains("17 cores are not possible"));
}
