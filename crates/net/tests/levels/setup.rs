//! Switches below others, ranks on threads, and sums that check themselves.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use tributary_net::client;
use tributary_net::group::{ConnectError, ConnectOptions, Group, GroupError};
use tributary_net::status::JobStatus;
use tributary_net::switch_daemon::{RunningSwitch, SwitchOptions};
use tributary_numeric::{Element, ReduceOp};
use tributary_proto::contract::host::CollectiveError;
use tributary_proto::protocols;

use crate::support::{PATIENCE, connect_options};

/// For what must fail.
pub const BRIEF: Duration = Duration::from_secs(2);

pub fn options(parent: Option<&RunningSwitch>) -> SwitchOptions {
    let any = SwitchOptions::new("127.0.0.1:0".parse().unwrap());
    SwitchOptions { parent: parent.map(RunningSwitch::listen_addr), ..any }
}

pub fn switch(parent: Option<&RunningSwitch>) -> RunningSwitch {
    RunningSwitch::start(&options(parent)).unwrap()
}

pub fn worker(switch: SocketAddr, job: &str, rank: u16, world_size: u16, timeout: Duration) -> ConnectOptions {
    let protocol = protocols::named("switchml").unwrap();
    ConnectOptions { timeout, ..connect_options(switch, protocol, job, rank, world_size) }
}

/// Runs `work` on every rank, each on a thread; `switches[rank]` is the switch that the rank names.
pub fn on_ranks<T: Send>(
    switches: &[Option<&RunningSwitch>],
    job: &str,
    timeout: Duration,
    adjust: impl Fn(&mut ConnectOptions) + Sync,
    work: impl Fn(Result<Group, ConnectError>, u16) -> T + Sync,
) -> Vec<T> {
    thread::scope(|scope| {
        let present = switches.iter().enumerate().filter_map(|(rank, switch)| Some((rank as u16, (*switch)?)));
        let threads = present.map(|(rank, switch)| {
            let (adjust, work) = (&adjust, &work);
            scope.spawn(move || {
                let mut options = worker(switch.listen_addr(), job, rank, switches.len() as u16, timeout);
                adjust(&mut options);
                work(Group::connect(&options), rank)
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().expect("the rank ends well")).collect()
    })
}

/// What rank `rank` brings at place `i`: floats that do not sum exactly.
pub fn float(rank: usize, i: usize) -> f32 {
    ((rank * 7919 + i * 104_729) % 20_011) as f32 / 7.0 - 1_000.0
}

pub fn integer(rank: usize, i: usize) -> i32 {
    (rank as i32 + 1).wrapping_mul(i as i32).wrapping_mul(40_503)
}

pub fn reduce<T: Element>(group: &Group, len: usize, value: impl Fn(usize) -> T) -> Vec<T> {
    let mut data: Vec<T> = (0..len).map(value).collect();
    group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
    data
}

/// All ranks sum floats and integers; checks both.
pub fn check_sums(switches: &[&RunningSwitch], job: &str) {
    const LEN: usize = 100_003;
    let (switches, world_size) = (switches.iter().map(|&switch| Some(switch)).collect::<Vec<_>>(), switches.len());
    let sums = on_ranks(
        &switches,
        job,
        PATIENCE,
        |_| (),
        |group, rank| {
            let (group, rank) = (group.unwrap(), usize::from(rank));
            let floats = reduce(&group, LEN, |i| float(rank, i));
            let integers = reduce(&group, LEN, |i| integer(rank, i));
            (floats.iter().map(|value| value.to_bits()).collect::<Vec<u32>>(), integers)
        },
    );
    let (floats, integers) = &sums[0];
    assert!(sums.iter().all(|sum| sum == &sums[0]), "all ranks have the same bits");
    for i in 0..LEN {
        assert_eq!(integers[i], (0..world_size).fold(0i32, |sum, rank| sum.wrapping_add(integer(rank, i))));
        let exact: f64 = (0..world_size).map(|rank| f64::from(float(rank, i))).sum();
        // Each of the additions between a rank and the result, at most ten here, rounds once.
        let magnitude: f64 = (0..world_size).map(|rank| f64::from(float(rank, i)).abs()).sum();
        let bound = 10.0 * magnitude * f64::from(f32::EPSILON) / 2.0;
        assert!((f64::from(f32::from_bits(floats[i])) - exact).abs() <= bound, "element {i}");
    }
}

pub fn jobs(switch: &RunningSwitch) -> Vec<JobStatus> {
    client::status(switch.listen_addr()).unwrap().jobs
}

/// Waits until the switches hold no memory for any job.
pub fn until_empty(switches: &[&RunningSwitch]) {
    let end = Instant::now() + PATIENCE;
    for switch in switches {
        while client::status(switch.listen_addr()).unwrap().switch.memory_used_bytes > 0 {
            assert!(Instant::now() < end, "slots never came back: {:?}", jobs(switch));
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// All ranks connect, sum once, and, when `act` is done, try to sum again; `silent` does not. The errors by rank.
pub fn in_the_middle(
    switches: &[SocketAddr],
    silent: Option<u16>,
    timeout: Duration,
    act: impl FnOnce(),
) -> Vec<Option<GroupError>> {
    let world_size = switches.len() as u16;
    let (ready, acted) = (Barrier::new(switches.len() + 1), Barrier::new(switches.len() + 1));
    let failing = Barrier::new(switches.len());
    thread::scope(|scope| {
        let (ready, acted, failing) = (&ready, &acted, &failing);
        let rank = |(rank, &addr): (usize, &SocketAddr)| {
            let rank = rank as u16;
            scope.spawn(move || {
                let group = Group::connect(&worker(addr, "middle", rank, world_size, PATIENCE)).unwrap();
                let mut data = vec![1f32; 5_000];
                group.allreduce_in_place(&mut data, ReduceOp::Sum, PATIENCE).unwrap();
                ready.wait();
                acted.wait();
                let failed =
                    (silent != Some(rank)).then(|| group.allreduce_in_place(&mut data, ReduceOp::Sum, timeout));
                // Nobody leaves before all have failed, so that none is told of that instead.
                failing.wait();
                failed.map(Result::unwrap_err)
            })
        };
        let threads: Vec<_> = switches.iter().enumerate().map(rank).collect();
        ready.wait();
        act();
        acted.wait();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

pub fn cause(error: &GroupError) -> &CollectiveError {
    match error {
        GroupError::Failed { cause, .. } => cause,
        other => panic!("{other}"),
    }
}
